"""How big a job is, for the policies that order by size."""

from __future__ import annotations

import math
from functools import lru_cache

from hetsched_core.measures.fairness import RunTimes
from hetsched_core.types import Cluster, Job, Snapshot, Speeds


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
    elif (past_s := snapshot.past_run_s.get(job.profile)) is not None:
        return past_s
    return math.inf if job.time_limit_s is None else job.time_limit_s


@lru_cache(maxsize=8)
def run_times(speeds: Speeds, cluster: Cluster) -> RunTimes:
    """Return the run times at these speeds, the same object each time."""
    return RunTimes(speeds, cluster)
