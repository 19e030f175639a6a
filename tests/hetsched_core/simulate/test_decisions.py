"""When a policy is asked, and when its plan takes effect."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from hetsched_core.policy import Policy, make_policy
from hetsched_core.types import Plan, Replan, Snapshot, Trigger
from tests.hetsched_core.simulate.runs import FIFO, ends, held, record, run
from tests.hetsched_core.simulate.timetable import policy_of, timetable
from tests.hetsched_core.worlds import NO_ROOM, cluster_of, placed, submission

USUAL = Replan()


def fifo_again(replan: Callable[[Snapshot], Replan]) -> Policy:
    """Like fifo, but for when it wants to be asked again."""
    return policy_of(lambda seen: replace(FIFO.plan(seen), replan=replan(seen)))


def test_a_plan_takes_effect_after_the_decision_time_and_nothing_is_asked_meanwhile() -> None:
    jobs = [submission("j", 10.0), submission("k", 10.0, submit_s=3.0)]
    log = run(jobs, decision_s=5.0)
    assert held(log) == [("a:1", 5.0, 15.0)]
    assert held(log, "k") == [("a:1", 10.0, 20.0)]
    assert [plan.at_s for plan in log.plans] == [0.0, 5.0, 15.0]
    assert record(log, "k").wait_s == 7.0


def test_rounds_start_on_the_grid_of_the_first_submission_while_jobs_are_active() -> None:
    jobs = [submission("j", 35.0, submit_s=7.0), submission("k", 12.0, submit_s=100.0)]
    log = run(jobs, make_policy("las"), round_s=10.0)
    rounds = [plan.at_s for plan in log.plans if Trigger.ROUND in plan.triggers]
    assert rounds == [7.0, 17.0, 27.0, 37.0, 107.0]
    assert log.header.origin_s == 7.0
    assert log.rounds == math.ceil((112.0 - 7.0) / 10.0)


def test_rounds_of_a_length_that_is_no_binary_fraction_each_start_once() -> None:
    log = run([submission("j", 3.0, submit_s=0.7)], make_policy("las"), round_s=0.1)
    rounds = [plan.at_s for plan in log.plans if Trigger.ROUND in plan.triggers]
    assert rounds == sorted(set(rounds))
    assert len(rounds) == pytest.approx(30, abs=1)


def test_a_snapshot_says_which_round_it_is_and_when_a_plan_would_take_effect() -> None:
    seen: list[Snapshot] = []
    policy = timetable({0.0: {"j": placed(a=1)}, 25.0: {}, 45.0: {"j": placed(a=1)}}, seen=seen)
    run([submission("j", 30.0)], policy, round_s=20.0)
    assert [(s.now, s.round.index, s.round.start_s, s.round.end_s) for s in seen] == [
        (0.0, 0, 0.0, 20.0),
        (25.0, 1, 20.0, 40.0),
        (45.0, 2, 40.0, 60.0),
    ]
    assert {s.effective_s - s.now for s in seen} == {0.0}


@pytest.mark.parametrize(
    ("named", "rings"),
    [
        ({0.0: 40.0}, []),
        ({0.0: 40.0, 10.0: 60.0}, []),
        ({0.0: 40.0, 10.0: 60.0, 20.0: 60.0}, [60.0]),
    ],
    ids=["none in the end", "another, then none", "twice the same"],
)
def test_only_the_time_that_the_last_plan_named_comes_and_comes_once(
    named: dict[float, float], rings: list[float]
) -> None:
    on = frozenset({Trigger.ARRIVAL})
    policy = fifo_again(lambda snapshot: Replan(on, named.get(snapshot.now)))
    jobs = [submission(f"j{at}", 90.0, submit_s=at) for at in (0, 10, 20)]
    log = run(jobs, policy)
    assert [plan.at_s for plan in log.plans if Trigger.TIMER in plan.triggers] == rings
    assert [plan.at_s for plan in log.plans if Trigger.TIMER not in plan.triggers] == [0, 10, 20]


def test_a_timer_rings_though_the_plan_names_no_trigger() -> None:
    steps = {0.0: {}, 30.0: {"j": placed(a=1)}}
    log = run([submission("j", 10.0)], timetable(steps, on=frozenset()))
    assert ends(log) == {"j": 40.0}
    assert [plan.triggers for plan in log.plans][1] == {Trigger.TIMER}


def test_an_end_asks_once_a_node_has_the_room_that_the_plan_names() -> None:
    with_room = fifo_again(lambda _: Replan(room={"v100": 3}))
    # Lengths of runs on a, and then one on b; after the one of 20 s node a has three GPUs free.
    jobs = [submission(f"j{n}", length) for n, length in enumerate((10.0, 15.0, 20.0, 90.0))]
    jobs.append(submission("other", 4 * 95.0, (4,)))
    assert [plan.at_s for plan in run(jobs, with_room).plans] == [0.0, 20.0, 90.0]
    # Who withdraws while it waits asks whatever room there is.
    jobs = [
        submission("j", 4 * 50.0, (4,)),
        submission("k", 10.0, submit_s=1.0, cancel_s=5.0),
        submission("l", 10.0, submit_s=2.0),
    ]
    log = run(jobs, with_room, cluster=cluster_of(a=("v100", 4)))
    assert [plan.at_s for plan in log.plans] == [0.0, 1.0, 2.0, 5.0, 50.0]


def test_a_time_to_plan_again_that_passes_while_the_plan_is_awaited_is_not_missed() -> None:
    def only_when_asked_again(snapshot: Snapshot) -> Plan:
        entry = placed(a=1) if snapshot.previous.entries else NO_ROOM
        soon = Replan(on=frozenset(), at_s=snapshot.now + 1.0)
        return replace(snapshot.previous.revise({"j": entry}), replan=soon)

    log = run([submission("j", 10.0)], policy_of(only_when_asked_again), decision_s=5.0)
    assert held(log) == [("a:1", 10.0, 20.0)]


def ahead(
    valid_from_s: Callable[[float], float], seen: list[Snapshot], replan: Replan = USUAL
) -> Policy:
    """Place every job on a node of its own, each plan valid from a time of its own."""
    where = {"j": placed(a=1), "k": placed(b=1), "l": placed(b=1)}

    def plan(snapshot: Snapshot) -> Plan:
        seen.append(snapshot)
        entries = {job: where[job] for job in snapshot.changed}
        made = snapshot.previous.revise(entries, snapshot.gone)
        return replace(made, valid_from_s=valid_from_s(snapshot.now), replan=replan)

    return policy_of(plan)


def test_a_newer_plan_replaces_one_that_waits_for_its_time() -> None:
    jobs = [submission("j", 50.0), submission("k", 5.0, submit_s=10.0)]
    jobs.append(submission("l", 20.0, submit_s=20.0))
    seen: list[Snapshot] = []
    log = run(jobs, ahead(lambda now: {10.0: 40.0, 20.0: 30.0}.get(now, 0.0), seen))
    assert held(log) == [("a:1", 0.0, 50.0)]
    assert held(log, "l") == [("b:1", 30.0, 50.0)]
    assert held(log, "k") == [("b:1", 30.0, 35.0)]
    # What changed before the plan that never came into force is told again.
    assert [(s.now, set(s.changed)) for s in seen][:3] == [
        (0.0, {"j"}),
        (10.0, {"j", "k"}),
        (20.0, {"j", "k", "l"}),
    ]
    assert set(seen[2].previous.entries) == {"j"}
    assert [plan.waiting for plan in log.plans] == [0] * len(log.plans)


def test_a_plan_made_ahead_holds_back_no_other_but_for_the_decision_time() -> None:
    jobs = [submission("j", 50.0), submission("k", 5.0, submit_s=3.0)]
    seen: list[Snapshot] = []
    log = run(jobs, ahead(lambda now: 30.0 if now < 5.0 else 0.0, seen), decision_s=5.0)
    assert [s.now for s in seen][:2] == [0.0, 5.0]
    assert held(log) == [("a:1", 10.0, 60.0)]
    assert held(log, "k") == [("b:1", 10.0, 15.0)]


def test_a_plan_made_ahead_starts_nothing_that_has_gone_since() -> None:
    jobs = [submission("j", 50.0), submission("k", 5.0, cancel_s=20.0)]
    log = run(jobs, ahead(lambda _: 30.0, [], Replan(on=frozenset())))
    assert held(log) == [("a:1", 30.0, 80.0)]
    assert held(log, "k") == []


def test_what_has_gone_before_a_plan_that_never_came_is_not_told_to_have_changed() -> None:
    """k comes at 10 and is withdrawn at 15; of the plan of 10, valid from 40, nothing is left."""
    jobs = [submission("j", 50.0), submission("k", 5.0, submit_s=10.0, cancel_s=15.0)]
    jobs.append(submission("l", 20.0, submit_s=20.0))
    seen: list[Snapshot] = []
    run(jobs, ahead(lambda now: 40.0 if now == 10.0 else 0.0, seen))
    assert [(s.now, set(s.changed), set(s.gone)) for s in seen][:3] == [
        (0.0, {"j"}, set()),
        (10.0, {"j", "k"}, set()),
        (15.0, {"j"}, {"k"}),
    ]
