"""When a policy is asked, and when its plan takes effect."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from hetsched_core.policy import PolicyInfo, make_policy
from hetsched_core.types import Entry, Plan, Replan, Snapshot, Trigger
from tests.hetsched_core.simulate.runs import FIFO, ends, held, record, run
from tests.hetsched_core.simulate.timetable import timetable
from tests.hetsched_core.worlds import NO_ROOM, cluster_of, placed, plan_of, submission


def test_a_plan_takes_effect_after_the_decision_time_and_nothing_is_asked_meanwhile() -> None:
    jobs = [submission("j", 10.0), submission("k", 10.0, submit_s=3.0)]
    log = run(jobs, decision_s=5.0)
    assert held(log) == [("a:1", 5.0, 15.0)]
    assert held(log, "k") == [("a:1", 10.0, 20.0)]
    assert [plan.at_s for plan in log.plans] == [0.0, 5.0, 15.0]
    assert record(log, "k").wait_s == 7.0


def test_a_job_that_is_withdrawn_while_a_plan_is_awaited_never_starts() -> None:
    jobs = [submission("j", 10.0, cancel_s=2.0), submission("k", 10.0)]
    log = run(jobs, decision_s=5.0)
    assert held(log) == []
    assert ends(log) == {"j": 2.0, "k": 15.0}


def test_rounds_start_on_the_grid_of_the_first_submission_while_jobs_are_active() -> None:
    las = make_policy("las")
    log = run(
        [submission("j", 35.0, submit_s=7.0), submission("k", 12.0, submit_s=100.0)],
        las,
        round_s=10.0,
    )
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


def test_only_the_time_that_the_last_plan_named_comes_and_comes_once() -> None:
    @dataclass(frozen=True)
    class Waking:
        info: ClassVar[PolicyInfo] = PolicyInfo(name="waking", summary="as told", paper="")

        def plan(self, snapshot: Snapshot) -> Plan:
            wake_s = {0.0: 40.0, 10.0: 60.0, 20.0: 60.0}.get(snapshot.now)
            chosen = placed(a=1) if wake_s is None else NO_ROOM
            entries = {job: chosen if job == "j" else NO_ROOM for job in snapshot.jobs}
            on = frozenset({Trigger.ARRIVAL})
            return replace(plan_of(entries), replan=Replan(on, wake_s))

    jobs = [submission(f"j{at or ''}", 10.0, submit_s=at) for at in (0, 10, 20)]
    log = run(jobs, Waking())
    assert [(plan.at_s, Trigger.TIMER in plan.triggers) for plan in log.plans] == [
        (0.0, False),
        (10.0, False),
        (20.0, False),
        (60.0, True),
    ]


def test_a_timer_rings_though_the_plan_names_no_trigger() -> None:
    steps = {0.0: {}, 30.0: {"j": placed(a=1)}}
    log = run([submission("j", 10.0)], timetable(steps, on=frozenset()))
    assert ends(log) == {"j": 40.0}
    assert [plan.triggers for plan in log.plans][1] == {Trigger.TIMER}


@dataclass(frozen=True)
class OnceAt30:
    """Like fifo; only the first plan wants to be made again, at 30."""

    info: ClassVar[PolicyInfo] = PolicyInfo(name="once", summary="", paper="")

    def plan(self, snapshot: Snapshot) -> Plan:
        at_s = None if snapshot.previous.entries else 30.0
        return replace(FIFO.plan(snapshot), replan=Replan(at_s=at_s))


def test_a_timer_of_a_plan_that_was_replaced_does_not_ring() -> None:
    alone = run([submission("j", 50.0)], OnceAt30())
    assert [plan.at_s for plan in alone.plans] == [0.0, 30.0]
    replaced = run([submission("j", 50.0), submission("k", 5.0, submit_s=10.0)], OnceAt30())
    assert [plan.at_s for plan in replaced.plans] == [0.0, 10.0, 15.0]


@dataclass(frozen=True)
class WithRoom:
    """Like fifo; an end asks only if it leaves a node with three free GPUs."""

    info: ClassVar[PolicyInfo] = PolicyInfo(name="with-room", summary="", paper="")

    def plan(self, snapshot: Snapshot) -> Plan:
        return replace(FIFO.plan(snapshot), replan=Replan(room={"v100": 3}))


def test_an_end_asks_once_a_node_has_the_room_that_the_plan_names() -> None:
    two_nodes = cluster_of(a=("v100", 4), b=("v100", 4))
    # Lengths of runs on a, and then one on b; after the one of 20 s node a has three GPUs free.
    jobs = [submission(f"j{n}", length, (1,)) for n, length in enumerate((10.0, 15.0, 20.0, 90.0))]
    jobs.append(submission("other", 4 * 95.0, (4,)))
    log = run(jobs, WithRoom(), cluster=two_nodes)
    assert [plan.at_s for plan in log.plans] == [0.0, 20.0, 90.0]


def test_who_withdraws_while_it_waits_asks_whatever_room_there_is() -> None:
    one_node = cluster_of(a=("v100", 4))
    jobs = [submission("j", 4 * 50.0, (4,)), submission("k", 10.0, (1,), submit_s=1.0)]
    jobs[1] = replace(jobs[1], cancel_s=5.0)
    jobs.append(submission("l", 10.0, (1,), submit_s=2.0))
    log = run(jobs, WithRoom(), cluster=one_node)
    assert [plan.at_s for plan in log.plans] == [0.0, 1.0, 2.0, 5.0, 50.0]


@dataclass(frozen=True)
class SoonAgain:
    """Place the job only when asked for the second time, a second after the first."""

    info: ClassVar[PolicyInfo] = PolicyInfo(name="soon", summary="", paper="")

    def plan(self, snapshot: Snapshot) -> Plan:
        entry = placed(a=1) if snapshot.previous.entries else NO_ROOM
        again = Replan(on=frozenset(), at_s=snapshot.now + 1.0)
        return replace(snapshot.previous.revise({"j": entry}), replan=again)


def test_a_time_to_plan_again_that_passes_while_the_plan_is_awaited_is_not_missed() -> None:
    log = run([submission("j", 10.0)], SoonAgain(), decision_s=5.0)
    assert held(log) == [("a:1", 10.0, 20.0)]


@dataclass(frozen=True)
class Ahead:
    """Place every job on its node, each plan valid from a time of its own."""

    where: Mapping[str, Entry]
    valid_from_s: Callable[[float], float]
    seen: list[Snapshot]
    info: ClassVar[PolicyInfo] = PolicyInfo(name="ahead", summary="", paper="")

    def plan(self, snapshot: Snapshot) -> Plan:
        self.seen.append(snapshot)
        plan = snapshot.previous.revise(
            {job: self.where[job] for job in snapshot.changed}, snapshot.gone
        )
        return replace(plan, valid_from_s=self.valid_from_s(snapshot.now))


def test_a_newer_plan_replaces_one_that_waits_for_its_time() -> None:
    where = {"j": placed(a=1), "k": placed(b=1), "l": placed(b=1)}
    jobs = [submission("j", 50.0), submission("k", 5.0, submit_s=10.0)]
    jobs.append(submission("l", 20.0, submit_s=20.0))
    seen: list[Snapshot] = []
    log = run(jobs, Ahead(where, lambda now: {10.0: 40.0, 20.0: 30.0}.get(now, 0.0), seen))
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
    where = {"j": placed(a=1), "k": placed(b=1)}
    jobs = [submission("j", 50.0), submission("k", 5.0, submit_s=3.0)]
    seen: list[Snapshot] = []
    log = run(jobs, Ahead(where, lambda now: 30.0 if now < 5.0 else 0.0, seen), decision_s=5.0)
    assert [s.now for s in seen][:2] == [0.0, 5.0]
    assert held(log) == [("a:1", 10.0, 60.0)]
    assert held(log, "k") == [("b:1", 10.0, 15.0)]


def test_a_plan_made_ahead_starts_nothing_that_has_gone_since() -> None:
    where = {"j": placed(a=1), "k": placed(b=1)}
    jobs = [submission("j", 50.0), submission("k", 5.0, cancel_s=20.0)]
    quiet = Replan(on=frozenset())
    ahead = Ahead(where, lambda _: 30.0, [])

    @dataclass(frozen=True)
    class Once:
        info: ClassVar[PolicyInfo] = ahead.info

        def plan(self, snapshot: Snapshot) -> Plan:
            return replace(ahead.plan(snapshot), replan=quiet)

    log = run(jobs, Once())
    assert held(log) == [("a:1", 30.0, 80.0)]
    assert held(log, "k") == []


def test_what_has_gone_before_a_plan_that_never_came_is_not_told_to_have_changed() -> None:
    """k comes at 10 and is withdrawn at 15; of the plan of 10, valid from 40, nothing is left."""
    where = {"j": placed(a=1), "k": placed(b=1), "l": placed(b=1)}
    jobs = [submission("j", 50.0), submission("k", 5.0, submit_s=10.0, cancel_s=15.0)]
    jobs.append(submission("l", 20.0, submit_s=20.0))
    seen: list[Snapshot] = []
    run(jobs, Ahead(where, lambda now: 40.0 if now == 10.0 else 0.0, seen))
    assert [(s.now, set(s.changed), set(s.gone)) for s in seen][:3] == [
        (0.0, {"j"}, set()),
        (10.0, {"j", "k"}, set()),
        (15.0, {"j"}, {"k"}),
    ]


@dataclass(frozen=True)
class AtRounds:
    """Like fifo, at the start of rounds alone."""

    info: ClassVar[PolicyInfo] = PolicyInfo(name="at-rounds", summary="", paper="")

    def plan(self, snapshot: Snapshot) -> Plan:
        plan = FIFO.plan(snapshot)
        return replace(plan, replan=Replan(on=frozenset({Trigger.ROUND})))


def test_a_job_that_comes_between_two_rounds_is_served_at_the_next() -> None:
    jobs = [submission("j", 5.0), submission("k", 5.0, submit_s=7.0)]
    log = run(jobs, AtRounds(), round_s=20.0)
    assert ends(log) == {"j": 5.0, "k": 25.0}
    assert record(log, "k").wait_s == 13.0


def test_a_plan_is_asked_for_once_at_each_instant() -> None:
    jobs = [submission(name, 10.0) for name in "jkl"]
    log = run(jobs)
    assert [(plan.at_s, plan.placed, plan.waiting) for plan in log.plans] == [(0.0, 3, 0)]


def test_a_job_is_not_seen_before_it_is_eligible_and_waits_from_then_on() -> None:
    seen: list[Snapshot] = []
    jobs = [
        submission("first", 40.0, (8,)),
        submission("j", 10.0, submit_s=10.0, eligible_s=30.0),
    ]
    both: dict[str, Entry] = {"first": placed(a=4, b=4), "j": NO_ROOM}
    log = run(jobs, timetable({0.0: both, 35.0: {"j": placed(a=1)}}, seen=seen))
    assert next(s.now for s in seen if "j" in s.jobs) == 30.0
    assert record(log).wait_s == 5.0
