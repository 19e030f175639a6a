"""Input that is refused, and the log of a run as a whole."""

from __future__ import annotations

import pytest

from hetsched_core.errors import InputError, PlanError
from hetsched_core.simulate import Incident, JobCrashed, NodeBack, NodeDrained, NodeLost, simulate
from tests.hetsched_core.simulate.runs import FIFO, PAIR, run
from tests.hetsched_core.simulate.timetable import timetable
from tests.hetsched_core.worlds import linear_speeds, placed, submission


@pytest.mark.parametrize(
    ("jobs", "incidents", "named"),
    [
        ("", (), "no job to simulate"),
        ("ijj", (), "'j' occurs twice"),
        ("j", (NodeLost(0.0, "zz"),), "unknown node 'zz'"),
        ("j", (JobCrashed(20.0, "never heard of"),), "unknown job 'never heard of'"),
    ],
)
def test_input_that_makes_no_sense_is_refused_by_name(
    jobs: str, incidents: tuple[Incident, ...], named: str
) -> None:
    with pytest.raises(InputError, match=named):
        run([submission(name, 1.0) for name in jobs], incidents=incidents)


def test_an_invalid_plan_ends_the_run_with_the_rule_that_it_breaks() -> None:
    with pytest.raises(PlanError, match=r"'as-told'.*t=0.000 s: requirement: job j gets 3 GPUs"):
        run([submission("j", 1.0)], timetable({0.0: {"j": placed(a=3)}}))


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
