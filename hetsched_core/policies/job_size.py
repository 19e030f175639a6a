"""How big a job is, for the policies that order by size."""

from __future__ import annotations

import math
from functools import lru_cache

from hetsched_core.fairness import RunTimes
from hetsched_core.types import Cluster, Job, Snapshot, Speeds


def expected_run_s(job: Job, snapshot: Snapshot) -> float:
    """Return the expected run time in seconds (Hops formula 9), as far as it can be known.

    The time limit stands in where the number of samples is unknown, infinity where nothing is.
    """
    if job.total_samples is not None:
        expected = _run_times(snapshot.speeds, snapshot.cluster).expected_run_s(
            job, job.total_samples
        )
        if expected is not None:
            return expected
    return math.inf if job.time_limit_s is None else job.time_limit_s


@lru_cache(maxsize=8)
def _run_times(speeds: Speeds, cluster: Cluster) -> RunTimes:
    return RunTimes(speeds, cluster)
