"""Copies of a job, their budgets, and profiling runs, which have budgets too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.records.runlog import RunEnd, RunLog
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.simulate.state import Active, Held, finish_time
from hetsched_core.types import (
    EndState,
    ExecutionModel,
    Phase,
    Placed,
    Placement,
    Purpose,
    Snapshot,
    Trigger,
)
from tests.hetsched_core.simulate.runs import PAIR, copies, ends, held, productive, record, run
from tests.hetsched_core.simulate.timetable import Step, timetable
from tests.hetsched_core.worlds import cluster_of, linear_speeds, on, placed, profiling, submission


def run_copies(
    samples: float, steps: Mapping[float, Placed], on: frozenset[Trigger] | None = None
) -> RunLog:
    given = {s: {"j": entry} for s, entry in steps.items()}
    policy = timetable(given, model=ExecutionModel.COPIES, on=on)
    fast = cluster_of(a=("v100", 4), b=("k80", 4))
    speeds = linear_speeds(fast, {"m": {"v100": 1.5, "k80": 0.5}})
    return simulate(
        [submission("j", samples)], fast, policy, speeds, SimulationSettings(restart_cost_s=10.0)
    )


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


@pytest.mark.parametrize("planned_s", [2.0, 6.0], ids=["listens", "does not listen"])
def test_profiling_holds_gpus_beside_the_job_and_ends_with_its_budget(planned_s: float) -> None:
    """4 samples at 2/s are done at 2, though the plan that names it stays in force until 6."""
    seen: list[Snapshot] = []
    measured = replace(profiling(on(b=2), until_s=50.0), budget=4.0)
    steps = {0.0: Step({"j": placed(a=1)}, {"j": measured}), planned_s: Step({"j": placed(a=1)})}
    triggers = frozenset({Trigger.PROFILE} if planned_s == 2.0 else ())
    log = run([submission("j", 10.0)], timetable(steps, on=triggers, seen=seen))
    assert ends(log) == {"j": 10.0}
    assert held(log) == [("b:2", 0.0, 2.0), ("a:1", 0.0, 10.0)]
    assert [(r.samples, r.ended_by) for r in log.runs] == [
        (0.0, RunEnd.PROFILED),
        (10.0, RunEnd.COMPLETED),
    ]
    assert seen[1].now == planned_s
    assert Trigger.PROFILE in seen[1].triggers
    assert seen[1].previous.profiles == ()
    assert seen[1].jobs["j"].phase(planned_s) is Phase.RUNNING
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


def test_a_profiling_run_where_the_job_does_not_run_is_over_at_once() -> None:
    only_a = linear_speeds(PAIR, {"m": {"v100": 0.0}})
    steps = {0.0: Step({}, {"j": profiling(on(b=1), until_s=9.0)}), 3.0: Step()}
    log = simulate([submission("j", 10.0)], PAIR, timetable(steps), only_a, SimulationSettings())
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
    log = simulate(jobs, cluster, timetable(steps), truth, SimulationSettings(grace_s=20.0))
    assert held(log) == [("b:1+c:1", 10.0, 10.0), ("a:2", 30.0, 35.0)]


NOW = 1_700_000_000.0


@given(
    st.floats(0.0, 1e5),
    st.lists(st.tuples(st.floats(1e-3, 1e4), st.floats(1e-3, 1e6)), min_size=1, max_size=3),
)
def test_every_budget_comes_to_its_end_however_time_rounds(
    later: float, copies: list[tuple[float, float]]
) -> None:
    """At most two looks for each: one at the time foreseen, one at what rounding left over."""
    start_s = NOW + later
    whole = submission("j", 1e12)
    active = Active(whole, whole.job, start_s, start_s, restart_cost_s=0.0)
    for number, (speed, budget) in enumerate(copies):
        placement = Placement(on(a=1), number, budget=budget)
        active.runs[Purpose.RUN, number] = Held(
            number, placement, start_s, start_s, speed, (("v100", 1),), budget=budget
        )
    noticed: set[int] = set()
    for _ in range(2 * len(copies)):
        if len(noticed) == len(copies):
            break
        active.settle(active.next_budget_at())
        noticed |= {one.number for _, one in active.used_up()}
    assert len(noticed) == len(copies)
    for (_, budget), one in zip(copies, active.runs.values(), strict=True):
        assert one.samples == budget


def test_workers_that_begin_at_different_times_share_the_work() -> None:
    assert finish_time(10.0, [(0.0, 1.0)]) == 10.0
    assert finish_time(10.0, [(4.0, 2.0), (0.0, 1.0)]) == 6.0
    assert finish_time(3.0, [(4.0, 2.0), (0.0, 1.0)]) == 3.0
    assert finish_time(0.0, [(4.0, 2.0)]) == 4.0
    assert finish_time(1.0, []) == float("inf")
    assert finish_time(1.0, [(0.0, 0.0)]) == float("inf")
