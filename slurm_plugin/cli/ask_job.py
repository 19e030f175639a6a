"""`hetsched when`, `history` and `plan`: questions about one job to the running daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hetsched_core.cli.table import moment, print_table, printable
from slurm_plugin.cli.ask import json_option, short, socket_option, span, tell


@click.command()
@click.argument("job")
@socket_option
@json_option
def when(job: str, path: Path, as_json: bool) -> None:
    """Print a range for the start of JOB, and how good such ranges have been.

    About one start in six lies outside its range.
    """
    tell(path, as_json, _print_when, "when", job=job)


@click.command()
@click.argument("job")
@socket_option
@json_option
def history(job: str, path: Path, as_json: bool) -> None:
    """Print what happened to JOB: its runs and placements, and why it waited, over time."""
    tell(path, as_json, _print_history, "history", job=job)


@click.command()
@click.option("--explain", "job", metavar="JOB", required=True, help="The job to explain.")
@socket_option
@json_option
def plan(job: str, path: Path, as_json: bool) -> None:
    """Print what decides about a job in the plan in force, and the options it has."""
    tell(path, as_json, _print_plan, "explain", job=job)


def _print_when(said: dict[str, Any]) -> None:
    given = said["range"]
    if given is None:
        click.echo(f"job {said['job']}: no range: {printable(said['why_none'])}")
    else:
        low_s, high_s, now = given["low_s"], given["high_s"], said["at_s"]
        click.echo(
            f"job {said['job']}: starts between {moment(low_s)} and {moment(high_s)}, "
            f"in {span(low_s - now)} to {span(high_s - now)}"
        )
        click.echo(f"  from {given['futures']} futures, as things stood {moment(given['made_s'])}")
    if said["reserved_s"] is not None:
        click.echo(f"  the plan reserves GPUs for it from {moment(said['reserved_s'])} on")
    past = said["past"]
    if past is None:
        click.echo("  no range has met its start yet")
        return
    click.echo(
        f"  of the last {past['ranges']} ranges {past['inside']:.0%} held; median width "
        f"{span(past['median_width_s'])}, median wait {span(past['median_wait_s'])}"
    )


def _print_history(said: dict[str, Any]) -> None:
    for job in said["jobs"]:
        name = short(job["name"]) or "-"
        click.echo(
            f"job {said['job']} ({name}) of {printable(job['user'])} in {job['partition']}, "
            f"{job['gpus']} GPUs, {job['restarts']} restarts"
        )
        print_table(
            ("at_s", "decision", "event", "detail"),
            [(e["at_s"], e["decision"], e["event"], e["detail"]) for e in job["events"]],
        )
        for given in job["ranges"]:
            start_s = given["start_s"]
            became = "" if start_s is None else f"; it started {moment(start_s)}"
            click.echo(
                f"  told {moment(given['at_s'])}: starts between {moment(given['low_s'])} and "
                f"{moment(given['high_s'])}{became}"
            )


def _print_plan(said: dict[str, Any]) -> None:
    chosen = "+".join(f"{node}:{gpus}" for node, gpus in (said["chosen"] or {}).items())
    click.echo(
        f"job {said['job']} in decision {said['decision']} of {said['policy']}: {chosen or 'waits'}"
    )
    click.echo(f"  {printable(said['decided_by'])}")
    ratio = said["latency_ratio"]
    click.echo(
        f"  waited {span(said['waited_s'])}"
        + ("" if ratio is None else f", {ratio:.3g} times its expected run time")
        + f"; has had {said['service_gpu_s'] / 3600:.3g} GPU hours; "
        f"{said['submitted_before']} of {said['waiting']} waiting jobs came before it"
    )
    if said["gap"] is not None and said["method"]:
        click.echo(f"  found by {said['method']}, proven within {said['gap']:.2%} of the best plan")
    for node_class, price in said["prices"].items():
        click.echo(f"  price of a GPU, {printable(node_class)}: {price:.4g}")
    names = ("gpus", "gpu_type", "samples/s", "estimate", "price", "verdict", "where")
    keys = ("gpus", "gpu_type", "speed", "layer", "price", "verdict", "where")
    if said["options"]:
        rows = [["" if o[key] is None else o[key] for key in keys] for o in said["options"]]
        print_table(names, rows)
