"""AlloX: the matching against enumeration, and whole jobs on single GPUs by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from hetsched_core.policies.allox import MOST_TOGETHER, Allox, match, match_in_turn
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.types import (
    Cluster,
    JobView,
    Node,
    Placed,
    Plan,
    Reason,
    ReasonCode,
    TaskItem,
    TaskProgress,
    TaskShape,
    TaskTimes,
)
from tests.hetsched_core.policies.worlds import ends, planned, reasons, task_speeds
from tests.hetsched_core.worlds import cluster_of, held, on, submission, view

INF = math.inf
HELD = Reason(ReasonCode.HELD)


def total(queues: list[list[int]], durations: list[list[float]], free_in_s: list[float]) -> float:
    """The sum of completion times."""
    sum_s = 0.0
    for gpu, queue in enumerate(queues):
        now = free_in_s[gpu]
        for job in queue:
            now += durations[job][gpu]
            sum_s += now
    return sum_s


@given(data=st.data())
def test_the_matching_is_as_good_as_the_best_by_enumeration(data: st.DataObject) -> None:
    draw = data.draw
    gpus, jobs = draw(st.integers(1, 3)), draw(st.integers(0, 5))
    seconds = st.sampled_from((1.0, 2.0, 3.0, 7.0, 20.0, INF))
    row = st.lists(seconds, min_size=gpus, max_size=gpus)
    durations = draw(st.lists(row, min_size=jobs, max_size=jobs))
    free_in_s = draw(st.lists(st.sampled_from((0.0, 0.0, 4.0)), min_size=gpus, max_size=gpus))
    queues = match(np.array(durations).reshape(jobs, gpus), np.array(free_in_s))
    able = [job for job in range(jobs) if any(d < INF for d in durations[job])]
    assert sorted(job for queue in queues for job in queue) == able
    best = INF
    for places in itertools.product(range(gpus), repeat=len(able)):
        # On each GPU the shortest goes first.
        sent = [[j for j, g in zip(able, places, strict=True) if g == gpu] for gpu in range(gpus)]
        sent = [sorted(q, key=lambda j, g=g: durations[j][g]) for g, q in enumerate(sent)]  # type: ignore[misc]
        best = min(best, total(sent, durations, free_in_s))
    assert total(queues, durations, free_in_s) == pytest.approx(best)


def test_many_jobs_on_one_gpu_take_places_far_from_the_end() -> None:
    # Only GPU 0 runs them; the places first offered are not enough.
    durations = np.array([[float(job + 1), INF, INF] for job in range(9)])
    assert match(durations, np.zeros(3)) == [list(range(9)), [], []]


def test_places_far_from_the_end_are_added_where_they_are_taken_alone() -> None:
    draw = np.random.default_rng(1)
    durations = draw.lognormal(0.0, 1.0, (60, 1)) * np.where(np.arange(200) < 4, 1.0, 20.0)
    columns = []

    def count(cost: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        columns.append(cost.shape[1])
        found: tuple[NDArray[np.intp], NDArray[np.intp]] = linear_sum_assignment(cost)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hetsched_core.policies.allox.linear_sum_assignment", count)
        queues = match(durations, np.zeros(200))
    assert max(map(len, queues[:4])) >= 8
    assert max(columns) <= 2 * 200 + 2 * 60


@given(data=st.data())
def test_of_many_jobs_the_shortest_are_matched_first_until_no_idle_gpu_is_left(
    data: st.DataObject,
) -> None:
    gpus, jobs = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 9))
    row = st.lists(st.sampled_from((1.0, 2.0, 3.0, 7.0, 20.0, INF)), min_size=gpus, max_size=gpus)
    durations = np.array(data.draw(st.lists(row, min_size=jobs, max_size=jobs)))
    durations = durations.reshape(jobs, gpus)
    free_in_s = np.array(
        data.draw(st.lists(st.sampled_from((0.0, 4.0)), min_size=gpus, max_size=gpus))
    )
    assert match_in_turn(durations, free_in_s, np.arange(gpus)) == match(durations, free_in_s)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hetsched_core.policies.allox.MOST_TOGETHER", 2)
        queues, again = (match_in_turn(durations, free_in_s, np.arange(gpus)) for _ in range(2))
    assert queues == again
    queued = [job for queue in queues for job in queue]
    assert len(set(queued)) == len(queued)
    able = [job for job in range(jobs) if (durations[job] < INF).any()]
    left = set(able) - set(queued)
    for gpu, queue in enumerate(queues):
        # No GPU idles that one of those left out could use; for others nothing is matched.
        assert queue or free_in_s[gpu] or not any(durations[job, gpu] < INF for job in left)
    least = durations.min(axis=1, initial=INF)
    assert all(least[job] >= least[first] for job in left for first in queued)
    assert all(durations[job, gpu] < INF for gpu, queue in enumerate(queues) for job in queue)


def test_for_a_gpu_that_no_job_can_use_nothing_is_matched() -> None:
    durations = np.ones((1000, 3))
    durations[:, 2] = INF
    matched = []

    def noting(some: NDArray[np.float64], free_in_s: NDArray[np.float64]) -> list[list[int]]:
        matched.append(len(some))
        return match(some, free_in_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hetsched_core.policies.allox.match", noting)
        queues = match_in_turn(durations, np.zeros(3), np.arange(3))
    assert matched == [MOST_TOGETHER]
    assert [len(queue) for queue in queues] == [150, 150, 0]


CLUSTER = cluster_of(fast=("v100", 1), slow=("k80", 1))
ONCE = TaskShape(1, 1)
NEVER_S = 999.0


def on_types(v100: float, k80: float, sync_s: float = 0.0) -> dict[str, TaskTimes]:
    """Seconds of a task on each GPU type, and to synchronise."""
    return {"v100": TaskTimes(v100, sync_s), "k80": TaskTimes(k80, sync_s)}


LONG, SHORT = (1.0, NEVER_S, 0.5, 1, 50, 0.0), (1.0, NEVER_S, 0.5, 1, 2, 0.0)


@pytest.mark.parametrize(
    ("unit_size", "jobs", "expected"),
    [
        # Seconds of a job of one task on the fast and the slow GPU, synchronisation included:
        # 2 / 6, 4 / 6, 6 / 6. Best: two on the fast one, the last on the slow one: 14. All on the
        # fast one gives 2 + 6 + 12, the second on the slow one 2 + 8 + 6.
        (
            False,
            [(1.5, 5.5, 0.5, 1, 1, 0.0), (3.5, 5.5, 0.5, 1, 1, 0.0), (5.5, 5.5, 0.5, 1, 1, 0.0)],
            [2.0, 6.0, 6.0],
        ),
        # All tasks of all rounds on one GPU: two of two tasks, each synchronised in 0.5 s.
        (False, [(1.0, NEVER_S, 0.5, 2, 2, 0.0)], [5.0]),
        # Known: the long job waits for the short one. Unknown: equal rounds, so first come.
        (False, [LONG, SHORT], [78.0, 3.0]),
        (True, [LONG, SHORT], [75.0, 78.0]),
        # 1 + 5 s against 3 s, and 2 rounds of 3 tasks against 4 rounds of one, 3 s each.
        (False, [(1.0, NEVER_S, 5.0, 1, 1, 0.0), (3.0, NEVER_S, 0.0, 1, 1, 0.0)], [9.0, 3.0]),
        (False, [(3.0, NEVER_S, 0.0, 3, 2, 0.0), (3.0, NEVER_S, 0.0, 1, 4, 0.0)], [30.0, 12.0]),
        # The first GPU is in the last task of its job: behind that it would end after 110 s.
        (False, [(100.0, 900.0, 0.0, 1, 1, 0.0), (10.0, 20.0, 0.0, 1, 1, 1.0)], [100.0, 21.0]),
    ],
)
def test_whole_jobs_on_single_gpus_by_hand(
    unit_size: bool,
    jobs: list[tuple[float, float, float, int, int, float]],
    expected: list[float],
) -> None:
    """Jobs are (seconds a task on the fast and slow GPU, synchronisation, tasks, rounds, at)."""
    times, submissions = {}, []
    for name, (fast_s, slow_s, sync_s, scale, rounds, at_s) in zip("abc", jobs, strict=False):
        times[name] = on_types(fast_s, slow_s, sync_s)
        shape = TaskShape(scale, rounds)
        submissions.append(submission(name, 1.0, profile=name, submit_s=at_s, tasks=shape))
    policy, speeds = Allox(unit_size=unit_size), task_speeds(CLUSTER, times)
    log = simulate(submissions, CLUSTER, policy, speeds, SimulationSettings(switch=0.0))
    assert [ends(log)[each.job.id] for each in submissions] == expected


def plan_of(
    *jobs: JobView, times: dict[str, TaskTimes], cluster: Cluster = CLUSTER, **more: object
) -> Plan:
    return planned(Allox(), cluster, *jobs, speeds=task_speeds(cluster, {"m": times}), **more)


def new(rounds: int = 1, name: str = "new", cpus: float = 0.0) -> JobView:
    return view(name, tasks=TaskShape(1, rounds), submit_s=1.0, cpus_per_gpu=cpus)


def begun_on(plan: Plan) -> list[tuple[str, int]]:
    return [(sequence.node, sequence.gpu) for sequence in plan.sequences]


def test_a_job_that_has_begun_stays_and_a_busy_gpu_counts_from_when_it_is_free() -> None:
    fifth = held(on(fast=1), since_s=3.0, progress_from_s=3.25)
    begun = view("begun", fifth, tasks=TaskShape(1, 10), progress=TaskProgress(rounds_done=4))
    plan = plan_of(begun, new(rounds=2), times=on_types(1.0, 3.0), now=4.0)
    todo = {sequence.node: sequence.blocks for sequence in plan.sequences}
    # The fifth round has 0.25 s to go, five come after it: the fast GPU is free in 5.25 s.
    # 2 rounds there end after 7.25 s, on the slow one after 6 s.
    assert [block.items for block in todo["fast"]] == [(TaskItem("begun", 5),)]
    assert todo["fast"][0].times == 5
    assert [block.items for block in todo["slow"]] == [(TaskItem("new", 0),), (TaskItem("new", 1),)]
    assert plan.entries["begun"] == plan.entries["new"] == Placed(())
    # 4 rounds end after 9.25 s behind the other job, after 12 s on the slow GPU.
    waits = plan_of(begun, new(rounds=4), times=on_types(1.0, 3.0), now=4.0)
    assert begun_on(waits) == [("fast", 0)]
    assert list(reasons(waits)) == ["new"]


@pytest.mark.parametrize(
    ("blocked", "times", "now", "begins_on"),
    [
        # A round whose last task runs is still to synchronise: on the fast GPU 2 s and that are
        # left, then come 4 s and that; on the slow one 10 s and that.
        (None, on_types(4.0, 10.0, 3.5), 2.0, []),
        (None, on_types(4.0, 10.0, 4.5), 2.0, [("slow", 0)]),
        # A task of a held job has only the rest of its time to go: behind it 7 + 10 or 4 + 10 s.
        (HELD, on_types(10.0, 15.0), 3.0, [("slow", 0)]),
        (HELD, on_types(10.0, 15.0), 6.0, []),
    ],
)
def test_a_gpu_is_free_when_the_last_task_on_it_is_in_step(
    blocked: Reason | None, times: dict[str, TaskTimes], now: float, begins_on: list[object]
) -> None:
    progress = None if blocked else TaskProgress()
    last = view("last", held(on(fast=1)), tasks=ONCE, progress=progress, blocked=blocked)
    assert begun_on(plan_of(last, new(), times=times, now=now)) == begins_on


@pytest.mark.parametrize(
    ("cpus", "foreign"), [(1, 0.0), (2, 1.0)], ids=["too few CPUs", "CPUs in use by others"]
)
def test_a_gpu_without_the_cpus_for_a_job_is_none_of_its_places(cpus: int, foreign: float) -> None:
    # Ten times as fast, but never with 2 CPUs for the job; it would wait there for ever.
    cluster = Cluster((Node("fast", "v100", 1, cpus=cpus), Node("slow", "k80", 1, cpus=2)))
    nodes = {"fast": {"foreign_cpus": foreign}}
    plan = plan_of(new(cpus=2.0), times=on_types(1.0, 10.0), cluster=cluster, nodes=nodes)
    assert begun_on(plan) == [("slow", 0)]


def test_jobs_that_begin_at_once_share_the_cpus_of_a_node() -> None:
    cluster = Cluster((Node("n", "v100", 2, cpus=3),))
    jobs = [new(name=name, cpus=2.0) for name in "ab"]
    plan = plan_of(*jobs, times=on_types(1.0, 9.0), cluster=cluster)
    assert len(plan.sequences) == len(reasons(plan)) == 1


def test_a_gpu_that_still_runs_a_task_of_a_held_job_is_free_after_it() -> None:
    cluster = cluster_of(fast=("v100", 2), slow=("k80", 1))
    stopping = view("stopping", held(on(fast=1)), tasks=ONCE, blocked=HELD)
    for jobs in ([new()], [new(), new(name="later")]):
        # GPU 0 runs the task for a second more: all do best on the fast GPUs, one at once.
        plan = plan_of(stopping, *jobs, times=on_types(1.0, 9.0), cluster=cluster)
        assert begun_on(plan) == [("fast", 1)]
        assert len(reasons(plan)) == len(jobs)
