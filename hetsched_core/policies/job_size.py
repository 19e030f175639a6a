"""How big a job is, for the policies that order by size."""

from __future__ import annotations

import math
from functools import lru_cache

from hetsched_core.measures.fairness import RunTimes
from hetsched_core.types import Cluster, Job, JobView, Snapshot, Speeds

LONGEST_S = 365 * 86_400.0
"""A job of which nothing is known counts as so long, where a finite number is needed."""


def expected_run_s(job: Job, snapshot: Snapshot) -> float:
    """Return the expected run time in seconds (Hops formula 9), as far as it can be known.

    Where the number of samples is unknown, the mean of the past runs of the profile key stands in,
    then the time limit, and infinity where nothing is known.
    """
    if job.total_samples is not None:
        expected = run_times(snapshot.speeds, snapshot.cluster).expected_run_s(
            job, job.total_samples
        )
        if expected is not None:
            return expected
    elif (past_s := snapshot.ended.mean_run_s(job.profile)) is not None:
        return past_s
    return math.inf if job.time_limit_s is None else job.time_limit_s


def samples_left(view: JobView, snapshot: Snapshot) -> float:
    """Return the samples that a job has still to do, as far as can be known; more than 0.

    Where their number is unknown, they are those of its expected run time. A job that has done more
    than was expected of it is taken to go on for as long again.
    """
    per_sample_s = run_times(snapshot.speeds, snapshot.cluster).expected_run_s(view.job, 1.0)
    whole = view.job.total_samples
    if whole is None and per_sample_s:
        whole = min(expected_run_s(view.job, snapshot), LONGEST_S) / per_sample_s
    done = view.samples_at(snapshot.now)
    if whole is None or done >= whole:
        return max(done, 1.0)
    return whole - done


def expected_left_s(view: JobView, snapshot: Snapshot) -> float:
    """Return the expected seconds of `samples_left`, over the GPU types as `expected_run_s`."""
    per_sample_s = run_times(snapshot.speeds, snapshot.cluster).expected_run_s(view.job, 1.0)
    return LONGEST_S if per_sample_s is None else samples_left(view, snapshot) * per_sample_s


@lru_cache(maxsize=8)
def run_times(speeds: Speeds, cluster: Cluster) -> RunTimes:
    """Return the run times at these speeds, the same object each time."""
    return RunTimes(speeds, cluster)
