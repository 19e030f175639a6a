"""HadarE as a policy: who gets which nodes, and the tracker."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from hetsched_core.policies.hadar.hadare import Hadare, Order
from hetsched_core.policies.hadar.tracker import TrackerNotes
from hetsched_core.records.runlog import RunLog
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.throughput.first_estimate import GpuFacts
from hetsched_core.types import (
    Cluster,
    JobView,
    Placed,
    Plan,
    RequirementSet,
    Run,
    Trigger,
)
from tests.hetsched_core.policies.worlds import planned, with_job
from tests.hetsched_core.worlds import (
    cluster_of,
    held,
    linear_speeds,
    on,
    sized,
    submission,
    view,
)

H6 = cluster_of(a=("t0", 1), b=("t1", 1), c=("t1", 1), d=("t2", 1), e=("t2", 1))
H6_SPEEDS = linear_speeds(H6, {"m": {"t0": 5.0, "t1": 1.0, "t2": 2.5}})
ONE = cluster_of(a=("t0", 1))
TWO = cluster_of(a=("t", 4), b=("t", 4))
FREE = Hadare(bandwidth_gb_s=math.inf)
"""Averaging costs nothing."""

every_order = pytest.mark.parametrize("policy", [replace(FREE, order=order) for order in Order])


def divided(
    *views: JobView, policy: Hadare = FREE, cluster: Cluster = H6, **more: object
) -> dict[str, dict[str, int]]:
    """The budget of each copy, by job and node."""
    speeds = H6_SPEEDS if "t0" in cluster.gpu_types else None
    return budgets(planned(policy, cluster, *views, speeds=speeds, **more))


def budgets(plan: Plan) -> dict[str, dict[str, int]]:
    return {
        job: {str(p.configuration).split(":")[0]: int(p.budget or 0) for p in entry.placements}
        for job, entry in sorted(plan.entries.items())
        if isinstance(entry, Placed)
    }


def run(policy: Hadare, *samples: float, round_s: float = 90.0) -> RunLog:
    jobs = [submission(f"j{n}", size) for n, size in enumerate(samples)]
    return simulate(
        jobs, H6, policy, H6_SPEEDS, SimulationSettings(round_s=round_s, restart_cost_s=0.0)
    )


def makespan(log: RunLog) -> float:
    return max(record.end_s or math.inf for record in log.jobs)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [(1000, {"a": 417, "b": 84, "c": 83, "d": 208, "e": 208}), (3, {"a": 1, "d": 1, "e": 1})],
)
def test_h6_the_steps_of_a_job_alone_are_divided_over_all_nodes(
    steps: int, expected: dict[str, int]
) -> None:
    plan = planned(FREE, H6, sized("j", float(steps)), speeds=H6_SPEEDS)
    assert budgets(plan) == {"j": expected}
    assigned = {str(H6.index(node)): part for node, part in expected.items()}
    assert plan.memory["assigned"] == {"j": assigned}


def test_h6_one_job_alone_is_2_4_times_as_fast_as_on_its_best_node() -> None:
    forked, alone = run(FREE, 54_000.0), run(replace(FREE, copies=1), 54_000.0)
    assert makespan(alone) == pytest.approx(54_000 / 5)
    assert makespan(alone) / makespan(forked) == pytest.approx(2.4, rel=1e-3)
    # Copies that keep their nodes never restart.
    assert len(forked.runs) == 5


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        # On a, d and e 1,800, 1,600 and 360 s are left: the long one takes b, the middle one c.
        (Order.REMAINING, {"long": "ab", "middle": "cd", "short": "e"}),
        # On e, d and a 3,600, 1,600 and 180 s are left: a ends the short one in this slot, and of
        # the others the middle one is the shorter.
        (Order.SHORTEST, {"long": "e", "middle": "bcd", "short": "a"}),
        (Order.TURNS, {"long": "e", "middle": "cd", "short": "ab"}),
    ],
)
def test_who_chooses_the_next_node_is_what_the_order_says(
    order: Order, expected: dict[str, str]
) -> None:
    jobs = sized("short", 900.0), sized("middle", 4000.0), sized("long", 9000.0)
    found = divided(*jobs, policy=replace(FREE, order=order))
    assert {job: "".join(nodes) for job, nodes in found.items()} == expected


@every_order
def test_jobs_of_unknown_size_share_the_nodes_evenly(policy: Hadare) -> None:
    jobs = [with_job(view(name), total_samples=None) for name in ("one", "two")]
    found = divided(*jobs, policy=policy, cluster=TWO)
    assert [len(nodes) for nodes in found.values()] == [1, 1]


def test_under_shortest_those_of_unknown_size_share_what_the_others_leave() -> None:
    one, two = (with_job(view(name), total_samples=None) for name in ("one", "two"))
    job = with_job(sized("job", 1e6), max_nodes=1)
    found = divided(one, job, two, policy=replace(FREE, order=Order.SHORTEST))
    assert {name: "".join(nodes) for name, nodes in found.items()} == {
        "job": "a",
        "one": "bd",
        "two": "ce",
    }


@every_order
def test_the_last_round_takes_only_the_fastest_nodes_that_can_end_it(policy: Hadare) -> None:
    job = sized("j", 900.0)
    assert len(divided(job, policy=policy)["j"]) == 5
    # 360 s: the fastest node does 1,800 of its own.
    assert divided(job, policy=replace(policy, last_nodes=1))["j"] == {"a": 900}
    assert divided(job, policy=replace(policy, last_nodes=2))["j"] == {"a": 600, "d": 300}
    assert len(divided(sized("j", 4000.0), policy=replace(policy, last_nodes=1))["j"]) == 5


def test_averaging_takes_its_time_out_of_the_slot_of_several_copies_and_of_no_single_one() -> None:
    # 25 million parameters, 8 bytes each way together: 0.2 GB, 60 s at this rate.
    policy, job = Hadare(bandwidth_gb_s=0.2 / 60), sized("j", 1e6)
    assert divided(job, policy=policy)["j"]["a"] == 1500
    assert divided(job, policy=replace(policy, copies=1))["j"] == {"a": 1800}
    slow, fast = run(policy, 54_000.0, round_s=360.0), run(FREE, 54_000.0, round_s=360.0)
    assert makespan(slow) / makespan(fast) == pytest.approx(360 / 300, rel=0.02)
    # Where it takes 400 s of a round of 360, the job is not forked.
    assert divided(job, policy=Hadare(bandwidth_gb_s=0.2 / 400))["j"] == {"a": 1800}


@pytest.mark.parametrize(
    ("copy", "done", "now"),
    [
        (held(on(a=1), copy=0, samples=100.0, speed=5.0, budget=200.0), 100.0, 0.0),
        # One that has not begun has done nothing of its budget.
        (held(on(a=1), copy=0, speed=5.0, budget=200.0, begun=False), 0.0, 20.0),
    ],
)
def test_a_copy_that_goes_on_keeps_its_samples_and_gets_more(
    copy: Run, done: float, now: float
) -> None:
    job = sized("j", 1000.0, copy, samples_done=done, first_start_s=0.0, restart_cost_s=10.0)
    assert divided(job, cluster=ONE, now=now) == {"j": {"a": 1000}}


def test_a_job_of_unknown_size_or_with_more_work_than_was_told_fills_its_slots() -> None:
    for job in (with_job(view("j"), total_samples=None), sized("j", 100.0, samples_done=100.0)):
        assert divided(job)["j"] == {"a": 1800, "b": 360, "c": 360, "d": 900, "e": 900}


def test_a_job_that_says_how_many_copies_it_can_be_gets_no_more_on_nodes_that_it_accepts() -> None:
    cluster = cluster_of(a=("t", 2), b=("t", 2), c=("t", 4), d=("t", 4), e=("t", 8))
    bare = sized("j", 1e6)
    for copies, nodes in ((1, 1), (3, 3), (5, 4)):
        mine = with_job(bare, copies=copies, requirements=RequirementSet((2, 4)))
        found = divided(mine, cluster=cluster)["j"]
        assert len(found) == nodes
        assert "e" not in found
    # Without a word of it, as in a replay, every node will do.
    assert len(divided(bare, cluster=cluster)["j"]) == 5


@pytest.mark.parametrize(
    ("limits", "where"),
    [
        ({"preemptible": False}, "a:2"),
        # No node has as many GPUs as it accepts, so that it could not run again.
        ({"requirements": RequirementSet((1, 2))}, "a:2"),
        # With a count that a node has, it is started anew on a whole one.
        ({"requirements": RequirementSet((2, 4))}, "b:4"),
    ],
)
def test_what_was_begun_on_a_part_of_a_node_stays_where_it_could_not_run_or_not_be_stopped(
    limits: dict[str, object], where: str
) -> None:
    part = with_job(sized("s", 1e6, held(on(a=2), speed=2.0)), copies=1, **limits)
    round_ = frozenset({Trigger.ROUND})
    entry = planned(FREE, TWO, part, sized("other", 1e6), triggers=round_).entries["s"]
    assert isinstance(entry, Placed)
    assert [str(placement.configuration) for placement in entry.placements] == [where]


# The tracker --------------------------------------------------------------------------------------


def test_rates_start_from_formula_10_and_give_way_to_what_is_measured() -> None:
    cluster = cluster_of(v=("v100", 1), k=("k80", 1), t=("t4", 1))
    first = TrackerNotes().rates("resnet18-cifar10", cluster)
    guess = {t: GpuFacts.published(t).performance_memory_index for t in ("v100", "k80", "t4")}
    assert first["v"] / first["k"] == pytest.approx(guess["v100"] / guess["k80"])
    job = with_job(sized("j", 1e6, held(on(v=1), speed=7.0)), profile="resnet18-cifar10")
    tracker = TrackerNotes().seen([job])
    seen = tracker.rates("resnet18-cifar10", cluster)
    assert seen["v"] == 7.0
    # The others keep their ratio to it.
    assert seen["k"] / seen["v"] == pytest.approx(guess["k80"] / guess["v100"])
    assert tracker.rates("mima-weather", cluster)["v"] != 7.0


def test_the_tracker_survives_being_written_down_and_being_lost() -> None:
    tracker = TrackerNotes({"m": {"n0": 2.5}}, {"j": {"0": 7}})
    assert TrackerNotes.read(json.loads(json.dumps(tracker.as_memory()))) == tracker
    assert TrackerNotes.read({}) == TrackerNotes.read({"version": 0}) == TrackerNotes()


@every_order
def test_a_job_that_may_not_be_stopped_gets_one_node_and_keeps_it(policy: Hadare) -> None:
    first = with_job(sized("fixed", 100.0), preemptible=False)
    assert list(divided(first, policy=policy)["fixed"]) == ["a"]
    begun = with_job(sized("fixed", 1e6, held(on(b=1), speed=1.0)), preemptible=False)
    assert list(divided(begun, sized("other", 10.0), policy=policy)["fixed"]) == ["b"]


@every_order
def test_what_arrives_between_rounds_takes_idle_nodes_and_moves_no_copy(policy: Hadare) -> None:
    runs = (held(on(b=1), copy=1, speed=1.0), held(on(c=1), copy=2, speed=1.0))
    early, late = sized("early", 1e6, *runs), sized("late", 1e6)
    arrives = frozenset({Trigger.ARRIVAL})
    found = divided(early, late, policy=policy, triggers=arrives)
    assert {job: set(nodes) for job, nodes in found.items()} == {
        "early": {"b", "c"},
        "late": {"a", "d", "e"},
    }
    last = sized("last", 100.0, *runs)
    found = divided(last, policy=replace(policy, last_nodes=1), triggers=arrives)
    assert set(found["last"]) == {"b", "c"}
    # The round divides the nodes anew.
    found = divided(early, late, policy=policy, triggers=frozenset({Trigger.ROUND}))
    assert "a" in found["early"]
