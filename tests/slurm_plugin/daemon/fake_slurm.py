"""What a fake Slurm shows, a clock that a test moves, and a daemon on both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from hetsched_core.policy import Policy, PolicyInfo, make_policy
from hetsched_core.types import NodeCondition, Plan, Snapshot
from slurm_plugin.backend import (
    HOLDS,
    Enter,
    JobState,
    Leave,
    SlurmBackend,
    SlurmJob,
    SlurmNode,
    SlurmReservation,
    SlurmState,
    Terms,
)
from slurm_plugin.daemon import Daemon, DaemonSettings, Mode
from slurm_plugin.daemon.request import Request, own_of, read_mark, request_of
from tests.slurm_plugin.backend.fake import LASTING, PENDING, FakeBackend

HOLD = HOLDS[0]

SETTINGS = DaemonSettings(partitions=frozenset({"gpu"}))

WAITING = replace(
    PENDING,
    mark='hetsched/2 {"nonce":"a1","gpu-set":"1,2"}',
    submit_s=900.0,
    begin_s=900.0,
    time_limit_s=600.0,
)
"""A job that accepts one GPU or two."""

MOVABLE = replace(WAITING, mark='hetsched/2 {"nonce":"a1","gpu-set":"1,2","can-checkpoint":true}')
"""One that may be stopped, too."""

RIGID = replace(WAITING, id="5", mark="")
"""A job of one GPU, as it was submitted."""


def requested(job: SlurmJob, more: str = "") -> Request:
    """What a job asks for that is shown for the first time, with more fields in its mark."""
    mark = read_mark(job.mark.removesuffix("}") + more + "}" if more else job.mark)
    return request_of(job.id, mark, job, own_of(job, mark))


def placed(job: SlurmJob, *nodes: str) -> SlurmJob:
    """A waiting job, once it has been placed on nodes."""
    return replace(job, reservation=HOLD, pinned=nodes, reason="None")


def running(job: SlurmJob, *nodes: str, since_s: float = 1000.0, gpus: int = 1) -> SlurmJob:
    """A job that runs on nodes, in the reservation."""
    return replace(
        placed(job, *nodes),
        state=JobState.RUNNING,
        nodes=nodes,
        start_s=since_s,
        gpus=gpus,
        gpu_types=("v100",),
    )


def node(name: str, used: int = 0, condition: NodeCondition = NodeCondition.UP) -> SlurmNode:
    """A node of four V100 GPUs in partition `gpu`."""
    in_use = (("v100", used),) if used else ()
    partitions = frozenset({"gpu"})
    return SlurmNode(name, condition, (("v100", 4),), in_use, 32, 0, 64000, 0, partitions)


def held(*nodes: str, until_s: float = LASTING) -> SlurmReservation:
    """The reservation that holds nodes, for as long as a test lasts unless it says otherwise."""
    return SlurmReservation(HOLD, nodes or ("n0",), 0.0, until_s)


def state(
    *jobs: SlurmJob,
    nodes: tuple[SlurmNode, ...] = (node("n0"),),
    reservations: tuple[SlurmReservation, ...] | None = None,
) -> SlurmState:
    """What Slurm shows; by default its nodes are held."""
    if reservations is None:
        reservations = (held(*sorted(each.name for each in nodes)),)
    return SlurmState(nodes, {job.id: job for job in jobs}, reservations)


def entry(
    job: SlurmJob, *nodes: str, gpus: int = 1, due: bool = False, cpus: int | None = None
) -> Enter:
    """How a job that accepts several counts is placed: so many GPUs on each node."""
    own = job.resources
    resources = own.placed(len(nodes), f"gres/gpu:v100:{gpus}", len(nodes))
    each = gpus if cpus is None else cpus
    terms = Terms(10, each, None, each * len(nodes))
    return Enter(job.id, HOLD, nodes, left(job), resources, terms, due)


def left(job: SlurmJob) -> Leave:
    """How such a job gives its place back."""
    return Leave(job.id, (), job.resources, Terms(10, 1, None, 1))


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
    if isinstance(backend, FakeBackend):
        backend.clock = clock
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
        """Let every job wait."""
        from immutables import Map

        from hetsched_core.types import Reason, ReasonCode, Waiting

        return Plan(Map({job: Waiting(Reason(ReasonCode.AHEAD)) for job in snapshot.jobs}))
