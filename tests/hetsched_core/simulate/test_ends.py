"""Jobs that are withdrawn, fail, or never run."""

from __future__ import annotations

import math

import pytest

from hetsched_core.policy import make_policy
from hetsched_core.simulate import simulate
from hetsched_core.types import EndState, Snapshot, Trigger
from tests.hetsched_core.simulate.runs import ends, held, record, run
from tests.hetsched_core.simulate.timetable import timetable
from tests.hetsched_core.worlds import cluster_of, linear_speeds, placed, submission

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


def test_a_job_whose_work_is_done_when_it_is_withdrawn_has_completed() -> None:
    log = run([submission("j", 10.0, cancel_s=10.0)])
    assert record(log).end_state is EndState.COMPLETED


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
