"""`hetsched shadow report`: what would have changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from hetsched_core.replay.shadow import ShadowReport, Side


@click.group()
def shadow() -> None:
    """Look at what the daemon has seen in shadow mode."""


@shadow.command()
@click.argument("file", type=click.Path(path_type=Path), default="/var/lib/hetsched/daemon.duckdb")
@click.option(
    "--days",
    type=click.FloatRange(min=0.0, min_open=True),
    default=7.0,
    show_default=True,
    help="How far to look back.",
)
@click.option("--policy", default="", metavar="NAME", help="Another policy than the daemon's.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a parameter of it."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def report(file: Path, days: float, policy: str, settings: tuple[str, ...], as_json: bool) -> None:
    """Tell from the daemon's database FILE what its policy would have changed.

    The jobs of the last days as Slurm ran them, beside a replay of the same jobs under the policy.
    FILE may be in use by the daemon.
    """
    import json
    import math
    import time
    from dataclasses import asdict

    from hetsched_core.cli.options import pairs, usage_errors
    from hetsched_core.cli.stores import open_to_read
    from hetsched_core.policy import make_policy
    from hetsched_core.replay.shadow import shadow_report

    if not math.isfinite(days):
        raise click.UsageError(f"--days {days}: expected a number of days")
    if settings and not policy:
        raise click.UsageError("--set is for the policy that --policy names")
    with usage_errors():
        chosen = pairs("--set", settings)
    if policy:
        make_policy(policy, chosen)
    with open_to_read(file) as store:
        found = shadow_report(store, time.time() - days * 86_400.0, policy, chosen)
    if as_json:
        click.echo(json.dumps({"schema": 1, **asdict(found)}, indent=2))
    else:
        _print(found)


def _print(found: ShadowReport) -> None:
    from hetsched_core.cli.table import print_table, printable
    from slurm_plugin.cli.ask import span

    left = f"; {found.left_out} more cannot be compared" if found.left_out else ""
    click.echo(f"{found.jobs} jobs that ran and left{left}")
    names = ("", "mean wait", "median", "p90", "completion", "latency ratio", "max", "restarts")
    print_table(
        names,
        [_row("as it ran", found.before), _row(f"under {found.policy}", found.after)],
    )
    same = found.jobs - found.sooner - found.later
    click.echo(f"{found.sooner} jobs end sooner, {found.later} later, {same} as before")
    click.echo(f"{found.moves} moves: runs stopped for others or for a better place")
    print_table(
        ("user", "jobs", "completion", "would be", "sooner", "later"),
        [
            (u.user, u.jobs, span(u.before_s), span(u.after_s), u.sooner, u.later)
            for u in found.users
        ],
    )
    for each in found.losers:
        click.echo(
            f"loses most: job {each.job} of {printable(each.user)}, {span(each.before_s)} before, "
            f"{span(each.after_s)} after"
        )
    for sentence in found.assumed:
        click.echo(f"assumed: {sentence}")


def _row(label: str, side: Side) -> tuple[str | int, ...]:
    from slurm_plugin.cli.ask import span

    ratios = (side.mean_latency_ratio, side.max_latency_ratio)
    return (
        label,
        span(side.mean_wait_s),
        span(side.median_wait_s),
        span(side.p90_wait_s),
        span(side.mean_completion_s),
        *("" if ratio is None else f"{ratio:.3g}" for ratio in ratios),
        side.restarts,
    )
