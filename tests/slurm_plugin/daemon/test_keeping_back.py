"""While a policy thinks for long, the jobs that wait for it do not start."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from slurm_plugin.daemon.keeping_back import keeping_back

from hetsched_core.policy import Policy, PolicyInfo, make_policy
from hetsched_core.types import Plan, Snapshot
from slurm_plugin.backend import AwayError, Place, Push, RefusedError
from slurm_plugin.daemon import Mode
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import WAITING, Clock, daemon_of, state

PATIENCE_S = 30.0
PUSHES = (Push("1", 60), Push("2", 60))


def await_calls(backend: FakeBackend, count: int) -> None:
    """Wait until so many calls were made."""
    deadline = time.monotonic() + PATIENCE_S
    while len(backend.calls) < count:
        assert time.monotonic() < deadline, backend.calls
        time.sleep(0.01)


def test_begin_times_are_moved_on_again_and_again_and_no_more_afterwards() -> None:
    backend = FakeBackend()
    with keeping_back(backend, PUSHES, every_s=0.05):
        await_calls(backend, 6)
    made = len(backend.calls)
    assert set(backend.calls) == set(PUSHES)
    time.sleep(0.2)
    assert len(backend.calls) == made


def test_a_quick_policy_costs_no_call() -> None:
    backend = FakeBackend()
    with keeping_back(backend, PUSHES, every_s=15):
        pass
    assert backend.calls == []


def test_what_slurm_answers_ends_nothing() -> None:
    backend = FakeBackend(errors=(RefusedError("ended"), AwayError("away")))
    with keeping_back(backend, PUSHES, every_s=0.02):
        await_calls(backend, 5)
    jobs = [change.job for change in backend.calls]
    # The first has ended; at the second the controller went away: later both again.
    assert jobs[:4] == ["1", "2", "1", "2"]


@dataclass
class Slow(Policy):
    """Thinks until something has come about, and then as fifo does."""

    info: ClassVar[PolicyInfo] = make_policy("fifo").info

    until: Callable[[], None] = field(default=lambda: None)

    def plan(self, snapshot: Snapshot) -> Plan:
        self.until()
        return make_policy("fifo").plan(snapshot)


def test_the_daemon_keeps_waiting_jobs_back_while_its_policy_thinks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slurm_plugin.daemon.daemon._KEEP_BACK", 0.001)
    backend = FakeBackend(state(WAITING))
    slow = Slow(until=lambda: await_calls(backend, 2))
    assert daemon_of(backend, Clock(), slow).cycle().violations == ()
    assert set(backend.calls[:-1]) == {Push("1", 60)}
    assert isinstance(backend.calls[-1], Place)


def test_in_shadow_nothing_is_moved_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm_plugin.daemon.daemon._KEEP_BACK", 0.001)
    backend = FakeBackend(state(WAITING))
    slow = Slow(until=lambda: time.sleep(0.3))
    assert daemon_of(backend, Clock(), slow, mode=Mode.SHADOW).cycle().violations == ()
    assert backend.calls == []
