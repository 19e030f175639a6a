"""Input that is refused, and the log of a run as a whole."""

from __future__ import annotations

import pytest

from hetsched_core.errors import InputError, PlanError
from hetsched_core.policy import make_policy
from hetsched_core.runlog import RunLog
from hetsched_core.simulate import JobCrashed, NodeBack, NodeDrained, NodeLost, simulate
from tests.hetsched_core.simulate.runs import FIFO, PAIR, run
from tests.hetsched_core.simulate.timetable import timetable
from tests.hetsched_core.worlds import linear_speeds, placed, submission


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
