"""Packing an order of jobs: where they go, who waits, who makes room."""

from __future__ import annotations

import pytest

from hetsched_core.placement import Packing, pack
from hetsched_core.policy import check_plan
from hetsched_core.types import (
    ALL_SHAPES,
    EMPTY_PLAN,
    Cluster,
    Configuration,
    ExecutionModel,
    JobView,
    Node,
    NodeCondition,
    Placed,
    Plan,
    Reason,
    ReasonCode,
    Replan,
    Shape,
    Snapshot,
    Waiting,
)
from tests.hetsched_core.worlds import (
    cluster_of,
    held,
    linear_speeds,
    on,
    placed,
    plan_of,
    snapshot_of,
    view,
)

FAST_SLOW = cluster_of(k0=("k80", 4), v0=("v100", 4), v1=("v100", 2), k1=("k80", 8))
FAST = {"m": {"v100": 10.0, "k80": 1.0}}
K80 = frozenset({"k80"})
V100 = frozenset({"v100"})


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
    return [view(v.id, *v.runs, submit_s=float(n), **_kept(v)) for n, v in enumerate(views)]  # type: ignore[arg-type]


def _kept(v: JobView) -> dict[str, object]:
    job = v.job
    return {
        "counts": job.requirements.counts,
        "gpu_types": job.gpu_types,
        "cpus_per_gpu": job.cpus_per_gpu,
        "preemptible": job.preemptible,
        "blocked": v.blocked,
    }


def world(*views: JobView, cluster: Cluster = FAST_SLOW, **more: object) -> Snapshot:
    return snapshot_of(cluster, queue(*views), speeds=linear_speeds(cluster, FAST), **more)  # type: ignore[arg-type]


# -- where a job goes ------------------------------------------------------------------------------


def test_a_job_goes_to_the_fastest_type_on_the_node_that_it_fills_best() -> None:
    assert told(packed(world(view("two", counts=(2,))))) == {"two": "v1:2"}
    assert told(packed(world(view("three", counts=(3,))))) == {"three": "v0:3"}


def test_a_job_takes_the_lower_median_of_its_counts_or_of_those_that_fit() -> None:
    assert told(packed(world(view("j", counts=(1, 2, 4, 8))))) == {"j": "v1:2"}
    assert told(packed(world(view("j", counts=(3, 100, 200), gpu_types=V100)))) == {"j": "v0:3"}


def test_one_node_of_a_fast_type_is_taken_before_several() -> None:
    assert told(packed(world(view("j", counts=(4,))))) == {"j": "v0:4"}


def test_several_fast_nodes_are_taken_where_they_beat_one_slow_node() -> None:
    assert told(packed(world(view("j", counts=(6,))))) == {"j": "v0:4+v1:2"}


def test_one_slow_node_is_taken_where_it_beats_several_fast_nodes() -> None:
    slow_links = linear_speeds(FAST_SLOW, FAST, several_nodes=0.05)
    snapshot = snapshot_of(FAST_SLOW, [view("j", counts=(6,))], speeds=slow_links)
    assert told(packed(snapshot)) == {"j": "k1:6"}


def test_a_slower_type_is_taken_where_the_fast_one_is_full() -> None:
    plan = packed(world(view("a", counts=(4,)), view("b", counts=(2,)), view("c", counts=(2,))))
    assert told(plan) == {"a": "v0:4", "b": "v1:2", "c": "k0:2"}


def test_a_job_goes_to_no_type_that_it_refuses_or_makes_no_progress_on() -> None:
    assert told(packed(world(view("j", gpu_types=K80)))) == {"j": "k0:1"}
    still = snapshot_of(
        FAST_SLOW,
        [view("j")],
        speeds=linear_speeds(FAST_SLOW, {"m": {"v100": 0.0, "k80": 1.0}}),
    )
    assert told(packed(still)) == {"j": "k0:1"}


def test_types_are_mixed_where_nothing_else_can_ever_hold_the_job() -> None:
    assert told(packed(world(view("j", counts=(14,))))) == {"j": "k0:4+k1:8+v0:2"}


def test_types_are_not_mixed_where_one_type_could_hold_the_job_later() -> None:
    plan = packed(world(view("a", counts=(8,), gpu_types=K80), view("b", counts=(8,))))
    assert told(plan) == {"a": "k1:8", "b": "no_room"}


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


def test_cpus_and_memory_decide_with_the_gpus() -> None:
    cluster = Cluster((Node("a", "v100", 8, cpus=8), Node("b", "v100", 8, cpus=32)))
    jobs = [view(name, counts=(4,), cpus_per_gpu=4.0) for name in ("i", "j", "k")]
    plan = packed(snapshot_of(cluster, jobs))
    assert told(plan) == {"i": "b:4", "j": "b:4", "k": "no_room"}


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


def test_nodes_of_a_host_may_differ_in_what_they_say_of_it() -> None:
    """The most that one of them says counts, as in the check."""
    cluster = Cluster((Node("a", "v100", 4, host="h"), Node("b", "k80", 4, cpus=4, host="h")))
    jobs = [view(name, counts=(2,), cpus_per_gpu=2.0) for name in ("i", "j")]
    assert told(packed(snapshot_of(cluster, jobs))) == {"i": "a:2", "j": "no_room"}


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (view("j", counts=(19,)), "more GPUs than there are"),
        (view("j", gpu_types=frozenset({"h100"})), "a type that is not there"),
        (view("j", counts=(7,), gpu_types=V100), "more GPUs than there are of its type"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_job_that_never_fits_is_told_so_while_those_behind_it_run(job: JobView, why: str) -> None:
    for packing in Packing:
        plan = packed(world(job, view("next")), packing)
        assert told(plan) == {"j": "never_fits", "next": "v1:1"}


def test_a_job_that_fits_the_healthy_cluster_is_not_told_never_while_its_node_is_down() -> None:
    down = {"v0": {"condition": NodeCondition.DOWN}}
    assert told(packed(world(view("j", counts=(4,), gpu_types=V100), nodes=down))) == {
        "j": "no_room"
    }


# -- who is served ---------------------------------------------------------------------------------


def test_in_turn_a_job_that_does_not_fit_keeps_others_off_its_types_only() -> None:
    snapshot = world(
        view("runs", held(on(v0=4)), counts=(4,)),
        view("wide", counts=(6,), gpu_types=V100),
        view("behind", counts=(1,), gpu_types=V100),
        view("either", counts=(1,)),
        view("aside", counts=(1,), gpu_types=K80),
    )
    assert told(packed(snapshot, Packing.IN_TURN)) == {
        "runs": "v0:4",
        "wide": "no_room",
        "behind": "ahead",
        "either": "k0:1",
        "aside": "k0:1",
    }


def test_fill_lets_whoever_fits_start() -> None:
    snapshot = world(
        view("runs", held(on(v0=4)), counts=(4,)),
        view("wide", counts=(6,), gpu_types=V100),
        view("behind", counts=(1,), gpu_types=V100),
    )
    assert told(packed(snapshot)) == {"runs": "v0:4", "wide": "no_room", "behind": "v1:1"}


ONE = cluster_of(a=("v100", 4), b=("v100", 4))


@pytest.mark.parametrize("packing", [Packing.IN_TURN, Packing.FILL])
def test_without_preemption_running_jobs_stay_wherever_they_stand_in_the_order(
    packing: Packing,
) -> None:
    snapshot = snapshot_of(
        ONE, queue(view("first", counts=(8,)), view("last", held(on(b=1)), counts=(1,)))
    )
    assert told(packed(snapshot, packing)) == {"first": "no_room", "last": "b:1"}


def test_preempt_gives_a_job_the_gpus_of_those_behind_it_and_no_more() -> None:
    snapshot = snapshot_of(
        ONE,
        queue(
            view("top", held(on(a=2)), counts=(2,)),
            view("new", counts=(4,)),
            view("low", held(on(b=2)), counts=(2,)),
            view("lowest", held(on(b=2)), counts=(2,)),
        ),
    )
    plan = packed(snapshot, Packing.PREEMPT)
    assert told(plan) == {"top": "a:2", "new": "b:4", "low": "a:2", "lowest": "no_room"}


def test_preempt_evicts_the_last_in_order_first_and_only_as_many_as_needed() -> None:
    snapshot = snapshot_of(
        cluster_of(a=("v100", 4)),
        queue(
            view("new", counts=(1,)),
            view("mid", held(on(a=2)), counts=(2,)),
            view("last", held(on(a=2)), counts=(2,)),
        ),
    )
    plan = packed(snapshot, Packing.PREEMPT)
    assert told(plan) == {"new": "a:1", "mid": "a:2", "last": "no_room"}


def test_preempt_moves_the_last_in_order_and_leaves_those_before_it_where_they_are() -> None:
    snapshot = snapshot_of(
        cluster_of(a=("v100", 4), b=("k80", 4)),
        queue(
            view("new", gpu_types=V100),
            view("mid", held(on(a=2)), counts=(2,)),
            view("last", held(on(a=2)), counts=(2,)),
        ),
    )
    plan = packed(snapshot, Packing.PREEMPT)
    assert told(plan) == {"new": "a:1", "mid": "a:2", "last": "b:2"}


def test_preempt_leaves_running_jobs_in_place_where_idle_gpus_do() -> None:
    """A job ahead takes what is idle before it takes what others hold."""
    snapshot = snapshot_of(
        ONE, queue(view("new", counts=(2,)), view("runs", held(on(a=2)), counts=(2,)))
    )
    assert told(packed(snapshot, Packing.PREEMPT)) == {"new": "a:2", "runs": "a:2"}


def test_preempt_never_displaces_a_job_that_goes_first() -> None:
    snapshot = snapshot_of(
        ONE,
        queue(view("first", held(on(a=1)), counts=(1,)), view("wide", counts=(8,)), view("next")),
    )
    plan = packed(snapshot, Packing.PREEMPT)
    assert told(plan) == {"first": "a:1", "wide": "no_room", "next": "a:1"}


def test_preempt_moves_a_displaced_job_where_there_is_room() -> None:
    cluster = cluster_of(a=("v100", 4), b=("k80", 4))
    snapshot = snapshot_of(
        cluster,
        queue(view("new", counts=(4,), gpu_types=V100), view("old", held(on(a=4)), counts=(4,))),
    )
    assert told(packed(snapshot, Packing.PREEMPT)) == {"new": "a:4", "old": "b:4"}


def test_a_job_that_is_not_preemptible_keeps_its_gpus_wherever_it_stands_in_the_order() -> None:
    snapshot = snapshot_of(
        ONE,
        queue(
            view("first", counts=(4,)),
            view("second", counts=(4,)),
            view("fixed", held(on(a=3)), counts=(3,), preemptible=False),
            view("loose", held(on(b=4)), counts=(4,)),
        ),
    )
    plan = packed(snapshot, Packing.PREEMPT)
    assert told(plan) == {
        "first": "b:4",
        "second": "no_room",
        "fixed": "a:3",
        "loose": "no_room",
    }


def test_a_job_that_is_not_preemptible_competes_until_it_runs() -> None:
    before = plan_of({"fixed": placed(a=4)})
    snapshot = snapshot_of(
        cluster_of(a=("v100", 4)),
        queue(view("first", counts=(4,)), view("fixed", counts=(4,), preemptible=False)),
        previous=before,
    )
    assert told(packed(snapshot, Packing.PREEMPT)) == {"first": "a:4", "fixed": "no_room"}


# -- what is kept ----------------------------------------------------------------------------------


@pytest.mark.parametrize("packing", Packing)
def test_what_runs_stays_when_the_plan_in_force_is_not_known(packing: Packing) -> None:
    snapshot = snapshot_of(
        ONE,
        queue(view("j", held(on(b=2)), counts=(2,)), view("k", held(on(a=1)))),
        previous=EMPTY_PLAN,
    )
    assert told(packed(snapshot, packing)) == {"j": "b:2", "k": "a:1"}


@pytest.mark.parametrize("packing", Packing)
def test_a_job_that_is_placed_and_has_not_started_keeps_its_place(packing: Packing) -> None:
    snapshot = snapshot_of(
        ONE,
        queue(view("j", counts=(2,))),
        previous=plan_of({"j": placed(b=2)}),
        changed=frozenset(),
    )
    assert packed(snapshot, packing).entries["j"] is snapshot.previous.entries["j"]


@pytest.mark.parametrize("packing", Packing)
@pytest.mark.parametrize("nodes_changed", [True, False], ids=["just drained", "drained long ago"])
def test_a_job_whose_run_ended_on_a_drained_node_goes_elsewhere(
    packing: Packing, nodes_changed: bool
) -> None:
    snapshot = snapshot_of(
        ONE,
        queue(view("j", counts=(2,))),
        previous=plan_of({"j": placed(a=2)}),
        nodes={"a": {"condition": NodeCondition.DRAINED}},
        nodes_changed=nodes_changed,
    )
    assert told(packed(snapshot, packing)) == {"j": "b:2"}


@pytest.mark.parametrize("packing", Packing)
def test_a_job_may_go_on_where_it_runs_on_a_drained_node(packing: Packing) -> None:
    snapshot = snapshot_of(
        ONE,
        queue(view("j", held(on(a=2)), counts=(2,))),
        previous=plan_of({"j": placed(a=2)}),
        nodes={"a": {"condition": NodeCondition.DRAINED}},
    )
    assert told(packed(snapshot, packing)) == {"j": "a:2"}


@pytest.mark.parametrize("packing", Packing)
def test_a_job_on_a_lost_node_is_placed_anew(packing: Packing) -> None:
    snapshot = snapshot_of(
        ONE,
        queue(view("j", counts=(2,))),
        previous=plan_of({"j": placed(a=2)}),
        nodes={"a": {"condition": NodeCondition.DOWN}},
    )
    assert told(packed(snapshot, packing)) == {"j": "b:2"}


@pytest.mark.parametrize("packing", Packing)
def test_a_blocked_job_waits_for_its_own_reason_and_leaves_its_gpus_to_others(
    packing: Packing,
) -> None:
    blocked = Reason(ReasonCode.DEPENDENCY, detail="after 7")
    snapshot = snapshot_of(
        cluster_of(a=("v100", 2)),
        queue(view("j", held(on(a=2)), counts=(2,), blocked=blocked), view("k", counts=(2,))),
        previous=plan_of({"j": placed(a=2)}),
    )
    plan = packed(snapshot, packing)
    assert plan.entries["j"] == Waiting(blocked)
    assert told(plan)["k"] == "a:2"


def test_an_unchanged_plan_names_no_changes() -> None:
    snapshot = world(view("j"), view("wide", counts=(100,)))
    plan = packed(snapshot)
    again = packed(
        world(
            view("j", held(Configuration((("v1", 1),)))), view("wide", counts=(100,)), previous=plan
        )
    )
    assert again.changed == frozenset()
    assert again.base is plan.identity


def test_jobs_that_have_gone_leave_the_plan() -> None:
    before = plan_of({"gone": placed(a=1), "j": placed(b=1)})
    plan = packed(snapshot_of(ONE, [view("j")], previous=before))
    assert set(plan.entries) == {"j"}
    assert plan.changed == frozenset({"gone"})
