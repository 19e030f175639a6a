"""Histories: against the run log that they come from, and by hand."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.measures.metrics import measure
from hetsched_core.report.history import History, LoggedHistory, Spans
from hetsched_core.types import EndState, LoggedRun, Submission
from tests.hetsched_core.report.runs import CLUSTER, MONDAY_S, SPEEDS, run_log, usual, usual_log
from tests.hetsched_core.worlds import submission

spans = st.lists(
    st.tuples(st.floats(0, 100), st.floats(0, 100), st.sampled_from([0.25, 1.0, 3.0])).map(
        lambda one: (min(one[:2]), max(one[:2]), one[2])
    ),
    max_size=12,
)


@given(spans, st.integers(1, 7))
def test_a_bin_holds_the_mean_over_its_time(
    rows: list[tuple[float, float, float]], bins: int
) -> None:
    edges = np.linspace(0.0, 100.0, bins + 1)
    naive = [
        sum(w * max(0.0, min(until, right) - max(since, left)) for since, until, w in rows)
        / (right - left)
        for left, right in pairwise(edges)
    ]
    assert Spans.of(rows).mean_over(edges) == pytest.approx(naive, abs=1e-9)


def seconds(spans: Spans) -> float:
    return float((spans.weight * (spans.until_s - spans.since_s)).sum())


def test_the_times_shown_are_those_of_the_log() -> None:
    policies = ("fifo", "las")
    fifo, las = usual(*policies)
    for policy, history in zip(policies, (fifo, las), strict=True):
        log = usual_log(policy)
        measures = measure(log, SPEEDS)
        edges = np.array(history.span_s)
        held = history.held.mean_over(edges)[0] * (edges[1] - edges[0])
        assert held == pytest.approx(measures.gpu_s)
        assert seconds(history.waiting) == pytest.approx(sum(one.wait_s for one in log.jobs))
        assert np.nanmean(history.jobs.jct_s) == pytest.approx(measures.avg_jct_s)
        assert np.nanmax(history.jobs.latency_ratio) == pytest.approx(measures.max_latency_ratio)
        assert history.jobs.gpu_hours.sum() * 3600 == pytest.approx(measures.gpu_s)
        pieces = history.pieces
        assert set(pieces.node) == set(range(len(CLUSTER)))
        held = (pieces.gpus * (pieces.until_s - pieces.since_s)).sum()
        assert held == pytest.approx(measures.gpu_s)
        assert measures.restarts > 0 or policy == "fifo"
    # Both do the same work on the same jobs, whose rows stand in order of submission.
    assert seconds(fifo.work) == pytest.approx(seconds(las.work))
    assert fifo.jobs.ids == las.jobs.ids == tuple(sorted(fifo.jobs.ids))


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_gpu_counts_by_its_speed_for_the_job(gpus: int) -> None:
    # 2 of 10 GPUs make 20 samples/s and 8 make 10, so that the average takes longer than these.
    log = run_log("fifo", [submission("a", 2000.0, (gpus,), submit_s=MONDAY_S)])
    (speed,) = History.of("fifo", log).work.weight
    assert speed == pytest.approx(gpus * (0.2 * 2000 / 20 + 0.8 * 2000 / 10) / (2000 / 20))


def test_a_job_waits_only_while_it_holds_no_gpu_at_all() -> None:
    # Copies: one from 10 to 50, another inside it; then a wait, a third run, and the end.
    log = run_log("fifo", [submission("a", 1200.0, submit_s=MONDAY_S)])
    (run,), (job,) = log.runs, log.jobs
    log.runs[:] = [
        replace(run, since_s=MONDAY_S + since, freed_s=MONDAY_S + freed)
        for since, freed in ((10.0, 50.0), (20.0, 30.0), (55.0, 60.0))
    ]
    log.jobs[:] = [replace(job, end_s=MONDAY_S + 60.0)]
    waiting = History.of("fifo", log).waiting
    spans_s = zip(waiting.since_s - MONDAY_S, waiting.until_s - MONDAY_S, strict=True)
    assert list(spans_s) == [(0.0, 10.0), (50.0, 55.0)]


def test_only_completed_jobs_have_a_completion_time() -> None:
    log = run_log(
        "fifo",
        [
            submission("done", 100.0, submit_s=MONDAY_S),
            submission("fails", 100.0, submit_s=MONDAY_S, ends_as=EndState.FAILED),
            submission("gone", 1e9, submit_s=MONDAY_S, cancel_s=MONDAY_S + 50.0),
            submission("too large", 100.0, (64,), submit_s=MONDAY_S),
        ],
    )
    history = History.of("fifo", log)
    finished = np.isfinite(history.jobs.jct_s).tolist()
    assert dict(zip(history.jobs.ids, finished, strict=True)) == {
        "done": True,
        "fails": False,
        "gone": False,
        "too large": False,
    }
    assert dict(zip(history.jobs.ids, history.jobs.gpu_types, strict=True)) == {
        "done": "a100",
        "fails": "a100",
        "gone": "v100",
        "too large": "",
    }
    # What can never run does not wait.
    assert history.waiting.weight.size == 0


def test_the_first_wait_begins_when_a_job_may_start_and_ends_with_its_first_run() -> None:
    log = run_log(
        "fifo",
        [
            submission("all", 20_000.0, (10,), submit_s=MONDAY_S),
            submission("later", 100.0, (1,), submit_s=MONDAY_S + 1.0, eligible_s=MONDAY_S + 100.0),
            submission("never", 100.0, (64,), submit_s=MONDAY_S + 2.0),
        ],
    )
    first, later, never = History.of("fifo", log).jobs.first_wait_s
    ended_s = next(record.end_s for record in log.jobs if record.job.id == "all")
    assert ended_s is not None
    assert (first, later) == (0.0, ended_s - MONDAY_S - 100.0)
    assert np.isnan(never)


def logged(job: str, submit_s: float, *runs: tuple[float, float, int]) -> Submission:
    one = submission(job, samples=100.0, submit_s=submit_s)
    return replace(one, logged=tuple(LoggedRun(*run) for run in runs))


def test_gpus_and_waits_of_every_run_are_there() -> None:
    found = LoggedHistory.of(
        [
            logged("a", 0.0, (10.0, 20.0, 4), (30.0, 40.0, 2)),
            logged("b", 5.0, (5.0, 40.0, 1)),
            submission("not in the log", samples=1.0),
        ]
    )
    assert found is not None
    assert found.first_wait_s.tolist() == [10.0, 0.0]
    edges = np.array([0.0, 5.0, 10.0, 20.0, 30.0, 40.0])
    assert found.held.mean_over(edges).tolist() == [0.0, 1.0, 5.0, 1.0, 3.0]
    assert found.waiting.mean_over(edges).tolist() == [1.0, 1.0, 0.0, 1.0, 0.0]
    assert found.span_s == (0.0, 40.0)
    # 5 s with no GPU held, 5 s and 10 s with one.
    assert found.held_while_waiting() == pytest.approx(15.0 / 20.0)


def test_without_waits_there_is_no_time_of_waiting() -> None:
    found = LoggedHistory.of([logged("a", 0.0, (0.0, 9.0, 1))])
    assert found is not None
    assert found.held_while_waiting() is None
    assert LoggedHistory.of([submission("a", samples=1.0)]) is None
