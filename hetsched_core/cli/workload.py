"""`hetsched workload`: make workloads of logs and traces or by chance, and show them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hetsched_core.cli.inputs import FILE, LOG, read_options, workload_options
from hetsched_core.cli.options import require_file, usage_errors
from hetsched_core.traces.synthetic.options import SyntheticOptions
from hetsched_core.values.settings import settings_declared
from hetsched_core.values.text import kind_of

if TYPE_CHECKING:
    from hetsched_core.traces.load import Inputs
    from hetsched_core.traces.summary import WorkloadShare
    from hetsched_core.traces.synthetic.jobs import SyntheticWorkload
    from hetsched_core.types import SpeedTable


_Command = TypeVar("_Command", bound=Callable[..., object])


@click.group()
def workload() -> None:
    """Convert logs and traces to workloads, generate workloads, and show them."""


@workload.command()
@click.argument("files", type=LOG, nargs=-1, required=True, metavar="IN...")
@click.argument("out", type=FILE)
@click.option("--list-rejected", is_flag=True, help="Print every line and job that is not used.")
@click.option(
    "--thin",
    type=float,
    metavar="SHARE",
    help="Keep this share of the jobs, drawn by chance (--seed).",
)
@click.option(
    "--load",
    type=float,
    metavar="LOAD",
    help="Move arrivals so that the jobs, at the mean speed of the cluster's GPUs, ask for so many "
    "times what it has; 1 keeps it just busy. Needs --cluster, or what tells the nodes.",
)
@workload_options
def convert(
    files: tuple[Path, ...],
    out: Path,
    list_rejected: bool,
    thin: float | None,
    load: float | None,
    **options: Any,
) -> None:
    """Write what a replay would run as a workload file.

    IN is one or more accounting logs of sacct (text or JSON), published traces (Philly, Helios,
    Acme, PAI, openb, Sia), or a Gavel trace and its throughput table; IN of - is the standard
    input. The workload holds the jobs with everything that was inferred of them. OUT of - is the
    standard output.
    """
    from hetsched_core.traces.load import load_workload, read_inputs
    from hetsched_core.traces.resample import at_load, thinned
    from hetsched_core.traces.workload_file import workload_lines

    to_stdout = str(out) == "-"
    _check_out(out)

    def reject(what: str) -> None:
        if list_rejected:
            click.echo(f"rejected: {what}", err=to_stdout)

    chosen = read_options(**options)
    whole = None if load is None else load_workload(files, *chosen, on_reject=reject)
    inputs = whole or read_inputs(files, *chosen, on_reject=reject)
    if thin is not None:
        inputs = replace(inputs, workload=thinned(inputs.workload, thin, options["seed"]))
    if load is not None and whole is not None:
        moved = at_load(inputs.workload, load, whole.speeds, whole.cluster)
        inputs = replace(inputs, workload=moved)
    _write(workload_lines(inputs.workload), out)
    _say_source(inputs, err=to_stdout)
    click.echo(f"{len(inputs.workload.submissions)} jobs written to {out}", err=to_stdout)


def _synthetic_options(command: _Command) -> _Command:
    """Add an option for each of `SyntheticOptions`."""
    for known in reversed(settings_declared(SyntheticOptions)):
        kind, optional = kind_of(known.hint)
        command = click.option(
            f"--{known.name.replace('_', '-')}",
            type=kind,
            default=None if optional else kind(known.default),
            show_default=not optional,
            help=f"{known.doc}.",
        )(command)
    return command


@workload.command()
@click.argument("out", type=FILE)
@click.option(
    "--cluster", "cluster_file", type=FILE, required=True, help="cluster.toml of the nodes."
)
@_synthetic_options
@click.option(
    "--models",
    metavar="SET",
    help="What jobs compute: log (if not given), hops, hadar, hadare or hare.",
)
@click.option(
    "--throughputs", type=FILE, help="Gavel's JSON of measured speeds: jobs run its models."
)
def generate(
    out: Path,
    cluster_file: Path,
    models: str | None,
    throughputs: Path | None,
    **options: Any,
) -> None:
    """Write a workload that is drawn by chance, with the statistics of a large trace.

    Run times, numbers of GPUs, their shares of the GPU hours and the bursts of arrivals are like
    those of the trace. Jobs are written as they are drawn, so a million need no memory. OUT of -
    is the standard output.
    """
    from hetsched_core.traces.workload_file import head_lines, submission_line

    _check_out(out)
    drawn, own, assumptions = to_draw(cluster_file, models, throughputs, **options)
    lines = chain(head_lines(assumptions, own), map(submission_line, drawn.submissions()))
    _write(lines, out)
    to_stdout = str(out) == "-"
    for assumption in assumptions:
        click.echo(f"assumed: {assumption}", err=to_stdout)
    days = drawn.span_s / 86_400
    click.echo(f"{options['jobs']} jobs in {days:.1f} days written to {out}", err=to_stdout)


def to_draw(
    cluster_file: Path, models: str | None, throughputs: Path | None, **options: Any
) -> tuple[SyntheticWorkload, Mapping[str, SpeedTable], tuple[str, ...]]:
    """Return what `generate` draws under its options, tables of its own and what is assumed.

    Raises:
        click.UsageError: an option is wrong.
        InputError: a file is, or the options cannot be met together.
    """
    from hetsched_core.errors import unknown
    from hetsched_core.throughput import ProfileSet, assumed_of, builtin_tables, profile_set
    from hetsched_core.traces.cluster_file import read_cluster
    from hetsched_core.traces.gavel import read_measured
    from hetsched_core.traces.synthetic.jobs import SyntheticWorkload
    from hetsched_core.traces.synthetic.statistics import statistics_like

    if models and throughputs:
        raise click.UsageError("give --models or --throughputs, which has models of its own")
    with usage_errors():
        if models and models not in list(ProfileSet):
            raise unknown("set of models", models, ProfileSet)
        chosen = SyntheticOptions(**options)
        statistics_like(chosen.like)
    require_file("--cluster", cluster_file, "cluster.md")
    require_file("--throughputs", throughputs, "gavel.md")
    cluster = read_cluster(cluster_file).cluster
    own: Mapping[str, SpeedTable] = {}
    if throughputs:
        measured = read_measured(throughputs, cluster.gpu_types)
        drawn = SyntheticWorkload.of(chosen, cluster, measured.models, measured.tables)
        own = measured.tables if chosen.task_s is None else drawn.tables
        return drawn, own, (*drawn.assumptions, *measured.assumptions)
    tables = builtin_tables(cluster.gpu_types, cluster.gpus)
    profiles = profile_set(ProfileSet(models or ProfileSet.LOG))
    drawn = SyntheticWorkload.of(chosen, cluster, profiles, tables)
    if chosen.task_s is not None:
        # The built-in speeds tell no times of tasks.
        own = drawn.tables
    return drawn, own, (*drawn.assumptions, *assumed_of(cluster.gpu_types))


@workload.command()
@click.argument("files", type=LOG, nargs=-1, required=True, metavar="FILE...")
@workload_options
def show(files: tuple[Path, ...], **options: Any) -> None:
    """Print how many jobs a workload has, of what size, and the load on a cluster.

    FILE is a workload, one or more accounting logs or published traces, or a Gavel trace and its
    throughput table; - is the standard input.
    GPU hours and run times are those of jobs that run alone on their fastest GPU type.
    """
    from hetsched_core.traces.load import load_workload
    from hetsched_core.traces.summary import PERCENTILES, summarise

    loaded = load_workload(files, *read_options(**options))
    summary = summarise(loaded.workload, loaded.speeds, loaded.cluster)
    _say_source(loaded)
    span_h = (summary.last_s - summary.first_s) / 3600
    click.echo(
        f"{summary.jobs} jobs, arriving over {span_h:.1f} h; "
        f"{summary.gpu_hours:.1f} GPU hours on their fastest GPU types"
    )
    if summary.misfits:
        click.echo(f"{len(summary.misfits)} jobs fit nowhere: {_first(summary.misfits)}")
    if summary.run_s:
        times = zip(PERCENTILES, summary.run_s, strict=True)
        shown = ", ".join(f"p{p} {_duration(s)}" for p, s in times)
        click.echo(f"run time: {shown}, mean {_duration(summary.mean_run_s)}")
    types = ", ".join(f"{n} {t}" for t, n in loaded.cluster.gpus_by_type().items())
    if summary.load is None:
        load_text = "all jobs arrive at once"
    else:
        load_text = (
            f"load {summary.load:.2f} ({summary.mean_load:.2f} at the mean speed of its GPUs), "
            f"variation of arrivals (CV) {summary.arrival_cv:.2f}"
        )
    click.echo(f"{loaded.cluster.name}: {loaded.cluster.gpus} GPUs ({types}): {load_text}")
    for title, shares in (("GPUS", summary.by_gpus), ("PROFILE", summary.by_profile)):
        click.echo()
        _table(title, shares, summary.gpu_hours)


def _write(lines: Iterable[str], out: Path) -> None:
    """Write lines to a file, or to the standard output where it is called -."""
    from hetsched_core.records.files import replacing

    whole = (f"{line}\n" for line in lines)
    if str(out) == "-":
        sys.stdout.writelines(whole)
    else:
        with replacing(out) as file:
            file.writelines(whole)


def _check_out(out: Path) -> None:
    """Refuse to replace what is no workload: an input, where the name of the output is missing."""
    from hetsched_core.errors import InputError
    from hetsched_core.traces.load import FileKind, recognise

    if out.is_file():
        with out.open("rb") as file:
            if recognise(file, str(out)) is not FileKind.WORKLOAD:
                raise InputError(f"{out} exists and is no workload; name a new file for OUT")


def _say_source(inputs: Inputs, *, err: bool = False) -> None:
    """Say what became of the input, and what was assumed about it."""
    for report in inputs.reports:
        click.echo(str(report), err=err)
    for reason, count in inputs.workload.rejections():
        click.echo(f"{count} jobs rejected: {reason}", err=err)
    for assumption in inputs.workload.assumptions:
        click.echo(f"assumed: {assumption}", err=err)


def _table(title: str, shares: Iterable[WorkloadShare], gpu_hours: float) -> None:
    shares = tuple(shares)
    width = max(len(title), *(len(share.label) for share in shares)) if shares else len(title)
    click.echo(f"{title:<{width}}  {'JOBS':>7}  {'GPU_HOURS':>10}  {'SHARE':>6}")
    for share in shares:
        part = share.gpu_hours / gpu_hours if gpu_hours else 0.0
        click.echo(
            f"{share.label:<{width}}  {share.jobs:>7}  {share.gpu_hours:>10.1f}  {part:>6.1%}"
        )


def _first(names: tuple[str, ...], most: int = 5) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def _duration(seconds: float) -> str:
    """Return seconds as Slurm prints durations: `D-HH:MM:SS`, or `HH:MM:SS`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    clock = f"{hour:02}:{minute:02}:{second:02}"
    return f"{days}-{clock}" if days else clock
