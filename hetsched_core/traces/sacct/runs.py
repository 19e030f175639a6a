"""Whether a run holds together, and the runs of one job: after a requeue it has several."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from hetsched_core.traces.sacct.allocation import Doubt, LoggedAllocation, LoggedState
from hetsched_core.traces.sacct.fields import FieldError
from hetsched_core.traces.sacct.report import Flaw

_NO_DOUBT: tuple[Doubt, ...] = ()
_TOLERANCE_S = 1.0
# Slurm kills a job up to KillWait, OverTimeLimit and an epilogue after its limit.
_OVERTIME_S = 3_600.0

LONGEST_PAUSE_S = 30 * 86_400.0
"""An End that is later than Elapsed and Suspended tell by this much is no pause, but wrong."""


def check_order(submit_s: float, start_s: float, end_s: float | None) -> None:
    """Refuse times that no job can have.

    Raises:
        FieldError: It starts before it was submitted, or ends before it starts.
    """
    if start_s < submit_s:
        raise FieldError(Flaw.TIME_ORDER, f"starts {submit_s - start_s:.0f} s before its Submit")
    if end_s is not None and end_s < start_s:
        raise FieldError(Flaw.TIME_ORDER, f"ends {start_s - end_s:.0f} s before its Start")


def credible_end(
    start_s: float, end_s: float | None, elapsed_s: float | None, suspended_s: float | None
) -> float | None:
    """Return the end of a run: as Elapsed has it where the log's End is far later than that."""
    if end_s is None or elapsed_s is None:
        return end_s
    told_s = start_s + elapsed_s + (suspended_s or 0.0)
    return told_s if end_s - told_s >= LONGEST_PAUSE_S else end_s


def find_doubts(
    state: LoggedState,
    start_s: float,
    end_s: float | None,
    elapsed_s: float | None,
    suspended_s: float | None,
    time_limit_s: float | None,
) -> tuple[Doubt, ...]:
    """Return what is not certain about a run."""
    if state is LoggedState.COMPLETED and end_s is not None:
        # What nearly every row is.
        if elapsed_s is None or abs(end_s - start_s - elapsed_s) < _TOLERANCE_S:
            return _NO_DOUBT
        doubts = []
    else:
        doubts = _doubts_of_state(state, end_s, elapsed_s, time_limit_s)
    if end_s is not None and elapsed_s is not None:
        unexplained = end_s - start_s - elapsed_s - (suspended_s or 0.0)
        # A log without the column Suspended does not tell how long a pause was.
        longest = LONGEST_PAUSE_S if suspended_s is None else _TOLERANCE_S
        if unexplained <= -_TOLERANCE_S or unexplained >= longest:
            doubts.append(Doubt.ELAPSED)
    return tuple(doubts)


def _doubts_of_state(
    state: LoggedState, end_s: float | None, elapsed_s: float | None, time_limit_s: float | None
) -> list[Doubt]:
    doubts = []
    if state is LoggedState.UNKNOWN:
        doubts.append(Doubt.UNKNOWN_STATE)
    elif state.is_final is (end_s is None) or state is LoggedState.PENDING:
        doubts.append(Doubt.STATE)
    if state is LoggedState.REQUEUED:
        doubts.append(Doubt.REQUEUE)
    if end_s is None:
        doubts.append(Doubt.STILL_RUNNING)
        ran_s, limit_s = elapsed_s or 0.0, time_limit_s or math.inf
        if ran_s > limit_s + _OVERTIME_S:
            doubts.append(Doubt.PAST_TIME_LIMIT)
    return doubts


# Runs of one job ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobRuns:
    """One job and its runs, in order; the run number is the index.

    Attributes:
        job_id: The displayed id.
        reuse: 0 for the first job of this id in the log, 1 for the next: Slurm hands ids out again
            after a crash of its controller, or when its counter wraps.
        runs: The runs. A run in state RESIZING goes on in the next one, without a restart.
        repeated: Rows left out because one of `runs` is the same run, seen in another export.
    """

    job_id: str
    reuse: int
    runs: tuple[LoggedAllocation, ...]
    repeated: tuple[LoggedAllocation, ...]


def link_runs(allocations: Iterable[LoggedAllocation]) -> tuple[JobRuns, ...]:
    """Put the runs of each job together, in order of the jobs' first submission.

    Rows belong together by the raw job id; they are one job as long as user and name stay the same
    and Restarts rises (or stays, after RESIZING). Where the log has no Restarts, user and name
    decide. A run without an end that is followed by another of the same id is marked as a runaway.

    All allocations are held in memory. A job whose first run has `restarts` above 0 lost the
    earlier ones, as in an export without --duplicates: its Submit is the last requeue's.
    """
    by_id: dict[str, list[LoggedAllocation]] = {}
    for allocation in allocations:
        by_id.setdefault(allocation.job_id_raw or allocation.job_id, []).append(allocation)
    jobs = []
    for rows in by_id.values():
        rows.sort(key=lambda row: (row.start_s, row.submit_s, row.restarts or 0, row.line))
        jobs += _split(_mark_runaways(rows)) if len(rows) > 1 else [_job(rows, 0)]
    jobs.sort(key=lambda job: (job.runs[0].submit_s, job.runs[0].line))
    return tuple(jobs)


def _split(rows: list[LoggedAllocation]) -> list[JobRuns]:
    """Return the jobs that one id stood for, one after the other."""
    jobs: list[JobRuns] = []
    runs: list[LoggedAllocation] = []
    repeated: list[LoggedAllocation] = []
    for row in rows:
        if runs and _is_same_run(runs[-1], row):
            # The later export knows more: it has the end.
            older, newer = sorted((runs[-1], row), key=lambda r: (r.end_s is not None, r.line))
            runs[-1] = newer
            repeated.append(older)
        elif runs and not _continues(runs[-1], row):
            jobs.append(_job(runs, len(jobs), repeated))
            runs, repeated = [row], []
        else:
            runs.append(row)
    jobs.append(_job(runs, len(jobs), repeated))
    return jobs


def _job(
    runs: list[LoggedAllocation], reuse: int, repeated: list[LoggedAllocation] | None = None
) -> JobRuns:
    return JobRuns(runs[0].job_id, reuse, tuple(runs), tuple(repeated or ()))


def _is_same_run(first: LoggedAllocation, second: LoggedAllocation) -> bool:
    return (
        first.start_s == second.start_s
        and first.submit_s == second.submit_s
        and first.restarts == second.restarts
        and LoggedState.RESIZING not in (first.state, second.state)
    )


def _continues(earlier: LoggedAllocation, later: LoggedAllocation) -> bool:
    if (earlier.user, earlier.name) != (later.user, later.name):
        return False
    if earlier.restarts is None or later.restarts is None:
        return True
    if earlier.state is LoggedState.RESIZING:
        return later.restarts >= earlier.restarts
    return later.restarts > earlier.restarts


def _mark_runaways(rows: list[LoggedAllocation]) -> list[LoggedAllocation]:
    """Mark rows without an end that cannot be running, for the id ran again later."""
    last_start_s = rows[-1].start_s
    return [
        replace(row, doubts=(*row.doubts, Doubt.RUNAWAY))
        if row.end_s is None and row.start_s < last_start_s
        else row
        for row in rows
    ]
