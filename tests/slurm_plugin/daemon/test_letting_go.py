"""An orderly stop hands the nodes back at once, with all that has not begun, on a fake Slurm."""

from __future__ import annotations

from dataclasses import replace

from hetsched_core.policy import make_policy
from slurm_plugin.backend import AwayError, Drop, Leave, SlurmState
from slurm_plugin.daemon import Mode
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    HOLD,
    RIGID,
    SETTINGS,
    WAITING,
    Clock,
    daemon_of,
    left,
    placed,
    running,
    state,
)


def test_what_the_last_cycle_placed_leaves_in_its_own_shape_before_the_nodes_are_let_go() -> None:
    chosen = replace(RIGID, id="6", pinned=("n0",))
    plain = replace(RIGID, id="7", gpus=0, pinned=("n0",))
    runs = replace(running(RIGID, "n0"), id="8")
    jobs = (WAITING, chosen, plain, runs)
    backend = FakeBackend(state(*jobs, reservations=()))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    backend.calls.clear()
    entered = (placed(WAITING, "n0"), placed(chosen, "n0"), placed(plain, "n0"), runs)
    backend.state = state(*entered)
    report = daemon.let_go()
    assert backend.calls == [left(WAITING), Leave("6", ("n0",)), Leave("7", ("n0",)), Drop(HOLD)]
    # The log tells of it.
    assert report.outcome is not None
    assert list(report.outcome.made) == backend.calls


def test_a_daemon_that_goes_over_to_shadow_lets_go_too() -> None:
    backend = FakeBackend(state(placed(RIGID, "n0")))
    daemon = daemon_of(backend, Clock())
    report = daemon.adopt(make_policy("fifo"), SETTINGS, Mode.SHADOW)
    assert backend.calls == [Leave("5"), Drop(HOLD)]
    assert report.outcome is not None
    assert list(report.outcome.made) == backend.calls
    backend.calls.clear()
    daemon.let_go()
    assert backend.calls == []


def test_a_slurm_that_is_away_keeps_no_daemon_from_stopping() -> None:
    class Away(FakeBackend):
        def read(self) -> SlurmState:
            raise AwayError("nobody answers")

    backend = Away(state(WAITING))
    daemon_of(backend, Clock()).let_go()
    assert backend.calls == []
