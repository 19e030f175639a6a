"""Slurm is away, comes back, or has nothing to show yet."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from hetsched_core.policy import make_policy
from slurm_plugin.backend import AwayError, Enter, Hold, RefusedError, SlurmState
from slurm_plugin.daemon import Daemon, Mode
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import SETTINGS, WAITING, Clock, daemon_of, state


@dataclass(slots=True)
class AwayBackend(FakeBackend):
    """A backend whose Slurm is away at first."""

    away: int = 2

    def read(self) -> SlurmState:
        """Fail a few times."""
        if self.away:
            self.away -= 1
            raise (AwayError if self.away else RefusedError)("nobody answers")
        return FakeBackend.read(self)


def test_slurm_being_away_is_a_state() -> None:
    backend, clock = AwayBackend(state(WAITING)), Clock()
    daemon = daemon_of(backend, clock)
    reports = [daemon.cycle() for _ in range(3)]
    assert [report.away for report in reports] == ["nobody answers", "nobody answers", ""]
    clock.now += 10.0
    daemon.cycle()
    assert len(backend.calls) == 1


def test_a_cluster_without_gpus_is_waited_for() -> None:
    backend, clock = FakeBackend(state(WAITING, nodes=())), Clock()
    daemon = daemon_of(backend, clock)
    assert "0 GPUs" in daemon.cycle().away
    backend.state = state(WAITING)
    daemon.cycle()
    assert len(backend.calls) == 1


@dataclass(slots=True)
class Flighty(FakeBackend):
    """Does not answer while it is told to be away."""

    away: bool = False

    def read(self) -> SlurmState:
        if self.away:
            raise AwayError("nobody answers")
        return FakeBackend.read(self)


def test_once_slurm_is_back_nothing_is_placed_before_its_nodes_have_registered() -> None:
    backend, clock = Flighty(), Clock()
    daemon = daemon_of(backend, clock)
    backend.away = True
    assert daemon.cycle().away
    backend.away, backend.state = False, state(WAITING, reservations=())
    for _ in range(10):
        daemon.cycle()
        clock.now += 1
    # The nodes are held meanwhile.
    assert set(backend.calls) == {Hold("hetsched", ("n0",), 60)}
    daemon.cycle()
    assert isinstance(backend.calls[-1], Enter)


def test_a_read_that_waited_for_a_backup_controller_counts_as_slurm_having_been_away() -> None:
    backend, clock = FakeBackend(state(WAITING)), Clock()
    daemon = Daemon(
        backend,
        make_policy("fifo"),
        SETTINGS,
        mode=Mode.ENFORCE,
        clock=clock,
        sleep=lambda _: None,
        # Between any two looks at it six seconds pass.
        stopwatch=itertools.count(0.0, 6.0).__next__,
    )
    assert daemon.cycle().away == ""
    assert backend.calls == []
    # Where each read takes as long, it has many jobs to tell of.
    clock.now += 11
    daemon.cycle()
    assert any(isinstance(call, Enter) for call in backend.calls)
