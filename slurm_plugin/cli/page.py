"""`hetsched page`: the running system as a page for browsers, in a file or served."""

from __future__ import annotations

import time
from pathlib import Path

import click

from hetsched_core.cli.options import Seconds
from slurm_plugin.cli.ask import socket_option


@click.command()
@click.option(
    "--out",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the page into FILE, whole or not at all.",
    metavar="FILE",
)
@click.option(
    "--serve",
    "address",
    metavar="HOST:PORT",
    help="Serve the page there until interrupted, for example on 127.0.0.1:9755.",
)
@click.option(
    "--every",
    "every_s",
    type=Seconds(5.0, 86_400.0),
    metavar="SECONDS",
    help="With --out, write it again so often until interrupted; with --serve, how old it may "
    "be (60 by default). A browser asks for a new one as often.",
)
@click.option(
    "--tz",
    default="UTC",
    show_default=True,
    metavar="ZONE",
    help="The time zone that times are shown in, such as Europe/Oslo.",
)
@socket_option
def page(
    file: Path | None, address: str | None, every_s: float | None, tz: str, path: Path
) -> None:
    """Show the running system on a page: GPUs, nodes and jobs now, and over the last day.

    The page is one file that loads nothing and runs no script. It shows what every user may see,
    whoever makes it.
    """
    from hetsched_core.cli.options import usage_errors
    from hetsched_core.cli.replay_report import require_report
    from hetsched_core.errors import InputError
    from hetsched_core.traces.sacct import parse_zone

    if (file is None) == (address is None):
        raise click.UsageError("name either a file (--out FILE) or an address (--serve HOST:PORT)")
    require_report("the page")
    from slurm_plugin.api.address import host_and_port
    from slurm_plugin.api.page_maker import PageMaker, serve_page, write_page

    with usage_errors():
        zone = parse_zone(tz)
        if address is not None and host_and_port(address) is None:
            raise InputError(f"--serve {address}: expected HOST:PORT, such as 127.0.0.1:9755")
    if address is not None:
        maker = PageMaker(path, zone, every_s or 60.0)
        serve_page(address, maker, lambda where: click.echo(f"http://{where}/", err=True))
        return
    assert file is not None
    if every_s is None:
        write_page(PageMaker(path, zone, 0.0).fresh(), file)
    else:
        maker = PageMaker(path, zone, every_s)
        while True:
            write_page(maker.page(), file)
            time.sleep(every_s)
