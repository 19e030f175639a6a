"""What became of every line of an accounting log."""

from __future__ import annotations

from collections.abc import Callable
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
        zone_missing: Whether times name no time zone, and none was given.
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
    used: int = 0
    unusable: int = 0
    flaws: dict[Flaw, Examples[Unusable]] = field(default_factory=dict)
    doubts: dict[Doubt, Examples[int]] = field(default_factory=dict)
    zone_missing: bool = False
    complete: bool = False

    def use(self, allocation: LoggedAllocation) -> None:
        """Count a line that became an allocation."""
        self.used += 1
        for doubt in allocation.doubts:
            self.doubts.setdefault(doubt, Examples()).add(allocation.line)

    def refuse(self, line: int, flaw: Flaw, message: str) -> None:
        """Count a line that cannot be used, and tell whoever asked."""
        unusable = Unusable(self.form, line, flaw, message)
        self.unusable += 1
        self.flaws.setdefault(flaw, Examples()).add(unusable)
        if self.on_unusable is not None:
            self.on_unusable(unusable)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences for the user."""
        found = []
        if self.zone_missing:
            found.append(
                f"{self.source}: its times name no time zone and were read as UTC; "
                "give the cluster's zone with --tz (for example --tz Europe/Oslo)"
            )
        if self.complete and not self.used:
            found.append(
                f"{self.source}: no GPU allocation in {self.lines} {self.form}s "
                f"({self.no_gpu} jobs without GPU, {self.never_started} never started, "
                f"{self.unusable} unusable); GPUs are in AllocTRES only where slurm.conf's "
                "AccountingStorageTRES names gres/gpu"
            )
        return tuple(found)

    def __str__(self) -> str:
        return (
            f"{self.source}: {counted(self.lines, self.form)}: "
            f"{counted(self.used, 'GPU allocation')}, "
            f"{counted(self.no_gpu, 'job')} without GPU, {self.never_started} never started, "
            f"{counted(self.steps, 'step')}, {counted(self.headers, 'header')}, "
            f"{self.blank} blank, "
            f"{self.unusable} unusable"
        )
