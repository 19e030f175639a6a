"""Hadar as a policy: mixed types, who is planned when, and why jobs wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.policies.hadar.hadar import Hadar, Order, Replanning
from hetsched_core.policies.hadar.prices import Utility
from hetsched_core.simulate import simulate
from hetsched_core.types import (
    ALL_SHAPES,
    Cluster,
    EndState,
    JobView,
    Node,
    NodeCondition,
    Reason,
    ReasonCode,
    Shape,
    Speeds,
    Trigger,
)
from tests.hetsched_core.policies.worlds import planned, reason, shown, with_job
from tests.hetsched_core.worlds import (
    cluster_of,
    ended,
    held,
    linear_speeds,
    on,
    sized,
    submission,
    where,
)

FULL = Hadar(replan=Replanning.FULL)
ONE = cluster_of(a=("v100", 1))
PAIR = cluster_of(a=("v100", 1), b=("k80", 1))
PAIR_SPEEDS = linear_speeds(PAIR, {"m": {"v100": 5.0, "k80": 1.0}})
TWOS = cluster_of(a=("v100", 2), b=("v100", 2), c=("k80", 4))


def test_a_job_takes_gpus_of_several_types_where_no_type_has_enough() -> None:
    cluster = cluster_of(a=("v100", 2), b=("k80", 2))
    job = sized("j", 1e4, counts=(4,))
    assert where(planned(Hadar(), cluster, job)) == {"j": "a:2+b:2"}
    one_type = planned(Hadar(), cluster, job, shapes=ALL_SHAPES - {Shape.MIXED_TYPES})
    assert reason(one_type, "j") == Reason(ReasonCode.NEVER_FITS)


@pytest.mark.parametrize(
    ("k80", "several", "communication", "place"),
    [
        (2.0, 0.8, 0.1, "a:2+b:2"),
        (2.0, 0.6, 0.1, "c:4"),
        # Where speeds say nothing, the second node costs a tenth.
        (2.8, 1.0, 0.1, "c:4"),
        (2.6, 1.0, 0.1, "a:2+b:2"),
        (2.8, 1.0, 0.0, "a:2+b:2"),
    ],
)
def test_a_job_spreads_over_nodes_only_where_that_pays_more_than_a_slower_type(
    k80: float, several: float, communication: float, place: str
) -> None:
    speeds = linear_speeds(TWOS, {"m": {"v100": 3.0, "k80": k80}}, several_nodes=several)
    policy, job = Hadar(communication=communication), sized("j", 1e4, counts=(4,))
    assert where(planned(policy, TWOS, job, speeds=speeds)) == {"j": place}


def test_speeds_that_fall_over_nodes_for_one_type_say_what_communication_costs() -> None:
    table = linear_speeds(TWOS, {"m": {"v100": 3.0, "k80": 2.0}}).table("m")
    several = table.several_nodes.copy()
    several[table.gpu_types.index("v100")] *= 0.95
    speeds = Speeds(TWOS, {"m": replace(table, several_nodes=several)})
    job = sized("j", 1e4, counts=(4,))
    # Were the speeds silent, the second node would cost half.
    found = planned(Hadar(communication=0.5), TWOS, job, speeds=speeds)
    assert where(found) == {"j": "a:2+b:2"}


def test_to_stay_on_several_nodes_costs_communication_too() -> None:
    speeds = linear_speeds(TWOS, {"m": {"v100": 3.0, "k80": 2.8}})
    runs = sized("j", 1e6, held(on(a=2, b=2)), counts=(4,), first_start_s=0.0)
    assert where(planned(FULL, TWOS, runs, speeds=speeds)) == {"j": "c:4"}
    free = planned(replace(FULL, communication=0.0), TWOS, runs, speeds=speeds)
    assert where(free) == {"j": "a:2+b:2"}


@pytest.mark.parametrize(
    ("policy", "job", "b", "node"),
    [
        (Hadar(), {}, {}, "b"),
        (FULL, {}, {}, "a"),
        (FULL, {"preemptible": False}, {}, "b"),
        (FULL, {}, {"condition": NodeCondition.DRAINED}, "b"),
    ],
)
def test_who_runs_stays_when_waiting_jobs_are_planned_and_may_move_when_all_are(
    policy: Hadar, job: dict[str, object], b: dict[str, object], node: str
) -> None:
    runs = sized("r", 1e5, held(on(b=1)), first_start_s=0.0, restart_cost_s=10.0)
    more = {"speeds": PAIR_SPEEDS, "now": 100.0, "nodes": {"b": b}}
    assert where(planned(policy, PAIR, with_job(runs, **job), **more)) == {"r": f"{node}:1"}


@pytest.mark.parametrize(("cost_s", "node"), [(10.0, "a"), (400.0, "b")])
def test_a_move_has_to_gain_more_than_its_restart_costs(cost_s: float, node: str) -> None:
    # 500 samples: 500 s on the K80, 100 s and the restart on the V100.
    runs = sized("r", 500.0, held(on(b=1)), first_start_s=0.0, restart_cost_s=cost_s)
    assert where(planned(FULL, PAIR, runs, speeds=PAIR_SPEEDS)) == {"r": f"{node}:1"}


def test_a_job_of_too_little_utility_waits_for_a_lower_price_and_is_told_so() -> None:
    cluster = cluster_of(a=("v100", 4))
    speeds = linear_speeds(cluster, {"m": {"v100": 1.0}, "fast": {"v100": 1e6}})
    fast = sized("f", 1e12, held(on(a=3)), counts=(3,), first_start_s=0.0)
    views = [with_job(fast, profile="fast"), sized("slow", 1e3), sized("wide", 1e3, counts=(2,))]
    plan = planned(Hadar(), cluster, *views, speeds=speeds)
    assert where(plan) == {"f": "a:3"}
    assert reason(plan, "slow").code is ReasonCode.PRICE
    assert reason(plan, "wide").code is ReasonCode.NO_ROOM
    assert plan.diagnostics.prices["v100 3/4"] > 1.0
    # By relative speed all models count the same, and it is let in.
    equal = planned(Hadar(utility=Utility.RELATIVE_SPEED), cluster, *views, speeds=speeds)
    assert "slow" in where(equal)


def test_the_order_of_the_queue_decides_who_chooses_first() -> None:
    rates = {"m": {"v100": 2.0, "k80": 1.5}, "fast": {"v100": 9.0, "k80": 8.0}}
    views = [sized("early", 1e6), with_job(sized("late", 1e6), profile="fast")]
    snapshot = shown(PAIR, *views, speeds=linear_speeds(PAIR, rates))
    # To leave the early job for the fast one's sake pays 9, to serve both in turn 2 + 8.
    assert where(Hadar().plan(snapshot)) == {"early": "a:1", "late": "b:1"}
    assert where(Hadar(order=Order.DENSITY).plan(snapshot)) == {"early": "b:1", "late": "a:1"}


@pytest.mark.parametrize("utility", list(Utility))
@pytest.mark.parametrize("replan", list(Replanning))
def test_jobs_far_shorter_than_a_slot_all_run_however_long_they_waited(
    utility: Utility, replan: Replanning
) -> None:
    jobs = [submission(f"j{n}", 1.0 + n, submit_s=1.0 + 50.0 * n) for n in range(8)]
    policy = Hadar(utility=utility, replan=replan)
    log = simulate(jobs, ONE, policy, linear_speeds(ONE, {"m": {"v100": 1.0}}))
    assert {record.end_state for record in log.jobs} == {EndState.COMPLETED}


@pytest.mark.parametrize("told", ["past runs", "time limit", "done so far"])
def test_without_a_size_past_runs_stand_in_then_the_time_limit_then_what_was_done(
    told: str,
) -> None:
    speeds = linear_speeds(ONE, {name: {"v100": 1.0} for name in "xy"})

    def unsized(name: str, seconds: float) -> JobView:
        limit_s = seconds if told == "time limit" else None
        done = seconds if told == "done so far" else 0.0
        bare = sized(name, 1.0, first_start_s=0.0, samples_done=done)
        return with_job(
            bare, total_samples=None, time_limit_s=limit_s, submit_s=-60.0, profile=name
        )

    for sizes in ({"x": 100.0, "y": 10.0}, {"x": 10.0, "y": 100.0}):
        snapshot = shown(ONE, *(unsized(*each) for each in sizes.items()), speeds=speeds)
        if told == "past runs":
            snapshot = replace(snapshot, ended=ended(sizes))
        # All are worth what they end in at best.
        found = where(Hadar(utility=Utility.INVERSE_JCT).plan(snapshot))
        assert list(found) == [min(sizes, key=lambda name: sizes[name])]


def test_nodes_on_one_host_share_its_cpus() -> None:
    cluster = Cluster((Node("a", "v100", 2, 4, host="h"), Node("b", "k80", 2, 4, host="h")))
    jobs = [with_job(sized(name, 1e4, counts=(2,)), cpus_per_gpu=2.0) for name in "xy"]
    assert len(where(planned(Hadar(), cluster, *jobs))) == 1


def test_plans_say_how_they_were_found_and_come_with_rounds() -> None:
    plan = planned(Hadar(), ONE, *(sized(f"j{n}", 1e4) for n in range(3)))
    assert plan.diagnostics.method == "dynamic programme"
    assert plan.diagnostics.bound == plan.diagnostics.objective
    assert plan.replan.on == {Trigger.ROUND, Trigger.NODE}
    assert list(plan.diagnostics.prices) == ["v100 1/1"]
