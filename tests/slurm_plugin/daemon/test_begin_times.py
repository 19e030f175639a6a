"""Waiting jobs are kept back by their begin times, on a fake Slurm."""

from __future__ import annotations

from dataclasses import replace

from slurm_plugin.backend import Park, Place, Push, SlurmJob
from slurm_plugin.daemon.changes import MOST_PUSHES
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import WAITING, Clock, daemon_of, node, state


def test_a_begin_time_is_pushed_only_when_it_comes_near() -> None:
    full = (node("n0", used=4),)
    backend, clock = FakeBackend(state(WAITING, nodes=full)), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    assert backend.calls == []
    clock.now = 1031.0
    daemon.cycle()
    assert backend.calls == [Push("1", 60)]


def test_a_begin_time_that_is_too_far_ahead_is_brought_back() -> None:
    full = (node("n0", used=4),)
    waiting = replace(WAITING, begin_s=5060.0)
    backend, clock = FakeBackend(state(waiting, nodes=full)), Clock(5000.0)
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    assert backend.calls == []
    # The clock is set back: if the daemon died now, the job would wait for over an hour.
    clock.now -= 3600.0
    daemon.cycle()
    assert backend.calls == [Push("1", 60)]
    # Slurm has queued it again, with a begin time two minutes ahead.
    backend.state = state(replace(WAITING, begin_s=clock.now + 121.0), nodes=full)
    backend.calls.clear()
    daemon.cycle()
    assert backend.calls == [Push("1", 60)]


def test_pushes_are_spread_over_cycles_unless_they_are_urgent() -> None:
    full = (node("n0", used=4),)

    def jobs(begin_s: float) -> list[SlurmJob]:
        return [
            replace(WAITING, id=str(k), mark=WAITING.mark.replace("a1", f"x{k}"), begin_s=begin_s)
            for k in range(300)
        ]

    backend, clock = FakeBackend(state(*jobs(1025.0), nodes=full)), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    assert len(backend.calls) == MOST_PUSHES
    clock.now = 1015.0
    daemon.cycle()
    assert len(backend.calls) == MOST_PUSHES + 300


def test_a_job_waits_for_the_begin_time_that_its_user_named() -> None:
    later = WAITING.mark.replace('"default"', '"begin":1100,"default"')
    backend, clock = FakeBackend(state(replace(WAITING, mark=later, begin_s=1160.0))), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    assert backend.calls == []
    clock.now = 1101.0
    daemon.cycle()
    assert backend.calls == [Place("1", ("n0",), 1, Park("1", 1, 60), "v100")]
    assert daemon.world.jobs["1"].wait_at(clock.now) == 1.0
