"""`hetsched doctor`: what an admin would otherwise find out from failures."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import click

_USUAL = Path("/etc/hetsched/hetschedd.toml")


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), default=_USUAL)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(file: Path, as_json: bool) -> int:
    """Look for what would keep a daemon with the configuration FILE from its work.

    One line for each thing: ok, beware or wrong, the value seen, and what to do. FILE is
    /etc/hetsched/hetschedd.toml if not given. Nothing is changed. Ask as root, or as the daemon's
    user, on the daemon's host; a second time on slurmctld's, if that is another one.

    The exit code is 0 where nothing is wrong, else 1.
    """
    from slurm_plugin.daemon.finding import Verdict
    from slurm_plugin.doctor.examine import examine

    found = []
    for each in examine(file, time.time):
        found.append(each)
        if not as_json:
            click.echo(f"{each.verdict:<6}  {each.about:<21}  {' '.join(str(each).split())}")
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(each) for each in found], indent=2))
    return int(any(each.verdict is Verdict.WRONG for each in found))
