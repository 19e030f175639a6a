"""Priorities by hand, their weights, the service window (W4, W5), and notes on run times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.fairness import RunTimes
from hetsched_core.policies.hops.queue import (
    UNKNOWN_RUN_S,
    Notes,
    Priority,
    known_run_times,
    priorities_of,
    sensitivity_adjustment,
    service_window,
    weights_of,
)
from hetsched_core.types import Job, JobView
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


RUN_S = {"new": 400.0, "half": 200.0, "long": 4000.0}


def priorities(
    priority: Priority,
    views: Sequence[JobView] = JOBS,
    run_s: Mapping[str, float] = RUN_S,
    share: float = 1.0,
) -> list[float]:
    times = RunTimes(SPEEDS, CLUSTER)

    def isolated_run_s(job: Job, samples: float) -> float | None:
        return times.isolated_run_s(job, samples, share)

    return list(priorities_of(views, priority, 1000.0, run_s, isolated_run_s))


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
    known = {"new": 400.0, "long": 4000.0}
    assert priorities(Priority.LATENCY_RATIO, [unknown], known) == pytest.approx([660 / 2200])
    fair = priorities(Priority.FINISH_TIME_FAIRNESS, [unknown], known)
    assert fair == pytest.approx([(1000 + 2200 - 340) / 2200])
    assert priorities(Priority.SJF, [unknown], {}) == [-UNKNOWN_RUN_S]


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


@pytest.mark.parametrize(
    ("smallest", "jobs"),
    [((4, 2, 3, 2, 1), 4), ((4, 2, 3, 1, 5), 4), ((1, 1), 2), ((), 0)],
)
def test_w4_the_window_ends_with_the_job_that_reaches_the_cluster(
    smallest: tuple[int, ...], jobs: int
) -> None:
    assert service_window(np.array(smallest, np.int64), 10) == jobs


W5 = (
    ("J1", 2.0, 4),
    ("J2", 1.8, 2),
    ("J3", 1.2, 2),
    ("J4", 1.6, 1),
    ("J5", 1.1, 2),
    ("J6", 1.05, 4),
    ("J7", 1.3, 1),
    ("J8", 1.0, 3),
    ("J9", 1.0, 1),
    ("J10", 1.05, 1),
    ("J11", 1.5, 1),
)


def admitted(queue: tuple[tuple[str, float, int], ...], window: int, idle: int) -> str:
    found = sensitivity_adjustment(
        np.array([sensitivity for _, sensitivity, _ in queue]),
        np.array([smallest for *_, smallest in queue], np.int64),
        window,
        idle,
    )
    return " ".join(queue[at][0] for at in found)


LESS_SENSITIVE = (("a", 1.0, 1), ("b", 1.1, 1), ("c", 1.5, 1), ("d", 1.01, 1))


@pytest.mark.parametrize(
    ("queue", "window", "idle", "expected"),
    [
        (W5, 3, 3, "J5 J7 J8 J9 J10"),
        # With one idle GPU only the smallest, until the queue ends.
        (W5, 3, 1, "J7 J9 J10"),
        (LESS_SENSITIVE, 2, 4, ""),
    ],
)
def test_w5_jobs_that_are_easily_spread_come_in_until_the_window_is_like_the_queue(
    queue: tuple[tuple[str, float, int], ...], window: int, idle: int, expected: str
) -> None:
    assert admitted(queue, window, idle) == expected


def test_w5_the_mean_of_the_window_falls_as_printed() -> None:
    means = []
    window = [2.0, 1.8, 1.2]
    for name in admitted(W5, 3, 3).split():
        means.append(sum(window) / len(window))
        window.append(next(sensitivity for job, sensitivity, _ in W5 if job == name))
    means.append(sum(window) / len(window))
    printed = (1.666667, 1.525, 1.48, 1.4, 1.342857, 1.30625)
    assert means == pytest.approx(printed, abs=5e-7)
    assert sum(sensitivity for _, sensitivity, _ in W5) / len(W5) == pytest.approx(
        1.327273, abs=5e-7
    )


@given(
    queue=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 8)), max_size=12),
    window=st.integers(0, 12),
    idle=st.integers(0, 8),
)
def test_the_adjustment_does_what_its_words_say(
    queue: list[tuple[int, int]], window: int, idle: int
) -> None:
    """Word by word, with the mean of the whole queue fixed and that of the window taken anew."""
    window = min(window, len(queue))
    inside = list(range(window))
    expected = []
    for at in range(window, len(queue)):
        # Integers: the mean comparison a/b > c/d is exact as a d > c b.
        mean_set = sum(queue[k][0] for k in inside) * len(queue)
        mean_queue = sum(sensitivity for sensitivity, _ in queue) * len(inside)
        if not inside or mean_set <= mean_queue:
            break
        sensitivity, smallest = queue[at]
        below = sensitivity * len(queue) < sum(each for each, _ in queue)
        if below and smallest <= idle:
            inside.append(at)
            expected.append(at)
    found = sensitivity_adjustment(
        np.array([float(sensitivity) for sensitivity, _ in queue]),
        np.array([smallest for _, smallest in queue], np.int64),
        window,
        idle,
    )
    assert found.tolist() == expected


@given(st.lists(st.integers(1, 20), max_size=30), st.integers(1, 60))
def test_the_window_is_the_shortest_head_that_reaches_the_cluster(
    smallest: list[int], gpus: int
) -> None:
    jobs = service_window(np.array(smallest, np.int64), gpus)
    assert sum(smallest[:jobs]) >= gpus or jobs == len(smallest)
    assert sum(smallest[: jobs - 1]) < gpus or jobs == 0
