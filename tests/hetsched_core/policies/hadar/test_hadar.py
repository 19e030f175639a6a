"""Hadar as a policy: the corrected Fig. 1, mixed types, who is planned when, and why jobs wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

import pytest
from immutables import Map

from hetsched_core.contract import check_policy
from hetsched_core.errors import InputError
from hetsched_core.policies.gavel import Gavel
from hetsched_core.policies.hadar.hadar import Hadar, Order, Replanning
from hetsched_core.policies.hadar.prices import Utility
from hetsched_core.policy import Policy
from hetsched_core.runlog import RunLog
from hetsched_core.simulate import Settings, simulate
from hetsched_core.types import (
    ALL_SHAPES,
    Cluster,
    EndState,
    JobView,
    Node,
    NodeCondition,
    Plan,
    Reason,
    ReasonCode,
    Shape,
    Speeds,
    Trigger,
    Waiting,
)
from tests.hetsched_core.worlds import (
    cluster_of,
    held,
    linear_speeds,
    on,
    placed,
    plan_of,
    sized,
    snapshot_of,
    submission,
    where,
)

# Fig. 1 -------------------------------------------------------------------------------------------

FIG1 = cluster_of(v=("v100", 2), p=("p100", 3), k=("k80", 1))
GPUS = (2, 3, 1)
NEED = (3, 2, 2)
EPOCHS = (80, 30, 50)
PER_ROUND = ((40, 20, 30), (5, 15, 5), (10, 2, 20))
"""Epochs a round of each job on V100, P100 and K80 (all of its GPUs)."""


def useful_rounds(*, mixed: bool) -> set[tuple[int, ...]]:
    """Epochs of the three jobs in each round that no other round beats."""

    def ways(job: int) -> Iterator[tuple[tuple[int, ...], int]]:
        yield (0, 0, 0), 0
        for split in product(*(range(gpus + 1) for gpus in GPUS)):
            used = [t for t in range(3) if split[t]]
            if sum(split) == NEED[job] and (mixed or len(used) == 1):
                yield split, min(PER_ROUND[job][t] for t in used)

    rounds: set[tuple[int, ...]] = set()
    for chosen in product(*(list(ways(job)) for job in range(3))):
        if all(sum(split[t] for split, _ in chosen) <= GPUS[t] for t in range(3)):
            rounds.add(tuple(epochs for _, epochs in chosen))
    return {
        r
        for r in rounds
        if not any(r != o and all(a <= b for a, b in zip(r, o, strict=True)) for o in rounds)
    }


def optima(*, mixed: bool) -> dict[int, int]:
    """The least sum of completion rounds for each number of rounds in all."""
    useful = sorted(useful_rounds(mixed=mixed))

    @cache
    def least(left: tuple[int, ...], rounds: int, now: int) -> int:
        if not any(left):
            return 0 if now == rounds else 1_000
        if now == rounds:
            return 1_000
        best = 1_000
        for done in useful:
            after = tuple(max(0, x - d) for x, d in zip(left, done, strict=True))
            ended = sum(x > 0 and a == 0 for x, a in zip(left, after, strict=True))
            best = min(best, ended * (now + 1) + least(after, rounds, now + 1))
        return best

    return {rounds: best for rounds in range(1, 9) if (best := least(EPOCHS, rounds, 0)) < 1_000}


def test_h5_the_useful_rounds_of_fig_1() -> None:
    assert useful_rounds(mixed=True) == {(30, 15, 0), (20, 0, 10), (0, 15, 10), (30, 0, 2)}
    assert useful_rounds(mixed=False) == {(20, 5, 0), (20, 0, 10), (0, 15, 10)}


def test_h5_six_rounds_are_the_fewest_and_mixing_gains_one_in_the_sum_of_completion_rounds() -> (
    None
):
    mixed, single = optima(mixed=True), optima(mixed=False)
    assert min(mixed) == min(single) == 6
    assert mixed[6] == single[6] == 13
    assert mixed[7] == min(mixed.values()) == 12
    assert min(single.values()) == 13


def fig1_speeds() -> Speeds:
    """Samples are epochs, a round is 360 s, and the printed rates are those of all GPUs."""
    rates = {
        f"m{job + 1}": {
            gpu_type: PER_ROUND[job][at] / NEED[job] / 360.0
            for at, gpu_type in enumerate(("v100", "p100", "k80"))
        }
        for job in range(3)
    }
    return linear_speeds(FIG1, rates)


def run_fig1(policy: Policy) -> RunLog:
    jobs = [
        submission(f"J{n + 1}", float(EPOCHS[n]), (NEED[n],), profile=f"m{n + 1}") for n in range(3)
    ]
    return simulate(jobs, FIG1, policy, fig1_speeds(), Settings(restart_cost_s=0.0))


def completion_rounds(log: RunLog) -> dict[str, int]:
    """In which round each job ends."""
    return {r.job.id: -(-round(r.end_s or 0.0) // 360) for r in log.jobs}


@pytest.mark.parametrize(
    ("replan", "expected"),
    [
        # J3 starts on what is left in round 3, two P100, and keeps them: 2 epochs a round.
        (Replanning.INCREMENTAL, {"J1": 3, "J2": 2, "J3": 27}),
        # One round from the least sum, 12 with J3 in round 7: J1 would have to leave its V100s.
        (Replanning.FULL, {"J1": 3, "J2": 2, "J3": 8}),
    ],
)
def test_h5_hadars_own_schedule(replan: Replanning, expected: dict[str, int]) -> None:
    log = run_fig1(Hadar(replan=replan))
    assert completion_rounds(log) == expected
    first = next(run for run in log.runs if run.job == "J1")
    assert first.configuration == on(k=1, v=2)


def test_h5_gavels_own_schedule_is_no_better_than_one_type_allows() -> None:
    found = completion_rounds(run_fig1(Gavel()))
    assert max(found.values()) >= 6
    assert sum(found.values()) >= 13


# The policy ---------------------------------------------------------------------------------------


def reason(plan: Plan, job: str) -> Reason:
    entry = plan.entries[job]
    assert isinstance(entry, Waiting)
    return entry.reason


def test_a_job_takes_gpus_of_several_types_where_no_type_has_enough() -> None:
    cluster = cluster_of(a=("v100", 2), b=("k80", 2))
    speeds = linear_speeds(cluster, {"m": {"v100": 3.0, "k80": 1.0}})
    snapshot = snapshot_of(cluster, [sized("j", 1e4, counts=(4,))], speeds=speeds)
    assert where(Hadar().plan(snapshot)) == {"j": "a:2+b:2"}
    assert reason(
        Hadar().plan(replace(snapshot, shapes=ALL_SHAPES - {Shape.MIXED_TYPES})), "j"
    ) == (Reason(ReasonCode.NEVER_FITS))


def test_a_job_spreads_over_nodes_only_where_that_pays_more_than_a_slower_type() -> None:
    cluster = cluster_of(a=("v100", 2), b=("v100", 2), c=("k80", 4))

    def plan(k80: float, several: float, communication: float = 0.1) -> dict[str, str]:
        speeds = linear_speeds(cluster, {"m": {"v100": 3.0, "k80": k80}}, several_nodes=several)
        job = sized("j", 1e4, counts=(4,))
        policy = Hadar(communication=communication)
        return where(policy.plan(snapshot_of(cluster, [job], speeds=speeds)))

    assert plan(2.0, 0.8) == {"j": "a:2+b:2"}
    assert plan(2.0, 0.6) == {"j": "c:4"}
    # Where speeds say nothing, the second node costs a tenth.
    assert plan(2.8, 1.0) == {"j": "c:4"}
    assert plan(2.6, 1.0) == {"j": "a:2+b:2"}
    assert plan(2.8, 1.0, communication=0.0) == {"j": "a:2+b:2"}


def test_who_runs_stays_when_waiting_jobs_are_planned_and_may_move_when_all_are() -> None:
    cluster = cluster_of(a=("v100", 1), b=("k80", 1))
    speeds = linear_speeds(cluster, {"m": {"v100": 5.0, "k80": 1.0}})
    runs = sized("r", 1e5, held(on(b=1)), first_start_s=0.0, restart_cost_s=10.0)
    snapshot = snapshot_of(
        cluster, [runs], speeds=speeds, now=100.0, previous=plan_of({"r": placed(b=1)})
    )
    assert where(Hadar().plan(snapshot)) == {"r": "b:1"}
    assert where(Hadar(replan=Replanning.FULL).plan(snapshot)) == {"r": "a:1"}
    fixed = replace(runs, job=replace(runs.job, preemptible=False))
    kept = Hadar(replan=Replanning.FULL).plan(replace(snapshot, jobs=snapshot.jobs.set("r", fixed)))
    assert where(kept) == {"r": "b:1"}


@pytest.mark.parametrize(("cost_s", "node"), [(10.0, "a"), (400.0, "b")])
def test_a_move_has_to_gain_more_than_its_restart_costs(cost_s: float, node: str) -> None:
    # 500 samples: 500 s on the K80, 100 s and the restart on the V100.
    cluster = cluster_of(a=("v100", 1), b=("k80", 1))
    speeds = linear_speeds(cluster, {"m": {"v100": 5.0, "k80": 1.0}})
    runs = sized("r", 500.0, held(on(b=1)), first_start_s=0.0, restart_cost_s=cost_s)
    snapshot = snapshot_of(cluster, [runs], speeds=speeds, previous=plan_of({"r": placed(b=1)}))
    assert where(Hadar(replan=Replanning.FULL).plan(snapshot)) == {"r": f"{node}:1"}


def test_a_job_of_too_little_utility_waits_for_a_lower_price_and_is_told_so() -> None:
    cluster = cluster_of(a=("v100", 4))
    speeds = linear_speeds(cluster, {"m": {"v100": 1.0}, "fast": {"v100": 1e6}})
    fast = sized("f", 1e12, held(on(a=3)), counts=(3,), first_start_s=0.0)
    fast = replace(fast, job=replace(fast.job, profile="fast"))
    snapshot = snapshot_of(
        cluster,
        [fast, sized("slow", 1e3), sized("wide", 1e3, counts=(2,))],
        speeds=speeds,
        previous=plan_of({"f": placed(a=3)}),
    )
    plan = Hadar().plan(snapshot)
    assert where(plan) == {"f": "a:3"}
    assert reason(plan, "slow").code is ReasonCode.PRICE
    assert reason(plan, "wide").code is ReasonCode.NO_ROOM
    assert plan.diagnostics.prices["v100 3/4"] > 1.0
    # By relative speed all models count the same, and it is let in.
    assert "slow" in where(Hadar(utility=Utility.RELATIVE_SPEED).plan(snapshot))


def test_the_order_of_the_queue_decides_who_chooses_first() -> None:
    cluster = cluster_of(a=("v100", 1), b=("k80", 1))
    rates = {"m": {"v100": 2.0, "k80": 1.5}, "fast": {"v100": 9.0, "k80": 8.0}}
    late = sized("late", 1e6)
    late = replace(late, job=replace(late.job, profile="fast"))
    views = [sized("early", 1e6), late]
    snapshot = snapshot_of(cluster, views, speeds=linear_speeds(cluster, rates))
    # To leave the early job for the fast one's sake pays 9, to serve both in turn 2 + 8.
    assert where(Hadar().plan(snapshot)) == {"early": "a:1", "late": "b:1"}
    assert where(Hadar(order=Order.DENSITY).plan(snapshot)) == {"early": "b:1", "late": "a:1"}


def test_who_has_waited_is_worth_less() -> None:
    cluster = cluster_of(a=("v100", 1))
    old, young = sized("old", 1e4), sized("young", 1e4)
    young = replace(young, job=replace(young.job, submit_s=1e4))
    assert where(Hadar().plan(snapshot_of(cluster, [old, young], now=1e4))) == {"young": "a:1"}


@pytest.mark.parametrize("utility", list(Utility))
@pytest.mark.parametrize("replan", list(Replanning))
def test_jobs_far_shorter_than_a_slot_all_run_however_long_they_waited(
    utility: Utility, replan: Replanning
) -> None:
    jobs = [submission(f"j{n}", 1.0 + n, submit_s=1.0 + 50.0 * n) for n in range(8)]
    cluster = cluster_of(a=("v100", 1))
    policy = Hadar(utility=utility, replan=replan)
    log = simulate(jobs, cluster, policy, linear_speeds(cluster, {"m": {"v100": 1.0}}))
    assert {record.end_state for record in log.jobs} == {EndState.COMPLETED}


def test_past_runs_of_the_profile_stand_in_for_a_size_that_is_not_told() -> None:
    # Both would be served by what they are worth at best, which past runs of 100 s and 10 s decide.
    cluster = cluster_of(a=("v100", 1))
    views = [sized("long", 1.0), sized("short", 1.0)]
    views = [
        replace(v, job=replace(v.job, total_samples=None, profile=v.id, submit_s=-60.0))
        for v in views
    ]
    speeds = linear_speeds(cluster, {"long": {"v100": 1.0}, "short": {"v100": 1.0}})
    snapshot = snapshot_of(cluster, views, speeds=speeds)
    past = {"long": 100.0, "short": 10.0}
    inverse = Hadar(utility=Utility.INVERSE_JCT)
    assert where(inverse.plan(replace(snapshot, past_run_s=Map(past)))) == {"short": "a:1"}
    swapped = {"long": 10.0, "short": 100.0}
    assert where(inverse.plan(replace(snapshot, past_run_s=Map(swapped)))) == {"long": "a:1"}


def test_who_runs_on_a_drained_node_stays_there_also_where_all_are_planned() -> None:
    cluster = cluster_of(a=("v100", 1), b=("k80", 1))
    speeds = linear_speeds(cluster, {"m": {"v100": 5.0, "k80": 1.0}})
    runs = sized("r", 1e5, held(on(b=1)), first_start_s=0.0)
    snapshot = snapshot_of(
        cluster,
        [runs],
        speeds=speeds,
        previous=plan_of({"r": placed(b=1)}),
        nodes={"b": {"condition": NodeCondition.DRAINED}},
    )
    assert where(Hadar(replan=Replanning.FULL).plan(snapshot)) == {"r": "b:1"}


def test_plans_say_how_they_were_found_and_come_with_rounds() -> None:
    cluster = cluster_of(a=("v100", 1))
    views = [sized(f"j{n}", 1e4) for n in range(3)]
    plan = Hadar().plan(snapshot_of(cluster, views))
    assert plan.diagnostics.method == "dynamic programme"
    assert plan.diagnostics.bound == plan.diagnostics.objective
    assert plan.replan.on == {Trigger.ROUND, Trigger.NODE}
    assert list(plan.diagnostics.prices) == ["v100 1/1"]


def test_nodes_of_unequal_speed_are_told_apart() -> None:
    cluster = cluster_of(slow=("v100", 1), quick=("v100", 1))
    speeds = linear_speeds(cluster, {"m": {"v100": 1.0}})
    table = replace(speeds.table("m"), node_factor={"slow": 0.5})
    plan = Hadar().plan(
        snapshot_of(cluster, [sized("j", 1e4)], speeds=Speeds(cluster, {"m": table}))
    )
    assert where(plan) == {"j": "quick:1"}


def test_a_job_over_several_nodes_goes_at_the_pace_of_the_slowest_of_them() -> None:
    cluster = cluster_of(slow=("v100", 1), quick=("v100", 1), c=("k80", 2))
    speeds = linear_speeds(cluster, {"m": {"v100": 1.0, "k80": 0.7}})
    job = sized("j", 1e4, counts=(2,))
    for factor, nodes in ((0.5, "c:2"), (0.9, "quick:1+slow:1")):
        table = replace(speeds.table("m"), node_factor={"slow": factor})
        plan = Hadar().plan(snapshot_of(cluster, [job], speeds=Speeds(cluster, {"m": table})))
        assert where(plan) == {"j": nodes}


def test_speeds_that_fall_over_nodes_for_one_type_say_what_communication_costs() -> None:
    cluster = cluster_of(a=("v100", 2), b=("v100", 2), c=("k80", 4))
    speeds = linear_speeds(cluster, {"m": {"v100": 3.0, "k80": 2.0}})
    table = speeds.table("m")
    several = table.several_nodes.copy()
    several[table.gpu_types.index("v100")] *= 0.95
    table = replace(table, several_nodes=several)
    job = sized("j", 1e4, counts=(4,))
    snapshot = snapshot_of(cluster, [job], speeds=Speeds(cluster, {"m": table}))
    # Were the speeds silent, the second node would cost half.
    assert where(Hadar(communication=0.5).plan(snapshot)) == {"j": "a:2+b:2"}


def test_to_stay_on_several_nodes_costs_communication_too() -> None:
    cluster = cluster_of(a=("v100", 2), b=("v100", 2), c=("k80", 4))
    speeds = linear_speeds(cluster, {"m": {"v100": 3.0, "k80": 2.8}})
    runs = sized("j", 1e6, held(on(a=2, b=2)), counts=(4,), first_start_s=0.0)
    snapshot = snapshot_of(
        cluster, [runs], speeds=speeds, previous=plan_of({"j": placed(a=2, b=2)})
    )
    assert where(Hadar(replan=Replanning.FULL).plan(snapshot)) == {"j": "c:4"}
    free = Hadar(replan=Replanning.FULL, communication=0.0)
    assert where(free.plan(snapshot)) == {"j": "a:2+b:2"}


@pytest.mark.parametrize("told", ["time limit", "done so far"])
def test_without_a_size_or_past_runs_the_time_limit_stands_in_then_what_was_done(told: str) -> None:
    cluster = cluster_of(a=("v100", 1))

    def unsized(name: str, seconds: float) -> JobView:
        bare = sized(name, 1.0, first_start_s=0.0)
        limit = seconds if told == "time limit" else None
        job = replace(bare.job, total_samples=None, time_limit_s=limit, submit_s=-60.0)
        return replace(bare, job=job, samples_done=seconds if limit is None else 0.0)

    inverse = Hadar(utility=Utility.INVERSE_JCT)
    for seconds in ((100.0, 10.0), (10.0, 100.0)):
        views = [unsized(name, s) for name, s in zip(("x", "y"), seconds, strict=True)]
        first = "y" if seconds[0] > seconds[1] else "x"
        assert where(inverse.plan(snapshot_of(cluster, views))) == {first: "a:1"}


def test_nodes_on_one_host_share_its_cpus() -> None:
    host = (Node("a", "v100", 2, 4, host="h"), Node("b", "k80", 2, 4, host="h"))
    cluster = Cluster(host)
    jobs = [sized("one", 1e4, counts=(2,)), sized("two", 1e4, counts=(2,))]
    jobs = [replace(j, job=replace(j.job, cpus_per_gpu=2.0)) for j in jobs]
    assert len(where(Hadar().plan(snapshot_of(cluster, jobs)))) == 1


def test_where_all_are_planned_anew_stops_may_gain_nothing_and_all_else_is_kept() -> None:
    verdict = check_policy(Hadar(replan=Replanning.FULL))
    assert {breach.contract for breach in verdict.breaches} == {"idle-stops", "equal-jobs"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"states": 0}, "count from 1"),
        ({"beam": 0}, "count from 1"),
        ({"communication": 1.5}, "share"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Hadar(**settings)  # type: ignore[arg-type]
