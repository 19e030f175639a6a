"""What a log says the site did, and how close a replay comes to it: worked by hand, and checked."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from hetsched_core.measures.logged import (
    closeness,
    logged_measures,
    waits_s,
)
from hetsched_core.records.runlog import JobRecord
from hetsched_core.types import EndState, LoggedRun, Submission
from tests.hetsched_core.worlds import submission


def logged(job: str, *runs: tuple[float, float], submit_s: float = 0.0) -> Submission:
    """A job of 2 GPUs with these runs in the log."""
    one = submission(job, samples=100.0, counts=(2,), submit_s=submit_s)
    return replace(one, logged=tuple(LoggedRun(start_s, end_s, 2) for start_s, end_s in runs))


def record(
    one: Submission,
    start_s: float | None,
    end_state: EndState = EndState.COMPLETED,
    expected_run_s: float | None = 100.0,
) -> JobRecord:
    """What a replay made of a job."""
    end_s = None if start_s is None else start_s + 100.0
    return JobRecord(one.job, end_s, end_state, 100.0, 0.0, start_s, 0, 0, expected_run_s)


def test_errors_and_waits_of_starts_are_those_worked_by_hand() -> None:
    jobs = [
        logged("a", (0.0, 50.0)),
        logged("b", (1_000.0, 2_000.0), submit_s=500.0),
        logged("c", (5_000.0, 6_000.0), submit_s=600.0),
        logged("d", (90_000.0, 95_000.0), submit_s=700.0),
    ]
    found = closeness(jobs, map(record, jobs, (0.0, 1_300.0, 4_000.0, 700.0)))
    assert found is not None
    assert found.jobs == 4
    assert found.close_share == 0.5  # a and b: 0 s and exactly 300 s apart
    assert (found.waited, found.waited_close) == (3, 1)  # b is close, c and d are not
    assert found.p50_error_s == pytest.approx((300.0 + 1_000.0) / 2)
    assert found.p90_error_s == pytest.approx(1_000.0 + 0.7 * (89_300.0 - 1_000.0))
    assert found.avg_logged_wait_s == pytest.approx((0 + 500 + 4_400 + 89_300) / 4)
    assert found.avg_wait_s == pytest.approx((0 + 800 + 3_400 + 0) / 4)


def test_a_job_waits_from_when_it_is_eligible_and_for_no_time_if_it_started_before() -> None:
    one = logged("a", (900.0, 1_000.0))
    for eligible_s, start_s, waited, waits in (
        (800.0, 800.0, (100.0, 0.0), ((800.0, 900.0),)),
        (950.0, 960.0, (0.0, 10.0), ()),
    ):
        later = replace(one, job=replace(one.job, eligible_s=eligible_s))
        found = closeness([later], [record(later, start_s)])
        assert found is not None
        assert (found.avg_logged_wait_s, found.avg_wait_s) == waited
        assert waits_s(later.job, later.logged) == waits


def test_jobs_that_start_in_one_of_the_two_alone_are_left_out() -> None:
    jobs = [logged("a", (0.0, 1.0)), logged("b", (0.0, 1.0)), logged("c")]
    found = closeness(jobs, map(record, jobs, (0.0, None, 0.0)))
    assert found is not None
    assert found.jobs == 1
    assert closeness(jobs[1:], map(record, jobs[1:], (None, 0.0))) is None


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=30),
)
def test_the_correlation_of_waits_is_spearmans(waits: list[tuple[int, int]]) -> None:
    jobs = [logged(str(at), (float(there), 99.0)) for at, (there, _) in enumerate(waits)]
    found = closeness(jobs, map(record, jobs, (float(here) for _, here in waits)))
    assert found is not None
    there, here = np.array(waits).T
    if len(set(there)) == 1 or len(set(here)) == 1:
        assert found.wait_rank_correlation is None
    else:
        expected = spearmanr(there, here).statistic
        assert found.wait_rank_correlation == pytest.approx(expected)


def test_the_measures_of_a_log_are_those_of_its_completed_jobs() -> None:
    jobs = [
        logged("a", (100.0, 200.0), (1_000.0, 1_500.0)),
        logged("b", (50.0, 250.0), submit_s=50.0),
        logged("f", (400.0, 9_000.0)),
        logged("n", (0.0, 99_000.0)),
    ]
    states = (EndState.COMPLETED, EndState.COMPLETED, EndState.FAILED, EndState.NEVER)
    found = logged_measures(jobs, map(record, jobs, (0.0, 0.0, 0.0, None), states))
    assert found is not None
    assert found.completed == 2
    assert found.avg_jct_s == (1_500 + 200) / 2
    assert found.avg_wait_s == ((100 + 800) + 0) / 2  # a waits again after its requeue
    assert found.max_latency_ratio == 9.0
    assert found.makespan_s == 9_000.0
    assert found.gpu_s == 2 * (100 + 500 + 200 + 8_600)


def test_a_log_that_lacks_the_runs_of_a_job_has_no_measures() -> None:
    jobs = [logged("a", (0.0, 1.0)), logged("b")]
    assert logged_measures(jobs, map(record, jobs, (0.0, 0.0))) is None
    assert logged_measures(jobs[:1], [record(jobs[0], None, EndState.NEVER)]) is None
