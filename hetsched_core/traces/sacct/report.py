"""What became of every line of an accounting log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

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


@dataclass(frozen=True, slots=True)
class FlawCount:
    """How many lines have one flaw, and the first of them."""

    flaw: Flaw
    count: int
    first: tuple[Unusable, ...]


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, as in `1 line` and `2 lines`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


@dataclass(frozen=True, slots=True)
class DoubtCount:
    """How many allocations have one doubt, and the first lines with it."""

    doubt: Doubt
    count: int
    first_lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadReport:
    """Every line of a log in exactly one class: the counts add up to `lines`.

    A "line" of a JSON log is a record of its job list. `complete` is False as long as the log has
    not been read to its end. `warnings` are sentences for the user.
    """

    source: str
    form: SacctFormat
    lines: int
    headers: int
    blank: int
    steps: int
    never_started: int
    no_gpu: int
    used: int
    unusable: int
    flaws: tuple[FlawCount, ...]
    doubts: tuple[DoubtCount, ...]
    warnings: tuple[str, ...]
    complete: bool

    def __str__(self) -> str:
        return (
            f"{self.source}: {counted(self.lines, self.form)}: "
            f"{counted(self.used, 'GPU allocation')}, "
            f"{counted(self.no_gpu, 'job')} without GPU, {self.never_started} never started, "
            f"{counted(self.steps, 'step')}, {counted(self.headers, 'header')}, "
            f"{self.blank} blank, "
            f"{self.unusable} unusable"
        )


class Tally:
    """Counts while a log is being read; `report` shows how it stands."""

    def __init__(self, source: str, on_unusable: Callable[[Unusable], None] | None) -> None:
        self.source = source
        self.form = SacctFormat.TEXT
        self.lines = self.headers = self.blank = self.steps = 0
        self.never_started = self.no_gpu = self.used = self.unusable = 0
        self.complete = False
        self._on_unusable = on_unusable
        self._counts: Counter[Flaw | Doubt] = Counter()
        self._flaws: dict[Flaw, list[Unusable]] = {}
        self._doubts: dict[Doubt, list[int]] = {}

    def use(self, allocation: LoggedAllocation) -> None:
        """Count a line that became an allocation."""
        self.used += 1
        for doubt in allocation.doubts:
            self._counts[doubt] += 1
            first = self._doubts.setdefault(doubt, [])
            if len(first) < EXAMPLES:
                first.append(allocation.line)

    def refuse(self, line: int, flaw: Flaw, message: str) -> None:
        """Count a line that cannot be used, and tell whoever asked."""
        unusable = Unusable(self.form, line, flaw, message)
        self.unusable += 1
        self._counts[flaw] += 1
        first = self._flaws.setdefault(flaw, [])
        if len(first) < EXAMPLES:
            first.append(unusable)
        if self._on_unusable is not None:
            self._on_unusable(unusable)

    def report(self, zone_missing: bool) -> ReadReport:
        """Return the counts so far; `zone_missing` tells that times were taken for UTC."""
        return ReadReport(
            source=self.source,
            form=self.form,
            lines=self.lines,
            headers=self.headers,
            blank=self.blank,
            steps=self.steps,
            never_started=self.never_started,
            no_gpu=self.no_gpu,
            used=self.used,
            unusable=self.unusable,
            flaws=tuple(
                FlawCount(flaw, self._counts[flaw], tuple(self._flaws[flaw]))
                for flaw in Flaw
                if flaw in self._flaws
            ),
            doubts=tuple(
                DoubtCount(doubt, self._counts[doubt], tuple(self._doubts[doubt]))
                for doubt in Doubt
                if doubt in self._doubts
            ),
            warnings=tuple(self._warnings(zone_missing)),
            complete=self.complete,
        )

    def _warnings(self, zone_missing: bool) -> list[str]:
        found = []
        if zone_missing:
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
        return found
