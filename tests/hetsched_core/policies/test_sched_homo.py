"""Sched_Homo: the batch against enumeration, and batches by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from hetsched_core.policies.sched_homo import Claim, SchedHomo, heaviest
from hetsched_core.runlog import RunLog
from hetsched_core.simulate import Settings, simulate
from hetsched_core.types import (
    Cluster,
    JobView,
    Placed,
    Plan,
    Reason,
    ReasonCode,
    Speeds,
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


@given(
    st.lists(
        st.builds(
            Claim,
            weight=st.sampled_from((0.5, 1.0, 2.0, 7.0)),
            gpus=st.integers(1, 4),
            seconds=st.sampled_from((1.0, 2.0, 5.0, 8.0)),
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 6),
    st.sampled_from((1.0, 2.0, 4.0, 8.0)),
)
def test_a_batch_has_the_greatest_weight_by_enumeration(
    claims: list[Claim], gpus: int, length_s: float
) -> None:
    found = heaviest(claims, gpus, length_s)
    able = [at for at, claim in enumerate(claims) if claim.seconds <= length_s]
    subsets = itertools.chain.from_iterable(
        itertools.combinations(able, size) for size in range(len(able) + 1)
    )
    fitting = [
        subset
        for subset in subsets
        if sum(claims[at].gpu_s for at in subset) <= gpus * length_s + 1e-9
    ]
    best = max(sum(claims[at].weight for at in subset) for subset in fitting)
    if best == 0:
        assert [claims[at].seconds for at in found] == [min(claim.seconds for claim in claims)]
    else:
        assert tuple(found) in fitting
        assert sum(claims[at].weight for at in found) == pytest.approx(best)


def run(policy: SchedHomo, cluster: Cluster, *jobs: tuple[str, float, TaskShape, float]) -> RunLog:
    """Run jobs, given as (name, seconds a task, shape, submission)."""
    types = cluster.gpu_types
    speeds = linear_speeds(
        cluster,
        {name: dict.fromkeys(types, 1.0) for name, *_ in jobs},
        tasks={name: {t: TaskTimes(train_s, 0.0) for t in types} for name, train_s, _, _ in jobs},
    )
    return simulate(
        [
            submission(name, 1.0, profile=name, submit_s=when, tasks=shape)
            for name, _, shape, when in jobs
        ],
        cluster,
        policy,
        speeds,
        Settings(switch=0.0),
    )


def ends(log: RunLog) -> dict[str, float | None]:
    return {record.job.id: record.end_s for record in log.jobs}


TWO_GPUS = cluster_of(a=("v100", 2))


def test_by_hand_two_batches_on_two_gpus() -> None:
    # b and c take 2 s on one GPU each, a 4 s on both. The first batch is 2 s long and holds b and
    # c (4 of 4 GPU seconds); the second is 4 s long and holds a (8 of 8).
    log = run(
        SchedHomo(),
        TWO_GPUS,
        ("a", 4.0, TaskShape(2, 1), 0.0),
        ("b", 2.0, TaskShape(1, 1), 0.0),
        ("c", 1.0, TaskShape(1, 2), 0.0),
    )
    assert ends(log) == {"a": 6.0, "b": 2.0, "c": 2.0}


def test_who_comes_during_a_batch_waits_for_the_next_though_a_gpu_is_idle() -> None:
    log = run(
        SchedHomo(),
        TWO_GPUS,
        ("first", 10.0, TaskShape(1, 1), 0.0),
        ("later", 1.0, TaskShape(1, 1), 2.0),
    )
    assert ends(log) == {"first": 10.0, "later": 11.0}


def test_tasks_of_a_round_run_in_parallel_on_as_many_gpus_as_there_are() -> None:
    # 2 rounds of 4 tasks of 3 s on 2 GPUs: two after another in each round.
    log = run(SchedHomo(), TWO_GPUS, ("wide", 3.0, TaskShape(4, 2), 0.0))
    assert ends(log) == {"wide": 12.0}
    assert len({(run.configuration, run.copy) for run in log.runs}) == 2


def test_in_a_batch_weight_per_gpu_second_decides() -> None:
    one_gpu = cluster_of(a=("v100", 1))
    log = run(
        SchedHomo(),
        one_gpu,
        ("zero", 100.0, TaskShape(1, 1), 0.0),
        ("long", 60.0, TaskShape(1, 1), 1.0),
        ("short", 20.0, TaskShape(1, 1), 1.0),
    )
    # The second batch may be 80 s long (all that waits) and holds both.
    assert ends(log) == {"zero": 100.0, "short": 120.0, "long": 180.0}


def test_without_sizes_a_job_of_many_rounds_is_as_good_as_one_of_few() -> None:
    one_gpu = cluster_of(a=("v100", 1))
    jobs = (("many", 1.0, TaskShape(1, 9), 0.0), ("few", 1.0, TaskShape(1, 2), 0.0))
    assert ends(run(SchedHomo(), one_gpu, *jobs)) == {"few": 2.0, "many": 11.0}
    # Both of one round: by submission and name, "few" comes before "many" again; a longer round
    # is what tells them apart.
    slow_few = (("many", 1.0, TaskShape(1, 9), 0.0), ("few", 1.5, TaskShape(1, 2), 0.0))
    unknown = ends(run(SchedHomo(unit_size=True), one_gpu, *slow_few))
    assert unknown == {"many": 9.0, "few": 12.0}


def test_a_gpu_type_makes_no_difference_to_where_a_job_begins() -> None:
    cluster = cluster_of(slow=("k80", 1), fast=("v100", 1))
    times = {"m": {"k80": TaskTimes(9.0, 0.0), "v100": TaskTimes(1.0, 0.0)}}
    speeds = linear_speeds(cluster, {"m": {"k80": 1.0, "v100": 9.0}}, tasks=times)
    job = view("j", tasks=TaskShape(1, 3))
    plan = SchedHomo().plan(snapshot_of(cluster, [job], speeds=speeds))
    assert [sequence.node for sequence in plan.sequences] == ["slow"]
    # The mean of 9 and 1 s, three times.
    assert plan.memory["length_s"] == 15.0


def test_a_held_job_does_not_keep_the_next_batch_from_forming() -> None:
    speeds = linear_speeds(
        TWO_GPUS, {"m": {"v100": 1.0}}, tasks={"m": {"v100": TaskTimes(1.0, 0.0)}}
    )
    shape = TaskShape(1, 1)
    held_back = view("held", tasks=shape, blocked=Reason(ReasonCode.HELD))
    first = SchedHomo().plan(snapshot_of(TWO_GPUS, [view("held", tasks=shape)], speeds=speeds))
    assert first.memory["jobs"] == ["held"]
    then = snapshot_of(
        TWO_GPUS, [held_back, view("new", tasks=shape)], speeds=speeds, previous=first
    )
    plan = SchedHomo().plan(then)
    assert plan.memory["jobs"] == ["new"]
    assert plan.entries["held"] == Waiting(Reason(ReasonCode.HELD))


def times_of(cluster: Cluster, **seconds: float) -> Speeds:
    """Speeds of profiles named by their seconds a task, synchronised in half a second."""
    types = cluster.gpu_types
    return linear_speeds(
        cluster,
        {name: dict.fromkeys(types, 1.0) for name in seconds},
        tasks={
            name: {t: TaskTimes(train_s, 0.5) for t in types} for name, train_s in seconds.items()
        },
    )


def job_of(name: str, shape: TaskShape, profile: str = "m", weight: float = 1.0) -> JobView:
    found = view(name, tasks=shape)
    return replace(found, job=replace(found.job, profile=profile, weight=weight))


def test_a_job_counts_as_long_as_its_tasks_take_one_after_another_on_each_gpu() -> None:
    # Two rounds of 3 tasks of 3 s on 2 GPUs: two after another, and half a second: 6.5 s each.
    snapshot = snapshot_of(
        TWO_GPUS, [job_of("wide", TaskShape(3, 2))], speeds=times_of(TWO_GPUS, m=3.0)
    )
    assert SchedHomo().plan(snapshot).memory["length_s"] == 13.0


@pytest.mark.parametrize(
    ("last_s", "waiting", "length_s"),
    [(2.0, 10, 4.0), (0.5, 10, 1.5), (100.0, 4, 6.0)],
    ids=["twice as long", "as the shortest job", "as all that waits"],
)
def test_a_batch_is_twice_as_long_as_the_last_within_reason(
    last_s: float, waiting: int, length_s: float
) -> None:
    one_gpu = cluster_of(a=("v100", 1))
    jobs = [job_of(f"j{n}", TaskShape(1, 1)) for n in range(waiting)]
    last = Plan(Map(), memory={"version": 1, "length_s": last_s, "jobs": []})
    snapshot = snapshot_of(one_gpu, jobs, speeds=times_of(one_gpu, m=1.0), previous=last)
    plan = SchedHomo().plan(snapshot)
    assert plan.memory["length_s"] == length_s
    assert isinstance(plan.memory["jobs"], list)
    assert len(plan.memory["jobs"]) == length_s // 1.5


def test_a_heavy_long_job_goes_before_a_light_short_one() -> None:
    one_gpu = cluster_of(a=("v100", 1))
    jobs = [
        job_of("light", TaskShape(1, 1), "short", weight=1.0),
        job_of("heavy", TaskShape(1, 1), "long", weight=9.0),
    ]
    last = Plan(Map(), memory={"version": 1, "length_s": 100.0, "jobs": []})
    speeds = times_of(one_gpu, short=1.0, long=3.0)
    plan = SchedHomo().plan(snapshot_of(one_gpu, jobs, speeds=speeds, previous=last))
    assert plan.memory["jobs"] == ["heavy", "light"]


def test_a_job_waits_until_all_the_gpus_that_it_uses_at_once_are_idle() -> None:
    batch = Plan(Map(), memory={"version": 1, "length_s": 9.0, "jobs": ["busy", "wide", "thin"]})
    busy = view("busy", held(on(a=1)), tasks=TaskShape(1, 9), progress=TaskProgress())
    jobs = [busy, job_of("wide", TaskShape(2, 1)), job_of("thin", TaskShape(1, 1))]
    snapshot = snapshot_of(TWO_GPUS, jobs, speeds=times_of(TWO_GPUS, m=1.0), previous=batch)
    plan = SchedHomo().plan(snapshot)
    assert plan.entries["wide"] == Waiting(Reason(ReasonCode.AHEAD))
    assert plan.entries["busy"] == plan.entries["thin"] == Placed(())
