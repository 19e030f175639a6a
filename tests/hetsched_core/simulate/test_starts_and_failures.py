"""What starts, stops, crashes and lost nodes cost, against times computed by hand.

Unless said otherwise a GPU does 1 sample/s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.errors import InputError, PlanError
from hetsched_core.policy import make_policy
from hetsched_core.records.runlog import RunEnd
from hetsched_core.simulate import Incident, JobCrashed, NodeBack, NodeDrained, NodeLost, simulate
from hetsched_core.types import EndState, Entry, Snapshot, SpeedPhase, Trigger
from tests.hetsched_core.simulate.runs import FIFO, PAIR, ends, held, productive, record, run
from tests.hetsched_core.simulate.timetable import timetable
from tests.hetsched_core.worlds import cluster_of, linear_speeds, placed, submission

A, B = {"j": placed(a=1)}, {"j": placed(b=1)}
MOVES = {0.0: A, 40.0: B}
DONE, MOVED, STOPPED = RunEnd.COMPLETED, RunEnd.MOVED, RunEnd.PREEMPTED
CRASHED, LOST = RunEnd.CRASHED, RunEnd.NODE_LOST


@pytest.mark.parametrize(
    ("own_s", "restart_s"), [(None, 10.0), (0.0, 0.0), (25.0, 25.0)], ids=["usual", "none", "own"]
)
def test_a_job_has_costs_of_its_own_for_its_first_start_and_for_later_ones(
    own_s: float | None, restart_s: float
) -> None:
    seen: list[Snapshot] = []
    job = replace(submission("j", 100.0), start_cost_s=7.0, restart_cost_s=own_s)
    log = run([job], timetable(MOVES, seen=seen))
    # 33 samples by 40, and 67 to do.
    assert [(r.since_s, r.freed_s, r.productive_s) for r in log.runs] == [
        (0.0, 40.0, 33.0),
        (40.0, 40.0 + restart_s + 67.0, 67.0),
    ]
    assert {each.jobs["j"].restart_cost_s for each in seen} == {restart_s}


HALVES = (SpeedPhase(0.2, 1.0), SpeedPhase(0.5, 2.0), SpeedPhase(1.0, 0.5))
"""Of 100 samples: 20 at one a second, 30 at two, 50 at half a sample."""


def test_the_speed_of_a_job_changes_as_it_gets_on() -> None:
    seen: list[Snapshot] = []
    job = replace(submission("j", 100.0), phases=HALVES)
    steps = {0.0: A, 10.0: A, 25.0: A, 60.0: B, 61.0: B}
    log = run([job], timetable(steps, seen=seen), restart_cost_s=4.0)
    # 20 by 20, 50 by 35, 62.5 by 60; then 4 s of nothing, and 37.5 more.
    assert [(r.since_s, r.freed_s, r.productive_s, r.samples) for r in log.runs] == [
        (0.0, 60.0, 60.0, 62.5),
        (60.0, 139.0, 75.0, 37.5),
    ]
    speeds = {each.now: run.speed for each in seen for run in each.jobs["j"].runs}
    assert speeds == {10.0: 1.0, 25.0: 2.0, 60.0: 0.5, 61.0: 0.5}
    assert {each.now: each.jobs["j"].samples_at(each.now) for each in seen} == {
        0.0: 0.0,
        10.0: 10.0,
        25.0: 30.0,
        60.0: 62.5,
        61.0: 62.5,
    }


def test_a_crash_takes_a_job_back_into_the_phase_that_it_was_in() -> None:
    job = replace(submission("j", 100.0), phases=HALVES)
    crash = JobCrashed(25.0, "j")
    log = run([job], timetable({0.0: A}), incidents=(crash,), restart_cost_s=0.0)
    # 30 samples by 25 are lost back to none: no checkpoint was due.
    assert ends(log) == {"j": 25.0 + 20.0 + 15.0 + 100.0}


@pytest.mark.parametrize(
    ("crash_s", "checkpoint_s", "kept"), [(30.0, 1e9, 0.0), (29.0, 15.0, 15.0), (38.0, 22.0, 24.0)]
)
def test_a_crash_loses_what_was_done_since_the_checkpoint_at_whichever_speed(
    crash_s: float, checkpoint_s: float, kept: float
) -> None:
    job = replace(submission("j", 100.0), phases=HALVES)
    crash = (JobCrashed(crash_s, "j"),)
    policy = timetable({0.0: A})
    log = run([job], policy, incidents=crash, restart_cost_s=0.0, checkpoint_s=checkpoint_s)
    assert log.runs[0].samples == pytest.approx(kept)
    assert log.runs[1].samples == pytest.approx(100.0 - kept)


@given(
    st.lists(st.floats(0.01, 100.0), min_size=1, max_size=6),
    st.lists(st.floats(0.01, 0.99), max_size=5, unique=True),
    st.floats(1.0, 1e9),
)
def test_a_job_takes_the_time_of_its_phases_together(
    factors: list[float], untils: list[float], samples: float
) -> None:
    ends_at = [*sorted(untils)[: len(factors) - 1], 1.0]
    phases = tuple(map(SpeedPhase, ends_at, factors))
    shares = (b - a for a, b in pairwise([0.0, *ends_at]))
    taken_s = sum(samples * share / each.factor for share, each in zip(shares, phases, strict=True))
    job = replace(submission("j", samples), phases=phases)
    assert ends(run([job]))["j"] == pytest.approx(taken_s, rel=1e-6)
    assert job.steady_samples == pytest.approx(taken_s)


@pytest.mark.parametrize(
    ("steps", "incidents", "settings", "expected"),
    [
        ({0.0: A, 40.0: A, 60.0: A}, (), {}, [("a:1", 0, 100, 100, DONE)]),
        (MOVES, (), {}, [("a:1", 0, 40, 40, MOVED), ("b:1", 40, 110, 60, DONE)]),
        (
            {0.0: A, 40.0: {}, 60.0: A},
            (),
            {},
            [("a:1", 0, 40, 40, STOPPED), ("a:1", 60, 130, 60, DONE)],
        ),
        (
            {**MOVES, 45.0: A},
            (),
            {},
            [("a:1", 0, 40, 40, MOVED), ("b:1", 40, 45, 0, MOVED), ("a:1", 45, 115, 60, DONE)],
        ),
        (MOVES, (), {"grace_s": 15.0}, [("a:1", 0, 55, 40, MOVED), ("b:1", 55, 125, 60, DONE)]),
        (
            MOVES,
            (JobCrashed(75.0, "j"),),
            {"checkpoint_s": 30.0},
            [("a:1", 0, 40, 40, MOVED), ("b:1", 40, 75, 0, CRASHED), ("b:1", 75, 145, 60, DONE)],
        ),
        (
            MOVES,
            (JobCrashed(45.0, "j"),),
            {},
            [("a:1", 0, 40, 40, MOVED), ("b:1", 40, 45, 0, CRASHED), ("b:1", 45, 115, 60, DONE)],
        ),
        (
            None,
            (NodeLost(50.0, "a"),),
            {"checkpoint_s": 30.0},
            [("a:1", 0, 50, 30, LOST), ("b:1", 50, 130, 70, DONE)],
        ),
        (
            None,
            (NodeDrained(10.0, "a"), JobCrashed(50.0, "j")),
            {"checkpoint_s": 30.0},
            [("a:1", 0, 50, 30, CRASHED), ("b:1", 50, 130, 70, DONE)],
        ),
        (
            None,
            (NodeDrained(10.0, "a"), JobCrashed(50.0, "j")),
            {"checkpoint_s": 30.0, "grace_s": 30.0},
            [("a:1", 0, 50, 30, CRASHED), ("b:1", 50, 130, 70, DONE)],
        ),
        (
            MOVES,
            (NodeLost(50.0, "a"),),
            {"grace_s": 30.0, "checkpoint_s": 30.0},
            [("a:1", 0, 50, 30, LOST), ("b:1", 50, 130, 70, DONE)],
        ),
    ],
    ids=[
        "the same configuration going on is no restart",
        "every start but the first costs time without progress",
        "a preempted job waits and goes on from where it was",
        "a run that is stopped in its restart cost has done nothing",
        "a job that moves starts when it has left",
        "checkpoints count from the start of each run, for a planned stop saves everything",
        "a crash before any progress loses nothing",
        "a lost node sends its jobs elsewhere",
        "a job that crashes on a drained node goes elsewhere at once",
        "a job that crashes on a drained node has no grace time",
        "a node that is lost while a run leaves it takes that run along",
    ],
)
def test_what_befalls_a_job_of_100_seconds_costs_this(
    steps: Mapping[float, Mapping[str, Entry]] | None,
    incidents: tuple[Incident, ...],
    settings: dict[str, Any],
    expected: list[tuple[str, float, float, float, RunEnd]],
) -> None:
    policy = FIFO if steps is None else timetable(steps)
    log = run([submission("j", 100.0)], policy, incidents=incidents, **settings)
    assert [
        (str(r.configuration), r.since_s, r.freed_s, r.samples, r.ended_by) for r in log.runs
    ] == expected
    held_s = sum(freed_s - since_s for _, since_s, freed_s, *_ in expected)
    assert record(log).wait_s == expected[-1][2] - held_s
    assert record(log).restarts == len(expected) - 1
    assert record(log).preemptions == [row[-1] for row in expected].count(STOPPED)


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


def test_what_gives_way_saves_nothing_and_leaves_at_once() -> None:
    steps = {0.0: A, 40.0: {}, 60.0: A}
    low = submission("j", 100.0, preemptible=False, gives_way=True)
    log = run([low], timetable(steps), grace_s=15.0, checkpoint_s=30.0)
    assert held(log) == [("a:1", 0.0, 40.0), ("a:1", 60.0, 140.0)]
    assert productive(log) == [(30.0, 30.0, STOPPED), (70.0, 70.0, DONE)]


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


def test_a_crash_of_a_job_that_runs_nowhere_changes_nothing() -> None:
    incidents = (JobCrashed(3.0, "j"), JobCrashed(20.0, "j"))
    log = run([submission("j", 10.0, submit_s=5.0)], incidents=incidents)
    assert ends(log) == {"j": 15.0}


def test_a_long_outage_is_waited_for() -> None:
    incidents = [i for node in "ab" for i in (NodeLost(10.0, node), NodeBack(2500.0, node))]
    jobs = [submission("j", 3000.0)]
    log = run(jobs, make_policy("las"), round_s=1.0, incidents=tuple(incidents))
    assert record(log).end_state is EndState.COMPLETED


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
