"""Published traces with a line for each job and a header: which column of them tells what.

Sources: Helios (Hu et al., SC '21; github.com/S-Lab-System-Group/HeliosData), Acme (Hu et al.,
NSDI '24; github.com/InternLM/AcmeTrace), openb (Weng et al., ATC '23; cluster-trace-gpu-v2023 of
github.com/alibaba/clusterdata).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from hetsched_core.traces.published.log import PublishedLog, Unused, state_of
from hetsched_core.traces.sacct import FieldError, Flaw, LoggedAllocation, LoggedState
from hetsched_core.traces.sacct.fields import quote

MOST = 1e9
"""No number of GPUs, CPUs or MiB in a cluster is above this."""


@dataclass(frozen=True, slots=True)
class CsvForm:
    """A trace with a header.

    Attributes:
        columns: What is told -> the column that tells it.
        states: Its words for how jobs end.
        gpu_type: The type of all its GPUs, where that is published.
        assumption: What is assumed of all its jobs.
    """

    columns: Mapping[str, str]
    states: Mapping[str, LoggedState]
    gpu_type: str | None = None
    assumption: str = ""


_SLURM = {
    "job": "job_id",
    "user": "user",
    "state": "state",
    "gpus": "gpu_num",
    "cpus": "cpu_num",
    "nodes": "node_num",
    "submit": "submit_time",
    "start": "start_time",
    "end": "end_time",
}
_SLURMS_STATES = {str(state): state for state in LoggedState}
HELIOS = CsvForm(_SLURM | {"account": "vc", "partition": "vc"}, _SLURMS_STATES)
ACME = CsvForm(
    _SLURM | {"name": "type"},
    _SLURMS_STATES,
    "a100_80",
    "All GPUs of Acme are A100 with 80 GB (NSDI '24, table 1).",
)
OPENB = CsvForm(
    {
        "job": "name",
        "qos": "qos",
        "state": "pod_phase",
        "gpus": "num_gpu",
        "thousandths": "gpu_milli",
        "gpu_types": "gpu_spec",
        "cpu_thousandths": "cpu_milli",
        "memory_mib": "memory_mib",
        "submit": "creation_time",
        "start": "scheduled_time",
        "end": "deletion_time",
    },
    {
        "Succeeded": LoggedState.COMPLETED,
        "Failed": LoggedState.FAILED,
        # Deleted while it ran, or cut by the end of the trace.
        "Running": LoggedState.CANCELLED,
        "Pending": LoggedState.PENDING,
    },
)
FORMS = (HELIOS, ACME, OPENB)


def form_of(first_line: str) -> CsvForm | None:
    """Return the form of a file whose header this is, None where it is another's."""
    header = set(first_line.split(","))
    return next((form for form in FORMS if header.issuperset(form.columns.values())), None)


def read_csv_log(lines: Iterable[str], form: CsvForm, log: PublishedLog) -> None:
    """Read a file of this form."""
    for number, row in rows_of(lines, None, log):
        told = {what: row[column] for what, column in form.columns.items()}
        log.count(number, partial(_run, log, form, told))
    if form.assumption and log.runs:
        log.assumptions.append(form.assumption)


def rows_of(
    lines: Iterable[str], columns: Sequence[str] | None, log: PublishedLog
) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the number of each line, and its cells by column.

    Args:
        lines: Cells with commas between; none of these traces has quotes.
        columns: Their names; None where the first line that is not blank has them.
        log: Counts every line that is not yielded.
    """
    report = log.report
    for number, line in enumerate(lines, 1):
        cells = line.split(",")
        if columns is not None and len(cells) == len(columns) and cells != columns:
            yield number, dict(zip(columns, cells, strict=True))
            continue
        report.lines += 1
        if not line.strip():
            report.blank += 1
        elif columns is None or cells == columns:
            columns = cells
            report.headers += 1
        else:
            expected = f"expected {len(columns)}: {','.join(columns)}"
            report.refuse(number, Flaw.FIELD_COUNT, f"has {len(cells)} cells; {expected[:500]}")


def number_in(text: str, what: str, whole: bool = False) -> float:
    """Return a number of 0 or more.

    Raises:
        FieldError: It is none, more than anything can have, or not whole though it must be.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= MOST or (whole and not value.is_integer()):
        kind = "whole number" if whole else "number"
        expected = f"expected a {kind} of 0 to {MOST:g}"
        raise FieldError(Flaw.NUMBER, f"{what} is {quote(text)}; {expected}")
    return value


def part_of_gpu(what: str) -> FieldError:
    """Build the error for a job that shares a GPU, for the caller to raise."""
    return FieldError(Flaw.PART_OF_GPU, f"asks for {what}, and only whole GPUs are scheduled")


def _run(log: PublishedLog, form: CsvForm, told: Mapping[str, str]) -> LoggedAllocation | Unused:
    """Return the run of one job."""

    def number(what: str, whole: bool = False) -> float:
        return number_in(told.get(what, "0"), form.columns.get(what, what), whole)

    if not told["job"]:
        raise FieldError(Flaw.JOB_ID, f"{form.columns['job']} is empty")
    gpus = int(number("gpus", whole=True))
    if not gpus:
        return Unused.NO_GPU
    if not told["start"]:
        return Unused.NEVER_STARTED
    if number("thousandths") % 1000:
        raise part_of_gpu(f"{told['thousandths']} thousandths of a GPU")
    accepted = [name for name in told.get("gpu_types", "").split("|") if name]
    only = accepted[0] if len(accepted) == 1 else None
    asked = tuple((name, gpus) for name in accepted) or ((None, gpus),)
    submit_s, start_s, end_s = log.times(told["submit"], told["start"], told["end"])
    return LoggedAllocation(
        job_id=told["job"],
        user=told.get("user", ""),
        account=told.get("account", ""),
        partition=told.get("partition", ""),
        qos=told.get("qos", ""),
        name=told.get("name", ""),
        state=state_of(told["state"], form.states),
        submit_s=submit_s,
        start_s=start_s,
        end_s=end_s,
        n_nodes=int(number("nodes")) or None,
        cpus=math.ceil(number("cpus") + number("cpu_thousandths") / 1000) or None,
        memory_mb=number("memory_mib") or None,
        gpus=((form.gpu_type or only, gpus),),
        requested_gpus=asked if "gpu_types" in told else (),
    )
