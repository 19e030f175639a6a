"""Priorities by hand, their weights, and what is written down of run times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hetsched_core.fairness import RunTimes
from hetsched_core.policies.hops.notes import Notes
from hetsched_core.policies.hops.priorities import (
    UNKNOWN_RUN_S,
    Known,
    Priority,
    known_run_times,
    priorities_of,
    weights_of,
)
from hetsched_core.types import JobView
from tests.hetsched_core.worlds import cluster_of, held, linear_speeds, on, snapshot_of, view

CLUSTER = cluster_of(a=("t", 4))
SPEEDS = linear_speeds(CLUSTER, {"m": {"t": 1.0}})


def waiting(job_id: str, samples: float | None, wait_s: float, submit_s: float = 0.0) -> JobView:
    job_view = view(job_id, submit_s=submit_s)
    return replace(
        job_view,
        job=replace(job_view.job, total_samples=samples),
        wait_s=wait_s,
        observed_s=1000.0,
    )


def running(job_id: str, samples: float, wait_s: float, done: float, gpu_s: float) -> JobView:
    run = replace(held(on(a=2)), speed=0.0, since_s=500.0, progress_from_s=500.0)
    return replace(
        waiting(job_id, samples, wait_s),
        runs=(run,),
        samples_done=done,
        attained_gpu_s=(("t", gpu_s),),
    )


JOBS = [
    waiting("new", 400.0, 100.0, submit_s=900.0),
    running("half", 200.0, 400.0, 100.0, 1200.0),
    waiting("long", 4000.0, 1000.0),
]


def priorities(priority: Priority, share: float = 1.0) -> list[float]:
    known = Known(
        at_s=1000.0,
        expected_run_s={"new": 400.0, "half": 200.0, "long": 4000.0},
        run_times=RunTimes(SPEEDS, CLUSTER),
        share=share,
    )
    return list(priorities_of(JOBS, priority, known))


@pytest.mark.parametrize(
    ("priority", "values"),
    [
        (Priority.LATENCY_RATIO, [0.25, 2.0, 0.25]),
        (Priority.FIFO, [100.0, 1000.0, 1000.0]),
        (Priority.LAS, [0.0, -1200.0, 0.0]),
        (Priority.SJF, [-400.0, -200.0, -4000.0]),
        (Priority.SRTF, [-400.0, -100.0, -4000.0]),
        # (elapsed + left) / T_isolated at 1 GPU: `half` did 100 samples in 600 s, 100 are left.
        (Priority.FINISH_TIME_FAIRNESS, [500 / 400, (1000 + 600) / 200, 5000 / 4000]),
    ],
)
def test_priorities_are_larger_for_those_who_come_sooner(
    priority: Priority, values: list[float]
) -> None:
    assert priorities(priority) == pytest.approx(values)


def test_a_fair_share_of_half_a_gpu_doubles_the_isolated_run_time() -> None:
    fair = priorities(Priority.FINISH_TIME_FAIRNESS, share=0.5)
    assert fair[0] == pytest.approx((100 + 800) / 800)


def test_a_job_of_unknown_size_counts_with_the_mean_of_the_others() -> None:
    unknown = waiting("unknown", None, 660.0)
    known = Known(1000.0, {"new": 400.0, "long": 4000.0}, RunTimes(SPEEDS, CLUSTER), 1.0)
    found = priorities_of([unknown], Priority.LATENCY_RATIO, known)
    assert found.tolist() == pytest.approx([660 / 2200])
    fair = priorities_of([unknown], Priority.FINISH_TIME_FAIRNESS, known)
    assert fair.tolist() == pytest.approx([(1000 + 2200 - 340) / 2200])
    nobody = Known(1000.0, {}, RunTimes(SPEEDS, CLUSTER), 1.0)
    found = priorities_of([unknown], Priority.SJF, nobody)
    assert found.tolist() == [-UNKNOWN_RUN_S]


def test_weights_are_scaled_to_a_largest_of_1_at_every_lambda() -> None:
    values = np.array([1.5, 0.32, 0.0])
    assert weights_of(values, 1.0).tolist() == pytest.approx([1.0, 0.33 / 1.51, 0.01 / 1.51])
    assert weights_of(values, 0.0).tolist() == [1.0, 1.0, 1.0]
    assert weights_of(values, 1e6).tolist() == [1.0, 0.0, 0.0]
    assert weights_of(np.array([-3.0, -100.0]), 2.0).tolist() == pytest.approx(
        [1.0, (0.01 / 97.01) ** 2]
    )
    assert weights_of(np.zeros(0), 1.0).tolist() == []


def test_a_noted_run_time_stays_though_estimates_improve() -> None:
    slow = snapshot_of(CLUSTER, [JOBS[0]], speeds=linear_speeds(CLUSTER, {"m": {"t": 0.5}}))
    assert known_run_times(slow, [JOBS[0]], {}) == {"new": 800.0}
    assert known_run_times(slow, [JOBS[0]], {"new": 400.0}) == {"new": 400.0}
    assert known_run_times(slow, [waiting("x", None, 0.0)], {}) == {}


def test_notes_are_kept_of_settled_jobs_that_are_active() -> None:
    notes = Notes(expected_run_s={"old": 1.0, "gone": 2.0})
    after = notes.with_run_times({"a": 3.0, "b": 4.0}, ["a", "never"], {"old", "a", "b"})
    assert after.expected_run_s == {"old": 1.0, "a": 3.0}


def test_notes_count_active_jobs_over_time_and_survive_being_written() -> None:
    notes = Notes.read({}).counted(100.0, 4)
    assert notes.mean_active == 4.0
    notes = Notes.read(notes.write()).counted(110.0, 1)
    assert notes.mean_active == 4.0
    notes = Notes.read(notes.write()).counted(140.0, 2)
    assert notes.mean_active == pytest.approx((4 * 10 + 1 * 30) / 40)
    assert Notes.read(notes.write()) == notes
    assert Notes.read({"version": 99, "prices": "?"}) == Notes()
