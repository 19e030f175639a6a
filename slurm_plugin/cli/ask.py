"""`hetsched status`, `queue`, `nodes` and `why`: questions to the running daemon."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from hetsched_core.cli.table import moment, print_table, printable
from slurm_plugin.api.client import DEFAULT_SOCKET, ask

socket_option = click.option(
    "--socket",
    "path",
    type=click.Path(path_type=Path),
    envvar="HETSCHED_SOCKET",
    default=Path(DEFAULT_SOCKET),
    show_default=True,
    help="Where the daemon answers: a socket, or HOST:PORT, its setting `listen`.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")


OLD_S = 10.0
"""From which age on it is said how old an answer is."""

_LONGEST = 32

_MEANINGS = {
    # The reservation that holds the nodes is what Slurm names of all that wait for a place.
    "ReqNodeNotAvail": ", as of all that wait for a place",
    "BeginTime": ", as of all that it has just queued again",
}
"""What Slurm's word for a waiting job means here, where that is not what it means elsewhere."""

_WHERE = "nodelist(reason)"


@click.command()
@socket_option
@json_option
def status(path: Path, as_json: bool) -> None:
    """Print what the daemon is doing, and how many GPUs of each type are in use."""
    tell(path, as_json, _print_status, "status")


@click.command()
@socket_option
@json_option
def queue(path: Path, as_json: bool) -> None:
    """Print the managed jobs, with squeue's letters, and PL for what Slurm has yet to start."""
    tell(path, as_json, _print_queue, "queue")


@click.command()
@socket_option
@json_option
def nodes(path: Path, as_json: bool) -> None:
    """Print the nodes and what is in use on them."""
    tell(path, as_json, _print_nodes, "nodes")


@click.command()
@click.argument("job")
@socket_option
@json_option
def why(job: str, path: Path, as_json: bool) -> None:
    """Print why JOB waits, and what change to it would help."""
    tell(path, as_json, _print_why, "why", job=job)


def tell(
    path: Path,
    as_json: bool,
    print_: Callable[[dict[str, Any]], None],
    question: str,
    **about: str,
) -> None:
    """Ask the daemon at `path` a question, and print the answer, as JSON or by `print_`."""
    # An answer may take a while, of which the daemon has not been idle.
    asked_s = time.time()
    said = ask(path, question, **about)
    if as_json:
        click.echo(json.dumps(said, indent=2))
        return
    if said["away"]:
        click.echo(
            f"Slurm does not answer ({printable(said['away'])}); this is what was seen last",
            err=True,
        )
    elif (age_s := asked_s - said["at_s"]) >= OLD_S:
        click.echo(f"as seen {age_s:.0f} s ago; the daemon has not looked since", err=True)
    print_(said)


def span(seconds: float) -> str:
    """Return a time as squeue does: [[days-]hours:]minutes:seconds."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{rest:02d}"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def short(text: str) -> str:
    """Cut what somebody has typed to what leaves room beside it; JSON has all of it."""
    text = printable(text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _print_status(said: dict[str, Any]) -> None:
    jobs = ", ".join(f"{count} {phase}" for phase, count in said["jobs"].items()) or "none"
    click.echo(f"policy {said['policy']}, {said['mode']} mode, {said['decisions']} decisions")
    click.echo(f"jobs: {jobs}")
    names = ("gpu_type", "all", "held", "foreign", "closed", "idle")
    print_table(names, [(kind, *(use[n] for n in names[1:])) for kind, use in said["gpus"].items()])


def _print_queue(said: dict[str, Any]) -> None:
    """Print squeue's own columns, and the GPU counts that each job accepts."""
    names = ("jobid", "partition", "name", "user", "st", "time", "gpus", "nodes", _WHERE)
    rows = [
        (
            row["job"],
            row["partition"],
            short(row["name"]),
            short(row["user"]),
            row["state"],
            span(row["ran_s"]),
            row["gpus"],
            len(row["nodes"] or {}),
            "+".join(f"{node}:{gpus}" for node, gpus in (row["nodes"] or {}).items())
            or f"({row['reason'] or 'None'})",
        )
        for row in said["jobs"]
    ]
    print_table(names, rows)


def _print_nodes(said: dict[str, Any]) -> None:
    names = ("node", "gpu_type", "condition", "all", "held", "foreign", "closed", "idle")
    for row in said["nodes"]:
        row["condition"] += row["why"] and f": {row['why']}"
    print_table(names, [tuple(row[name] for name in names) for row in said["nodes"]])


def _print_why(said: dict[str, Any]) -> None:
    holds = "+".join(f"{node}:{gpus}" for node, gpus in (said["holds"] or {}).items())
    where = "on" if said["state"] not in ("PD", "PL") else "to start on"
    until_s = said["measured_until_s"]
    measured = ", to be measured" if said["measured"] else ""
    measured += "" if until_s is None else f", until {moment(until_s)} at the latest"
    click.echo(f"job {said['job']}: {said['state']}{holds and f' {where} {holds}'}{measured}")
    if said["mode"] == "shadow" and said["state"] == "PD":
        click.echo("  in shadow mode Slurm starts it; what follows is the plan's word alone")
    if said["slurm"]:
        found = (means for word, means in _MEANINGS.items() if said["slurm"].startswith(word))
        own = any(reason["code"] == "begin" for reason in said["reasons"])
        meaning = next(found, "") if said["state"] == "PD" and not own else ""
        click.echo(f"  Slurm says {printable(said['slurm'])}{meaning}")
    for reason in said["reasons"]:
        click.echo(f"  {printable(reason['sentence'])}")
    if said["reserved"]:
        click.echo(f"  reserved: {'+'.join(said['reserved']['nodes'])}")
    for remedy in said["would_help"]:
        click.echo(f"  {remedy}")
