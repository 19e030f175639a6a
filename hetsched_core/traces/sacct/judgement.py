"""Whether the times and the state of a run hold together, whatever form they were read from."""

from __future__ import annotations

import math

from hetsched_core.traces.sacct.allocation import Doubt, JobState
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
    state: JobState,
    start_s: float,
    end_s: float | None,
    elapsed_s: float | None,
    suspended_s: float | None,
    time_limit_s: float | None,
) -> tuple[Doubt, ...]:
    """Return what is not certain about a run."""
    if state is JobState.COMPLETED and end_s is not None:
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
    state: JobState, end_s: float | None, elapsed_s: float | None, time_limit_s: float | None
) -> list[Doubt]:
    doubts = []
    if state is JobState.UNKNOWN:
        doubts.append(Doubt.UNKNOWN_STATE)
    elif state.is_final is (end_s is None) or state is JobState.PENDING:
        doubts.append(Doubt.STATE)
    if state is JobState.REQUEUED:
        doubts.append(Doubt.REQUEUE)
    if end_s is None:
        doubts.append(Doubt.STILL_RUNNING)
        ran_s, limit_s = elapsed_s or 0.0, time_limit_s or math.inf
        if ran_s > limit_s + _OVERTIME_S:
            doubts.append(Doubt.PAST_TIME_LIMIT)
    return doubts
