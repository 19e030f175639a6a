"""What a site's own scheduler made of the jobs of its log, and how close a replay comes to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsched_core.measures.fairness import latency_ratio
from hetsched_core.records.runlog import JobRecord
from hetsched_core.types import EndState, Job, LoggedRun, Submission

Floats = NDArray[np.float64]

CLOSE_S = 300.0
"""A replayed start within so many seconds of the logged one is close."""


@dataclass(frozen=True, slots=True)
class LoggedMeasures:
    """The measures of a log itself, of the same names as those of a replay.

    They are over the jobs that complete in the replay; the makespan is over all that were replayed.
    Times are seconds.
    """

    completed: int
    avg_jct_s: float
    p50_jct_s: float
    p99_jct_s: float
    avg_wait_s: float
    max_latency_ratio: float | None
    makespan_s: float
    gpu_s: float


@dataclass(frozen=True, slots=True)
class Closeness:
    """How close a replay comes to the log, over the jobs that start in both.

    The wait is that before a job's first start, in which it was eligible; a start's error is its
    distance from the logged start, early or late. Times are seconds.

    Attributes:
        jobs: how many jobs start in both.
        close_share: share of them whose error is at most `CLOSE_S`.
        waited: how many of them wait for longer than `CLOSE_S` in the log or in the replay; the
            others start on submission in both, which hardly any scheduler could miss.
        waited_close: how many of these have an error of at most `CLOSE_S`.
        p50_error_s: median of the error.
        p90_error_s: its 90th percentile.
        avg_logged_wait_s: mean wait in the log.
        avg_wait_s: mean wait in the replay.
        wait_rank_correlation: Spearman's coefficient of the two waits, equal ones sharing their
            mean rank; None where all jobs wait equally long in one of the two.
    """

    jobs: int
    close_share: float
    waited: int
    waited_close: int
    p50_error_s: float
    p90_error_s: float
    avg_logged_wait_s: float
    avg_wait_s: float
    wait_rank_correlation: float | None


def logged_measures(
    submissions: Iterable[Submission], records: Iterable[JobRecord]
) -> LoggedMeasures | None:
    """Return the measures of the log that a workload came from.

    Args:
        submissions: the workload.
        records: what became of its jobs in a replay, which tells the ones to count, and their
            expected run times.

    Returns:
        None unless every job of the replay that ran to its end has logged runs.
    """
    logged = {one.job.id: one.logged for one in submissions}
    ran = [r for r in records if r.end_state in (EndState.COMPLETED, EndState.FAILED)]
    done = [r for r in ran if r.end_state is EndState.COMPLETED]
    if not done or not all(logged[r.job.id] for r in ran):
        return None
    runs = [logged[r.job.id] for r in done]
    jct_s = np.array([own[-1].end_s - r.job.submit_s for r, own in zip(done, runs, strict=True)])
    wait_s = np.array([_wait_s(r.job, own) for r, own in zip(done, runs, strict=True)])
    expected_s = np.array([r.expected_run_s or np.nan for r in done])
    ratios = latency_ratio(wait_s, expected_s)
    ratios = ratios[np.isfinite(ratios)]
    return LoggedMeasures(
        completed=len(done),
        avg_jct_s=float(jct_s.mean()),
        p50_jct_s=float(np.percentile(jct_s, 50)),
        p99_jct_s=float(np.percentile(jct_s, 99)),
        avg_wait_s=float(wait_s.mean()),
        max_latency_ratio=float(ratios.max()) if ratios.size else None,
        makespan_s=max(logged[r.job.id][-1].end_s for r in ran) - min(r.job.submit_s for r in ran),
        gpu_s=sum(run.gpus * (run.end_s - run.start_s) for r in ran for run in logged[r.job.id]),
    )


def closeness(submissions: Iterable[Submission], records: Iterable[JobRecord]) -> Closeness | None:
    """Return how close a replay comes to the log; None if no job starts in both."""
    first_start_s = {r.job.id: r.first_start_s for r in records}
    pairs = [
        (one.job, one.logged[0].start_s, start_s)
        for one in submissions
        if one.logged and (start_s := first_start_s.get(one.job.id)) is not None
    ]
    if not pairs:
        return None
    eligible_s = np.array([job.eligible_from_s for job, _, _ in pairs])
    there_s, here_s = np.array([starts for _, *starts in pairs]).T
    error_s = np.abs(here_s - there_s)
    # An eligible time after the start is a flaw of the log: no job waits for less than no time.
    there_s, here_s = (np.maximum(starts - eligible_s, 0.0) for starts in (there_s, here_s))
    close, waited = error_s <= CLOSE_S, np.maximum(there_s, here_s) > CLOSE_S
    return Closeness(
        jobs=len(pairs),
        close_share=float(close.mean()),
        waited=int(waited.sum()),
        waited_close=int((waited & close).sum()),
        p50_error_s=float(np.percentile(error_s, 50)),
        p90_error_s=float(np.percentile(error_s, 90)),
        avg_logged_wait_s=float(there_s.mean()),
        avg_wait_s=float(here_s.mean()),
        wait_rank_correlation=rank_correlation(there_s, here_s),
    )


def waits_s(job: Job, runs: Sequence[LoggedRun]) -> tuple[tuple[float, float], ...]:
    """Return when a job of a log was eligible and held no GPU, up to its last run: (since, until).

    After a requeue it waits from the end of one run to the start of the next.
    """
    since = [job.eligible_from_s, *(run.end_s for run in runs)]
    return tuple(
        (free_s, run.start_s)
        for free_s, run in zip(since, runs, strict=False)
        if free_s < run.start_s
    )


def _wait_s(job: Job, runs: Sequence[LoggedRun]) -> float:
    return sum(until_s - since_s for since_s, until_s in waits_s(job, runs))


def rank_correlation(first: Floats, second: Floats) -> float | None:
    """Return Spearman's coefficient, equal values sharing ranks; None if all of one are equal."""
    first, second = _ranks(first), _ranks(second)
    if first.std() == 0.0 or second.std() == 0.0:
        return None
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: Floats) -> Floats:
    """Return the place of each value in ascending order, of equal ones the mean of their places."""
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (counts.cumsum() - (counts - 1) / 2.0)[index]
    return ranks
