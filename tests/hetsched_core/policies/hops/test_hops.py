"""Rounds of Hops: who competes, who keeps what, later plans, profiling, plans made ahead."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import pytest

from hetsched_core.contract import check_policy
from hetsched_core.errors import InputError
from hetsched_core.policies.hops.configurations import Neighbours
from hetsched_core.policies.hops.hops import Hops
from hetsched_core.policies.hops.queue import Priority
from hetsched_core.simulate import Settings, simulate
from hetsched_core.types import (
    EMPTY_PLAN,
    Cluster,
    JobView,
    Layer,
    NodeCondition,
    Plan,
    Reason,
    ReasonCode,
    Snapshot,
    Speeds,
    Trigger,
)
from tests.hetsched_core.policies.hops.worlds import (
    ARRIVAL,
    END,
    ROUND,
    answer,
    at_round,
    reasons,
    table_of,
    where,
    with_profile,
)
from tests.hetsched_core.worlds import (
    cluster_of,
    held,
    linear_speeds,
    on,
    placed,
    plan_of,
    snapshot_of,
    submission,
    view,
)


def waited(job_id: str, wait_s: float, **more: object) -> JobView:
    return replace(view(job_id, **more), wait_s=wait_s)  # type: ignore[arg-type]


# -- rounds ----------------------------------------------------------------------------------------


def test_at_the_start_of_a_round_who_waited_longer_takes_the_place_of_who_runs() -> None:
    cluster = cluster_of(a=("t", 4))
    runs = view("runs", held(on(a=4)), counts=(4,))
    views = [runs, waited("waits", 100.0, counts=(4,), submit_s=1.0)]
    new = answer(Hops(), at_round(cluster, *views, now=360))
    assert where(new) == {"waits": "a:4"}
    later = answer(Hops(), at_round(cluster, *views, now=100, triggers=END))
    assert where(later) == {"runs": "a:4"}
    assert reasons(later) == {"waits": "no_room"}


def test_who_may_not_be_stopped_keeps_its_gpus_at_the_start_of_a_round() -> None:
    cluster = cluster_of(a=("t", 4))
    fixed = view("fixed", held(on(a=2)), counts=(2,), preemptible=False)
    snapshot = at_round(cluster, fixed, waited("w", 500.0, counts=(2, 4)), now=360)
    assert where(answer(Hops(), snapshot)) == {"fixed": "a:2", "w": "a:2"}


def test_a_job_on_a_node_that_closes_ends_there() -> None:
    cluster = cluster_of(a=("t", 2), b=("t", 2))
    runs = view("runs", held(on(a=2)), counts=(2,))
    drained = {"a": {"condition": NodeCondition.DRAINED}}
    snapshot = at_round(cluster, runs, waited("w", 9.0, counts=(2,)), now=360, nodes=drained)
    assert where(answer(Hops(), snapshot)) == {"runs": "a:2", "w": "b:2"}


def test_jobs_behind_the_window_wait_for_it_and_those_within_for_room() -> None:
    cluster = cluster_of(a=("t", 4))
    views = [waited(f"j{k}", 100.0 - k, counts=(3,), submit_s=float(k)) for k in range(4)]
    plan = answer(Hops(), at_round(cluster, *views, now=360))
    assert where(plan) == {"j0": "a:3"}
    assert reasons(plan) == {"j1": "no_room", "j2": "no_room", "j3": "below_window"}


def test_a_job_behind_the_window_gets_nothing_in_the_plan_of_the_round() -> None:
    """Of two jobs of two GPUs the first fills the window; the second fills what is left later."""
    cluster = cluster_of(a=("t", 2), b=("t", 2))
    views = [waited("first", 9.0, counts=(4,)), waited("last", 1.0, counts=(2,), submit_s=5.0)]
    apart = linear_speeds(cluster, {"m": {"t": 1.0}}, several_nodes=0.0)
    plan = answer(Hops(), at_round(cluster, *views, now=360, speeds=apart))
    # `first` can never run here, so it does not count towards the window.
    assert where(plan) == {"last": "a:2"}
    assert reasons(plan) == {"first": "never_fits"}
    whole = at_round(cluster, *views, now=360)
    assert where(answer(Hops(), whole)) == {"first": "a:2+b:2"}


def test_later_plans_fill_what_the_window_could_not_use() -> None:
    """`big` fills the window of half the cluster; those behind it take what it leaves."""
    cluster = cluster_of(a=("t", 4), b=("t", 4))
    easy = [waited(f"e{k}", 1.0, counts=(1,), submit_s=2.0 + k) for k in range(3)]
    views = [waited("big", 99.0, counts=(6,)), *easy]
    plan = answer(Hops(window=0.5), at_round(cluster, *views, now=360))
    assert where(plan) == {"big": "a:4+b:2", "e0": "b:1", "e1": "b:1"}
    assert reasons(plan) == {"e2": "no_room"}
    assert plan.diagnostics.method.endswith("then 1 more for what was left")


def behind_two(*views: JobView) -> Snapshot:
    """One idle GPU, on which the two sensitive jobs in the window cannot run, and jobs behind."""
    cluster = cluster_of(a=("t", 4), b=("t", 1))
    tables = {name: table_of(["t"], sensitivity=r) for name, r in (("m", 3.0), ("n", 1.1))}
    window = [waited("head", 99.0, counts=(4,)), waited("also", 98.0, counts=(4,))]
    runs = view("run", held(on(a=4)), counts=(4,))
    speeds = Speeds(cluster, tables)
    return at_round(cluster, runs, *window, *views, now=50, triggers=END, speeds=speeds)


def test_only_low_sensitivity_jobs_behind_the_window_fill_fragments() -> None:
    snapshot = behind_two(
        waited("tight", 9.0, counts=(1,)), with_profile(waited("loose", 1.0, counts=(1,)), "n")
    )
    assert where(answer(Hops(), snapshot)) == {"run": "a:4", "loose": "b:1"}
    assert where(answer(Hops(adjustment=False), snapshot)) == {"run": "a:4"}
    assert where(answer(Hops(adjustment=False, window=5), snapshot))["tight"] == "b:1"


def test_a_job_for_which_too_few_gpus_are_idle_is_not_let_in_before_one_that_fits() -> None:
    """`wide` alone would make those let in as easily spread as the queue."""
    snapshot = behind_two(
        with_profile(waited("wide", 9.0, counts=(4,)), "n"),
        with_profile(waited("loose", 1.0, counts=(1,)), "n"),
        *(waited(f"tight{k}", 0.5, counts=(4,)) for k in range(3)),
    )
    assert where(answer(Hops(), snapshot)) == {"run": "a:4", "loose": "b:1"}


@pytest.mark.parametrize("names", [("old", "new"), ("new", "old")])
def test_the_slower_host_of_a_type_is_known_as_slower(names: tuple[str, str]) -> None:
    cluster = cluster_of(**dict.fromkeys(names, ("t", 4)))
    table = table_of(["t"], layers=[Layer.ENTITY], node_factor={"old": 0.5})
    snapshot = at_round(cluster, view("j", counts=(4,)), speeds=Speeds(cluster, {"m": table}))
    plan = answer(Hops(), snapshot)
    assert where(plan) == {"j": "new:4"}
    assert set(plan.diagnostics.prices) == {"t x4 speed 0", "t x4 speed 1"}
    # Within a step of 100 % they are one class, and the first node will do.
    assert where(answer(Hops(speed_step=1.0), snapshot)) == {"j": f"{names[0]}:4"}


@pytest.mark.parametrize(
    ("has_run", "policy", "place"),
    [
        (True, Hops(), "a:2"),
        # A job that counts no restart, or that has not run yet, moves for any gain.
        (True, Hops(restart_weight=0.0), "b:2"),
        (False, Hops(), "b:2"),
    ],
)
def test_moving_for_a_small_gain_is_left_to_jobs_that_count_no_restart(
    has_run: bool, policy: Hops, place: str
) -> None:
    cluster = cluster_of(a=("slow", 2), b=("fast", 2))
    job = replace(view("j", counts=(2,)), restart_cost_s=10.0)
    if has_run:
        job = replace(job, runs=(held(on(a=2)),), first_start_s=0.0)
    speeds = linear_speeds(cluster, {"m": {"slow": 1.0, "fast": 1.02}})
    before = plan_of({"j": placed(a=2)})
    snapshot = at_round(cluster, job, now=360, speeds=speeds, previous=before)
    assert where(answer(policy, snapshot)) == {"j": place}


def test_lambda_goes_from_throughput_to_strict_priority() -> None:
    """Alone on 4 GPUs the first gains 4; shared, three jobs gain more together."""
    cluster = cluster_of(a=("t", 4))
    views = [
        waited("first", 3.0, counts=(1, 4)),
        waited("x", 1.0, counts=(2,), submit_s=1.0),
        waited("y", 1.0, counts=(1,), submit_s=2.0),
    ]
    table = table_of(["t"], counts=(1, 2, 4), per_gpu=[[1.0, 1.0, 0.4]])
    snapshot = at_round(cluster, *views, speeds=Speeds(cluster, {"m": table}))
    # The gain of `first` on 4 GPUs is 1.6: less than 1 each for three jobs, more in priority.
    assert where(answer(Hops(lam=0.0), snapshot)) == {"first": "a:1", "x": "a:2", "y": "a:1"}
    for lam in (20.0, math.inf):
        assert where(answer(Hops(lam=lam), snapshot)) == {"first": "a:4"}


@pytest.mark.parametrize(
    "policy",
    [
        Hops(neighbours=Neighbours.ID, priority=Priority.LAS),
        Hops(lam=math.inf, adjustment=False, priority=Priority.SRTF),
        Hops(plan_ahead_s=25.0, priority=Priority.FINISH_TIME_FAIRNESS),
    ],
    ids=["id", "strict", "ahead"],
)
def test_every_way_to_set_it_keeps_the_contracts(policy: Hops) -> None:
    verdict = check_policy(policy, seeds=[10])
    assert verdict.kept, str(verdict)


def test_where_a_restart_counts_for_nothing_jobs_move_for_nothing_and_all_else_is_kept() -> None:
    policy = Hops(neighbours=Neighbours.ID, restart_weight=0.0)
    verdict = check_policy(policy, seeds=[10])
    broken = {breach.contract for breach in verdict.breaches}
    assert broken == {"idle-stops", "equal-jobs"}, str(verdict)


# -- memory, and plans made ahead ------------------------------------------------------------------


def test_prices_come_back_and_run_times_stay_in_the_notes() -> None:
    cluster = cluster_of(a=("t", 4))
    views = [waited("j", 5.0, counts=(2, 4)), waited("k", 3.0, counts=(2,))]
    first = answer(Hops(), at_round(cluster, *views))
    assert first.memory["expected_run_s"] == pytest.approx({"j": 1 / 3, "k": 0.5})
    assert first.memory["prices"] == dict(first.diagnostics.prices)
    faster = linear_speeds(cluster, {"m": {"t": 5.0}})
    after = answer(Hops(), at_round(cluster, *views, speeds=faster, previous=first))
    assert after.memory["expected_run_s"] == first.memory["expected_run_s"]


def test_a_plan_made_ahead_takes_effect_when_its_round_begins() -> None:
    cluster = cluster_of(a=("t", 4))
    runs = view("runs", held(on(a=4)), counts=(4,))
    views = [runs, waited("waits", 100.0, counts=(4,), submit_s=1.0)]
    policy = Hops(plan_ahead_s=60.0)

    def at(now: float, triggers: frozenset[Trigger]) -> Plan:
        return answer(policy, at_round(cluster, *views, now=now, triggers=triggers))

    begins = at(0.0, ROUND)
    assert (where(begins), begins.valid_from_s) == ({"runs": "a:4"}, -math.inf)
    assert begins.replan.at_s == 300.0
    ahead = at(300.0, frozenset({Trigger.TIMER}))
    assert (where(ahead), ahead.valid_from_s) == ({"waits": "a:4"}, 360.0)
    assert ahead.replan.at_s == 660.0
    # What happens in between makes the plan of the next round anew.
    assert at(320.0, END).valid_from_s == 360.0


@pytest.mark.parametrize("plan_ahead_s", [0.0, 30.0, 1e6])
def test_jobs_of_more_than_the_cluster_holds_take_turns(plan_ahead_s: float) -> None:
    cluster = cluster_of(a=("t", 2))
    submissions = [submission(f"j{k}", 1000.0, (2,)) for k in range(3)]
    log = simulate(
        submissions,
        cluster,
        Hops(plan_ahead_s=plan_ahead_s),
        linear_speeds(cluster, {"m": {"t": 1.0}}),
        Settings(round_s=100.0, restart_cost_s=0.0),
    )
    # Nothing lies idle, and whoever waited longer for its size went next.
    assert max(record.end_s or math.inf for record in log.jobs) == pytest.approx(1500.0)
    assert sum(record.preemptions for record in log.jobs) > 5


# -- profiling -------------------------------------------------------------------------------------


def guessed(cluster: Cluster, known: Iterable[str] = ()) -> Speeds:
    """Profile `m`, measured on the `known` types alone; batches of 8 samples."""
    types = cluster.gpu_types
    layers = [Layer.THEORY if t in known else Layer.FIRST_ESTIMATE for t in types]
    return Speeds(cluster, {"m": table_of(types, layers=layers, batch_size=8.0)})


def runs(plan: Plan) -> list[tuple[str, str]]:
    """Its profiling runs: the job, and where."""
    return [(each.job, str(each.placement.configuration)) for each in plan.profiles]


def test_a_new_job_is_profiled_on_all_types_at_once_before_anything_else() -> None:
    cluster = cluster_of(a=("t", 2), b=("u", 2))
    views = [view("j"), view("same", submit_s=1.0)]
    plan = answer(Hops(), at_round(cluster, *views, speeds=guessed(cluster)))
    assert runs(plan) == [("j", "a:1"), ("j", "b:1")]
    assert [p.placement.copy for p in plan.profiles] == [0, 1]
    assert {p.placement.budget for p in plan.profiles} == {50 * 8.0}
    assert {p.placement.until_s for p in plan.profiles} == {300.0}
    # Of one key, one job is measured; both wait for it.
    assert reasons(plan) == {"j": "profiling", "same": "profiling"}


def test_a_job_runs_on_the_types_it_knows_while_others_are_measured() -> None:
    cluster = cluster_of(a=("t", 1), b=("u", 2))
    speeds = guessed(cluster, known=["t"])
    plan = answer(Hops(), at_round(cluster, view("j"), speeds=speeds))
    assert runs(plan) == [("j", "b:1")]
    assert where(plan) == {"j": "a:1"}
    # Between rounds what is under way goes on, and what was given up is not tried again.
    between = at_round(cluster, view("j"), now=10.0, triggers=END, speeds=speeds, previous=plan)
    assert answer(Hops(), between).profiles == plan.profiles
    late = replace(between, now=301.0)
    assert answer(Hops(), late).profiles == ()


def test_who_comes_within_a_round_is_profiled_at_once_where_gpus_are_idle() -> None:
    cluster = cluster_of(a=("t", 1), b=("u", 1))
    speeds = guessed(cluster)
    fixed = view("fixed", held(on(a=1)), preemptible=False)
    start = at_round(cluster, fixed, now=360.0, speeds=speeds)
    plan = replace(answer(Hops(), start), profiles=())
    new = {"triggers": ARRIVAL, "speeds": speeds, "previous": plan}
    arrives = at_round(cluster, fixed, view("j", submit_s=400.0), now=400.0, **new)
    arrives = replace(arrives, round=start.round)
    later = answer(Hops(), arrives)
    assert runs(later) == [("j", "b:1")]
    # It failed: it is not begun again, and another type is as soon as a GPU falls idle.
    failed = replace(arrives, now=405.0, previous=replace(later, profiles=()))
    assert answer(Hops(), failed).profiles == ()
    fewer = failed.jobs.delete("fixed")
    ended = replace(failed, jobs=fewer, gone=frozenset({"fixed"}), triggers=END)
    assert runs(answer(Hops(), ended)) == [("j", "a:1")]
    again = replace(failed, now=720.0, triggers=ROUND)
    assert runs(answer(Hops(), again)) == [("j", "b:1")]


def test_a_type_without_a_free_gpu_is_profiled_in_a_later_round() -> None:
    cluster = cluster_of(a=("t", 1))
    fixed = view("fixed", held(on(a=1)), preemptible=False)
    other = with_profile(fixed, "n")
    speeds = Speeds(
        cluster, {"m": guessed(cluster).table("m"), "n": guessed(cluster, ["t"]).table("m")}
    )
    busy = at_round(cluster, other, view("j"), now=360.0, speeds=speeds)
    assert answer(Hops(), busy).profiles == ()
    free = at_round(cluster, view("j"), now=720.0, speeds=speeds)
    assert [p.job for p in answer(Hops(), free).profiles] == ["j"]


def test_a_type_with_too_few_gpus_for_the_job_is_not_measured() -> None:
    cluster = cluster_of(a=("t", 2), b=("u", 4))
    snapshot = at_round(cluster, view("j", counts=(4,)), speeds=guessed(cluster))
    assert runs(answer(Hops(), snapshot)) == [("j", "b:1")]


def test_a_job_is_measured_only_on_types_and_nodes_that_it_may_use() -> None:
    cluster = cluster_of(a=("t", 1), b=("u", 1), c=("w", 1))
    some = view("j", gpu_types=frozenset("tu"))
    some = replace(some, job=replace(some.job, nodes=frozenset("ac")))
    assert runs(answer(Hops(), at_round(cluster, some, speeds=guessed(cluster)))) == [("j", "a:1")]


def test_without_profiling_first_estimates_are_taken_as_they_are() -> None:
    cluster = cluster_of(a=("t", 2))
    snapshot = at_round(cluster, view("j"), speeds=guessed(cluster))
    plan = answer(Hops(profile_iterations=0), snapshot)
    assert (plan.profiles, where(plan)) == ((), {"j": "a:1"})


def test_a_job_that_can_have_one_run_at_a_time_is_profiled_on_one_type_after_another() -> None:
    cluster = cluster_of(a=("t", 1), b=("u", 1), c=("w", 1))
    policy, plan, seen = Hops(), EMPTY_PLAN, []
    for known in ([], ["t"], ["t", "u"], ["t", "u", "w"]):
        start = at_round(cluster, view("j"), speeds=guessed(cluster, known), previous=plan)
        start = replace(start, runs_per_job=1)
        plan = answer(policy, start)
        seen.append([place for _, place in runs(plan)])
        assert reasons(plan) == ({"j": "profiling"} if plan.profiles else {})
        # Once it is measured there it runs there for the rest of the round, if only there.
        plan = replace(plan, profiles=())
    assert seen == [["a:1"], ["b:1"], ["c:1"], []]
    assert set(where(plan)) == {"j"}


def test_while_a_job_has_its_one_run_to_be_measured_others_of_its_key_are_measured_too() -> None:
    cluster = cluster_of(a=("t", 1), b=("u", 1))
    views = [view("j"), view("same", submit_s=1.0)]
    speeds = guessed(cluster)
    start = at_round(cluster, *views, speeds=speeds)
    plan = answer(Hops(), replace(start, runs_per_job=1))
    assert runs(plan) == [("j", "a:1"), ("same", "b:1")]
    # Between rounds, what is measured on `t` already does not run beside its other measurement.
    between = at_round(
        cluster, *views, now=9.0, triggers=END, speeds=guessed(cluster, ["t"]), previous=plan
    )
    later = answer(Hops(), replace(between, runs_per_job=1))
    assert later.profiles == plan.profiles
    assert where(later) == {}


# -- reasons and parameters ------------------------------------------------------------------------


def test_reasons_tell_never_from_nodes_that_are_down() -> None:
    cluster = cluster_of(a=("t", 2), b=("u", 2))
    views = [
        view("much", counts=(9,)),
        view("mixed", counts=(4,)),
        view("down", counts=(2,), gpu_types=frozenset({"u"})),
        view("held", blocked=Reason(ReasonCode.HELD)),
    ]
    down = {"b": {"condition": NodeCondition.DOWN}}
    plan = answer(Hops(), at_round(cluster, *views, nodes=down))
    assert reasons(plan) == {
        "much": "never_fits",
        "mixed": "never_fits",
        "down": "nodes_down",
        "held": "held",
    }


def test_other_jobs_in_the_way_are_no_nodes_that_are_down() -> None:
    cluster = cluster_of(a=("t", 2), b=("u", 2))
    waits = view("full", counts=(2,), gpu_types=frozenset({"t"}))
    nodes = {"a": {"foreign_gpus": 1}, "b": {"condition": NodeCondition.DOWN}}
    plan = answer(Hops(), at_round(cluster, waits, nodes=nodes))
    assert reasons(plan) == {"full": "no_room"}


def test_foreign_jobs_that_grew_push_out_no_more_than_they_must() -> None:
    cluster = cluster_of(a=("t", 4))
    views = [view("one", held(on(a=2)), counts=(2,)), view("two", held(on(a=2)), counts=(2,))]
    grown = {"a": {"foreign_gpus": 2}}
    snapshot = at_round(cluster, *views, now=9.0, triggers=END, nodes=grown)
    assert where(answer(Hops(), snapshot)) == {"one": "a:2"}


def test_with_nobody_active_there_is_nothing_to_plan() -> None:
    plan = Hops().plan(snapshot_of(cluster_of(a=("t", 1)), [], previous=EMPTY_PLAN))
    assert dict(plan.entries) == {}
    assert plan.diagnostics.method == "nothing to plan"


@pytest.mark.parametrize(
    "wrong",
    [
        {"lam": -1.0},
        {"gap": 2.0},
        {"window": 0.0},
        {"speed_step": -0.1},
        {"plan_ahead_s": -1.0},
        {"profile_limit_s": 0.0},
    ],
    ids=str,
)
def test_numbers_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=r"hops\.\w+=.* is not between"):
        Hops(**wrong)  # type: ignore[arg-type]
