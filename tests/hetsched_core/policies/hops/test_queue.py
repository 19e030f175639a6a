"""Priorities by hand, their weights, the service window (W4, W5), and notes on run times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.measures.fairness import RunTimes
from hetsched_core.policies.hops.queue import (
    UNKNOWN_RUN_S,
    HopsNotes,
    Priority,
    priorities_of,
    sensitivity_adjustment,
    service_window,
    weights_of,
)
from hetsched_core.types import Job, JobView
from tests.hetsched_core.policies.worlds import with_job
from tests.hetsched_core.worlds import cluster_of, held, linear_speeds, on, view

CLUSTER = cluster_of(a=("t", 4))
SPEEDS = linear_speeds(CLUSTER, {"m": {"t": 1.0}})


def waiting(job_id: str, samples: float | None, wait_s: float, submit_s: float = 0.0) -> JobView:
    bare = with_job(view(job_id, submit_s=submit_s), total_samples=samples)
    return replace(bare, wait_s=wait_s, observed_s=1000.0)


JOBS = [
    waiting("new", 400.0, 100.0, submit_s=900.0),
    replace(
        waiting("half", 200.0, 400.0),
        runs=(held(on(a=2), speed=0.0, since_s=500.0, progress_from_s=500.0),),
        samples_done=100.0,
        attained_gpu_s=(("t", 1200.0),),
    ),
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
    ("priority", "share", "values"),
    [
        (Priority.LATENCY_RATIO, 1.0, [0.25, 2.0, 0.25]),
        (Priority.FIFO, 1.0, [100.0, 1000.0, 1000.0]),
        (Priority.LAS, 1.0, [0.0, -1200.0, 0.0]),
        (Priority.SJF, 1.0, [-400.0, -200.0, -4000.0]),
        (Priority.SRTF, 1.0, [-400.0, -100.0, -4000.0]),
        # (elapsed + left) / T_isolated at 1 GPU: `half` did 100 samples in 600 s, 100 are left.
        (Priority.FINISH_TIME_FAIRNESS, 1.0, [500 / 400, (1000 + 600) / 200, 5000 / 4000]),
        # A fair share of half a GPU doubles the isolated run time.
        (Priority.FINISH_TIME_FAIRNESS, 0.5, [900 / 800, (1000 + 600) / 400, 9000 / 8000]),
    ],
)
def test_priorities_are_larger_for_those_who_come_sooner(
    priority: Priority, share: float, values: list[float]
) -> None:
    assert priorities(priority, share=share) == pytest.approx(values)


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


def test_notes_count_active_jobs_over_time_and_survive_being_written() -> None:
    notes = HopsNotes.read({}).counted(100.0, 4)
    assert notes.mean_active == 4.0
    notes = HopsNotes.read(notes.write()).counted(110.0, 1)
    assert notes.mean_active == 4.0
    notes = HopsNotes.read(notes.write()).counted(140.0, 2)
    assert notes.mean_active == pytest.approx((4 * 10 + 1 * 30) / 40)
    assert HopsNotes.read(notes.write()) == notes
    assert HopsNotes.read({"version": 99, "prices": "?"}) == HopsNotes()


@pytest.mark.parametrize("active", [0, 1])
def test_no_job_or_one_alone_counts_as_one_that_has_the_whole_cluster(active: int) -> None:
    notes = HopsNotes.read({}).counted(100.0, active)
    assert notes.mean_active == 1.0
    assert notes.counted(110.0, active).mean_active == 1.0


def test_w4_the_window_ends_with_the_job_that_reaches_the_cluster() -> None:
    for smallest, jobs in (((4, 2, 3, 2, 1), 4), ((4, 2, 3, 1, 5), 4), ((1, 1), 2), ((), 0)):
        assert service_window(np.array(smallest, np.int64), 10) == jobs


SENSITIVITY = (2.0, 1.8, 1.2, 1.6, 1.1, 1.05, 1.3, 1.0, 1.0, 1.05, 1.5)
W5 = list(zip(SENSITIVITY, (4, 2, 2, 1, 2, 4, 1, 3, 1, 1, 1), strict=True))


def admitted(queue: Sequence[tuple[float, int]], window: int, idle: int) -> list[int]:
    """The places of those let in; each job is (sensitivity, smallest requirement)."""
    sensitivity = np.array([each for each, _ in queue], np.float64)
    smallest = np.array([each for _, each in queue], np.int64)
    found: list[int] = sensitivity_adjustment(sensitivity, smallest, window, idle).tolist()
    return found


def test_w5_jobs_that_are_easily_spread_come_in_until_the_window_is_like_the_queue() -> None:
    """J5, J7, J8, J9, J10; with one idle GPU the smallest, until the queue ends."""
    assert admitted(W5, 3, 3) == [4, 6, 7, 8, 9]
    assert admitted(W5, 3, 1) == [6, 8, 9]
    assert admitted([(1.0, 1), (1.1, 1), (1.5, 1), (1.01, 1)], 2, 4) == []


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
    assert admitted(queue, window, idle) == expected


def test_notes_are_kept_of_settled_jobs_and_of_none_that_is_gone() -> None:
    notes = HopsNotes(expected_run_s={"old": 1.0, "gone": 2.0})
    after = notes.with_run_times({"a": 3.0, "b": 4.0}, ["a", "never"], ["gone", "x"])
    assert after.expected_run_s == {"old": 1.0, "a": 3.0}
