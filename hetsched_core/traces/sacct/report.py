"""What became of every line of an accounting log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from hetsched_core.traces.sacct.allocation import Doubt, LoggedAllocation

EXAMPLES = 3
"""How many examples of each flaw and doubt a report keeps."""


class SacctFormat(StrEnum):
    """The two forms of accounting output; the value is the word for one entry of it."""

    TEXT = "line"
    JSON = "record"


class Flaw(StrEnum):
    """Why a line cannot be used."""

    FIELD_COUNT = "wrong number of fields"
    TOO_LONG = "line too long"
    CUT_OFF = "cut off at the end of the file"
    RECORD = "not a job record"
    JOB_ID = "unreadable job id"
    STATE = "unreadable state"
    TIME = "unreadable time"
    TIME_ORDER = "times out of order"
    DURATION = "unreadable duration"
    MEMORY = "unreadable memory"
    NUMBER = "unreadable number"
    TRES = "unreadable TRES"
    PART_OF_GPU = "part of a GPU"
    NODE_LIST = "unreadable node list"


@dataclass(frozen=True, slots=True)
class Unusable:
    """One line that cannot be used, and why; `message` quotes the value at fault."""

    form: SacctFormat
    line: int
    flaw: Flaw
    message: str

    def __str__(self) -> str:
        return f"{self.form} {self.line}: {self.flaw}: {self.message}"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, as in `1 line` and `2 lines`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


_Example = TypeVar("_Example")


@dataclass(slots=True)
class Examples(Generic[_Example]):
    """How many there are of one kind, and the first of them."""

    count: int = 0
    first: list[_Example] = field(default_factory=list)

    def add(self, example: _Example) -> None:
        """Count one, and keep it if it is one of the first."""
        self.count += 1
        if len(self.first) < EXAMPLES:
            self.first.append(example)


@dataclass(slots=True)
class ReadReport:
    """Every line of a log in exactly one class, as it is read: the counts add up to `lines`.

    A "line" of a JSON log is a record of its job list.

    Attributes:
        flaws: Unusable lines by flaw.
        doubts: Numbers of lines by what is not certain about them.
        asked: How many of the jobs without GPU asked for one, as ReqTRES has it.
        gpu_partitions: Partitions of jobs without GPU that are named for GPUs.
        nodeless: How many of the allocations used name no node.
        zone_missing: Whether times name no time zone, and none was given.
        published: Whether it is a published trace, which nobody can export anew.
        complete: False as long as the log has not been read to its end.
    """

    source: str
    on_unusable: Callable[[Unusable], None] | None = None
    form: SacctFormat = SacctFormat.TEXT
    lines: int = 0
    headers: int = 0
    blank: int = 0
    steps: int = 0
    never_started: int = 0
    no_gpu: int = 0
    asked: int = 0
    gpu_partitions: set[str] = field(default_factory=set)
    used: int = 0
    nodeless: int = 0
    unusable: int = 0
    flaws: dict[Flaw, Examples[Unusable]] = field(default_factory=dict)
    doubts: dict[Doubt, Examples[int]] = field(default_factory=dict)
    zone_missing: bool = False
    complete: bool = False
    published: bool = False

    def use(self, allocation: LoggedAllocation) -> None:
        """Count a line that became an allocation."""
        self.used += 1
        self.nodeless += not allocation.nodes
        for doubt in allocation.doubts:
            self.doubts.setdefault(doubt, Examples()).add(allocation.line)

    def without_gpu(self, partition: str, *, asked: bool) -> None:
        """Count a job that held no GPU, and whether it had asked for one."""
        self.no_gpu += 1
        self.asked += asked
        if "gpu" in partition.casefold():
            self.gpu_partitions.add(partition)

    def refuse(self, line: int, flaw: Flaw, message: str) -> None:
        """Count a line that cannot be used, and tell whoever asked."""
        unusable = Unusable(self.form, line, flaw, message)
        self.unusable += 1
        self.flaws.setdefault(flaw, Examples()).add(unusable)
        if self.on_unusable is not None:
            self.on_unusable(unusable)

    def __str__(self) -> str:
        return (
            f"{self.source}: {counted(self.lines, self.form)}: "
            f"{counted(self.used, 'GPU allocation')}, "
            f"{counted(self.no_gpu, 'job')} without GPU, {self.never_started} never started, "
            f"{counted(self.steps, 'step')}, {counted(self.headers, 'header')}, "
            f"{self.blank} blank, "
            f"{self.unusable} unusable"
        )


# What to tell of several logs ---------------------------------------------------------------------

_TRACKED = (
    "slurm.conf's AccountingStorageTRES must name gres/gpu (scontrol show config tells), and only "
    "jobs that start from then on have GPUs in AllocTRES"
)


def warnings_of(reports: Sequence[ReadReport]) -> tuple[str, ...]:
    """Return sentences for the user, each once for all the logs that it holds of."""
    found = []
    ours = [report for report in reports if not report.published]
    if zoneless := [report for report in reports if report.zone_missing]:
        found.append(
            f"{_named(zoneless)}: times name no time zone and were read as UTC; "
            "give the cluster's zone with --tz (for example --tz Europe/Oslo)"
        )
    if nodeless := [r for r in ours if 0 < r.used == r.nodeless]:
        found.append(
            f"{_named(nodeless)}: no allocation names a node, so that GPUs without a type may "
            "stay so, and a job is on one node unless AllocTRES has node=; export with NodeList"
        )
    if asked := [report for report in reports if report.used and report.asked]:
        jobs = counted(sum(report.asked for report in asked), "job")
        found.append(
            f"{_named(asked)}: {jobs} asked for GPUs in ReqTRES and held none in AllocTRES: "
            "counted as without GPU"
        )
    if without := [r for r in ours if r.complete and not r.used]:
        found.append(why_no_job(without))
    return tuple(found)


def why_no_job(reports: Sequence[ReadReport]) -> str:
    """Return why logs in which no job holds a GPU cannot be replayed, "" without a log."""
    if not reports:
        return ""
    where, partitions = _named(reports), sorted(set().union(*(r.gpu_partitions for r in reports)))
    no_gpu, asked = sum(r.no_gpu for r in reports), sum(r.asked for r in reports)
    jobs = counted(no_gpu, "job")
    if asked:
        why = (
            f"no job of {where} holds a GPU in AllocTRES, though {asked} of {no_gpu} asked for one "
            f"in ReqTRES; export AllocTRES again. If it stays empty: {_TRACKED}"
        )
    elif partitions:
        why = f"none of {jobs} holds one, though some are of partition {', '.join(partitions[:3])}"
        why = f"GPUs are not tracked in {where}: {why}; {_TRACKED}"
    elif no_gpu and not reports[0].published:
        why = (
            f"only CPU jobs in {where}: {jobs} without GPU, and a replay schedules GPUs; give a "
            f"log of jobs with GPUs. If these had some: {_TRACKED}"
        )
    else:
        why = f"no GPU job in {where}: no line is of a job that started and can be read"
    for flaw in Flaw:
        if examples := [report.flaws[flaw] for report in reports if flaw in report.flaws]:
            count = sum(each.count for each in examples)
            why += f"; {count} unusable: {flaw}, the first: {examples[0].first[0]}"
    return why


def _named(reports: Sequence[ReadReport]) -> str:
    first = reports[0].source
    return first if len(reports) == 1 else f"{len(reports)} files ({first}, ...)"
