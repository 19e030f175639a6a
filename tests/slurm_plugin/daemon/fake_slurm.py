"""What a fake Slurm shows, a clock that a test moves, and a daemon on both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from hetsched_core.policy import Policy, PolicyInfo, make_policy
from hetsched_core.types import NodeCondition, Plan, Snapshot
from slurm_plugin.backend import SlurmBackend, SlurmJob, SlurmNode, SlurmState
from slurm_plugin.daemon import Daemon, DaemonSettings, Mode
from tests.slurm_plugin.backend.fake import PENDING

SETTINGS = DaemonSettings(partitions=frozenset({"gpu"}))

WAITING = replace(
    PENDING,
    mark='hetsched/1 {"nonce":"a1","default":1,"gpu-set":"1,2"}',
    submit_s=900.0,
    begin_s=1060.0,
    time_limit_s=600.0,
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
    backend: SlurmBackend,
    clock: Clock,
    policy: Policy | None = None,
    mode: Mode = Mode.ENFORCE,
    settings: DaemonSettings = SETTINGS,
) -> Daemon:
    """A daemon on a clock of the test's."""
    return Daemon(
        backend,
        policy or make_policy("fifo"),
        settings,
        mode=mode,
        clock=clock,
        sleep=lambda _: None,
    )


@dataclass(frozen=True)
class Evict:
    """A policy that stops whatever runs."""

    info: ClassVar[PolicyInfo] = PolicyInfo("evict", "", "")

    def plan(self, snapshot: Snapshot) -> Plan:
        """Let everybody wait."""
        from immutables import Map

        from hetsched_core.types import Reason, ReasonCode, Waiting

        return Plan(Map({job: Waiting(Reason(ReasonCode.AHEAD)) for job in snapshot.jobs}))
