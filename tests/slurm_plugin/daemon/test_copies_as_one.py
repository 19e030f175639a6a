"""Jobs of copies under policies that give each job one placement, on a fake Slurm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.policy import make_policy
from hetsched_core.types import Placed, ReasonCode
from slurm_plugin.backend import Cancel, Enter, JobState, Requeue, SlurmJob
from slurm_plugin.daemon import Daemon, Mode
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import Clock, daemon_of, left, placed, state
from tests.slurm_plugin.daemon.test_copies import (
    SETTINGS,
    begun,
    cycles,
    element,
    hadare,
    nodes,
    running,
)


def ended(number: int, outcome: str, on: str = "n2") -> SlurmJob:
    """An element that has ended."""
    return replace(running(number, on), state=JobState.ENDED, outcome=outcome, end_s=995.0)


def fifo(backend: FakeBackend, clock: Clock) -> Daemon:
    """A daemon under a policy that gives each job one placement."""
    return daemon_of(backend, clock, settings=SETTINGS)


def reload(daemon: Daemon, policy: str) -> None:
    """Go on under another policy."""
    daemon.adopt(make_policy(policy), SETTINGS, Mode.ENFORCE)


@pytest.mark.parametrize("outcome", ["CANCELLED", "FAILED", "TIMEOUT"])
def test_a_spare_that_has_ended_costs_the_job_nothing(outcome: str) -> None:
    backend, clock = FakeBackend(), Clock()
    backend.state = state(running(0, "n0"), element(1), ended(2, outcome), nodes=nodes(4, 0, 0))
    daemon = fifo(backend, clock)
    cycles(daemon, clock, 200)
    assert backend.calls == []
    (run,) = daemon.world.jobs["7"].runs
    assert (run.copy, str(run.configuration)) == (0, "n0:4")
    # Nor while it waits: nothing that has ended is queued again.
    backend.state = state(element(0), element(1), ended(2, outcome), nodes=nodes(0, 0, 0))
    cycles(daemon, clock)
    assert backend.calls == [begun(element(0), "n0")]


def test_what_runs_beside_the_first_element_is_stopped_and_comes_back() -> None:
    elements = running(0, "n0"), running(1, "n1"), ended(2, "CANCELLED"), element(3)
    backend, clock = FakeBackend(state(*elements, nodes=nodes(4, 4, 0))), Clock()
    daemon = hadare(backend, clock)
    cycles(daemon, clock)
    backend.calls.clear()
    reload(daemon, "fifo")
    cycles(daemon, clock)
    assert backend.calls == [Requeue("7_1")]
    assert str(daemon.world.jobs["7"].holds) == "n0:4"
    # Until it has ended its node is not free.
    views = [daemon.world.nodes[name] for name in ("n0", "n1", "n2")]
    assert [(view.held_gpus, view.foreign_gpus) for view in views] == [(4, 0), (0, 4), (0, 0)]
    backend.calls.clear()
    again = placed(element(1, restarts=1), "n1")
    backend.state = state(elements[0], again, *elements[2:], nodes=nodes(4, 0, 0))
    cycles(daemon, clock)
    assert backend.calls == [left(element(1))]
    backend.calls.clear()
    backend.state = state(elements[0], element(1, restarts=1), *elements[2:], nodes=nodes(4, 0, 0))
    cycles(daemon, clock, 100)
    assert backend.calls == []
    reload(daemon, "hadare")
    cycles(daemon, clock)
    assert [change.job for change in backend.calls if isinstance(change, Enter)] == ["7_1", "7_3"]


def test_the_first_that_has_not_ended_goes_on_for_the_job() -> None:
    backend, clock = FakeBackend(), Clock()
    backend.state = state(
        ended(0, "FAILED", "n0"),
        element(3),
        running(1, "n1"),
        running(2, "n2"),
        nodes=nodes(0, 4, 4),
    )
    daemon = hadare(backend, clock)
    cycles(daemon, clock)
    backend.calls.clear()
    reload(daemon, "fifo")
    cycles(daemon, clock)
    assert backend.calls == [Requeue("7_2")]
    assert str(daemon.world.jobs["7"].holds) == "n1:4"
    backend.calls.clear()
    again = placed(element(2, restarts=1), "n2")
    backend.state = state(ended(0, "FAILED"), running(1, "n1"), again, nodes=nodes(0, 4, 0))
    cycles(daemon, clock)
    assert backend.calls == [left(element(2))]
    backend.calls.clear()
    # Cancelled by its user, the job has still the other.
    waits = element(2, restarts=1)
    backend.state = state(ended(0, "FAILED"), ended(1, "CANCELLED"), waits, nodes=nodes(0, 0, 0))
    cycles(daemon, clock)
    assert [(type(change), change.job) for change in backend.calls] == [(Enter, "7_2")]
    backend.calls.clear()
    backend.state = state(*(ended(at, "FAILED") for at in range(3)), nodes=nodes(0))
    cycles(daemon, clock)
    assert (backend.calls, dict(daemon.world.managed)) == ([], {})


@pytest.mark.parametrize("runs", [(), (0,)])
def test_an_element_that_ended_well_ends_the_job(runs: tuple[int, ...]) -> None:
    first = running(0, "n0") if runs else element(0)
    backend, clock = FakeBackend(), Clock()
    backend.state = state(first, ended(1, "COMPLETED"), element(2), nodes=nodes(4 if runs else 0))
    daemon = fifo(backend, clock)
    cycles(daemon, clock, 2)
    waiting = {f"7_{at}" for at in range(3) if at not in (*runs, 1)}
    assert set(backend.calls) == {Cancel(job) for job in waiting}
    assert dict(daemon.world.managed) == {}


def test_what_is_surplus_saves_its_state_first() -> None:
    settings = replace(SETTINGS, checkpoint_signal="USR1", checkpoint_wait_s=20.0)
    backend, clock = FakeBackend(), Clock()
    backend.state = state(running(0, "n0"), running(1, "n1"), nodes=nodes(4, 4))
    daemon = daemon_of(backend, clock, settings=settings)
    cycles(daemon, clock, 10)
    assert [(type(change).__name__, change.job) for change in backend.calls] == [("Signal", "7_1")]
    cycles(daemon, clock, 12)
    assert [(type(change).__name__, change.job) for change in backend.calls][1:2] == [
        ("Requeue", "7_1")
    ]


def test_nothing_starts_once_the_first_element_is_kept_back_though_the_plan_is_older() -> None:
    backend, clock = FakeBackend(), Clock()
    backend.state = state(element(0), element(1), element(2), nodes=nodes(0, 0))
    daemon = hadare(backend, clock)
    cycles(daemon, clock)
    assert isinstance(daemon.plan.entries["7"], Placed)
    backend.calls.clear()
    held = replace(element(0), held=True, reason="JobHeldUser")
    backend.state = state(held, element(1), element(2), nodes=nodes(0, 0))
    cycles(daemon, clock, 3)
    assert isinstance(daemon.plan.entries["7"], Placed)
    assert backend.calls == []
    blocked = daemon.world.jobs["7"].blocked
    assert blocked is not None
    assert blocked.code is ReasonCode.HELD


def test_what_never_ran_is_not_taken_for_the_job_once_the_first_has_ended() -> None:
    backend, clock = FakeBackend(), Clock()
    backend.state = state(ended(0, "FAILED", "n0"), element(1), running(2, "n1"), nodes=nodes(0, 4))
    daemon = fifo(backend, clock)
    cycles(daemon, clock, 2)
    assert not any(isinstance(change, Requeue | Enter) for change in backend.calls)
    assert str(daemon.world.jobs["7"].holds) == "n1:4"
