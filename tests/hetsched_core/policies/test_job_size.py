"""How big a job is taken to be, from the best that is known of it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from immutables import Map

from hetsched_core.policies.job_size import expected_run_s
from tests.hetsched_core.worlds import cluster_of, snapshot_of, submission

CLUSTER = cluster_of(n0=("a100", 4))


@pytest.mark.parametrize(
    ("total", "past", "limit_s", "expected"),
    [
        (60.0, 7.0, 99.0, 60.0),
        (None, 7.0, 99.0, 7.0),
        (None, None, 99.0, 99.0),
        (None, 7.0, None, 7.0),
        (None, None, None, math.inf),
    ],
    ids=["its size", "past runs before the limit", "the limit", "past runs", "nothing"],
)
def test_the_best_that_is_known_counts(
    total: float | None, past: float | None, limit_s: float | None, expected: float
) -> None:
    job = replace(submission("j", 1.0).job, total_samples=total, time_limit_s=limit_s)
    known: Map[str, float] = Map({"other": 3.0} | ({} if past is None else {"m": past}))
    snapshot = replace(snapshot_of(CLUSTER, []), past_run_s=known)
    assert expected_run_s(job, snapshot) == expected
