"""What one bulk read of Slurm shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from hetsched_core.types import NodeCondition
from slurm_plugin.backend.limits import GpuLimits

HOLDS = ("hetsched", "hetsched-2")
"""The names of the reservation that holds the managed nodes.

One that has ended stays for as long as Slurm has not forgotten it, while jobs run in it; the next
daemon then takes the other name.
"""


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
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a job asks for, each thing in the way in which its user asked. Memory is MiB.

    What is asked for in another way is 0. A bulk read does not tell all of it.

    Attributes:
        gpus, gpu_type: in all, of any type for "".
        least_nodes, most_nodes: on how many nodes; None for any number from the least on.
        tasks, cpus_per_task: how many tasks, and CPUs for each.
        cpus_per_gpu: CPUs for each GPU; `cpus_per_task` is then 0.
        memory_mb_per_node, memory_mb_per_cpu, memory_mb_per_gpu: one of them, the others are 0.
        time_limit_s: None for none.
    """

    gpus: int = 0
    gpu_type: str = ""
    least_nodes: int = 1
    most_nodes: int | None = None
    tasks: int = 1
    cpus_per_task: int = 0
    cpus_per_gpu: int = 0
    memory_mb_per_node: int = 0
    memory_mb_per_cpu: int = 0
    memory_mb_per_gpu: int = 0
    time_limit_s: float | None = None


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
        gpus: how many GPUs it holds in all; while it waits, how many it asks for.
        gpu_types: their types, sorted; () while it waits and any will do.
        begin_s: when it may start at the earliest, as far as Slurm tells.
        start_s: start of the present run.
        restarts: how often it was queued again.
        held: whether a priority of 0 keeps it back.
        least_nodes, most_nodes: on how many nodes it may run; None for any number from the least.
        memory_mb: MiB that it holds in all; while it waits, that it asks for.
        reservation: the one that it is to run in, "" for none.
        partitions: all that it may run in.
        constraint: the node features that it asks for, as Slurm writes it.
        excluded: nodes that it must not run on, sorted.
        exclusive: whether it shares no node with others.
        batch: whether it is a script, which can be queued again; salloc and srun are not.
        het: whether it is a part of a heterogeneous job.
        throttle: how many elements of its array may run at a time; 0 for any number.
        priority: Slurm's.
        licenses: what it asks for, as Slurm writes it.
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
    gpus: int
    gpu_types: tuple[str, ...]
    submit_s: float
    begin_s: float | None
    start_s: float | None
    end_s: float | None
    time_limit_s: float | None
    restarts: int
    held: bool
    least_nodes: int = 1
    most_nodes: int | None = None
    memory_mb: int = 0
    reservation: str = ""
    partitions: frozenset[str] = frozenset()
    constraint: str = ""
    excluded: tuple[str, ...] = ()
    exclusive: bool = False
    batch: bool = True
    het: bool = False
    throttle: int = 0
    priority: int = 0
    licenses: str = ""
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
    def entered(self) -> bool:
        """Whether it waits to start where it was placed."""
        return self.state is JobState.PENDING and self.reservation in HOLDS

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
    """

    kill_wait_s: float
    longest_s: Mapping[str, float | None]
    limits: GpuLimits | None = None
    private_jobs: bool = False


@dataclass(frozen=True, slots=True)
class SlurmReservation:
    """A reservation: these nodes are for those whom it names, from one time to another."""

    name: str
    nodes: tuple[str, ...]
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class SlurmState:
    """All nodes, and all jobs a moment later.

    In this order, so that no node shows what a job holds that is still shown to wait.
    """

    nodes: tuple[SlurmNode, ...]
    jobs: Mapping[str, SlurmJob]
    reservations: tuple[SlurmReservation, ...] = ()
