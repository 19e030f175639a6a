"""How big a job is taken to be, from the best that is known of it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hetsched_core.policies.job_size import (
    LONGEST_S,
    expected_left_s,
    expected_run_s,
    samples_left,
)
from tests.hetsched_core.worlds import (
    cluster_of,
    ended,
    held,
    linear_speeds,
    on,
    sized,
    snapshot_of,
    submission,
    view,
)

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
    known = ended({"other": 3.0} | ({} if past is None else {"m": past}))
    snapshot = replace(snapshot_of(CLUSTER, []), ended=known)
    assert expected_run_s(job, snapshot) == expected


TWO_TYPES = cluster_of(fast=("a100", 4), slow=("k80", 4))
SPEEDS = linear_speeds(TWO_TYPES, {"m": {"a100": 2.0, "k80": 1.0}})


@pytest.mark.parametrize(
    ("total", "past", "done", "left"),
    [
        (60.0, None, 20.0, 40.0),
        # 30 s over types of 2 and 1 samples/s, so 0.75 s a sample: 40 samples.
        (None, 30.0, 0.0, 40.0),
        (None, 30.0, 25.0, 15.0),
        # It has done more than was expected: as much again.
        (None, 30.0, 90.0, 90.0),
        (None, None, 0.0, LONGEST_S / 0.75),
    ],
)
def test_what_is_left_of_a_job(
    total: float | None, past: float | None, done: float, left: float
) -> None:
    run = (held(on(slow=1)),) if done else ()
    bare = sized("j", 1.0, *run)
    known = replace(bare, job=replace(bare.job, total_samples=total))
    snapshot = replace(
        snapshot_of(TWO_TYPES, [known], speeds=SPEEDS, now=done),
        ended=ended({} if past is None else {"m": past}),
    )
    assert samples_left(known, snapshot) == pytest.approx(left)
    assert expected_left_s(known, snapshot) == pytest.approx(0.75 * left)


def test_a_job_that_runs_nowhere_counts_as_the_longest() -> None:
    snapshot = snapshot_of(TWO_TYPES, [], speeds=SPEEDS)
    assert expected_left_s(view("j", counts=(64,)), snapshot) == LONGEST_S
