"""Rounds of Hops: who competes, who keeps what, later plans, plans made ahead, reasons."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hetsched_core.policies.hops.hops import Hops
from hetsched_core.policies.hops.queue import Priority
from hetsched_core.policies.steady import Steady
from hetsched_core.policy import Policy
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.types import (
    ALL_SHAPES,
    JobView,
    Layer,
    NodeCondition,
    Plan,
    Shape,
    Snapshot,
    Speeds,
    Trigger,
)
from tests.hetsched_core.policies.hops.worlds import at_round, table_of
from tests.hetsched_core.policies.worlds import END, ROUND, answer, reasons, with_job
from tests.hetsched_core.worlds import (
    cluster_of,
    held,
    linear_speeds,
    on,
    snapshot_of,
    submission,
    view,
    where,
)

FOUR = cluster_of(a=("t", 4))
TWO_TYPES = cluster_of(a=("t", 2), b=("u", 2))
LIVE = frozenset({Shape.SINGLE_NODE, Shape.EVEN})
DOWN = {"condition": NodeCondition.DOWN}


def waited(job_id: str, wait_s: float, **more: object) -> JobView:
    return replace(view(job_id, **more), wait_s=wait_s)  # type: ignore[arg-type]


RUNS_AND_WAITS = (
    view("runs", held(on(a=4)), counts=(4,)),
    waited("waits", 100.0, counts=(4,), submit_s=1.0),
)


# -- rounds ----------------------------------------------------------------------------------------


def test_at_the_start_of_a_round_who_waited_longer_takes_the_place_of_who_runs() -> None:
    new = answer(Hops(), at_round(FOUR, *RUNS_AND_WAITS, now=360))
    assert where(new) == {"waits": "a:4"}
    later = answer(Hops(), at_round(FOUR, *RUNS_AND_WAITS, now=100, triggers=END))
    assert where(later) == {"runs": "a:4"}
    assert reasons(later) == {"waits": "no_room"}


def test_ends_are_to_ask_only_where_somebody_waits() -> None:
    runs, waits = RUNS_AND_WAITS
    ahead = Hops(plan_ahead_s=100.0)
    noted = Hops(priority=Priority.FINISH_TIME_FAIRNESS)
    assert answer(Hops(), at_round(FOUR, runs, waits, now=360)).replan.room is None
    assert answer(Hops(), at_round(FOUR, runs, now=360)).replan.room == {}
    assert answer(Hops(), at_round(FOUR, runs, now=100, triggers=END)).replan.room == {}
    assert answer(noted, at_round(FOUR, runs, now=360)).replan.room is None
    assert answer(ahead, at_round(FOUR, runs, now=300)).replan.room is None


@pytest.mark.parametrize("policy", [Hops(), Steady()], ids=["hops", "steady"])
def test_a_job_that_takes_uneven_shapes_has_them_beside_one_that_does_not(policy: Policy) -> None:
    cluster = cluster_of(a=("t", 2), b=("t", 1))
    plain = waited("plain", 100.0, counts=(3,))
    any_shape = waited("any", 50.0, counts=(3,), shapes=frozenset({Shape.UNEVEN}))
    shown = replace(at_round(cluster, plain, any_shape, now=360), shapes=LIVE)
    assert where(answer(policy, shown)).keys() == {"any"}
    # Where all jobs may have unequal parts, the one that has waited longer does.
    assert where(answer(policy, replace(shown, shapes=ALL_SHAPES))).keys() == {"plain"}


def test_jobs_behind_the_window_wait_for_it_and_those_within_for_room() -> None:
    views = [waited(f"j{k}", 100.0 - k, counts=(3,), submit_s=float(k)) for k in range(4)]
    # What can never run here does not count towards the window.
    plan = answer(Hops(), at_round(FOUR, waited("never", 999.0, counts=(9,)), *views, now=360))
    assert where(plan) == {"j0": "a:3"}
    waiting = {"j1": "no_room", "j2": "no_room", "j3": "below_window"}
    assert reasons(plan) == {"never": "never_fits"} | waiting


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
    loose = with_job(waited("loose", 1.0), profile="n")
    snapshot = behind_two(waited("tight", 9.0), loose)
    assert where(answer(Hops(), snapshot)) == {"run": "a:4", "loose": "b:1"}
    assert where(answer(Hops(adjustment=False), snapshot)) == {"run": "a:4"}
    assert where(answer(Hops(adjustment=False, window=5), snapshot))["tight"] == "b:1"
    # One that does not fit would alone make those let in as easily spread as the queue.
    wide = with_job(waited("wide", 9.0, counts=(4,)), profile="n")
    tight = [waited(f"tight{k}", 0.5, counts=(4,)) for k in range(3)]
    assert where(answer(Hops(), behind_two(wide, loose, *tight))) == {"run": "a:4", "loose": "b:1"}


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


def test_lambda_goes_from_throughput_to_strict_priority() -> None:
    views = [
        waited("first", 3.0, counts=(1, 4)),
        waited("x", 1.0, counts=(2,), submit_s=1.0),
        waited("y", 1.0, counts=(1,), submit_s=2.0),
    ]
    table = table_of(["t"], counts=(1, 2, 4), per_gpu=[[1.0, 1.0, 0.4]])
    snapshot = at_round(FOUR, *views, speeds=Speeds(FOUR, {"m": table}))
    # The gain of `first` on 4 GPUs is 1.6: less than 1 each for three jobs, more in priority.
    assert where(answer(Hops(lam=0.0), snapshot)) == {"first": "a:1", "x": "a:2", "y": "a:1"}
    for lam in (20.0, math.inf):
        assert where(answer(Hops(lam=lam), snapshot)) == {"first": "a:4"}


def test_foreign_jobs_that_grew_push_out_no_more_than_they_must() -> None:
    views = [view(name, held(on(a=2)), counts=(2,)) for name in ("one", "two")]
    grown = {"a": {"foreign_gpus": 2}}
    snapshot = at_round(FOUR, *views, now=9.0, triggers=END, nodes=grown)
    assert where(answer(Hops(), snapshot)) == {"one": "a:2"}


# -- memory, and plans made ahead ------------------------------------------------------------------


def test_prices_come_back_and_run_times_stay_in_the_notes() -> None:
    views = [waited("j", 5.0, counts=(2, 4)), waited("k", 3.0, counts=(2,))]
    first = answer(Hops(), at_round(FOUR, *views))
    assert first.memory["expected_run_s"] == pytest.approx({"j": 1 / 3, "k": 0.5})
    assert first.memory["prices"] == dict(first.diagnostics.prices)
    faster = linear_speeds(FOUR, {"m": {"t": 5.0}})
    after = answer(Hops(), at_round(FOUR, *views, speeds=faster, previous=first))
    assert after.memory["expected_run_s"] == first.memory["expected_run_s"]


def test_a_plan_made_ahead_takes_effect_when_its_round_begins() -> None:
    def at(now: float, triggers: frozenset[Trigger]) -> Plan:
        snapshot = at_round(FOUR, *RUNS_AND_WAITS, now=now, triggers=triggers)
        return answer(Hops(plan_ahead_s=60.0), snapshot)

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
    log = simulate(
        [submission(f"j{k}", 1000.0, (2,)) for k in range(3)],
        cluster,
        Hops(plan_ahead_s=plan_ahead_s),
        linear_speeds(cluster, {"m": {"t": 1.0}}),
        SimulationSettings(round_s=100.0, restart_cost_s=0.0),
    )
    # Nothing lies idle, and whoever waited longer for its size went next.
    assert max(record.end_s or math.inf for record in log.jobs) == pytest.approx(1500.0)
    assert sum(record.preemptions for record in log.jobs) > 5


# -- reasons ---------------------------------------------------------------------------------------


def test_reasons_tell_nodes_that_are_down_from_jobs_in_the_way() -> None:
    names = {"mixed": frozenset("tu"), "down": frozenset("u"), "full": frozenset("t")}
    counts = {"mixed": 4, "down": 2, "full": 2}
    views = [view(name, counts=(counts[name],), gpu_types=types) for name, types in names.items()]
    snapshot = at_round(TWO_TYPES, *views, nodes={"a": {"foreign_gpus": 1}, "b": DOWN})
    found = reasons(answer(Hops(), snapshot))
    assert found == {"mixed": "never_fits", "down": "nodes_down", "full": "no_room"}


def test_a_job_on_a_node_that_closes_ends_there() -> None:
    cluster = cluster_of(a=("t", 2), b=("t", 2))
    views = view("runs", held(on(a=2)), counts=(2,)), waited("w", 9.0, counts=(2,))
    drained = {"a": {"condition": NodeCondition.DRAINED}}
    plan = answer(Hops(), at_round(cluster, *views, now=360, nodes=drained))
    assert where(plan) == {"runs": "a:2", "w": "b:2"}


def test_with_nobody_active_there_is_nothing_to_plan() -> None:
    plan = Hops().plan(snapshot_of(FOUR, []))
    assert dict(plan.entries) == {}
    assert plan.diagnostics.method == "nothing to plan"
