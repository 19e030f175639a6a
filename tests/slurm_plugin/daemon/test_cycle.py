"""Cycles of the daemon on a fake Slurm: what a real one does too rarely for a test."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest

from hetsched_core.errors import InputError
from hetsched_core.policy import Policy, PolicyInfo, make_policy
from hetsched_core.types import EMPTY_PLAN, ExecutionModel, NodeCondition, Plan, Snapshot
from slurm_plugin.backend import (
    AwayError,
    JobState,
    Park,
    Place,
    Push,
    RefusedError,
    Requeue,
    SlurmBackend,
    SlurmJob,
    SlurmNode,
    SlurmState,
)
from slurm_plugin.daemon import Daemon, DaemonSettings, Mode
from slurm_plugin.daemon.changes import MOST_PUSHES
from tests.slurm_plugin.backend.fake import FakeBackend

SETTINGS = DaemonSettings(partitions=frozenset({"gpu"}))

WAITING = SlurmJob(
    id="1",
    name="job",
    user="ann",
    account="lab",
    partition="gpu",
    state=JobState.PENDING,
    reason="BeginTime",
    mark='hetsched/1 {"nonce":"a1","default":1,"gpu-set":"1,2"}',
    nodes=(),
    pinned=(),
    gpus_per_node=1,
    gpu_type="",
    submit_s=900.0,
    begin_s=1060.0,
    start_s=None,
    end_s=None,
    time_limit_s=600.0,
    restarts=0,
    held=False,
)
PINNED = replace(WAITING, pinned=("n0",), begin_s=1000.0, reason="Resources")


def node(name: str, used: int = 0, condition: NodeCondition = NodeCondition.UP) -> SlurmNode:
    """A node of four V100 GPUs."""
    in_use = (("v100", used),) if used else ()
    return SlurmNode(name, condition, (("v100", 4),), in_use, 32, 0, 64000, 0)


def state(*jobs: SlurmJob, nodes: tuple[SlurmNode, ...] = (node("n0"),)) -> SlurmState:
    """What Slurm shows."""
    return SlurmState(nodes, {job.id: job for job in jobs})


@dataclass(slots=True)
class Clock:
    """A clock that a test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def daemon_of(
    backend: SlurmBackend, clock: Clock, policy: Policy | None = None, mode: Mode = Mode.ENFORCE
) -> Daemon:
    """A daemon on a clock of the test's."""
    return Daemon(
        backend,
        policy or make_policy("fifo"),
        SETTINGS,
        mode=mode,
        clock=clock,
        sleep=lambda _: None,
    )


def test_a_waiting_job_is_placed_on_nodes_that_have_room() -> None:
    backend = FakeBackend(state(WAITING))
    daemon_of(backend, Clock()).cycle()
    assert backend.calls == [Place("1", ("n0",), 1, Park("1", 1, 60))]


def test_a_job_that_was_placed_is_left_alone_until_it_starts() -> None:
    backend, clock = FakeBackend(state(WAITING)), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    backend.calls.clear()
    backend.state = state(PINNED)
    for _ in range(20):
        clock.now += 1
        daemon.cycle()
    running = replace(
        PINNED, state=JobState.RUNNING, reason="None", nodes=("n0",), start_s=clock.now
    )
    backend.state = state(running, nodes=(node("n0", used=1),))
    daemon.cycle()
    assert backend.calls == []


def test_a_job_that_does_not_start_in_time_is_parked_and_then_placed_again() -> None:
    backend, clock = FakeBackend(state(PINNED)), Clock()
    daemon = daemon_of(backend, clock)
    while not backend.calls:
        daemon.cycle()
        clock.now += 1
        assert clock.now < 1100
    assert clock.now - 1000 == pytest.approx(SETTINGS.start_timeout_s, abs=2)
    assert backend.calls == [Park("1", 1, 60)]
    backend.state = state(replace(WAITING, begin_s=clock.now + 60))
    daemon.cycle()
    assert backend.calls[1:] == [Place("1", ("n0",), 1, Park("1", 1, 60))]


def test_a_stale_pin_is_removed_from_a_job_that_has_to_wait() -> None:
    pinned = replace(PINNED, begin_s=1060.0)
    full = (node("n0", used=4),)
    backend = FakeBackend(state(pinned, nodes=full))
    daemon_of(backend, Clock()).cycle()
    assert backend.calls == [Park("1", 1, 60)]


def test_a_begin_time_is_pushed_only_when_it_comes_near() -> None:
    full = (node("n0", used=4),)
    backend, clock = FakeBackend(state(WAITING, nodes=full)), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    assert backend.calls == []
    clock.now = 1031.0
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
    assert backend.calls == [Place("1", ("n0",), 1, Park("1", 1, 60))]
    assert daemon.world.jobs["1"].wait_at(clock.now) == 1.0


def test_no_new_work_is_placed_on_drained_or_lost_nodes() -> None:
    nodes = (
        node("n0", condition=NodeCondition.DRAINED),
        node("n1", condition=NodeCondition.DOWN),
        node("n2"),
    )
    backend = FakeBackend(state(WAITING, nodes=nodes))
    daemon_of(backend, Clock()).cycle()
    assert backend.calls == [Place("1", ("n2",), 1, Park("1", 1, 60))]


def test_an_id_that_slurm_hands_out_again_is_another_job() -> None:
    backend, clock = FakeBackend(state(WAITING, nodes=(node("n0", used=4),))), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    again = replace(WAITING, mark=WAITING.mark.replace("a1", "b2"), submit_s=1001.0)
    backend.state = state(again, nodes=(node("n0", used=4),))
    clock.now += 5
    daemon.cycle()
    assert daemon.world.managed["1"].mark.nonce == "b2"
    assert daemon.world.jobs["1"].job.submit_s == pytest.approx(1001.0, abs=1.0)


def test_jobs_of_other_partitions_and_with_bad_marks_are_not_touched() -> None:
    other = replace(WAITING, id="2", partition="cpu")
    bad = replace(WAITING, id="3", mark="hetsched/1 nonsense")
    backend = FakeBackend(state(other, bad))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert backend.calls == []
    assert set(daemon.world.warnings) == {"3"}


@dataclass(slots=True)
class AwayBackend(FakeBackend):
    """A backend whose Slurm is away at first."""

    away: int = 2

    def read(self) -> SlurmState:
        """Fail a few times."""
        if self.away:
            self.away -= 1
            raise (AwayError if self.away else RefusedError)("nobody answers")
        return self.state


def test_slurm_being_away_is_a_state() -> None:
    backend = AwayBackend(state(WAITING))
    daemon = daemon_of(backend, Clock())
    reports = [daemon.cycle() for _ in range(3)]
    assert [report.away for report in reports] == ["nobody answers", "nobody answers", ""]
    assert len(backend.calls) == 1


@dataclass(frozen=True)
class Forgetful:
    """A policy that plans for nobody, which is no valid plan."""

    info: ClassVar[PolicyInfo] = PolicyInfo("forgetful", "", "")
    asked: list[float] = field(default_factory=list)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Forget all jobs."""
        self.asked.append(snapshot.now)
        return EMPTY_PLAN


def test_an_invalid_plan_is_dropped_and_the_cluster_stays_as_it_is() -> None:
    backend, clock = FakeBackend(state(WAITING)), Clock()
    daemon = daemon_of(backend, clock, Forgetful())
    report = daemon.cycle()
    assert report.decision is None
    assert report.violations
    assert daemon.decisions == 0
    assert backend.calls == []


@dataclass(frozen=True)
class Evict:
    """A policy that stops whatever runs."""

    info: ClassVar[PolicyInfo] = PolicyInfo("evict", "", "")

    def plan(self, snapshot: Snapshot) -> Plan:
        """Let everybody wait."""
        from immutables import Map

        from hetsched_core.types import Reason, ReasonCode, Waiting

        return Plan(Map({job: Waiting(Reason(ReasonCode.AHEAD)) for job in snapshot.jobs}))


def test_a_stopped_job_is_requeued_once_and_then_parked() -> None:
    running = replace(PINNED, state=JobState.RUNNING, nodes=("n0",), start_s=950.0)
    backend, clock = FakeBackend(state(running, nodes=(node("n0", used=1),))), Clock()
    daemon = daemon_of(backend, clock, Evict())
    daemon.cycle()
    assert backend.calls == [Requeue("1")]
    backend.state = state(replace(running, state=JobState.COMPLETING), nodes=(node("n0", 1),))
    for _ in range(3):
        clock.now += 1
        daemon.cycle()
    assert len(backend.calls) == 1
    backend.state = state(replace(PINNED, begin_s=clock.now + 16, restarts=1))
    daemon.cycle()
    assert backend.calls[1:] == [Park("1", 1, 60)]


@dataclass(frozen=True)
class Tasks(Evict):
    """A policy of another execution model."""

    info: ClassVar[PolicyInfo] = PolicyInfo("tasks", "", "", model=ExecutionModel.TASKS)


@dataclass(frozen=True)
class ReplayOnly(Evict):
    """A policy that cannot run live."""

    info: ClassVar[PolicyInfo] = PolicyInfo("past", "", "", replay_only="it knows the future")


@pytest.mark.parametrize(
    ("policy", "says"), [(Tasks(), "only gangs run live"), (ReplayOnly(), "it knows the future")]
)
def test_a_policy_that_cannot_run_live_is_refused(policy: Policy, says: str) -> None:
    with pytest.raises(InputError, match=says):
        daemon_of(FakeBackend(), Clock(), policy)
