"""What is left of jobs that told no size."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.policies.unknown_size import UnknownSizes
from hetsched_core.types import EndedJob, EndedJobs, Job
from tests.hetsched_core.worlds import submission

RUNS = st.lists(st.floats(1.0, 1e5), min_size=1, max_size=12)


def of(user: str = "ann", profile: str = "m", limit_s: float | None = None) -> Job:
    job = submission("j", 1.0).job
    return replace(job, user=user, profile=profile, time_limit_s=limit_s, total_samples=None)


def after(*jobs: EndedJob) -> UnknownSizes:
    return UnknownSizes(EndedJobs.of(jobs))


def test_jobs_that_all_take_as_long_have_the_rest_of_it_left() -> None:
    known = after(*[EndedJob("ann", "m", 1000.0)] * 400)
    assert known.left_s(of(), 0.0) == pytest.approx(1000.0, rel=0.02)
    assert known.left_s(of(), 700.0) == pytest.approx(300.0, rel=0.02)
    # What outlasts them is like jobs of any other length.
    assert known.left_s(of(), 1001.0) > 1000.0
    assert known.left_s(of(), 1e9) == 1e9


def test_a_job_that_may_end_soon_goes_first_until_it_has_not() -> None:
    """Half take 10 s and half an hour: 10 s each of two are 20 s an end, then it is an hour."""
    known = after(*[EndedJob("ann", "m", 10.0), EndedJob("ann", "m", 3600.0)] * 200)
    assert known.left_s(of(), 0.0) == pytest.approx(20.0, rel=0.05)
    assert known.left_s(of(), 11.0) == pytest.approx(3589.0, rel=0.05)


@pytest.mark.parametrize("same", ["user", "profile", "limit"])
def test_of_what_jobs_have_in_common_that_counts_by_which_they_are_most_alike(same: str) -> None:
    """What is the same takes an hour or three by it; by the rest, nothing is known."""
    ended = []
    for number in range(300):
        long = number % 2
        run_s = 10_000.0 if long else 1_000.0
        ended.append(
            EndedJob(
                user=f"u{long}" if same == "user" else f"u{number // 2 % 5}",
                profile=f"m{long}" if same == "profile" else f"m{number // 2 % 5}",
                run_s=run_s,
                limit_s=2.0 * run_s if same == "limit" else 1e5,
            )
        )
    known = after(*ended)
    for long, run_s in enumerate((1_000.0, 10_000.0)):
        user = f"u{long}" if same == "user" else "u1"
        profile = f"m{long}" if same == "profile" else "m1"
        limit_s = 2.0 * run_s if same == "limit" else 1e5
        assert known.left_s(of(user, profile, limit_s), 0.0) == pytest.approx(run_s, rel=0.1)


def test_no_job_has_more_left_than_its_time_limit() -> None:
    known = after(*[EndedJob("ann", "m", 50_000.0, 100_000.0)] * 100)
    assert known.left_s(of(limit_s=600.0), 590.0) <= 600.0
    assert known.left_s(of(), 590.0) > 40_000.0


def test_before_any_has_ended_the_limit_is_what_is_known() -> None:
    known = after()
    short, long = (known.left_s(of(limit_s=limit_s), 0.0) for limit_s in (600.0, 86_400.0))
    assert long == pytest.approx(144 * short)
    assert 0 < short < 600
    assert math.isfinite(known.left_s(of(), 0.0))


@given(RUNS, st.floats(0.0, 1e5))
def test_the_index_is_that_of_the_naive_twin(runs: list[float], ran_s: float) -> None:
    known = after(*(EndedJob("ann", "m", run_s) for run_s in runs))
    times, weights = (each.tolist() for each in known._mixture(of()))
    assert sum(weights) == pytest.approx(1.0)
    more = [(time - ran_s, weight) for time, weight in zip(times, weights, strict=True)]
    more = [(time, weight) for time, weight in more if time > 0]
    if not more:
        return
    total = sum(weight for _, weight in more)
    least = math.inf
    for let_run_s, _ in more:
        ends = sum(weight for time, weight in more if time <= let_run_s) / total
        runs_s = sum(weight * min(time, let_run_s) for time, weight in more) / total
        if ends >= 0.25 - 1e-9:
            least = min(least, runs_s / ends)
    assert known.left_s(of(), ran_s) == pytest.approx(least, rel=1e-6)
