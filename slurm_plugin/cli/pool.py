"""`hetsched pool`: trainings of one user that take turns on GPUs, task by task."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from slurm_plugin.pool.status import PoolStatus, TrainingStatus

STOPPED = 99
"""Exit code of a scheduler that a signal has stopped before its pool's end."""

MOST_WIDE = 160
"""So many characters of a text stand in a line; `--json` has all of them."""

MOST_WIDE_ARGUMENTS = 40


class _Folder(click.Path):
    """A folder with a name: without one, as from a variable that is not set, it would be "."."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return its path."""
        if not str(value):
            self.fail("'' names no folder; expected one such as pool", param, ctx)
        return super().convert(value, param, ctx)


DEFAULT = "hlas-p"
"""The policy of a pool of which none is named."""

_POOL = click.argument("path", metavar="POOL", type=_Folder(path_type=Path, file_okay=False))


@click.group()
def pool() -> None:
    """Run many trainings on a few GPUs by turns: a pool, which is a folder."""


@pool.command()
@_POOL
@click.option(
    "--policy", help="A policy of tasks (default hlas-p, or what a pool that goes on had)."
)
@click.option(
    "--set",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a parameter of the policy.",
)
def create(path: Path, policy: str | None, parameters: tuple[str, ...]) -> None:
    """Make the folder POOL a pool, or have one that has ended go on.

    One that goes on keeps its policy and parameters but for what is named here.

    It has to be on a file system that all of its hosts share. A job starts it: see the template
    pool.sbatch.
    """
    from hetsched_core.cli.options import pairs, usage_errors
    from hetsched_core.policy import make_policy
    from slurm_plugin.pool.creation import create as made
    from slurm_plugin.pool.scheduler import check_policy, with_defaults

    with usage_errors():
        given = pairs("--set", parameters)
    goes_on = (path / "pool.json").exists()
    policy, chosen = _chosen(path, policy, given) if goes_on else (policy or DEFAULT, given)
    check_policy(make_policy(policy, chosen))
    chosen = with_defaults(policy, chosen)
    made(path, policy, chosen)
    told = "".join(f", {name}={value}" for name, value in chosen.items())
    click.echo(f"{path}: {'the pool goes on' if goes_on else 'a pool'} under {policy}{told}")


def _chosen(path: Path, policy: str | None, given: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return the policy under which a pool goes on: its own, unless one is named."""
    from hetsched_core.errors import InputError
    from slurm_plugin.pool.folder import Pool

    if policy is not None:
        return policy, given
    try:
        record = Pool(path).record()
    except InputError as error:
        click.echo(f"hetsched: note: {error}", err=True)
        return DEFAULT, given
    return record.policy, {**record.parameters, **given}


@pool.command()
@_POOL
@click.argument("make", metavar="FILE:FUNCTION")
@click.option("--rounds", type=click.IntRange(1), required=True, help="Until it is done.")
@click.option("--scale", type=click.IntRange(1), default=1, help="Tasks of a round (default 1).")
@click.option("--name", help="Of the training, or of the search (default one that is made up).")
@click.option("--seed", type=int, default=0, help="Of all that is random (default 0).")
@click.option("--weight", type=float, default=1.0, help="How much its end counts (default 1).")
@click.option("--key", default="", help="Trainings of one key have tasks that take equally long.")
@click.option(
    "--set", "arguments", multiple=True, metavar="NAME=VALUE", help="An argument of the function."
)
@click.option(
    "--each",
    "each",
    multiple=True,
    metavar="NAME=VALUE,...",
    help="Search: one training for each of the values; with several of these, for each choice.",
)
def submit(
    path: Path,
    make: str,
    name: str | None,
    arguments: tuple[str, ...],
    each: tuple[str, ...],
    **how: Any,
) -> None:
    """Add a training to POOL: a function that returns a Work, or with --each a group of them.

    A training that is there already, just as it is asked for, stays as it is.
    """
    from slurm_plugin.pool.folder import Pool
    from slurm_plugin.pool.submission import argument, choices_of
    from slurm_plugin.pool.submission import submit as submitted

    if name == "":
        raise click.UsageError("--name '': expected a name; without --name one is made up")
    found = Pool.at(path)
    names, there = submitted(
        *(found, make),
        name=name or "",
        arguments=tuple(argument(text) for text in arguments),
        each=tuple(choices_of(text) for text in each),
        **how,
    )
    for one in names:
        click.echo(one)
    if there:
        click.echo(
            f"hetsched: note: {len(there)} of {len(names)} were there already and stay as they "
            f"are: {_cut(', '.join(there))}",
            err=True,
        )
    if found.stopped:
        click.echo(f"hetsched: note: {_over(path)}", err=True)


def _over(path: Path) -> str:
    return (
        f"{path} has been stopped, and what is submitted waits; once it has ended, "
        f"`hetsched pool create {path}` and the start of its job have it go on"
    )


@pool.command()
@_POOL
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def status(path: Path, as_json: bool) -> None:
    """Print what POOL is doing: trainings, rounds and losses; GPUs, their use and their orders."""
    from slurm_plugin.pool.folder import Pool
    from slurm_plugin.pool.status import status as found

    said = found(Pool.at(path))
    if as_json:
        click.echo(json.dumps(asdict(said)))
    else:
        _print(said, path)


@pool.command()
@_POOL
@click.argument("names", metavar="TRAINING...", nargs=-1, required=True)
def cancel(path: Path, names: tuple[str, ...]) -> None:
    """End trainings of POOL; what they have reached stays in its folder."""
    from slurm_plugin.pool.folder import Pool
    from slurm_plugin.pool.state import cancel as cancelled
    from slurm_plugin.pool.state import check_goes_on

    there = Pool.at(path)
    # None is cancelled where one of them is misspelt.
    for name in names:
        check_goes_on(there, name)
    for name in names:
        cancelled(there, name)


@pool.command()
@_POOL
@click.option("--when-done", is_flag=True, help="Not before all of its trainings have ended.")
def stop(path: Path, when_done: bool) -> None:
    """Have POOL end, once its GPUs are done with their tasks.

    What is not done goes on when the pool is created and started again.
    """
    from slurm_plugin.pool.folder import Pool

    Pool.at(path).stop(when_done)


@pool.command()
@_POOL
def schedule(path: Path) -> None:
    """Run the scheduler of POOL until it ends: its job does so on its first GPU."""
    from hetsched_core.cli.group import say_error
    from hetsched_core.policy import make_policy
    from slurm_plugin.pool import Pool, Scheduler
    from slurm_plugin.pool.lock import only_one
    from slurm_plugin.pool.notes import Notes

    there = Pool.at(path)
    record = there.record()
    policy = make_policy(record.policy, record.parameters)
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, lambda which, _: told.append(which))
    # It asks no step to save.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    with only_one(path, lambda: bool(told) or there.stopped, _note) as held:
        if held:
            Scheduler(there, policy, Notes(path, say_error)).run(lambda: bool(told))
    if not there.stopped:
        raise SystemExit(STOPPED)


def _note(message: str) -> None:
    click.echo(f"hetsched: note: {message}", err=True)


def _print(said: PoolStatus, path: Path) -> None:
    from hetsched_core.cli.table import print_table, printable

    click.echo(f"policy {said.policy}; {_runs(said, path)}")
    for problem in said.problems:
        click.echo(printable(_cut(problem)))
    click.echo()
    telling = _telling(said.trainings)
    print_table(
        ("training", "group", "arguments", "state", "rounds", "loss", "why"),
        [
            (
                *(t.name, t.group, _cut(telling[t.name], MOST_WIDE_ARGUMENTS), t.state),
                *(f"{t.rounds}/{t.of}", _loss(t.loss), _cut(t.why)),
            )
            for t in said.trainings
        ],
    )
    click.echo()
    print_table(
        ("gpu", "type", "tasks", "used", "runs", "next"),
        [
            (
                *(f"{m.node} {m.device}", m.gpu_type, m.tasks, f"{m.used:.0%}", m.runs),
                ", ".join(m.next),
            )
            for m in said.members
        ],
    )


def _runs(said: PoolStatus, path: Path) -> str:
    if said.ended:
        return f"the pool has ended; `hetsched pool create {path}` and its job have it go on"
    if said.stopped:
        return "the pool ends"
    return "the pool is scheduled" if said.scheduled else "the pool is not scheduled now"


def _telling(trainings: Sequence[TrainingStatus]) -> dict[str, str]:
    """Return the arguments of each training, of a search group those in which it differs."""
    values: dict[tuple[str, str], set[str]] = {}
    sizes = Counter(t.group for t in trainings)
    for t in trainings:
        for name, value in t.arguments.items():
            values.setdefault((t.group, name), set()).add(json.dumps(value))
    return {
        t.name: " ".join(
            f"{name}={_value(value)}"
            for name, value in t.arguments.items()
            if not t.group or sizes[t.group] == 1 or len(values[t.group, name]) > 1
        )
        for t in trainings
    }


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value)


def _cut(text: str, most: int = MOST_WIDE) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _loss(loss: float | None) -> str:
    return "" if loss is None else f"{loss:.6g}"
