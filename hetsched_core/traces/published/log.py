"""What a published trace tells: runs of jobs, in the form in which accounting tells them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC
from enum import Enum, auto

from hetsched_core.traces.sacct import (
    Doubt,
    FieldError,
    Flaw,
    LoggedAllocation,
    LoggedState,
    ReadReport,
    SacctOptions,
)
from hetsched_core.traces.sacct.clock import SacctClock
from hetsched_core.traces.sacct.fields import quote
from hetsched_core.traces.sacct.runs import check_order
from hetsched_core.traces.workload import LATEST_S


def state_of(word: str, states: Mapping[str, LoggedState]) -> LoggedState:
    """Return the state that a trace's word stands for.

    Raises:
        FieldError: It is none of the trace's words.
    """
    if word not in states:
        raise FieldError(Flaw.STATE, f"{quote(word)} is none of {', '.join(states)}")
    return states[word]


class Unused(Enum):
    """Why a job that is sound is no run on GPUs."""

    NO_GPU = auto()
    NEVER_STARTED = auto()


@dataclass(slots=True)
class PublishedLog:
    """The runs of one file, what became of each line of it, and in sentences what was assumed."""

    report: ReadReport
    clock: SacctClock
    runs: list[LoggedAllocation] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls, source: str, options: SacctOptions, on_reject: Callable[[str], None]
    ) -> PublishedLog:
        """Begin with a file of which nothing has been read; tell what of it cannot be used."""
        report = ReadReport(source, lambda flaw: on_reject(f"{source}: {flaw}"), published=True)
        return cls(report, SacctClock(options.zone or UTC))

    def count(self, line: int, read: Callable[[], LoggedAllocation | Unused]) -> None:
        """Count a line in exactly one class, by what `read` finds: a FieldError refuses it."""
        report = self.report
        report.lines += 1
        try:
            found = read()
            if isinstance(found, LoggedAllocation):
                check_order(found.submit_s, found.start_s, found.end_s)
        except FieldError as error:
            report.refuse(line, error.flaw, str(error))
            return
        if found is Unused.NO_GPU:
            report.no_gpu += 1
        elif isinstance(found, Unused):
            report.never_started += 1
        else:
            open_end = Doubt.STILL_RUNNING if _is_running(found) else Doubt.STATE
            run = replace(
                found,
                job_id_raw=found.job_id,
                elapsed_s=None if found.end_s is None else found.end_s - found.start_s,
                doubts=(open_end,) if found.end_s is None else (),
                line=line,
            )
            report.use(run)
            self.runs.append(run)

    def close(self, zone_given: bool) -> None:
        """End reading: what was running then had run until the last time in the file."""
        last_s = max((run.end_s or run.start_s for run in self.runs), default=0.0)
        for at, run in enumerate(self.runs):
            if _is_running(run) and run.end_s is None:
                self.runs[at] = replace(run, elapsed_s=max(0.0, last_s - run.start_s))
        self.report.zone_missing = self.clock.naive and not zone_given
        self.report.complete = True

    def time(self, text: str) -> float | None:
        """Return the seconds UTC of a date, or seconds as they are; None for an empty text.

        Raises:
            FieldError: It is neither.
        """
        try:
            seconds = float(text)
        except ValueError:
            return self.clock.read(text)
        if not 0 <= seconds <= LATEST_S:
            raise FieldError(Flaw.TIME, f"{quote(text)} is no time of 0 to {LATEST_S:g} s")
        return seconds

    def times(self, submit: str, start: str, end: str) -> tuple[float, float, float | None]:
        """Return when a job was submitted, started and ended, the latter None where it is empty.

        Raises:
            FieldError: One of them is no time, or one of the first two is empty.
        """
        submit_s, start_s, end_s = self.time(submit), self.time(start), self.time(end)
        if submit_s is None or start_s is None:
            which = "submission" if submit_s is None else "start"
            raise FieldError(Flaw.TIME, f"has GPUs, and no time of {which}")
        return submit_s, start_s, end_s


def _is_running(run: LoggedAllocation) -> bool:
    return run.state is LoggedState.RUNNING
