"""`hetsched pool`: trainings of one user that take turns on GPUs, task by task."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from slurm_plugin.pool.status import PoolStatus

STOPPED = 99
"""Exit code of a scheduler that a signal has stopped before its pool's end."""

_POOL = click.argument("path", metavar="POOL", type=click.Path(path_type=Path, file_okay=False))


@click.group()
def pool() -> None:
    """Run many trainings on a few GPUs by turns: a pool, which is a folder."""


@pool.command()
@_POOL
@click.option("--policy", default="hlas-p", show_default=True, help="A policy of tasks.")
@click.option(
    "--set",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a parameter of the policy.",
)
def create(path: Path, policy: str, parameters: tuple[str, ...]) -> None:
    """Make the folder POOL a pool, or have one that has ended go on under this policy.

    It has to be on a file system that all of its hosts share. A job starts it: see the template
    pool.sbatch.
    """
    from hetsched_core.policy import make_policy
    from slurm_plugin.pool.folder import create as made
    from slurm_plugin.pool.scheduler import check_policy, with_defaults

    pairs = [text.partition("=") for text in parameters]
    wrong = next((name for name, equals, _ in pairs if not equals), None)
    if wrong is not None:
        raise click.UsageError(f"--set {wrong}: expected NAME=VALUE")
    chosen = {name: value for name, _, value in pairs}
    check_policy(make_policy(policy, chosen))
    chosen = with_defaults(policy, chosen)
    goes_on = (path / "pool.json").exists()
    made(path, policy, chosen)
    told = "".join(f", {name}={value}" for name, value in chosen.items())
    click.echo(f"{path}: {'the pool goes on' if goes_on else 'a pool'} under {policy}{told}")


@pool.command()
@_POOL
@click.argument("make", metavar="FILE:FUNCTION")
@click.option("--rounds", type=click.IntRange(1), required=True, help="Until it is done.")
@click.option("--scale", type=click.IntRange(1), default=1, help="Tasks of a round (default 1).")
@click.option("--name", default="", help="Of the training, or of the search.")
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
    path: Path, make: str, arguments: tuple[str, ...], each: tuple[str, ...], **how: Any
) -> None:
    """Add a training to POOL: a function that returns a Work, or with --each a group of them."""
    from slurm_plugin.pool.folder import Pool
    from slurm_plugin.pool.submission import Asked, argument, choices_of
    from slurm_plugin.pool.submission import submit as submitted

    asked = Asked(
        make,
        arguments=tuple(argument(text) for text in arguments),
        each=tuple(choices_of(text) for text in each),
        **how,
    )
    for name in submitted(Pool.at(path), asked):
        click.echo(name)


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
        _print(said)


@pool.command()
@_POOL
@click.argument("names", metavar="TRAINING...", nargs=-1, required=True)
def cancel(path: Path, names: tuple[str, ...]) -> None:
    """End trainings of POOL; what they have reached stays in its folder."""
    from slurm_plugin.pool.folder import Pool
    from slurm_plugin.pool.state import cancel as cancelled

    there = Pool.at(path)
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

    there = Pool.at(path)
    record = there.record()
    policy = make_policy(record.policy, record.parameters)
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, lambda which, _: told.append(which))
    # It asks no step to save.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    with only_one(path, lambda: bool(told) or there.stopped, say_error) as held:
        if held:
            Scheduler(there, policy, say_error).run(lambda: bool(told))
    if not there.stopped:
        raise SystemExit(STOPPED)


def _print(said: PoolStatus) -> None:
    from hetsched_core.cli.table import print_table

    runs = "ends" if said.stopped else "is scheduled" if said.scheduled else "is not scheduled now"
    click.echo(f"policy {said.policy}; the pool {runs}")
    for problem in said.problems:
        click.echo(problem)
    click.echo()
    print_table(
        ("training", "group", "state", "rounds", "loss", "why"),
        [
            (t.name, t.group, t.state, f"{t.rounds}/{t.of}", _loss(t.loss), t.why)
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


def _loss(loss: float | None) -> str:
    return "" if loss is None else f"{loss:.6g}"
