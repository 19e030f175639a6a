"""List schedules by hand, and the run-length form of what each GPU runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from hetsched_core.kernels.task_list import fluid
from hetsched_core.policies.hare.instance import Floats, Instance, Ints
from hetsched_core.policies.hare.order import by_fluid_wspt, by_rounds_around, by_rounds_spread
from hetsched_core.policies.hare.schedule import GpuChoice, Schedule, blocks_of, schedule
from hetsched_core.types import TaskBlock, TaskItem
from tests.hetsched_core.policies.hare.brute import R1, R2, by_gpu, instance_of, random_instance

AVAILABLE, FINISH = GpuChoice.EARLIEST_AVAILABLE, GpuChoice.EARLIEST_FINISH


def order(*jobs: int) -> Ints:
    return np.array(jobs, np.int64)


def told(found: Schedule) -> list[tuple[int, float]]:
    return list(zip(found.gpu.tolist(), found.start_s.tolist(), strict=True))


@pytest.mark.parametrize(
    ("choice", "placed", "complete", "total"),
    [
        (AVAILABLE, [(0, 0), (1, 0), (0, 2), (1, 4), (0, 5), (0, 7)], [10.0, 7.5], 17.5),
        (FINISH, [(0, 0), (0, 2), (1, 0), (1, 3), (0, 5), (0, 7)], [10.0, 6.5], 16.5),
    ],
)
def test_r1_tasks_in_order_on_two_gpus(
    choice: GpuChoice, placed: list[tuple[int, float]], complete: list[float], total: float
) -> None:
    found = schedule(R1, order(0, 0, 1, 1, 0, 0), choice)
    assert told(found) == placed
    assert found.complete_s.tolist() == complete
    assert found.weighted_jct_s == total


@pytest.mark.parametrize(
    ("choice", "complete", "total"), [(AVAILABLE, [6.0, 6.0], 24.0), (FINISH, [5.0, 4.0], 19.0)]
)
def test_r2_arrivals_and_weights(choice: GpuChoice, complete: list[float], total: float) -> None:
    found = schedule(R2, order(1, 0, 1, 0, 1), choice)
    assert found.complete_s.tolist() == complete
    assert R2.weight @ found.complete_s == total
    assert found.weighted_jct_s == total - 3.0


@pytest.mark.parametrize(("jobs", "ends"), [((0, 1) * 3, (6, 6)), ((0,) * 3 + (1,) * 3, (6, 8))])
def test_r3_one_job_fills_the_time_in_which_another_synchronises(
    jobs: tuple[int, ...], ends: tuple[float, float]
) -> None:
    one_gpu = instance_of([0, 0], [1, 1], [3, 3], [1, 1], [[1], [1]], [[1], [0]])
    assert tuple(schedule(one_gpu, order(*jobs), AVAILABLE).complete_s) == ends


@pytest.mark.parametrize("choice", [AVAILABLE, FINISH])
@pytest.mark.parametrize(("gpus", "a", "b"), [((0, 1), 12.0, 8.0), ((2, 3), 7.2, 9.0)])
def test_r9_task_gpu_time_depends_on_the_gpus(
    choice: GpuChoice, gpus: tuple[int, int], a: float, b: float
) -> None:
    """Fig. 9 and 10 of TCC: 4 tasks of A, 6 of B, each on two of the four GPUs alone."""
    times = {"A": [3.0, 3.0, 1.8, 1.8], "B": [1.0, 2.0, 2.5, 1.0]}
    for name, tasks, gpu_s in (("A", 4, a), ("B", 6, b)):
        train = [[times[name][m] for m in gpus]]
        found = schedule(
            instance_of([0], [1], [1], [tasks], train, [[0, 0]]), order(*(0,) * tasks), choice
        )
        assert sum(train[0][m] for m in found.gpu) == pytest.approx(gpu_s)


def naive(instance: Instance, jobs: Ints, choice: GpuChoice) -> list[tuple[int, float]]:
    """The algorithm as it is written, task by task."""
    train_s, sync_s = by_gpu(instance)
    free = instance.free_s.tolist()
    ends: dict[int, list[float]] = {}
    placed = []
    for n in jobs.tolist():
        mine = ends.setdefault(n, [])
        skipped = int(instance.scale[n] - instance.first[n])
        before = (len(mine) + skipped) // int(instance.scale[n]) * int(instance.scale[n]) - skipped
        opens = float(instance.arrival_s[n])
        if before > 0:
            opens = max(*mine[:before], opens, float(instance.in_step_s[n]))
        able = [m for m in range(len(free)) if train_s[n, m] < np.inf]
        if choice is AVAILABLE:
            gpu = min(able, key=lambda m: free[m])
        else:
            gpu = min(
                able,
                key=lambda m: max(free[m], opens) + train_s[n, m] + sync_s[n, m],
            )
        start = max(free[gpu], opens)
        free[gpu] = start + train_s[n, gpu]
        mine.append(free[gpu] + sync_s[n, gpu])
        placed.append((gpu, start))
    return placed


@pytest.mark.parametrize("choice", [AVAILABLE, FINISH])
def test_the_kernel_is_the_algorithm_as_it_is_written(choice: GpuChoice) -> None:
    rng = Random(3)
    for _ in range(100):
        one = random_instance(rng, most_tasks=14, most_gpus=4)
        begun = [rng.randint(1, s) for s in one.scale.tolist()]
        late = [
            rng.uniform(0.0, 4.0) if f < s else 0.0 for f, s in zip(begun, one.scale, strict=True)
        ]
        instance = replace(
            one,
            first=np.array(begun, np.int64),
            free_s=np.array([rng.choice((0.0, 2.5)) for _ in one.free_s]),
            in_step_s=np.array(late),
        )
        jobs = np.repeat(np.arange(len(one.rounds)), instance.tasks)
        rng.shuffle(shuffled := jobs.tolist())
        found = schedule(instance, np.array(shuffled, np.int64), choice)
        assert told(found) == naive(instance, found.job, choice)


@pytest.mark.parametrize(
    "build", [by_rounds_around, by_rounds_spread, lambda instance, _: by_fluid_wspt(instance)]
)
def test_an_order_names_every_task_once(build: Callable[[Instance, Floats], Ints]) -> None:
    rng = Random(6)
    for _ in range(50):
        instance = random_instance(rng, most_tasks=20)
        middle = instance.arrival_s + instance.rounds * instance.shortest_round_s
        jobs = build(instance, middle)
        assert np.bincount(jobs, minlength=len(middle)).tolist() == instance.tasks.tolist()


def test_rounds_are_ordered_by_h_around_the_middle() -> None:
    """x of A: 2, 4, 6; of B: 4. Half the longest T^c is 1 for A, 0.5 for B."""
    both = instance_of([0, 0], [1, 1], [3, 1], [1, 2], [[2], [1]], [[0], [0]])
    assert by_rounds_around(both, np.array([4.0, 4.0])).tolist() == [0, 1, 1, 0, 0]
    assert by_rounds_spread(both, np.array([4.0, 0.0])).tolist() == [1, 1, 0, 0, 0]


def test_a_fluid_serves_most_weight_for_its_work_first_and_waits_for_nobody_to_arrive() -> None:
    three = instance_of(
        [0, 0, 5], [1, 5, 99], [4, 1, 1], [1, 2, 1], [[2], [1], [1]], [[0], [0], [0]]
    )
    # B takes 2 s, A the rest; at 5 comes C and goes first: A's rounds begin at 2, 4, 6, 8 or later.
    assert by_fluid_wspt(three).tolist() == [1, 1, 0, 0, 2, 0, 0]


def naive_fluid(
    arrival: Floats, work: Floats, most: Floats, preference: list[int]
) -> list[tuple[float, float]]:
    """When each job begins to be served, and has been: from one event to the next."""
    left, begin, end = work.copy(), np.full(len(work), np.inf), np.full(len(work), np.inf)
    times = np.unique(arrival).tolist()
    now = times.pop(0)
    while True:
        share, free = np.zeros(len(work)), 1.0
        for n in preference:
            if free > 0 and left[n] > 0 and arrival[n] <= now:
                share[n] = min(free, most[n])
                free -= share[n]
        served = share > 0
        if not served.any() and not times:
            return list(zip(begin.tolist(), end.tolist(), strict=True))
        begin[served & np.isinf(begin)] = now
        ends = [now + float(np.min(left[served] / share[served]))] if served.any() else []
        until = min(ends + times[:1])
        left -= share * (until - now)
        over = served & (left <= 1e-9 * work)
        left[over], end[over] = 0.0, until
        now = until
        times = [t for t in times if t > now]


def test_the_fluid_s_kernel_goes_from_one_event_to_the_next() -> None:
    rng = Random(8)
    for _ in range(200):
        jobs = range(rng.randint(1, 12))
        arrival = np.array([float(rng.randint(0, 9)) for _ in jobs])
        work = np.array([rng.choice((0.5, 1.0, rng.uniform(0.1, 5.0))) for _ in jobs])
        most = np.array([rng.choice((1.0, 0.25, rng.uniform(0.01, 1.0))) for _ in jobs])
        rng.shuffle(preference := list(jobs))
        begin, end = np.full((2, len(jobs)), np.inf)
        fluid(arrival, work, most, np.array(preference), begin, end)
        found = list(zip(begin.tolist(), end.tolist(), strict=True))
        assert found == naive_fluid(arrival, work, most, preference)


def test_what_a_gpu_runs_is_told_by_tasks_rounds_and_repetitions() -> None:
    """A: 3 rounds of 2 from round 5 on, of whose first 1 is left; B: 1 round of 1 in between."""
    one = instance_of([0, 0], [1, 1], [3, 1], [2, 1], [[1], [1]], [[0], [0]])
    begun = replace(one, first=np.array([1, 1], np.int64))
    found = schedule(begun, order(0, 1, 0, 0, 0, 0), AVAILABLE)
    assert blocks_of(found, begun, ["A", "B"], [5, 0]) == {
        0: (
            TaskBlock((TaskItem("A", 5, 1),)),
            TaskBlock((TaskItem("B", 0, 1),)),
            TaskBlock((TaskItem("A", 6, 2),), times=2),
        )
    }
