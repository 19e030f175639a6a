"""Packing an order of jobs: where they go, who waits, who makes room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.placement import Packing, pack
from hetsched_core.policy import check_plan
from hetsched_core.types import (
    ALL_SHAPES,
    EMPTY_PLAN,
    Cluster,
    ExecutionModel,
    JobView,
    Node,
    NodeCondition,
    Placed,
    Plan,
    Replan,
    Shape,
    Snapshot,
    Speeds,
)
from tests.hetsched_core.worlds import (
    cluster_of,
    held,
    linear_speeds,
    on,
    placed,
    plan_of,
    running,
    snapshot_of,
    view,
)

FAST_SLOW = cluster_of(k0=("k80", 4), v0=("v100", 4), v1=("v100", 2), k1=("k80", 8))
FAST = {"m": {"v100": 10.0, "k80": 1.0}}
SPEEDS = linear_speeds(FAST_SLOW, FAST)
K80 = frozenset({"k80"})
V100 = frozenset({"v100"})
DOWN = {"condition": NodeCondition.DOWN}
DRAINED = {"condition": NodeCondition.DRAINED}


def packed(snapshot: Snapshot, packing: Packing = Packing.FILL) -> Plan:
    """Pack the jobs of a snapshot in the order of submission; the plan must be valid."""
    plan = pack(snapshot, snapshot.by_submission(), packing, Replan())
    assert check_plan(snapshot, plan, ExecutionModel.GANG) == ()
    return plan


def told(plan: Plan) -> dict[str, str]:
    """Where each job is placed, or the word for why it waits."""
    return {
        job: str(entry.placements[0].configuration)
        if isinstance(entry, Placed)
        else entry.reason.code.word
        for job, entry in plan.entries.items()
    }


def queue(*views: JobView) -> list[JobView]:
    """Number the jobs in the order of submission."""
    return [replace(v, job=replace(v.job, submit_s=float(n))) for n, v in enumerate(views)]


def world(*views: JobView, cluster: Cluster = FAST_SLOW, **more: object) -> Snapshot:
    return snapshot_of(cluster, queue(*views), speeds=linear_speeds(cluster, FAST), **more)  # type: ignore[arg-type]


# -- where a job goes ------------------------------------------------------------------------------


DEAD = {"m": {"v100": 0.0, "k80": 1.0}}
PLACES: dict[str, tuple[tuple[JobView, ...], Speeds, dict[str, str]]] = {
    "the node that it fills best": ((view("j", counts=(2,)),), SPEEDS, {"j": "v1:2"}),
    "one node before several": ((view("j", counts=(4,)),), SPEEDS, {"j": "v0:4"}),
    "the lower median": ((view("j", counts=(1, 2, 4, 8)),), SPEEDS, {"j": "v1:2"}),
    "the lower median of those that fit": (
        (view("j", counts=(3, 100, 200), gpu_types=V100),),
        SPEEDS,
        {"j": "v0:3"},
    ),
    "several fast nodes": ((view("j", counts=(6,)),), SPEEDS, {"j": "v0:4+v1:2"}),
    "one slow node that beats them": (
        (view("j", counts=(6,)),),
        linear_speeds(FAST_SLOW, FAST, several_nodes=0.05),
        {"j": "k1:6"},
    ),
    "a slower type where the fast one is full": (
        (view("a", counts=(4,)), view("b", counts=(2,)), view("c", counts=(2,))),
        SPEEDS,
        {"a": "v0:4", "b": "v1:2", "c": "k0:2"},
    ),
    "no type that it refuses": ((view("j", gpu_types=K80),), SPEEDS, {"j": "k0:1"}),
    "no type without progress": ((view("j"),), linear_speeds(FAST_SLOW, DEAD), {"j": "k0:1"}),
    "a mix that alone can hold it": ((view("j", counts=(14,)),), SPEEDS, {"j": "k0:4+k1:8+v0:2"}),
    "no mix where one type could hold it later": (
        (view("a", counts=(8,), gpu_types=K80), view("b", counts=(8,))),
        SPEEDS,
        {"a": "k1:8", "b": "no_room"},
    ),
}


@pytest.mark.parametrize(("jobs", "speeds", "expected"), PLACES.values(), ids=PLACES)
def test_a_job_goes_to(jobs: tuple[JobView, ...], speeds: Speeds, expected: dict[str, str]) -> None:
    assert told(packed(snapshot_of(FAST_SLOW, queue(*jobs), speeds=speeds))) == expected


def test_a_job_that_fits_the_healthy_cluster_is_not_told_never_while_its_node_is_down() -> None:
    snapshot = world(view("j", counts=(4,), gpu_types=V100), nodes={"v0": DOWN})
    assert told(packed(snapshot)) == {"j": "no_room"}


# -- who is served ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("packing", "behind"), [(Packing.STRICT_ORDER, "ahead"), (Packing.FILL, "v1:1")]
)
def test_in_strict_order_a_job_that_does_not_fit_keeps_others_off_its_types_only(
    packing: Packing, behind: str
) -> None:
    snapshot = world(
        view("runs", held(on(v0=4)), counts=(4,)),
        view("wide", counts=(6,), gpu_types=V100),
        view("behind", counts=(1,), gpu_types=V100),
        view("either", counts=(1,)),
        view("aside", counts=(1,), gpu_types=K80),
    )
    either = "k0:1" if packing is Packing.STRICT_ORDER else "v1:1"
    assert told(packed(snapshot, packing)) == {
        "runs": "v0:4",
        "wide": "no_room",
        "behind": behind,
        "either": either,
        "aside": "k0:1",
    }


@pytest.mark.parametrize(
    ("closed", "behind"),
    [
        ({"v0": DOWN}, "v1:1"),
        ({"v0": DRAINED}, "v1:1"),
        ({"v1": DRAINED}, "v0:1"),
        ({"v0": {"left_out": True}}, "ahead"),
        ({}, "ahead"),
    ],
    ids=["down", "drained", "the smaller node", "left out for a while", "all are open"],
)
def test_in_strict_order_a_job_that_open_nodes_would_not_hold_keeps_none_from_others(
    closed: dict[str, dict[str, object]], behind: str
) -> None:
    snapshot = world(
        view("runs", held(on(v0=1)) if "v0" not in closed else held(on(v1=1)), counts=(1,)),
        view("wide", counts=(6,), gpu_types=V100),
        view("behind", counts=(1,), gpu_types=V100),
        nodes=closed,
    )
    waits = told(packed(snapshot, Packing.STRICT_ORDER))
    assert (waits["wide"], waits["behind"]) == ("no_room", behind)


ONE = cluster_of(a=("v100", 4), b=("v100", 4))
NODE = cluster_of(a=("v100", 4))
TWO_TYPES = cluster_of(a=("v100", 4), b=("k80", 4))


FIXED = view("fixed", held(on(a=3)), counts=(3,), preemptible=False)
PREEMPTED: dict[str, tuple[Cluster, tuple[JobView, ...], dict[str, str]]] = {
    "the GPUs of those behind it and no more": (
        ONE,
        (
            running("top", a=2),
            view("new", counts=(4,)),
            running("low", b=2),
            running("lowest", b=2),
        ),
        {"top": "a:2", "new": "b:4", "low": "a:2", "lowest": "no_room"},
    ),
    "the last in order first and only as many as needed": (
        NODE,
        (view("new"), running("mid", a=2), running("last", a=2)),
        {"new": "a:1", "mid": "a:2", "last": "no_room"},
    ),
    "moves the last and leaves those before it": (
        TWO_TYPES,
        (view("new", gpu_types=V100), running("mid", a=2), running("last", a=2)),
        {"new": "a:1", "mid": "a:2", "last": "b:2"},
    ),
    "what is idle before what others hold": (
        ONE,
        (view("new", counts=(2,)), running("old", a=2)),
        {"new": "a:2", "old": "a:2"},
    ),
    "never a job that goes first": (
        ONE,
        (running("first", a=1), view("wide", counts=(8,)), view("next")),
        {"first": "a:1", "wide": "no_room", "next": "a:1"},
    ),
    "no job that is not preemptible": (
        ONE,
        (view("first", counts=(4,)), view("second", counts=(4,)), FIXED, running("loose", b=4)),
        {"first": "b:4", "second": "no_room", "fixed": "a:3", "loose": "no_room"},
    ),
}


@pytest.mark.parametrize(("cluster", "jobs", "expected"), PREEMPTED.values(), ids=PREEMPTED)
def test_preempt_takes(
    cluster: Cluster, jobs: tuple[JobView, ...], expected: dict[str, str]
) -> None:
    assert told(packed(snapshot_of(cluster, queue(*jobs)), Packing.PREEMPT)) == expected


def test_a_job_that_is_not_preemptible_competes_until_it_runs() -> None:
    snapshot = snapshot_of(
        NODE,
        queue(view("first", counts=(4,)), view("fixed", counts=(4,), preemptible=False)),
        previous=plan_of({"fixed": placed(a=4)}),
    )
    assert told(packed(snapshot, Packing.PREEMPT)) == {"first": "a:4", "fixed": "no_room"}


# -- what is kept ----------------------------------------------------------------------------------


WAS_ON_A = plan_of({"j": placed(a=2)})
WAITS, RUNS = view("j", counts=(2,)), running("j", a=2)
KEPT: dict[str, tuple[JobView, Plan, dict[str, object], str]] = {
    "what runs, though no plan is known": (RUNS, EMPTY_PLAN, {}, "a:2"),
    "what runs on a drained node": (RUNS, WAS_ON_A, {"nodes": {"a": DRAINED}}, "a:2"),
    "not what ended on one just drained": (WAITS, WAS_ON_A, {"nodes": {"a": DRAINED}}, "b:2"),
    "not what ended on one drained long ago": (
        WAITS,
        WAS_ON_A,
        {"nodes": {"a": DRAINED}, "nodes_changed": False},
        "b:2",
    ),
    "not what a node took with it": (WAITS, WAS_ON_A, {"nodes": {"a": DOWN}}, "b:2"),
}


@pytest.mark.parametrize("packing", Packing)
@pytest.mark.parametrize(("job", "before", "more", "expected"), KEPT.values(), ids=KEPT)
def test_a_job_keeps_its_place(
    packing: Packing, job: JobView, before: Plan, more: dict[str, object], expected: str
) -> None:
    snapshot = snapshot_of(ONE, [job], previous=before, **more)  # type: ignore[arg-type]
    assert told(packed(snapshot, packing)) == {"j": expected}


@pytest.mark.parametrize(
    ("shapes", "where"),
    [
        (frozenset({Shape.SINGLE_NODE}), "never_fits"),
        (frozenset({Shape.SINGLE_NODE, Shape.EVEN}), "a:3+b:3"),
        (ALL_SHAPES - {Shape.MIXED_TYPES}, "a:4+b:2"),
        (ALL_SHAPES, "a:4+b:2"),
    ],
)
def test_a_job_is_spread_only_in_shapes_that_can_be_realised(
    shapes: frozenset[Shape], where: str
) -> None:
    cluster = cluster_of(a=("v100", 4), b=("v100", 4))
    snapshot = snapshot_of(cluster, [view("j", counts=(6,))], shapes=shapes)
    assert told(packed(snapshot)) == {"j": where}


def test_a_mix_of_types_on_one_host_gets_no_more_cpus_than_the_host_has() -> None:
    host = {"cpus": 8, "host": "h"}
    cluster = Cluster(
        (
            Node("a", "v100", 4, **host),  # type: ignore[arg-type]
            Node("b", "k80", 4, **host),  # type: ignore[arg-type]
            Node("c", "t4", 2),
        )
    )
    mixed = packed(snapshot_of(cluster, [view("j", counts=(6,), cpus_per_gpu=2.0)]))
    assert told(mixed) == {"j": "a:4+c:2"}
    never = packed(snapshot_of(cluster, [view("j", counts=(7,), cpus_per_gpu=2.0)]))
    assert told(never) == {"j": "never_fits"}


def test_an_unchanged_plan_names_no_changes() -> None:
    wide = view("wide", counts=(100,))
    plan = packed(world(view("j"), wide))
    again = packed(world(view("j", held(on(v1=1))), wide, previous=plan))
    assert again.changed == frozenset()
    assert again.base is plan.identity


@pytest.mark.parametrize("packing", [Packing.STRICT_ORDER, Packing.FILL])
def test_without_preemption_running_jobs_stay_wherever_they_stand_in_the_order(
    packing: Packing,
) -> None:
    snapshot = snapshot_of(ONE, queue(view("first", counts=(8,)), view("last", held(on(b=1)))))
    assert told(packed(snapshot, packing)) == {"first": "no_room", "last": "b:1"}
