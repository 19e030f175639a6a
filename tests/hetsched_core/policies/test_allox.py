"""AlloX: the matching against enumeration, and whole jobs on single GPUs by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.policies.allox import Allox, match
from hetsched_core.runlog import RunLog
from hetsched_core.simulate import Settings, simulate
from hetsched_core.types import (
    Cluster,
    Node,
    Placed,
    Reason,
    ReasonCode,
    TaskItem,
    TaskProgress,
    TaskShape,
    TaskTimes,
    Waiting,
)
from tests.hetsched_core.worlds import (
    cluster_of,
    held,
    linear_speeds,
    on,
    snapshot_of,
    submission,
    view,
)

INF = math.inf


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


CLUSTER = cluster_of(fast=("v100", 1), slow=("k80", 1))


def run(policy: Allox, *jobs: tuple[str, int, int]) -> RunLog:
    """Run jobs, given as (name, scale, rounds); their names say seconds a task on V100 and K80."""
    times = {
        name: {
            "v100": TaskTimes(float(name.split("-")[1]), 0.5),
            "k80": TaskTimes(float(name.split("-")[2]), 0.5),
        }
        for name, _, _ in jobs
    }
    speeds = linear_speeds(
        CLUSTER, {name: {"v100": 1.0, "k80": 1.0} for name, _, _ in jobs}, tasks=times
    )
    return simulate(
        [
            submission(name, 1.0, profile=name, submit_s=0.0, tasks=TaskShape(scale, rounds))
            for name, scale, rounds in jobs
        ],
        CLUSTER,
        policy,
        speeds,
        Settings(switch=0.0),
    )


def ends(log: RunLog) -> dict[str, float | None]:
    return {record.job.id: record.end_s for record in log.jobs}


def test_by_hand_three_jobs_on_a_fast_and_a_slow_gpu() -> None:
    # Seconds of a one-task job on the fast and the slow GPU, synchronisation included: a 2 / 6,
    # b 4 / 6, c 6 / 6. Best: a, then b on the fast one (2, 6), c on the slow one (6): 14.
    # Everything on the fast one gives 2 + 6 + 12, b on the slow one 2 + 8 + 6.
    log = run(Allox(), ("a-1.5-5.5", 1, 1), ("b-3.5-5.5", 1, 1), ("c-5.5-5.5", 1, 1))
    assert ends(log) == {"a-1.5-5.5": 2.0, "b-3.5-5.5": 6.0, "c-5.5-5.5": 6.0}


def test_a_job_runs_all_tasks_of_its_rounds_on_one_gpu_one_after_another() -> None:
    # Two rounds of two tasks of 1 s, each round synchronised in 0.5 s.
    log = run(Allox(), ("j-1-9", 2, 2))
    assert ends(log) == {"j-1-9": 5.0}
    assert {str(r.configuration) for r in log.runs} == {"fast:1"}


def test_without_sizes_every_job_counts_as_one_training_round() -> None:
    # Known: the long job waits for the short one. Unknown: equal rounds, so first come.
    long, short = ("a-1-99", 1, 50), ("b-1-99", 1, 2)
    known = ends(run(Allox(), long, short))
    assert known == {"a-1-99": 78.0, "b-1-99": 3.0}
    unknown = ends(run(Allox(unit_size=True), long, short))
    assert unknown == {"a-1-99": 75.0, "b-1-99": 78.0}


def test_a_job_that_has_begun_stays_and_a_busy_gpu_counts_from_when_it_is_free() -> None:
    speeds = linear_speeds(
        CLUSTER,
        {"m": {"v100": 1.0, "k80": 1.0}},
        tasks={"m": {"v100": TaskTimes(1.0, 0.0), "k80": TaskTimes(3.0, 0.0)}},
    )
    shape = TaskShape(scale=1, rounds=10)
    fifth = held(on(fast=1), since_s=3.0, progress_from_s=3.25)
    begun = view("begun", fifth, tasks=shape, progress=TaskProgress(rounds_done=4))
    new = view("new", tasks=TaskShape(scale=1, rounds=2), submit_s=1.0)
    plan = Allox().plan(snapshot_of(CLUSTER, [begun, new], now=4.0, speeds=speeds))
    todo = {sequence.node: sequence.blocks for sequence in plan.sequences}
    # The fifth round has 0.25 s to go, five come after it: the fast GPU is free in 5.25 s.
    # 2 rounds there end after 7.25 s, on the slow one after 6 s.
    assert [block.items for block in todo["fast"]] == [(TaskItem("begun", 5),)]
    assert todo["fast"][0].times == 5
    assert [block.items for block in todo["slow"]] == [(TaskItem("new", 0),), (TaskItem("new", 1),)]
    assert plan.entries["begun"] == plan.entries["new"] == Placed(())
    longer = view("new", tasks=TaskShape(scale=1, rounds=4), submit_s=1.0)
    waits = Allox().plan(snapshot_of(CLUSTER, [begun, longer], now=4.0, speeds=speeds))
    # 4 rounds end after 9.25 s behind the other job, after 12 s on the slow GPU.
    assert {sequence.node for sequence in waits.sequences} == {"fast"}
    assert isinstance(waits.entries["new"], Waiting)


def test_a_gpu_in_the_last_task_of_its_job_is_free_when_that_is_in_step() -> None:
    speeds = linear_speeds(
        CLUSTER,
        {"a": {"v100": 1.0}, "b": {"v100": 2.0, "k80": 1.0}},
        tasks={
            "a": {"v100": TaskTimes(100.0, 0.0), "k80": TaskTimes(900.0, 0.0)},
            "b": {"v100": TaskTimes(10.0, 0.0), "k80": TaskTimes(20.0, 0.0)},
        },
    )
    jobs = [
        submission(name, 1.0, profile=name, submit_s=submit_s, tasks=TaskShape(1, 1))
        for name, submit_s in (("a", 0.0), ("b", 1.0))
    ]
    log = simulate(jobs, CLUSTER, Allox(), speeds, Settings(switch=0.0))
    # Behind a, b would end after 110 s.
    assert ends(log) == {"a": 100.0, "b": 21.0}


@pytest.mark.parametrize(
    ("sync_s", "begins_on"),
    # Left on the fast GPU: 2 s of training and the synchronisation, then 4 s for the new job.
    # On the slow one 10 s.
    [(3.5, set()), (4.5, {"slow"})],
)
def test_a_round_whose_last_task_runs_is_still_to_synchronise(
    sync_s: float, begins_on: set[str]
) -> None:
    tasks = {"m": {"v100": TaskTimes(4.0, sync_s), "k80": TaskTimes(10.0, sync_s)}}
    speeds = linear_speeds(CLUSTER, {"m": {"v100": 2.0, "k80": 1.0}}, tasks=tasks)
    last = view("last", held(on(fast=1)), tasks=TaskShape(1, 1), progress=TaskProgress())
    new = view("new", tasks=TaskShape(1, 1), submit_s=1.0)
    plan = Allox().plan(snapshot_of(CLUSTER, [last, new], now=2.0, speeds=speeds))
    assert {sequence.node for sequence in plan.sequences} == begins_on


@pytest.mark.parametrize(("now", "begins_on"), [(3.0, {"slow"}), (6.0, set())])
def test_a_task_of_a_held_job_has_only_the_rest_of_its_time_to_go(
    now: float, begins_on: set[str]
) -> None:
    tasks = {"m": {"v100": TaskTimes(10.0, 0.0), "k80": TaskTimes(15.0, 0.0)}}
    speeds = linear_speeds(CLUSTER, {"m": {"v100": 2.0, "k80": 1.0}}, tasks=tasks)
    shape = TaskShape(1, 1)
    stopping = view("stopping", held(on(fast=1)), tasks=shape, blocked=Reason(ReasonCode.HELD))
    new = view("new", tasks=shape, submit_s=1.0)
    plan = Allox().plan(snapshot_of(CLUSTER, [stopping, new], now=now, speeds=speeds))
    # Behind it the new job ends after 7 + 10 or 4 + 10 s, on the slow GPU after 15 s.
    assert {sequence.node for sequence in plan.sequences} == begins_on


@pytest.mark.parametrize(
    "nodes", [None, {"fast": {"foreign_cpus": 1.0}}], ids=["too few CPUs", "CPUs in use by others"]
)
def test_a_gpu_without_the_cpus_for_a_job_is_none_of_its_places(
    nodes: dict[str, dict[str, object]] | None,
) -> None:
    # Ten times as fast, but never with 2 CPUs for the job; it would wait there for ever.
    cluster = Cluster(
        (Node("fast", "v100", 1, cpus=1 if nodes is None else 2), Node("slow", "k80", 1, cpus=2))
    )
    speeds = linear_speeds(
        cluster,
        {"m": {"v100": 10.0, "k80": 1.0}},
        tasks={"m": {"v100": TaskTimes(1.0, 0.0), "k80": TaskTimes(10.0, 0.0)}},
    )
    job = view("j", tasks=TaskShape(scale=1, rounds=1), cpus_per_gpu=2.0)
    plan = Allox().plan(snapshot_of(cluster, [job], speeds=speeds, nodes=nodes))
    assert [sequence.node for sequence in plan.sequences] == ["slow"]


TIMES = {"m": {"v100": TaskTimes(1.0, 0.0), "k80": TaskTimes(9.0, 0.0)}}


def test_a_gpu_that_still_runs_a_task_of_a_held_job_is_free_after_it() -> None:
    cluster = cluster_of(fast=("v100", 2), slow=("k80", 1))
    speeds = linear_speeds(cluster, {"m": {"v100": 9.0, "k80": 1.0}}, tasks=TIMES)
    shape = TaskShape(scale=1, rounds=1)
    stopping = view("stopping", held(on(fast=1)), tasks=shape, blocked=Reason(ReasonCode.HELD))
    new = [view(name, tasks=shape, submit_s=1.0) for name in ("next", "later")]
    alone = Allox().plan(snapshot_of(cluster, [stopping, new[0]], speeds=speeds))
    assert [(sequence.node, sequence.gpu) for sequence in alone.sequences] == [("fast", 1)]
    plan = Allox().plan(snapshot_of(cluster, [stopping, *new], speeds=speeds))
    # GPU 0 runs the task for a second more: both do best on the fast GPUs, one of them at once.
    assert [(sequence.node, sequence.gpu) for sequence in plan.sequences] == [("fast", 1)]
    assert [type(plan.entries[name]) for name in ("next", "later")].count(Waiting) == 1


def test_synchronisation_and_every_task_of_every_round_make_a_job_longer() -> None:
    one_gpu = cluster_of(a=("v100", 1))
    tasks = {"quick": {"v100": TaskTimes(1.0, 5.0)}, "slow": {"v100": TaskTimes(3.0, 0.0)}}
    speeds = linear_speeds(one_gpu, {p: {"v100": 1.0} for p in tasks}, tasks=tasks)

    def first(one: tuple[str, TaskShape], other: tuple[str, TaskShape]) -> str:
        views = [
            replace(v, job=replace(v.job, profile=profile))
            for v, profile in (
                (view(name, tasks=shape), profile)
                for name, (profile, shape) in (("a", one), ("b", other))
            )
        ]
        (sequence,) = Allox().plan(snapshot_of(one_gpu, views, speeds=speeds)).sequences
        return sequence.blocks[0].items[0].job

    once = TaskShape(scale=1, rounds=1)
    # 1 + 5 s against 3 s.
    assert first(("quick", once), ("slow", once)) == "b"
    # 2 rounds of 3 tasks against 4 rounds of one, 3 s each: 18 s against 12 s.
    assert first(("slow", TaskShape(3, 2)), ("slow", TaskShape(1, 4))) == "b"


def test_jobs_that_begin_at_once_share_the_cpus_of_a_node() -> None:
    cluster = Cluster((Node("n", "v100", 2, cpus=3),))
    speeds = linear_speeds(cluster, {"m": {"v100": 1.0}}, tasks=TIMES)
    jobs = [view(name, tasks=TaskShape(scale=1, rounds=1), cpus_per_gpu=2.0) for name in "ab"]
    plan = Allox().plan(snapshot_of(cluster, jobs, speeds=speeds))
    assert len(plan.sequences) == 1
    assert sorted(isinstance(plan.entries[job], Placed) for job in "ab") == [False, True]
