"""What one bulk read of Slurm shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from hetsched_core.types import NodeCondition
from slurm_plugin.backend.limits import GpuLimits


class JobState(Enum):
    """Where a job stands in Slurm, in the words that matter to a scheduler.

    A job that is COMPLETING has been told to stop and still holds GPUs, whether it will be queued
    again or not.
    """

    PENDING = "pending"
    RUNNING = "running"
    COMPLETING = "completing"
    SUSPENDED = "suspended"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as Slurm reports it.

    `gpus` and `gpus_used` are (type, count) pairs sorted by type; "gpu" is the type of GPUs that
    have none. Memory is MiB. What the site keeps for the system is not counted. `partitions` are
    those that it is in, None where that is not told.
    """

    name: str
    condition: NodeCondition
    gpus: tuple[tuple[str, int], ...]
    gpus_used: tuple[tuple[str, int], ...]
    cpus: int
    cpus_used: int
    memory_mb: int
    memory_used_mb: int
    partitions: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a job asks for beside GPUs. Memory is MiB.

    A job of ours has one task on each node, so that CPUs per task are CPUs per node. What is asked
    for in another way is 0. CPUs by GPU are in its mark, since pyslurm cannot read them.
    """

    cpus_per_task: int = 0
    memory_mb_per_node: int = 0
    memory_mb_per_cpu: int = 0
    memory_mb_per_gpu: int = 0


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job as Slurm reports it. Times are seconds UTC, None where there is none.

    Attributes:
        id: Slurm's id; it is handed out again after a crash of the controller.
        state: where it stands.
        reason: Slurm's word for why it waits, for example `BeginTime`.
        mark: the AdminComment, which only job_submit.lua writes.
        nodes: the nodes that it holds, sorted; those that it still holds while COMPLETING.
        pinned: the nodes that it must run on, sorted; () for any.
        gpus_per_node: how many GPUs it asks for on each node; if it asks in another way, those that
            it holds on its only node, else 0.
        gpu_type: the type that it asks for, "" for any.
        begin_s: when it may start at the earliest, as far as Slurm tells.
        start_s: start of the present run.
        restarts: how often it was queued again.
        held: whether a priority of 0 keeps it back.
        asked: the CPUs and memory that it asks for.
        cpus: how many it holds in all; what it asks for while it waits.
        submit_line: the command line of its submission.
        qos: the quality of service that it runs under.
        array: the id of the array that it is an element of, "" for none.
        element: which one, from 0; the first of those that Slurm keeps as one.
        unsplit: the elements that it stands for while Slurm keeps several as one, in order.
        dependency: of an element of an array, what it waits for.
        outcome: Slurm's word for how it ended, such as `COMPLETED`; "" while it has not.
        members: the other elements of a gang; see `slurm_plugin.daemon.gangs`.
        copies: the elements of a job of copies; see `slurm_plugin.daemon.copies`.
    """

    id: str
    name: str
    user: str
    account: str
    partition: str
    state: JobState
    reason: str
    mark: str
    nodes: tuple[str, ...]
    pinned: tuple[str, ...]
    gpus_per_node: int
    gpu_type: str
    submit_s: float
    begin_s: float | None
    start_s: float | None
    end_s: float | None
    time_limit_s: float | None
    restarts: int
    held: bool
    asked: Asked = Asked()
    cpus: int = 0
    submit_line: str = ""
    qos: str = ""
    array: str = ""
    element: int = 0
    unsplit: tuple[int, ...] = ()
    dependency: str = ""
    outcome: str = ""
    members: tuple[SlurmJob, ...] = ()
    copies: tuple[SlurmJob, ...] = ()

    @property
    def held_by_slurm(self) -> bool:
        """Whether Slurm itself holds it, because a run of it could not be launched."""
        return self.held and self.reason.replace("_", " ").startswith("launch failed")


@dataclass(frozen=True, slots=True)
class SlurmSite:
    """What the site has set.

    `kill_wait_s` is how long a job that is told to stop may take, `longest_s` the greatest time
    limit of each partition, None for none; `limits` are those of its accounting, None where they
    could not be read. With `private_jobs` (PrivateData=jobs) users are not to see others' jobs.
    `cluster` tells it from all others, whatever the configuration file is: its name, and where its
    first slurmctld listens.
    """

    kill_wait_s: float
    longest_s: Mapping[str, float | None]
    limits: GpuLimits | None = None
    private_jobs: bool = False
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class SlurmState:
    """All nodes, and all jobs a moment later.

    In this order, so that no node shows what a job holds that is still shown to wait. `unread` are
    the records that could not be read, such as `job 12`, each with why.
    """

    nodes: tuple[SlurmNode, ...]
    jobs: Mapping[str, SlurmJob]
    unread: Mapping[str, str] = field(default_factory=dict)
