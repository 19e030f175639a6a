"""The simulator against times computed by hand. Unless said otherwise a GPU does 1 sample/s."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest

from hetsched_core.errors import InputError, PlanError
from hetsched_core.policy import Policy, PolicyInfo, make_policy
from hetsched_core.runlog import JobRecord, RunEnd, RunLog
from hetsched_core.simulate import (
    Incident,
    JobCrashed,
    KnownSpeeds,
    Measured,
    NodeBack,
    NodeDrained,
    NodeLost,
    Settings,
    simulate,
)
from hetsched_core.types import (
    Cluster,
    EndState,
    Entry,
    ExecutionModel,
    Knowledge,
    OfflineSnapshot,
    Phase,
    Placed,
    Placement,
    Plan,
    Purpose,
    Replan,
    Snapshot,
    Speeds,
    Submission,
    Trigger,
)
from tests.hetsched_core.simulate.timetable import Step, timetable
from tests.hetsched_core.worlds import (
    NO_ROOM,
    cluster_of,
    linear_speeds,
    on,
    placed,
    profiling,
    submission,
)

PAIR = cluster_of(a=("v100", 4), b=("v100", 4))
FIFO = make_policy("fifo")


def run(
    submissions: list[Submission],
    policy: Policy = FIFO,
    *,
    cluster: Cluster = PAIR,
    incidents: tuple[Incident, ...] = (),
    several_nodes: float = 1.0,
    **settings: float,
) -> RunLog:
    speeds = linear_speeds(cluster, {"m": dict.fromkeys(cluster.gpu_types, 1.0)}, several_nodes)
    chosen = {"restart_cost_s": 10.0, **settings}
    return simulate(submissions, cluster, policy, speeds, Settings(**chosen), incidents=incidents)  # type: ignore[arg-type]


def ends(log: RunLog) -> dict[str, float | None]:
    return {record.job.id: record.end_s for record in log.jobs}


def record(log: RunLog, job: str = "j") -> JobRecord:
    (found,) = (r for r in log.jobs if r.job.id == job)
    return found


def held(log: RunLog, job: str = "j") -> list[tuple[str, float, float]]:
    """Where a job held GPUs, from when until when."""
    return [(str(r.configuration), r.since_s, r.freed_s) for r in log.runs if r.job == job]


def productive(log: RunLog) -> list[tuple[float, float, RunEnd]]:
    return [(r.productive_s, r.samples, r.ended_by) for r in log.runs]


# -- starts, stops and what they cost --------------------------------------------------------------


def test_a_job_alone_takes_its_samples_over_its_speed() -> None:
    log = run([submission("j", 100.0, (2,), submit_s=5.0)])
    assert ends(log) == {"j": 55.0}
    assert productive(log) == [(50.0, 100.0, RunEnd.COMPLETED)]
    assert record(log).wait_s == 0.0
    assert record(log).restarts == 0


def test_every_start_but_the_first_costs_time_without_progress() -> None:
    log = run(
        [submission("j", 100.0)], timetable({0.0: {"j": placed(a=1)}, 40.0: {"j": placed(b=1)}})
    )
    assert held(log) == [("a:1", 0.0, 40.0), ("b:1", 40.0, 110.0)]
    assert productive(log) == [
        (40.0, 40.0, RunEnd.MOVED),
        (60.0, 60.0, RunEnd.COMPLETED),
    ]
    assert (record(log).restarts, record(log).preemptions) == (1, 0)


def test_the_same_configuration_going_on_is_no_restart() -> None:
    steps = {float(s): {"j": placed(a=1)} for s in (0, 40, 60)}
    log = run([submission("j", 100.0)], timetable(steps))
    assert held(log) == [("a:1", 0.0, 100.0)]
    assert record(log).restarts == 0


def test_a_preempted_job_waits_and_goes_on_from_where_it_was() -> None:
    steps = {0.0: {"j": placed(a=1)}, 40.0: {}, 60.0: {"j": placed(a=1)}}
    log = run([submission("j", 100.0)], timetable(steps))
    assert held(log) == [("a:1", 0.0, 40.0), ("a:1", 60.0, 130.0)]
    assert record(log).wait_s == 20.0
    assert (record(log).restarts, record(log).preemptions) == (1, 1)


def test_a_run_that_is_stopped_in_its_restart_cost_has_done_nothing() -> None:
    steps = {0.0: {"j": placed(a=1)}, 40.0: {"j": placed(b=1)}, 45.0: {"j": placed(a=1)}}
    log = run([submission("j", 100.0)], timetable(steps))
    assert productive(log)[1] == (0.0, 0.0, RunEnd.MOVED)
    assert ends(log) == {"j": 45.0 + 10.0 + 60.0}


def test_a_stopped_run_keeps_its_gpus_for_the_grace_time_and_makes_no_progress() -> None:
    steps = {
        0.0: {"j": placed(a=4)},
        40.0: {"k": placed(a=4)},
        60.0: {"j": placed(b=4), "k": placed(a=4)},
    }
    jobs = [submission("j", 400.0, (4,)), submission("k", 80.0, (4,))]
    log = run(jobs, timetable(steps), grace_s=15.0)
    assert held(log) == [("a:4", 0.0, 55.0), ("b:4", 60.0, 130.0)]
    assert held(log, "k") == [("a:4", 55.0, 75.0)]
    assert productive(log)[0] == (40.0, 160.0, RunEnd.PREEMPTED)
    assert record(log).wait_s == 5.0
    assert record(log, "k").wait_s == 55.0


def test_a_job_that_moves_starts_when_it_has_left() -> None:
    steps = {0.0: {"j": placed(a=1)}, 40.0: {"j": placed(b=1)}}
    log = run([submission("j", 100.0)], timetable(steps), grace_s=15.0)
    assert held(log) == [("a:1", 0.0, 55.0), ("b:1", 55.0, 125.0)]


def test_a_slower_configuration_slows_the_job_down() -> None:
    steps = {0.0: {"j": placed(a=2)}, 10.0: {"j": placed(a=1, b=1)}}
    log = run([submission("j", 60.0, (2,))], timetable(steps), several_nodes=0.5)
    assert ends(log) == {"j": 10.0 + 10.0 + 40.0}


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("checkpoint_s", "kept"), [(30.0, 60.0), (70.0, 70.0), (100.0, 0.0), (math.inf, 0.0)]
)
def test_a_crash_loses_the_work_since_the_last_periodic_checkpoint(
    checkpoint_s: float, kept: float
) -> None:
    log = run(
        [submission("j", 200.0, (2,))],
        timetable({0.0: {"j": placed(a=2)}}),
        incidents=(JobCrashed(70.0, "j"),),
        checkpoint_s=checkpoint_s,
    )
    assert productive(log)[0] == (kept, 2 * kept, RunEnd.CRASHED)
    assert ends(log) == {"j": 70.0 + 10.0 + (200.0 - 2 * kept) / 2}
    assert (record(log).restarts, record(log).preemptions) == (1, 0)


def test_checkpoints_count_from_the_start_of_each_run() -> None:
    """A planned stop saves everything, so the next run's first checkpoint is a period later."""
    steps = {0.0: {"j": placed(a=1)}, 40.0: {"j": placed(b=1)}}
    log = run(
        [submission("j", 100.0)],
        timetable(steps),
        incidents=(JobCrashed(75.0, "j"),),
        checkpoint_s=30.0,
    )
    assert [r.samples for r in log.runs] == [40.0, 0.0, 60.0]
    assert ends(log) == {"j": 75.0 + 10.0 + 60.0}


def test_a_crash_before_any_progress_loses_nothing() -> None:
    steps = {0.0: {"j": placed(a=1)}, 40.0: {"j": placed(b=1)}}
    log = run([submission("j", 100.0)], timetable(steps), incidents=(JobCrashed(45.0, "j"),))
    assert ends(log) == {"j": 45.0 + 10.0 + 60.0}


def test_a_crash_of_a_job_that_runs_nowhere_changes_nothing() -> None:
    incidents = (JobCrashed(3.0, "j"), JobCrashed(20.0, "j"))
    log = run([submission("j", 10.0, submit_s=5.0)], incidents=incidents)
    assert ends(log) == {"j": 15.0}


def test_a_crash_of_a_job_that_nobody_submitted_is_refused() -> None:
    with pytest.raises(InputError, match="never heard of"):
        run([submission("j", 10.0)], incidents=(JobCrashed(20.0, "never heard of"),))


def test_a_job_that_comes_to_an_idle_cluster_at_the_start_of_a_round_is_in_it() -> None:
    late = [submission("j", 20.0), submission("k", 20.0, submit_s=60.0)]
    log = run(late, make_policy("gavel"), round_s=30.0)
    assert ends(log) == {"j": 20.0, "k": 80.0}


def test_a_long_outage_is_waited_for() -> None:
    log = run(
        [submission("j", 3000.0)],
        make_policy("las"),
        round_s=1.0,
        incidents=(
            NodeLost(10.0, "a"),
            NodeLost(10.0, "b"),
            NodeBack(2500.0, "a"),
            NodeBack(2500.0, "b"),
        ),
    )
    assert record(log).end_state is EndState.COMPLETED


def test_a_size_that_nobody_told_is_not_told() -> None:
    seen: list[Snapshot] = []
    untold = submission("j", 10.0)
    untold = replace(untold, job=replace(untold.job, total_samples=None))
    run([untold], timetable({0.0: {"j": placed(a=1)}}, seen=seen))
    assert [s.jobs["j"].job.total_samples for s in seen] == [None] * len(seen)


def test_a_job_that_can_never_run_is_never_run_though_it_is_cancelled() -> None:
    log = run([submission("j", 10.0), submission("k", 10.0, (500,), cancel_s=5.0)])
    assert record(log, "k").end_state is EndState.NEVER


def test_a_lost_node_sends_its_jobs_elsewhere() -> None:
    jobs = [submission("j", 100.0), submission("k", 100.0, (4,))]
    log = run(jobs, incidents=(NodeLost(50.0, "a"),), checkpoint_s=30.0)
    assert held(log) == [("a:1", 0.0, 50.0), ("b:1", 50.0, 130.0)]
    assert held(log, "k") == [("b:4", 0.0, 25.0)]
    assert productive(log)[1] == (30.0, 30.0, RunEnd.NODE_LOST)


def test_a_gang_loses_all_its_gpus_with_one_node() -> None:
    log = run(
        [submission("j", 600.0, (6,))],
        incidents=(NodeLost(50.0, "a"), NodeBack(80.0, "a")),
        checkpoint_s=30.0,
    )
    assert held(log) == [("a:4+b:2", 0.0, 50.0), ("a:4+b:2", 80.0, 160.0)]
    assert record(log).wait_s == 30.0


def test_a_drained_node_keeps_what_runs_and_takes_nothing_new_until_it_is_back() -> None:
    log = run(
        [submission("j", 100.0, (4,)), submission("k", 40.0, (4,), submit_s=10.0)],
        cluster=cluster_of(a=("v100", 8)),
        incidents=(NodeDrained(5.0, "a"), NodeBack(18.0, "a")),
    )
    assert held(log) == [("a:4", 0.0, 25.0)]
    assert held(log, "k") == [("a:4", 18.0, 28.0)]


def test_nothing_starts_on_a_node_that_was_drained_after_the_plan_was_made() -> None:
    """The old job leaves the node at 42; the plan that knows of its drain takes effect at 43."""
    steps = {0.0: {"old": placed(a=4)}, 10.0: {"new": placed(a=4)}, 43.0: {"new": placed(b=4)}}
    log = run(
        [submission("old", 1000.0, (4,), cancel_s=95.0), submission("new", 40.0, (4,))],
        timetable(steps, on=frozenset({Trigger.ARRIVAL})),
        incidents=(NodeDrained(41.0, "a"),),
        grace_s=30.0,
        decision_s=2.0,
    )
    assert held(log, "old") == [("a:4", 2.0, 42.0)]
    assert held(log, "new") == [("b:4", 43.0, 53.0)]


@pytest.mark.parametrize("grace_s", [0.0, 30.0])
def test_a_job_that_crashes_on_a_drained_node_goes_elsewhere_at_once(grace_s: float) -> None:
    log = run(
        [submission("j", 100.0)],
        incidents=(NodeDrained(10.0, "a"), JobCrashed(50.0, "j")),
        checkpoint_s=30.0,
        grace_s=grace_s,
    )
    assert held(log) == [("a:1", 0.0, 50.0), ("b:1", 50.0, 130.0)]


def test_a_node_that_is_lost_while_a_run_leaves_it_takes_that_run_along() -> None:
    steps = {0.0: {"j": placed(a=1)}, 40.0: {"j": placed(b=1)}}
    log = run(
        [submission("j", 100.0)],
        timetable(steps),
        incidents=(NodeLost(50.0, "a"),),
        grace_s=30.0,
        checkpoint_s=30.0,
    )
    assert held(log) == [("a:1", 0.0, 50.0), ("b:1", 50.0, 130.0)]
    assert productive(log)[0] == (30.0, 30.0, RunEnd.NODE_LOST)


# -- when it is decided ----------------------------------------------------------------------------


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


# -- withdrawn, failed, never ----------------------------------------------------------------------


CANCEL_S = {
    "before it is eligible": 5.0,
    "waiting": 15.0,
    "running": 25.0,
    "draining": 45.0,
    "waiting again": 55.0,
    "starting": 65.0,
    "running again": 75.0,
}


@pytest.mark.parametrize("when", CANCEL_S)
def test_a_job_can_be_withdrawn_in_every_phase(when: str) -> None:
    """Eligible at 10, runs from 20 to 40, leaves until 50, starts again at 60."""
    cancel_s = CANCEL_S[when]
    seen: list[Snapshot] = []
    steps = {0.0: {}, 20.0: {"j": placed(a=2)}, 40.0: {}, 60.0: {"j": placed(b=2)}}
    log = run(
        [
            submission("j", 1000.0, (2,), eligible_s=10.0, cancel_s=cancel_s),
            submission("other", 10.0, submit_s=90.0),
        ],
        timetable(steps, seen=seen),
        grace_s=10.0,
    )
    planned = [("a:2", 20.0, 50.0), ("b:2", 60.0, math.inf)]
    assert held(log) == [(w, s, min(e, cancel_s)) for w, s, e in planned if s < cancel_s]
    assert record(log).end_s == cancel_s
    assert record(log).end_state is EndState.CANCELLED
    assert (cancel_s > 10.0) is any("j" in s.jobs for s in seen)
    waits = [(10.0, 20.0), (50.0, 60.0)]
    assert record(log).wait_s == sum(max(0.0, min(e, cancel_s) - s) for s, e in waits)


def test_the_gpus_of_a_withdrawn_job_are_free_at_once() -> None:
    jobs = [
        submission("j", 1000.0, (4,), cancel_s=25.0),
        submission("k", 1000.0, (4,), cancel_s=25.0),
        submission("next", 8.0, (8,), submit_s=1.0),
    ]
    log = run(jobs)
    assert held(log, "next") == [("a:4+b:4", 25.0, 26.0)]


def test_a_job_whose_work_is_done_when_it_is_withdrawn_has_completed() -> None:
    log = run([submission("j", 10.0, cancel_s=10.0)])
    assert record(log).end_state is EndState.COMPLETED


def test_a_job_that_fails_does_so_after_its_work() -> None:
    log = run([submission("j", 10.0, ends_as=EndState.FAILED)])
    assert (record(log).end_s, record(log).end_state) == (10.0, EndState.FAILED)
    assert productive(log) == [(10.0, 10.0, RunEnd.FAILED)]


def test_a_job_that_never_fits_does_not_keep_the_simulation_going() -> None:
    jobs = [submission("wide", 10.0, (9,)), submission("j", 10.0, submit_s=5.0)]
    log = run(jobs, make_policy("las"), round_s=1.0)
    assert ends(log) == {"wide": None, "j": 15.0}
    assert record(log, "wide").end_state is EndState.NEVER
    assert log.closed_s == 15.0


def test_a_job_that_is_never_served_is_unfinished_when_nothing_more_happens() -> None:
    jobs = [submission("j", 10.0), submission("k", 10.0)]
    log = run(jobs, timetable({0.0: {"k": placed(a=1)}}))
    assert (record(log).end_s, record(log).end_state) == (None, EndState.UNFINISHED)
    assert record(log).wait_s == 10.0


def test_a_policy_of_rounds_that_serves_nobody_is_not_asked_for_ever() -> None:
    log = run([submission("j", 10.0)], timetable({0.0: {}}, on=frozenset({Trigger.ROUND})))
    assert record(log).end_state is EndState.UNFINISHED
    assert len(log.plans) < 2000


def test_a_job_placed_where_it_makes_no_progress_fails_at_once() -> None:
    cluster = cluster_of(a=("v100", 4), k=("k80", 4))
    speeds = linear_speeds(cluster, {"m": {"v100": 1.0, "k80": 0.0}})
    policy = timetable({0.0: {"j": placed(k=1)}})
    log = simulate([submission("j", 10.0)], cluster, policy, speeds)
    assert (record(log).end_s, record(log).end_state) == (0.0, EndState.FAILED)


# -- copies, budgets and profiling -----------------------------------------------------------------


def copies(**budgets: float | None) -> Placed:
    """A copy on each of these nodes of four GPUs, numbered in order, with so many samples to do."""
    return Placed(
        tuple(
            Placement(on(**{node: 4}), n, budget=b) for n, (node, b) in enumerate(budgets.items())
        )
    )


def run_copies(
    samples: float,
    steps: Mapping[float, Placed],
    on: frozenset[Trigger] | None = None,
    **more: float,
) -> RunLog:
    policy = timetable(
        {s: {"j": entry} for s, entry in steps.items()}, model=ExecutionModel.COPIES, on=on
    )
    fast = cluster_of(a=("v100", 4), b=("k80", 4))
    speeds = linear_speeds(fast, {"m": {"v100": 1.5, "k80": 0.5}})
    settings = Settings(restart_cost_s=10.0, **more)  # type: ignore[arg-type]
    return simulate([submission("j", samples)], fast, policy, speeds, settings)


def test_copies_work_together_and_the_job_ends_when_all_its_samples_are_done() -> None:
    """6 and 2 samples/s: 80 samples in 10 s, with most of both budgets unused."""
    log = run_copies(80.0, {0.0: copies(a=1000.0, b=1000.0)})
    assert ends(log) == {"j": 10.0}
    assert [(r.copy, r.samples) for r in log.runs] == [(0, 60.0), (1, 20.0)]


def test_a_copy_that_has_done_its_budget_holds_its_gpus_until_a_plan_says_otherwise() -> None:
    """The fast copy is done at 5; the job goes on at 2 samples/s: 30 + 10 + 40 more by 25."""
    both = copies(a=30.0, b=None)
    log = run_copies(80.0, {0.0: both, 15.0: Placed(both.placements[1:])})
    assert ends(log) == {"j": 25.0}
    assert [(r.copy, r.since_s, r.freed_s, r.samples, r.ended_by) for r in log.runs] == [
        (0, 0.0, 15.0, 30.0, RunEnd.BUDGET),
        (1, 0.0, 25.0, 50.0, RunEnd.COMPLETED),
    ]
    assert productive(log)[0] == (5.0, 30.0, RunEnd.BUDGET)
    assert record(log).preemptions == 0


def test_a_used_up_budget_asks_for_a_plan() -> None:
    log = run_copies(80.0, {0.0: copies(a=30.0, b=4.0)}, on=frozenset({Trigger.BUDGET}))
    assert [(p.at_s, set(p.triggers)) for p in log.plans] == [
        (0.0, {Trigger.ARRIVAL, Trigger.ROUND}),
        (2.0, {Trigger.BUDGET}),
        (5.0, {Trigger.BUDGET}),
    ]
    assert record(log).end_state is EndState.UNFINISHED


def test_a_budget_that_is_raised_lets_the_run_go_on_without_a_restart() -> None:
    log = run_copies(60.0, {0.0: copies(a=30.0), 15.0: copies(a=60.0)})
    assert [(r.since_s, r.freed_s, r.productive_s) for r in log.runs] == [(0.0, 20.0, 10.0)]
    assert record(log).restarts == 0


def test_a_copy_that_comes_later_pays_the_restart_cost() -> None:
    """6 samples/s until 15, then 8: 90 + 30 samples by 18.75."""
    log = run_copies(120.0, {0.0: copies(a=None), 5.0: copies(a=None, b=None)})
    assert ends(log) == {"j": 18.75}
    assert [(r.copy, r.since_s, r.samples) for r in log.runs] == [(0, 0.0, 112.5), (1, 5.0, 7.5)]


@pytest.mark.parametrize("budget", [1 / 3, 7.7, 100.0])
def test_budgets_come_to_an_end_at_the_times_of_today(budget: float) -> None:
    """Close to 1.7e9 s two floats are a quarter of a millionth of a second apart."""
    now = 1_700_000_000.25
    log = simulate(
        [submission("j", 10.0 * budget, submit_s=now)],
        PAIR,
        timetable(
            {0.0: {"j": copies(a=budget)}},
            model=ExecutionModel.COPIES,
            on=frozenset({Trigger.BUDGET}),
        ),
        linear_speeds(PAIR, {"m": {"v100": 33.3}}),
    )
    assert [set(p.triggers) for p in log.plans] == [
        {Trigger.ARRIVAL, Trigger.ROUND},
        {Trigger.BUDGET},
    ]
    assert log.runs[0].samples == budget


def test_profiling_holds_gpus_beside_the_job_and_ends_with_its_budget() -> None:
    """4 samples at 2/s are done at 2; the plan made then names no profiling any more."""
    seen: list[Snapshot] = []
    measured = replace(profiling(on(b=2), until_s=50.0), budget=4.0)
    steps = {0.0: Step({"j": placed(a=1)}, {"j": measured}), 2.0: Step({"j": placed(a=1)})}
    triggers = frozenset({Trigger.PROFILE})
    log = run([submission("j", 10.0)], timetable(steps, on=triggers, seen=seen))
    assert ends(log) == {"j": 10.0}
    assert [(str(r.configuration), r.since_s, r.freed_s, r.samples) for r in log.runs] == [
        ("b:2", 0.0, 2.0, 0.0),
        ("a:1", 0.0, 10.0, 10.0),
    ]
    assert Trigger.PROFILE in seen[1].triggers
    assert seen[1].jobs["j"].phase(2.0) is Phase.RUNNING
    assert record(log).restarts == 0


@pytest.mark.parametrize("decision_s", [0.0, 3.0])
@pytest.mark.parametrize("listens", [True, False], ids=["listens", "does not listen"])
def test_a_profiling_run_is_given_up_once_whatever_the_policy_does_about_it(
    decision_s: float, listens: bool
) -> None:
    steps = {0.0: Step({"j": placed(a=1)}, {"j": profiling(on(b=2), until_s=8.0)})}
    policy = timetable(steps, on=frozenset({Trigger.PROFILE} if listens else ()))
    log = run([submission("j", 10.0)], policy, decision_s=decision_s)
    profiled = [(r.since_s, r.freed_s) for r in log.runs if r.ended_by is RunEnd.PROFILED]
    assert profiled == [(decision_s, 8.0)]
    assert ends(log) == {"j": decision_s + 10.0}


def test_a_job_that_is_only_profiled_has_not_started_and_does_not_wait() -> None:
    steps = {
        0.0: Step({}, {"j": profiling(on(b=2), until_s=8.0)}),
        20.0: Step({"j": placed(a=1)}),
    }
    log = run([submission("j", 10.0)], timetable(steps))
    assert record(log).first_start_s == 20.0
    assert record(log).wait_s == 12.0
    assert record(log).restarts == 0
    assert ends(log) == {"j": 30.0}


def test_a_profiling_run_that_has_done_its_budget_is_over_whatever_the_policy_does_about_it() -> (
    None
):
    """It does 4 samples at 2/s, and the plan that names it stays in force until 6."""
    seen: list[Snapshot] = []
    measured = replace(profiling(on(b=2), until_s=50.0), budget=4.0)
    steps = {0.0: Step({"j": placed(a=1)}, {"j": measured}), 6.0: Step({"j": placed(a=1)})}
    log = run([submission("j", 10.0)], timetable(steps, on=frozenset(), seen=seen))
    assert [(str(r.configuration), r.since_s, r.freed_s, r.ended_by) for r in log.runs] == [
        ("b:2", 0.0, 2.0, RunEnd.PROFILED),
        ("a:1", 0.0, 10.0, RunEnd.COMPLETED),
    ]
    assert seen[1].previous.profiles == ()


def test_a_profiling_run_where_the_job_does_not_run_is_over_at_once() -> None:
    only_a = linear_speeds(PAIR, {"m": {"v100": 0.0}})
    steps = {0.0: Step({}, {"j": profiling(on(b=1), until_s=9.0)}), 3.0: Step()}
    log = simulate([submission("j", 10.0)], PAIR, timetable(steps), only_a, Settings())
    assert [(r.since_s, r.freed_s, r.ended_by) for r in log.runs] == [(0.0, 0.0, RunEnd.PROFILED)]


def test_a_profiling_run_that_ends_while_a_plan_is_awaited_is_not_begun_again() -> None:
    """It runs from 20 to 120; the plan that is asked for at 110 still names it, and comes at 130.

    What that plan names elsewhere for the same job has not been run, and is.
    """
    measured = replace(profiling(on(b=1), until_s=900.0), budget=100.0)
    first, another = Step({}, {"j": measured}), replace(measured, configuration=on(b=2))
    for steps, expected in (
        ({0.0: first}, [("b:1", 20.0, 120.0)]),
        (
            {0.0: first, 125.0: Step({}, {"j": another})},
            [("b:1", 20.0, 120.0), ("b:2", 130.0, 180.0)],
        ),
    ):
        policy = timetable(steps, on=frozenset({Trigger.ARRIVAL}))
        jobs = [submission(job, 10.0, (1, 2), submit_s=s) for job, s in (("j", 0.0), ("k", 110.0))]
        assert held(run(jobs, policy, decision_s=20.0)) == expected


def test_a_profiling_run_that_is_being_stopped_is_not_given_up_besides() -> None:
    steps = {0.0: Step({}, {"j": profiling(on(b=1), until_s=50.0)}), 20.0: Step()}
    log = run([submission("j", 10.0)], timetable(steps), grace_s=100.0)
    assert [(r.since_s, r.freed_s, r.ended_by) for r in log.runs] == [
        (0.0, 120.0, RunEnd.PREEMPTED)
    ]


def test_a_profiling_run_that_fails_at_once_is_not_tried_again_while_its_job_waits_to_move_in() -> (
    None
):
    """At 10 the profile of j falls over; its own run waits for GPUs that k leaves at 30."""
    cluster = cluster_of(a=("v100", 4), b=("v100", 4), c=("v100", 4))
    truth = linear_speeds(cluster, {"m": {"v100": 1.0}}, several_nodes=0.0)
    steps = {
        0.0: Step({"k": placed(a=4)}),
        10.0: Step({"j": placed(a=2)}, {"j": profiling(on(b=1, c=1), until_s=90.0)}),
    }
    jobs = [submission("j", 10.0, (2,)), submission("k", 100.0, (4,))]
    log = simulate(jobs, cluster, timetable(steps), truth, Settings(grace_s=20.0))
    assert held(log) == [("b:1+c:1", 10.0, 10.0), ("a:2", 30.0, 35.0)]


# -- what the policy is told -----------------------------------------------------------------------


@dataclass
class Notes:
    """Estimates of twice the true speed that keep what they are told."""

    given: Speeds
    told: list[Measured] = field(default_factory=list)

    def speeds(self, now: float) -> Speeds:
        return self.given

    def observe(self, measured: Measured) -> None:
        self.told.append(measured)


def test_a_run_shows_its_estimate_until_it_has_made_progress_for_a_while() -> None:
    """It starts at 40 for the second time, makes progress from 50 and shows its speed at 80."""
    truth, twice = (linear_speeds(PAIR, {"m": {"v100": s}}) for s in (1.0, 2.0))
    seen: list[Snapshot] = []
    where = {s: {"j": placed(b=1)} for s in (40.0, 45.0, 60.0, 79.0, 80.0, 90.0)}
    policy = timetable({0.0: {"j": placed(a=1)}, **where}, seen=seen)
    simulate([submission("j", 100.0)], PAIR, policy, truth, Settings(), estimates=Notes(twice))
    shown = [(s.now, run.speed) for s in seen for run in s.jobs["j"].runs]
    assert shown == [
        *((40.0, 1.0), (45.0, 2.0), (60.0, 2.0), (79.0, 2.0)),
        *((80.0, 1.0), (90.0, 1.0)),
    ]
    views = {s.now: s.jobs["j"] for s in seen}
    assert views[79.0].samples_at(79.0) == 40.0 + 2.0 * 29.0
    assert views[80.0].samples_at(80.0) == 40.0 + 30.0


def test_samples_do_not_tell_a_speed_that_has_not_been_seen() -> None:
    """Beside the run a profiling run of 4 samples ends at 4, and the job is looked at again."""
    truth, twice = (linear_speeds(PAIR, {"m": {"v100": s}}) for s in (1.0, 2.0))
    seen: list[Snapshot] = []
    measured = replace(profiling(on(b=1), until_s=50.0), budget=4.0)
    step = Step({"j": placed(a=1)}, {"j": measured})
    steps = {0.0: step, 1.0: step, **{s: Step({"j": placed(a=1)}) for s in (4.0, 29.0, 30.0)}}
    policy = timetable(steps, seen=seen)
    estimates = Notes(twice)
    simulate([submission("j", 100.0)], PAIR, policy, truth, Settings(), estimates=estimates)
    views = {s.now: s.jobs["j"] for s in seen if s.jobs}
    shown = {s: view.runs[0].samples for s, view in views.items() if view.runs}
    assert views[4.0].observed_s == 4.0
    assert (shown[4.0], views[4.0].samples_done) == (8.0, 8.0)
    assert views[29.0].samples_at(29.0) == 58.0
    assert (shown[30.0], views[30.0].samples_done) == (30.0, 30.0)
    assert [m.samples for m in estimates.told] == [4.0, 100.0]


def test_a_run_that_has_done_its_budget_shows_so_and_its_speed() -> None:
    slow, truth = (linear_speeds(PAIR, {"m": {"v100": s}}) for s in (0.5, 1.0))
    seen: list[Snapshot] = []
    steps = {0.0: {"j": copies(a=40.0)}}
    on_budget = frozenset({Trigger.BUDGET})
    policy = timetable(steps, on=on_budget, model=ExecutionModel.COPIES, seen=seen)
    jobs = [submission("j", 80.0, cancel_s=15.0)]
    simulate(jobs, PAIR, policy, truth, Settings(), estimates=Notes(slow))
    (run_seen,) = seen[1].jobs["j"].runs
    assert (seen[1].now, run_seen.samples, run_seen.speed) == (10.0, 40.0, 4.0)


def test_estimates_are_told_of_every_run_that_ends_profiling_runs_too() -> None:
    truth = linear_speeds(PAIR, {"m": {"v100": 1.0}})
    notes = Notes(truth)
    measured = replace(profiling(on(b=2), until_s=50.0), budget=4.0)
    steps = {0.0: Step({"j": placed(a=1)}, {"j": measured}), 4.0: Step({"j": placed(b=2)})}
    jobs = [submission("j", 10.0, (1, 2))]
    settings = Settings(restart_cost_s=5.0, grace_s=2.0)
    simulate(jobs, PAIR, timetable(steps), truth, settings, estimates=notes)
    assert [(m.purpose, str(m.configuration), m.samples, m.seconds) for m in notes.told] == [
        (Purpose.PROFILE, "b:2", 4.0, 2.0),
        (Purpose.RUN, "a:1", 4.0, 4.0),
        (Purpose.RUN, "b:2", 6.0, 3.0),
    ]


@pytest.mark.parametrize(
    ("knows", "samples", "limit_s"),
    [
        (frozenset(), None, None),
        (frozenset({Knowledge.TOTAL_SAMPLES}), 10.0, None),
        (frozenset({Knowledge.TIME_LIMIT}), None, 99.0),
        (frozenset(Knowledge), 10.0, 99.0),
    ],
)
def test_a_policy_sees_sizes_and_limits_only_if_it_says_that_it_must(
    knows: frozenset[Knowledge], samples: float | None, limit_s: float | None
) -> None:
    seen: list[Snapshot] = []
    job = submission("j", 10.0)
    job = replace(job, job=replace(job.job, time_limit_s=99.0))
    run([job], timetable({0.0: {"j": placed(a=1)}}, knows=knows, seen=seen))
    assert seen[0].jobs["j"].job.total_samples == samples
    assert seen[0].jobs["j"].job.time_limit_s == limit_s


def test_only_a_policy_that_declares_it_is_shown_the_future() -> None:
    seen: list[Snapshot] = []
    jobs = [submission("j", 10.0), submission("k", 10.0, submit_s=5.0)]
    both = {0.0: {"j": placed(a=1), "k": placed(b=1)}}
    run(jobs, timetable(both, knows=frozenset({Knowledge.FUTURE_ARRIVALS}), seen=seen))
    first, second = seen[:2]
    assert isinstance(first, OfflineSnapshot)
    assert isinstance(second, OfflineSnapshot)
    assert ([s.job.id for s in first.future], [s.job.id for s in second.future]) == (["k"], [])
    seen.clear()
    run(jobs, timetable(both, seen=seen))
    assert not any(isinstance(snapshot, OfflineSnapshot) for snapshot in seen)


def test_jobs_run_at_true_speeds_whatever_is_estimated() -> None:
    wrong = linear_speeds(PAIR, {"m": {"v100": 100.0}})
    seen: list[Snapshot] = []
    log = simulate(
        [submission("j", 10.0)],
        PAIR,
        timetable({0.0: {"j": placed(a=1)}}, seen=seen),
        linear_speeds(PAIR, {"m": {"v100": 1.0}}),
        estimates=KnownSpeeds(wrong),
    )
    assert ends(log) == {"j": 10.0}
    assert seen[0].speeds is wrong


def test_a_snapshot_names_what_is_new_and_what_has_gone_since_the_plan_in_force_was_made() -> None:
    seen: list[Snapshot] = []
    jobs = [
        submission("j", 10.0),
        submission("k", 30.0, submit_s=5.0),
        submission("l", 5.0, submit_s=20.0),
    ]
    everywhere = {"j": placed(a=1), "k": placed(b=1), "l": placed(a=1)}
    run(jobs, timetable({0.0: everywhere}, seen=seen))
    named = [(s.now, set(s.changed), set(s.gone), s.nodes_changed) for s in seen]
    assert named[:4] == [
        (0.0, {"j"}, set(), True),
        (5.0, {"j", "k"}, set(), False),
        (10.0, {"k"}, {"j"}, False),
        (20.0, {"l"}, set(), False),
    ]


def unsized(job_id: str, samples: float, **options: float) -> Submission:
    one = submission(job_id, samples, **options)  # type: ignore[arg-type]
    return replace(one, job=replace(one.job, total_samples=None))


def test_run_times_of_jobs_that_told_no_size_stand_for_the_next_ones_of_their_profile() -> None:
    """j runs from 0 to 10; k waits from 2 and runs from 10 to 14; the others do not count."""
    jobs = [
        unsized("j", 10.0),
        unsized("k", 4.0, submit_s=2.0),
        submission("told", 1.0, submit_s=20.0),
        replace(unsized("failed", 9.0, submit_s=30.0), ends_as=EndState.FAILED),
        unsized("withdrawn", 9.0, submit_s=50.0, cancel_s=52.0),
        unsized("last", 1.0, submit_s=60.0),
    ]
    seen: list[Snapshot] = []

    @dataclass(frozen=True)
    class Seeing:
        info: ClassVar[PolicyInfo] = FIFO.info

        def plan(self, snapshot: Snapshot) -> Plan:
            seen.append(snapshot)
            return FIFO.plan(snapshot)

    run(jobs, Seeing(), cluster=cluster_of(a=("v100", 1)))
    told = {snapshot.now: dict(snapshot.past_run_s) for snapshot in seen}
    assert {now: means for now, means in told.items() if now < 14.0} == {
        0.0: {},
        2.0: {},
        10.0: {"m": 10.0},
    }
    assert told[20.0] == told[60.0] == {"m": 7.0}


# -- input, and the log as a whole -----------------------------------------------------------------


def test_a_workload_of_no_jobs_is_refused() -> None:
    with pytest.raises(InputError, match="no job to simulate"):
        run([])


def test_two_jobs_of_one_id_are_refused_by_name() -> None:
    with pytest.raises(InputError, match="'j' occurs twice"):
        run([submission("i", 1.0), submission("j", 1.0), submission("j", 2.0)])


def test_an_incident_on_an_unknown_node_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="unknown node 'zz'"):
        run([submission("j", 1.0)], incidents=(NodeLost(0.0, "zz"),))


def test_an_invalid_plan_ends_the_run_with_the_rule_that_it_breaks() -> None:
    with pytest.raises(PlanError, match=r"'timetable'.*t=0.000 s: requirement: job j gets 3 GPUs"):
        run([submission("j", 1.0)], timetable({0.0: {"j": placed(a=3)}}))


def test_equal_runs_leave_equal_logs() -> None:
    def once() -> RunLog:
        jobs = [submission(f"j{n}", 50.0 + n, (1 + n % 3,), submit_s=n // 2) for n in range(12)]
        incidents = (NodeLost(30.0, "a"), NodeBack(45.0, "a"), JobCrashed(20.0, "j3"))
        return run(jobs, make_policy("las"), incidents=incidents, grace_s=2.0, round_s=10.0)

    one, two = once(), once()
    assert one.jobs == two.jobs
    assert one.runs == two.runs
    assert one.plans == two.plans
    assert one.nodes == two.nodes


def test_the_stopwatch_measures_decisions_and_whoever_wants_it_is_told_of_ends() -> None:
    ticks = iter(range(1000))
    told: list[int] = []
    speeds = linear_speeds(PAIR, {"m": {"v100": 1.0}})
    log = simulate(
        [submission("j", 10.0), submission("k", 20.0)],
        PAIR,
        FIFO,
        speeds,
        stopwatch=lambda: float(next(ticks)),
        ended=told.append,
    )
    assert {plan.plan_s for plan in log.plans} == {1.0}
    assert log.wall_s == 2 * len(log.plans) + 1
    assert told == [1, 2]


def test_the_log_records_when_nodes_changed_and_only_changes() -> None:
    incidents = (NodeLost(1.0, "a"), NodeLost(2.0, "a"), NodeBack(3.0, "a"), NodeDrained(4.0, "b"))
    log = run([submission("j", 20.0)], incidents=incidents)
    assert [(n.at_s, n.node, n.condition.value) for n in log.nodes] == [
        (1.0, "a", "down"),
        (3.0, "a", "up"),
        (4.0, "b", "drained"),
    ]
