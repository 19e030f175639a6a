"""`hetsched sweep`: many replays, resumable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from hetsched_core.sweep.file import Sweep, SweepWorkload
    from hetsched_core.sweep.local import Runner
    from hetsched_core.sweep.runs import SweepRun

_NOT_VARIED = ("logs", "names", "parameters", "json_file", "run_logs", "report_folder", "rejects")
"""Parameters of the command `replay` that the sweep itself gives."""

_SHOWN = 5

RUNNERS = "hetsched.runners"
"""The entry-point group in which a package names what can carry out the runs of a sweep."""


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--out",
    "folder",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder of the results; a sweep that was interrupted goes on with what is there.",
)
@click.option(
    "--at-once",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="How many replays run at a time.",
)
@click.option(
    "--on",
    "where",
    default="local",
    show_default=True,
    metavar="RUNNER",
    help="What carries the replays out: local (processes), or slurm (a job array).",
)
@click.option(
    "--submit",
    "submit",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the runner; of slurm: partition, account, qos, time (minutes), mem_mb.",
)
@click.option("--dry-run", is_flag=True, help="Print the commands that are still to run.")
def sweep(
    file: Path, folder: Path, at_once: int, where: str, submit: tuple[str, ...], dry_run: bool
) -> None:
    """Run every policy of FILE on every workload, under all parameters, options and seeds.

    FILE is described in docs/formats/sweep.md. The folder gets a result file for each run, all of
    them as results.parquet, and sweep.html with means and intervals over the seeds.

    Exit codes: 0 all runs are done, 1 some failed (say which), 2 wrong usage.
    """
    from hetsched_core.errors import HetschedError, InputError
    from hetsched_core.sweep.file import read_sweep
    from hetsched_core.sweep.results import groups, read_done, write_page, write_parquet
    from hetsched_core.sweep.runs import runs_of

    every = read_sweep(file, replay_options(), generate_options())
    try:
        wanted = _usable(every)
        _check(wanted)
    except InputError as wrong:
        raise InputError(f"{file}: {wrong}") from None
    if folder.exists() and not folder.is_dir():
        raise click.UsageError(f"--out {folder} is a file; give a folder, which is made if missing")
    folder = folder.absolute()
    runner = _runner(where, folder, at_once, submit)
    runs = list(runs_of(wanted, folder))
    if not dry_run:
        runner.settle(lambda text: click.echo(text, err=True))
    todo = [run for run in runs if read_done(run) is None]
    click.echo(f"{len(runs)} runs, {len(runs) - len(todo)} of them done", err=True)
    if dry_run:
        for run in todo:
            click.echo(f"hetsched replay {' '.join(run.replay_arguments())}")
        return
    for name in ("runs", "workloads"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    failed = _carry_out(runner, todo)
    results = [done for run in runs if (done := read_done(run)) is not None]
    if results:
        write_parquet(results, folder / "results.parquet")
        write_page(
            file.stem,
            groups(results, wanted.varied),
            len(runs),
            len(results),
            folder / "sweep.html",
        )
        click.echo(f"{folder / 'sweep.html'}: {len(results)} of {len(runs)} runs", err=True)
    if failed:
        for run, error in failed[:_SHOWN]:
            click.echo(f"  {run.workload.name}, {run.contender.label}, seed {run.seed}: {error}")
        raise HetschedError(
            f"{len(failed)} of {len(runs)} runs failed; the same command tries them again"
        )
    if len(wanted.contenders) < len(every.contenders):
        click.get_current_context().exit(1)


def _usable(wanted: Sweep) -> Sweep:
    """Return the sweep with policies by their names, and without those that cannot be loaded.

    The latter are told.

    Raises:
        InputError: there is no such policy, or two are of one name.
    """
    from dataclasses import replace

    from hetsched_core.cli.policies import usable
    from hetsched_core.policy import find_policy
    from hetsched_core.sweep.file import check_labels

    loaded = usable(dict.fromkeys(each.source for each in wanted.contenders), find_policy)
    named = tuple(
        replace(each, policy=loaded[each.source][0])
        for each in wanted.contenders
        if each.source in loaded
    )
    check_labels(named)
    return replace(wanted, contenders=named)


def _check(wanted: Sweep) -> None:
    """Refuse workloads, policies, parameters and options that no run could have.

    Raises:
        InputError: which one, and why.
    """
    from hetsched_core.cli.replay import replay
    from hetsched_core.errors import InputError
    from hetsched_core.policy import find_policy, policy_of
    from hetsched_core.values.text import to_text

    for workload in wanted.workloads:
        _check_generated(workload)
    for contender in wanted.contenders:
        parameters = {key: to_text(value) for key, value in contender.parameters.items()}
        name, cls = find_policy(contender.source)
        policy_of(cls, name, parameters)
    takes = _options_of(replay)
    context = click.Context(replay)
    where = [("options", given) for given in wanted.options]
    where += [(f"workload {each.name!r}", each.options) for each in wanted.workloads]
    for place, given in where:
        for key, value in given.items():
            try:
                takes[key].type_cast_value(context, to_text(value))
            except click.BadParameter as error:
                raise InputError(f"{place}: {key} = {value!r}: {error.message}") from None


def _check_generated(workload: SweepWorkload) -> None:
    """Refuse a workload that cannot be drawn."""
    from hetsched_core.cli.workload import generate, to_draw
    from hetsched_core.errors import InputError
    from hetsched_core.sweep.runs import generate_arguments

    if not workload.generated:
        return
    try:
        given = generate_arguments(workload, workload.seeds[0])
        chosen = generate.make_context("generate", [*given, "-"]).params
        to_draw(**{name: value for name, value in chosen.items() if name != "out"})
    except (click.UsageError, InputError) as error:
        said = error.format_message() if isinstance(error, click.UsageError) else str(error)
        raise InputError(f"workload {workload.name!r}: generate: {said}") from None


def _runner(where: str, folder: Path, at_once: int, submit: Sequence[str]) -> Runner:
    """Return what carries the runs out; packages name theirs as they name commands."""
    from importlib.metadata import entry_points

    from hetsched_core.cli.options import pairs
    from hetsched_core.errors import unknown

    found = {point.name: point for point in entry_points(group=RUNNERS)}
    if where not in found:
        raise unknown("runner", where, found)
    given = pairs("--submit", submit, "NAME=VALUE, such as partition=cpu")
    runner: Runner = found[where].load()(folder, at_once, given)
    return runner


def _carry_out(runner: Runner, todo: Sequence[SweepRun]) -> list[tuple[SweepRun, str]]:
    """Generate the workloads that are missing, then replay; return what failed and why."""
    from hetsched_core.cli.progress import progress

    generate = {
        run.generated: ("workload", "generate", *run.generate_arguments())
        for run in todo
        if run.workload.generated and not run.generated.is_file()
    }
    commands = list(generate.values())
    broken: dict[Path, str] = {}
    for ended in runner.run(commands):
        if ended.error:
            broken[list(generate)[ended.at]] = ended.error
    failed = [(run, broken[run.generated]) for run in todo if run.generated in broken]
    ready = [run for run in todo if run.generated not in broken]
    with progress("runs", len(ready)) as advance:
        for ended in runner.run([("replay", *run.replay_arguments()) for run in ready]):
            advance()
            if ended.error:
                failed.append((ready[ended.at], ended.error))
    return failed


def replay_options() -> set[str]:
    """Return the options of `hetsched replay` that a sweep may give, with underscores."""
    from hetsched_core.cli.replay import replay

    return set(_options_of(replay, *_NOT_VARIED, "seed", "seeds"))


def generate_options() -> set[str]:
    """Return the options of `hetsched workload generate` that a sweep may give."""
    from hetsched_core.cli.workload import generate

    return set(_options_of(generate, "out", "cluster_file", "seed"))


def _options_of(command: click.Command, *without: str) -> dict[str, click.Parameter]:
    """Return the options of a command but those of some parameters, with underscores."""
    return {
        option.lstrip("-").replace("-", "_"): parameter
        for parameter in command.params
        if parameter.name not in without
        for option in parameter.opts
        if option.startswith("--")
    }
