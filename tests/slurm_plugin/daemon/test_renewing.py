"""While a policy thinks for long, the nodes stay held."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest

from hetsched_core.policy import Policy, PolicyInfo, make_policy
from hetsched_core.types import Plan, Snapshot
from slurm_plugin.backend import AwayError, Enter, Hold, RefusedError
from slurm_plugin.daemon import Daemon, DaemonSettings, Mode
from slurm_plugin.daemon.renewing import renewing
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import WAITING, Clock, daemon_of, held, state

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


def test_the_daemon_renews_before_it_makes_more_changes_than_there_is_time_for() -> None:
    jobs = [replace(WAITING, id=str(number), gpus=1) for number in range(1, 4)]
    backend = FakeBackend(state(*jobs, reservations=(held("n0", until_s=1005.0),)))
    daemon = Daemon(
        backend,
        make_policy("fifo"),
        DaemonSettings(partitions=frozenset({"gpu"}), slack_s=20),
        mode=Mode.ENFORCE,
        clock=Clock(),
        sleep=lambda _: None,
        # Each call takes 4 s.
        stopwatch=lambda: 4.0 * len(backend.calls),
    )
    outcome = daemon.cycle().outcome
    assert outcome is not None
    assert [type(change) for change in outcome.made] == [Hold, Enter]
    assert [type(change) for change in outcome.put_off] == [Enter, Enter]
    daemon.cycle()
    assert isinstance(backend.calls[2], Hold)
    assert isinstance(backend.calls[3], Enter)


def test_in_shadow_nothing_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm_plugin.daemon.daemon._RENEW", 0.001)
    backend = FakeBackend(state(WAITING))
    slow = Slow(until=lambda: time.sleep(0.05))
    assert daemon_of(backend, Clock(), slow, mode=Mode.SHADOW).cycle().violations == ()
    assert backend.calls == []
