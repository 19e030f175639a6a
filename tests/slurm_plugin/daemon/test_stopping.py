"""Jobs are warned and stopped, once, on a fake Slurm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from hetsched_core.policy import PolicyInfo, make_policy
from hetsched_core.types import Placed, Plan, Snapshot, Waiting
from slurm_plugin.backend import JobState, Outcome, Recipients, Requeue, Signal
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    MOVABLE,
    SETTINGS,
    WAITING,
    Clock,
    Evict,
    daemon_of,
    left,
    node,
    placed,
    running,
    state,
)


@pytest.mark.parametrize("policy", ["fifo", "hops"])
def test_a_run_on_a_node_that_slurm_does_not_know_any_more_stops_nobody(policy: str) -> None:
    runs = running(WAITING, "n0", since_s=950.0)
    other = replace(WAITING, id="2", mark=WAITING.mark.replace("a1", "b2"))
    backend, clock = FakeBackend(state(runs, nodes=(node("n0", used=1), node("n1")))), Clock()
    daemon = daemon_of(backend, clock, make_policy(policy))
    daemon.cycle()
    clock.now += 1
    backend.state = state(runs, other, nodes=(node("n1"),))
    daemon.cycle()
    assert "1" not in daemon.world.jobs
    assert [call.job for call in backend.calls] == ["2"]


def test_a_stopped_job_is_requeued_once_and_then_leaves_its_place() -> None:
    runs = running(MOVABLE, "n0", since_s=950.0)
    backend, clock = FakeBackend(state(runs, nodes=(node("n0", used=1),))), Clock()
    daemon = daemon_of(backend, clock, Evict())
    daemon.cycle()
    assert backend.calls == [Requeue("1")]
    backend.state = state(replace(runs, state=JobState.COMPLETING), nodes=(node("n0", 1),))
    for _ in range(3):
        clock.now += 1
        daemon.cycle()
    assert len(backend.calls) == 1
    backend.state = state(placed(replace(MOVABLE, begin_s=clock.now + 16, restarts=1), "n0"))
    daemon.cycle()
    assert backend.calls[1:] == [left(WAITING)]


def test_a_job_is_warned_and_given_its_time_before_it_is_stopped() -> None:
    runs = running(MOVABLE, "n0", since_s=950.0)
    backend, clock = FakeBackend(state(runs, nodes=(node("n0", used=1),))), Clock()
    settings = replace(SETTINGS, checkpoint_signal="USR1", checkpoint_wait_s=5.0)
    daemon = daemon_of(backend, clock, Evict(), settings=settings)
    while len(backend.calls) < 2 and clock.now < 1020:
        daemon.cycle()
        clock.now += 1
    assert backend.calls == [Signal("1", "USR1", Recipients.ALL), Requeue("1")]
    assert clock.now == 1006


def test_a_job_is_stopped_for_another_only_while_it_is_not_suspended() -> None:
    had, waits = (replace(job, mark=job.mark.replace('"1,2"', '"4"')) for job in (MOVABLE, WAITING))
    had = running(had, "n0", since_s=950.0, gpus=4)
    waits = replace(waits, id="2", mark=waits.mark.replace("a1", "b2"))
    nodes = (node("n0", used=4),)
    clock = Clock()
    backend = FakeBackend(state(had, nodes=nodes))
    daemon = daemon_of(backend, clock, make_policy("las"))
    daemon.cycle()
    for now, stopped in ((JobState.SUSPENDED, False), (JobState.RUNNING, True)):
        clock.now += SETTINGS.round_s
        backend.state = state(replace(had, state=now), waits, nodes=nodes)
        daemon.cycle()
        entries = daemon.plan.entries
        assert isinstance(entries["1"], Waiting) is stopped
        assert isinstance(entries["2"], Waiting) is not stopped
        assert (Requeue("1") in backend.calls) is stopped


def test_the_service_of_a_job_stands_still_while_it_is_suspended() -> None:
    had = running(MOVABLE, "n0", since_s=1000.0)
    backend, clock = FakeBackend(state(had, nodes=(node("n0", used=1),))), Clock()
    daemon = daemon_of(backend, clock, make_policy("las"))
    attained = []
    for now in (JobState.RUNNING, JobState.SUSPENDED, JobState.SUSPENDED, JobState.RUNNING):
        backend.state = state(replace(had, state=now), nodes=(node("n0", used=1),))
        daemon.cycle()
        attained.append(daemon.world.jobs["1"].service_at(clock.now))
        clock.now += 5
    attained.append(daemon.world.jobs["1"].service_at(clock.now))
    assert attained == [0.0, 5.0, 5.0, 5.0, 10.0]


@pytest.mark.parametrize("policy", ["las", "srtf", "2d-las", "tiresias", "hlas-slots"])
def test_a_job_that_is_suspended_when_it_was_to_be_stopped_keeps_its_gpus(policy: str) -> None:
    had, waits = (replace(job, mark=job.mark.replace('"1,2"', '"4"')) for job in (MOVABLE, WAITING))
    had = running(had, "n0", since_s=950.0, gpus=4)
    waits = replace(waits, id="2", mark=waits.mark.replace("a1", "b2"))
    nodes, clock = (node("n0", used=4), node("n1", used=4)), Clock()
    backend = FakeBackend(state(had, nodes=nodes))
    settings = replace(SETTINGS, checkpoint_signal="USR1", checkpoint_wait_s=50.0)
    daemon = daemon_of(backend, clock, make_policy(policy), settings=settings)
    for now in (JobState.RUNNING, JobState.RUNNING, JobState.SUSPENDED):
        daemon.cycle()
        clock.now += SETTINGS.round_s
        backend.state = state(replace(had, state=now), waits, nodes=nodes)
    for _ in range(2):
        report = daemon.cycle()
        assert report.violations == ()
        assert isinstance(daemon.plan.entries["1"], Placed)
        assert isinstance(daemon.plan.entries["2"], Waiting)
        clock.now += 1


@dataclass
class EvictNowAndThen:
    """A policy that stops whatever runs, unless it is told to let it run."""

    info: ClassVar[PolicyInfo] = PolicyInfo("evict-now-and-then", "", "")
    lets_run: bool = False

    def plan(self, snapshot: Snapshot) -> Plan:
        """Let everybody wait, or everybody run where it does."""
        from immutables import Map

        from hetsched_core.types import Placed, Placement

        if not self.lets_run:
            return Evict().plan(snapshot)
        return Plan(
            Map(
                {
                    job: Placed((Placement(view.runs[0].configuration),))
                    for job, view in snapshot.jobs.items()
                }
            )
        )


def test_a_job_that_was_warned_and_then_left_alone_is_warned_anew_the_next_time() -> None:
    runs = running(MOVABLE, "n0", since_s=950.0)
    backend, clock = FakeBackend(state(runs, nodes=(node("n0", used=1),))), Clock()
    settings = replace(SETTINGS, checkpoint_signal="USR1", checkpoint_wait_s=5.0)
    policy = EvictNowAndThen()
    daemon = daemon_of(backend, clock, policy, settings=settings)
    signal = Signal("1", "USR1", Recipients.ALL)
    for lets_run, used, calls in (
        (False, 1, [signal]),
        (True, 2, [signal]),
        (False, 3, [signal, signal]),
    ):
        policy.lets_run = lets_run
        # GPUs of somebody else's are a reason to plan.
        backend.state = state(runs, nodes=(node("n0", used=used),))
        daemon.cycle()
        assert backend.calls == calls
        clock.now += 60


def test_a_run_that_a_controller_has_forgotten_to_have_stopped_is_stopped_again() -> None:
    mark = 'hetsched/2 {"nonce":"a1","gpu-set":"4","can-checkpoint":true}'
    early = running(replace(MOVABLE, mark=mark), "n0", gpus=4)
    backend, clock = FakeBackend(state(early, nodes=(node("n0", used=4),))), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    daemon._carried_out((), Outcome((Requeue("1"),), (), ()), clock.now)
    assert backend.calls == []
    daemon.cycle()
    assert backend.calls == [Requeue("1")]
    # The next run is another.
    backend.state = state(replace(early, restarts=1), nodes=(node("n0", used=4),))
    backend.calls.clear()
    daemon.cycle()
    assert backend.calls == []
