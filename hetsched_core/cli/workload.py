"""`hetsched workload`: turn logs and traces into workloads, and show what they ask for."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hetsched_core.cli.inputs import FILE, read_options, workload_options

if TYPE_CHECKING:
    from hetsched_core.traces.load import Inputs
    from hetsched_core.traces.summary import Share


@click.group()
def workload() -> None:
    """Convert logs and traces to workloads, and show them."""


@workload.command()
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="IN...")
@click.argument("out", type=FILE)
@click.option("--list-rejected", is_flag=True, help="Print every line and job that is not used.")
@workload_options
def convert(files: tuple[Path, ...], out: Path, list_rejected: bool, **options: Any) -> None:
    """Write what a replay would run as a workload file.

    IN is one or more accounting logs of sacct (text or JSON), or a Gavel trace and its throughput
    table. The workload holds the jobs with everything that was inferred of them. OUT of - is the
    standard output.
    """
    from hetsched_core.files import replacing
    from hetsched_core.traces.load import read_inputs
    from hetsched_core.traces.workload_file import workload_lines

    to_stdout = str(out) == "-"
    if not to_stdout:
        _check_out(out)
    inputs = read_inputs(files, *read_options(**options))
    lines = (f"{line}\n" for line in workload_lines(inputs.workload))
    if to_stdout:
        sys.stdout.writelines(lines)
    else:
        with replacing(out) as file:
            file.writelines(lines)
    _say_source(inputs, err=to_stdout)
    if list_rejected:
        for reject in inputs.rejects():
            click.echo(f"rejected: {reject}", err=to_stdout)
    click.echo(f"{len(inputs.workload.submissions)} jobs written to {out}", err=to_stdout)


@workload.command()
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="FILE...")
@workload_options
def show(files: tuple[Path, ...], **options: Any) -> None:
    """Print how many jobs a workload has, of what size, and the load on a cluster.

    FILE is a workload, one or more accounting logs, or a Gavel trace and its throughput table.
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
        click.echo("run time: " + ", ".join(f"p{p} {_duration(s)}" for p, s in times))
    types = ", ".join(f"{n} {t}" for t, n in loaded.cluster.gpus_by_type().items())
    load_text = "all jobs arrive at once" if summary.load is None else f"load {summary.load:.2f}"
    click.echo(f"{loaded.cluster.name}: {loaded.cluster.gpus} GPUs ({types}): {load_text}")
    for title, shares in (("GPUS", summary.by_gpus), ("PROFILE", summary.by_profile)):
        click.echo()
        _table(title, shares, summary.gpu_hours)


def _check_out(out: Path) -> None:
    """Refuse to replace what is no workload: an input, where the name of the output is missing."""
    from hetsched_core.errors import InputError
    from hetsched_core.traces.load import Kind, recognise

    if out.is_file():
        with out.open("rb") as file:
            if recognise(file, str(out)) is not Kind.WORKLOAD:
                raise InputError(f"{out} exists and is no workload; name a new file, after IN...")


def _say_source(inputs: Inputs, *, err: bool = False) -> None:
    """Say what became of the input, and what was assumed about it."""
    for report in inputs.reports:
        click.echo(str(report), err=err)
    for reason, count in inputs.workload.rejections():
        click.echo(f"{count} jobs rejected: {reason}", err=err)
    for assumption in inputs.workload.assumptions:
        click.echo(f"assumed: {assumption}", err=err)


def _table(title: str, shares: Iterable[Share], gpu_hours: float) -> None:
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
