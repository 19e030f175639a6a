"""Windows in which nodes are closed: who starts before them, who leaves in time, who waits."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from hetsched_core.errors import PlanError
from hetsched_core.policy import make_policy, policy_names
from hetsched_core.records.runlog import RunEnd
from hetsched_core.types import (
    ExecutionModel,
    Plan,
    ReasonCode,
    Snapshot,
    Submission,
    Waiting,
    Window,
)
from tests.hetsched_core.simulate.runs import FIFO, held, run
from tests.hetsched_core.simulate.timetable import policy_of, timetable
from tests.hetsched_core.worlds import placed, submission

WINDOW = Window(frozenset({"b"}), 500.0, 800.0, "maintenance")
SETTINGS: dict[str, Any] = {"restart_cost_s": 0.0, "round_s": 60.0, "windows": (WINDOW,)}
GANGS = [name for name in policy_names() if make_policy(name).info.model is ExecutionModel.GANG]
MOVING = [name for name in GANGS if name != "slurm"]
"""Slurm stops nobody for a window."""


def limited(
    name: str, seconds: float, limit_s: float | None, *, preemptible: bool, submit_s: float = 0.0
) -> Submission:
    """A job of four GPUs for so many seconds, on node b alone."""
    given = submission(name, 4 * seconds, (4,), preemptible=preemptible, submit_s=submit_s)
    job = replace(given.job, time_limit_s=limit_s, nodes=frozenset({"b"}))
    return replace(given, job=job)


@pytest.mark.parametrize("name", GANGS)
def test_short_jobs_run_before_a_window_and_long_ones_that_cannot_be_moved_after_it(
    name: str,
) -> None:
    jobs = [
        limited("long", 400.0, 600.0, preemptible=False),
        limited("short", 100.0, 120.0, preemptible=False, submit_s=1.0),
    ]
    log = run(jobs, make_policy(name), **SETTINGS)
    (short,) = held(log, "short")
    (long,) = held(log, "long")
    assert short[0] == long[0] == "b:4"
    assert short[1] < 200.0
    assert short[2] <= 500.0
    assert 800.0 <= long[1] < 1000.0


@pytest.mark.parametrize("name", MOVING)
@pytest.mark.parametrize("decision_s", [0.0, 3.0])
def test_who_can_be_moved_works_until_the_window_and_has_left_when_it_begins(
    name: str, decision_s: float
) -> None:
    jobs = [limited("j", 900.0, None, preemptible=True)]
    log = run(jobs, make_policy(name), grace_s=20.0, decision_s=decision_s, **SETTINGS)
    (before, after) = held(log, "j")
    assert 470.0 <= before[2] <= 500.0
    assert after[1] >= 800.0
    # Nothing of its work was lost, but for what it could not do while it saved its state.
    assert sum(r.productive_s for r in log.runs) == pytest.approx(900.0)
    assert RunEnd.NODE_LOST not in {r.ended_by for r in log.runs}


def test_slurm_starts_nobody_whose_limit_reaches_into_a_window() -> None:
    jobs = [
        limited("none", 100.0, None, preemptible=True),
        limited("short", 100.0, 450.0, preemptible=True, submit_s=1.0),
    ]
    log = run(jobs, make_policy("slurm"), **SETTINGS)
    assert held(log, "short")[0][1] < 60.0
    assert held(log, "none")[0][1] >= 800.0


@pytest.mark.parametrize("name", GANGS)
def test_who_may_go_elsewhere_does_and_gpus_outside_are_used_meanwhile(name: str) -> None:
    free = [submission(f"j{k}", 4 * 300.0, (4,), preemptible=False) for k in range(4)]
    jobs = [replace(s, job=replace(s.job, time_limit_s=310.0)) for s in free]
    log = run(jobs, make_policy(name), **SETTINGS)
    on_a = sorted((r.since_s, r.freed_s) for r in log.runs if str(r.configuration) == "a:4")
    on_b = sorted((r.since_s, r.freed_s) for r in log.runs if str(r.configuration) == "b:4")
    assert on_b[0][1] <= 500.0
    assert len(on_a) >= 2
    # Node a is never idle for more than a round while somebody waits.
    assert all(after[0] - before[1] <= 60.0 for before, after in pairwise(on_a))
    assert all(begin >= 800.0 or end <= 500.0 for begin, end in on_b)


def test_a_job_without_room_outside_a_window_is_told_of_the_window() -> None:
    seen: list[Waiting] = []

    def plan(snapshot: Snapshot) -> Plan:
        made = FIFO.plan(snapshot)
        seen.extend(entry for entry in made.entries.values() if isinstance(entry, Waiting))
        return made

    run([limited("j", 400.0, 600.0, preemptible=False)], policy_of(plan), **SETTINGS)
    assert {(entry.reason.code, entry.reason.detail) for entry in seen} == {
        (ReasonCode.CLOSED, "maintenance")
    }


def test_a_plan_that_keeps_a_job_where_a_window_closes_is_refused() -> None:
    stays = timetable({0.0: {"j": placed(b=4)}})
    with pytest.raises(PlanError, match="closed: job j on b, which a window closes to it"):
        run([limited("j", 900.0, None, preemptible=True)], stays, **SETTINGS)


@pytest.mark.parametrize("name", GANGS)
def test_a_window_on_nodes_that_nobody_uses_changes_nothing(name: str) -> None:
    """What runs elsewhere, and when, is the same to the last bit."""
    given = [submission(f"j{k}", 100.0 + k, (1 + k % 4,), submit_s=7.0 * k) for k in range(6)]
    jobs = [replace(s, job=replace(s.job, nodes=frozenset({"a"}))) for s in given]
    plain, windowed = (
        run(jobs, make_policy(name), **SETTINGS | {"windows": windows})
        for windows in ((), (WINDOW,))
    )
    assert plain.runs == windowed.runs
    assert plain.jobs == windowed.jobs
