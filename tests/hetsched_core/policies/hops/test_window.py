"""The service window (worked example W4) and the sensitivity adjustment (W5)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.policies.hops.window import sensitivity_adjustment, service_window


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


def test_w5_jobs_that_are_easily_spread_come_in_until_the_window_is_like_the_queue() -> None:
    assert admitted(W5, 3, 3) == "J5 J7 J8 J9 J10"


def test_w5_with_one_idle_gpu_only_the_smallest_come_in_until_the_queue_ends() -> None:
    assert admitted(W5, 3, 1) == "J7 J9 J10"


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


def test_w5_a_window_that_is_less_sensitive_than_the_queue_lets_nobody_in() -> None:
    assert admitted((("a", 1.0, 1), ("b", 1.1, 1), ("c", 1.5, 1), ("d", 1.01, 1)), 2, 4) == ""


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
