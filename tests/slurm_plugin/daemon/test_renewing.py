"""While a policy thinks for long, the nodes stay held."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest

from hetsched_core.policy import Policy, PolicyInfo, make_policy
from hetsched_core.types import Plan, Snapshot
from slurm_plugin.backend import (
    AwayError,
    Change,
    Enter,
    Hold,
    RefusedError,
    SlurmReservation,
    SlurmState,
)
from slurm_plugin.daemon import Daemon, Mode
from slurm_plugin.daemon.renewing import renewing
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    RIGID,
    SETTINGS,
    WAITING,
    Clock,
    daemon_of,
    node,
    state,
)

PATIENCE_S = 30.0
HOLD = Hold("hetsched", ("n0",), 60)


def await_calls(backend: FakeBackend, count: int) -> None:
    """Wait until so many calls were made."""
    deadline = time.monotonic() + PATIENCE_S
    while len(backend.calls) < count:
        assert time.monotonic() < deadline, backend.calls
        time.sleep(0.01)


def test_the_hold_is_renewed_again_and_again_and_no_more_afterwards() -> None:
    backend = FakeBackend()
    with renewing(backend, HOLD, every_s=0.01):
        await_calls(backend, 3)
    made = len(backend.calls)
    assert set(backend.calls) == {HOLD}
    time.sleep(0.05)
    assert len(backend.calls) == made


def test_a_quick_policy_costs_no_call() -> None:
    backend = FakeBackend()
    with renewing(backend, HOLD, every_s=15):
        pass
    assert backend.calls == []


def test_what_slurm_answers_ends_nothing() -> None:
    backend = FakeBackend(errors=(RefusedError("no"), AwayError("away")))
    with renewing(backend, HOLD, every_s=0.01):
        await_calls(backend, 3)


@dataclass
class Slow(Policy):
    """Thinks until something has come about, and then as fifo does."""

    info: ClassVar[PolicyInfo] = make_policy("fifo").info

    until: Callable[[], None] = field(default=lambda: None)

    def plan(self, snapshot: Snapshot) -> Plan:
        self.until()
        return make_policy("fifo").plan(snapshot)


def test_the_daemon_keeps_the_nodes_held_while_its_policy_thinks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slurm_plugin.daemon.daemon._RENEW", 0.001)
    backend = FakeBackend(state(WAITING))
    slow = Slow(until=lambda: await_calls(backend, 2))
    assert daemon_of(backend, Clock(), slow).cycle().violations == ()
    assert set(backend.calls[:-1]) == {HOLD}
    assert isinstance(backend.calls[-1], Enter)


def test_in_shadow_nothing_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm_plugin.daemon.daemon._RENEW", 0.001)
    backend = FakeBackend(state(WAITING))
    slow = Slow(until=lambda: time.sleep(0.05))
    assert daemon_of(backend, Clock(), slow, mode=Mode.SHADOW).cycle().violations == ()
    assert backend.calls == []


def test_the_nodes_stay_held_while_many_changes_are_made() -> None:
    clock = Clock()

    class Slow(FakeBackend):
        held_until_s = 1000.0 + SETTINGS.slack_s

        def read(self) -> SlurmState:
            entered = {call.job for call in self.calls}
            jobs = [job for job in waiting if job.id not in entered]
            names = tuple(f"n{at}" for at in range(20))
            hold = SlurmReservation(HOLD.name, tuple(sorted(names)), 0.0, self.held_until_s)
            return state(*jobs, nodes=tuple(map(node, names)), reservations=(hold,))

        def apply(self, change: Change) -> None:
            FakeBackend.apply(self, change)
            if isinstance(change, Hold):
                self.held_until_s = clock.now + change.seconds
            clock.now += 2.0
            assert clock.now < self.held_until_s

    waiting = [replace(RIGID, id=f"{number}") for number in range(60)]
    backend = Slow()
    daemon = Daemon(
        backend,
        make_policy("fifo"),
        SETTINGS,
        mode=Mode.ENFORCE,
        clock=clock,
        sleep=lambda _: None,
        stopwatch=clock,
    )
    for _ in range(20):
        daemon.cycle()
    placed = [call.job for call in backend.calls if isinstance(call, Enter)]
    assert placed == [job.id for job in waiting]
