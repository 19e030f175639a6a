"""Sched_Homo: the batch against enumeration, and batches by hand."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from hetsched_core.policies.sched_homo import BatchItem, SchedHomo, heaviest
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.types import (
    Cluster,
    JobView,
    Plan,
    Reason,
    ReasonCode,
    TaskShape,
    TaskTimes,
)
from tests.hetsched_core.policies.worlds import ends, reasons, task_speeds, with_job
from tests.hetsched_core.worlds import cluster_of, snapshot_of, submission, view


@given(
    st.lists(
        st.builds(
            BatchItem,
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
    claims: list[BatchItem], gpus: int, length_s: float
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


ONE = cluster_of(a=("v100", 1))
TWO = cluster_of(a=("v100", 2))


@pytest.mark.parametrize(
    ("cluster", "unit_size", "jobs", "expected"),
    [
        # b and c take 2 s on one GPU each, a 4 s on both. The first batch is 2 s long and holds b
        # and c (4 of 4 GPU seconds); the second is 4 s long and holds a (8 of 8).
        (
            TWO,
            False,
            {"a": (4.0, 2, 1, 0.0), "b": (2.0, 1, 1, 0.0), "c": (1.0, 1, 2, 0.0)},
            {"a": 6.0, "b": 2.0, "c": 2.0},
        ),
        # Who comes during a batch waits for the next though a GPU is idle.
        (TWO, False, {"a": (10.0, 1, 1, 0.0), "b": (1.0, 1, 1, 2.0)}, {"a": 10.0, "b": 11.0}),
        # 2 rounds of 4 tasks of 3 s on 2 GPUs: two after another in each round.
        (TWO, False, {"wide": (3.0, 4, 2, 0.0)}, {"wide": 12.0}),
        # The second batch may be 80 s long (all that waits) and holds both; the shorter is first.
        (
            ONE,
            False,
            {"zero": (100.0, 1, 1, 0.0), "long": (60.0, 1, 1, 1.0), "short": (20.0, 1, 1, 1.0)},
            {"zero": 100.0, "short": 120.0, "long": 180.0},
        ),
        # Without sizes a job of many rounds is as good as one of few: its round is shorter.
        (ONE, False, {"a": (1.0, 1, 9, 0.0), "b": (1.5, 1, 2, 0.0)}, {"b": 3.0, "a": 12.0}),
        (ONE, True, {"a": (1.0, 1, 9, 0.0), "b": (1.5, 1, 2, 0.0)}, {"a": 9.0, "b": 12.0}),
    ],
)
def test_batches_by_hand(
    cluster: Cluster,
    unit_size: bool,
    jobs: dict[str, tuple[float, int, int, float]],
    expected: dict[str, float],
) -> None:
    """Jobs are (seconds a task, tasks, rounds, submission)."""
    times = {name: {"v100": TaskTimes(train_s, 0.0)} for name, (train_s, *_) in jobs.items()}
    submissions = [
        submission(name, 1.0, profile=name, submit_s=at_s, tasks=TaskShape(scale, rounds))
        for name, (_, scale, rounds, at_s) in jobs.items()
    ]
    policy, speeds = SchedHomo(unit_size=unit_size), task_speeds(cluster, times)
    assert (
        ends(simulate(submissions, cluster, policy, speeds, SimulationSettings(switch=0.0)))
        == expected
    )


TIMES = {
    "m": {"v100": TaskTimes(1.0, 0.5), "k80": TaskTimes(9.0, 0.5)},
    "long": {"v100": TaskTimes(3.0, 0.5)},
}


def job(
    name: str, scale: int = 1, rounds: int = 1, profile: str = "m", weight: float = 1.0
) -> JobView:
    return with_job(view(name, tasks=TaskShape(scale, rounds)), profile=profile, weight=weight)


def planned(cluster: Cluster, *jobs: JobView, batch: tuple[float, list[str]] = (0.0, [])) -> Plan:
    """The plan after a batch of that length and these jobs."""
    length_s, names = batch
    last = Plan(Map(), memory={"version": 1, "length_s": length_s, "jobs": names})
    speeds = task_speeds(cluster, TIMES)
    return SchedHomo().plan(snapshot_of(cluster, jobs, speeds=speeds, previous=last))


def test_a_held_job_does_not_keep_the_next_batch_from_forming() -> None:
    held_back = view("held", tasks=TaskShape(1, 1), blocked=Reason(ReasonCode.HELD))
    plan = planned(TWO, held_back, job("new"), batch=(1.0, ["held"]))
    assert plan.memory["jobs"] == ["new"]
    assert reasons(plan) == {"held": "held"}


def test_a_job_counts_as_long_as_its_tasks_take_one_after_another_on_each_gpu() -> None:
    # Two rounds of 3 tasks of 3 s on 2 GPUs: two after another, and half a second: 6.5 s each.
    assert planned(TWO, job("wide", 3, 2, "long")).memory["length_s"] == 13.0
