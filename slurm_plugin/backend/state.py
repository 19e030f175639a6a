"""What one bulk read of Slurm shows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from hetsched_core.types import NodeCondition

_HOLD = "hetsched"
"""The name of the first reservation that holds the managed nodes; others have a number behind it.

One that has ended keeps its name until Slurm has forgotten it, which takes a while where jobs run
in it; the hold then takes another number.
"""


@lru_cache(maxsize=4096)
def hold_number(name: str) -> int:
    """Return which of the reservations that hold nodes this is, from 1 on; 0 for one of others."""
    found = re.fullmatch(rf"{_HOLD}(?:-(\d{{1,9}}))?", name, re.ASCII)
    return int(found[1] or 1) if found else 0


def hold_named(number: int) -> str:
    """Return the name of the reservation of this number."""
    return _HOLD if number == 1 else f"{_HOLD}-{number}"


class JobState(Enum):
    """Where a job stands in Slurm, in the words that matter to a scheduler.

    A job that is COMPLETING has been told to stop and still holds GPUs, whether it will be queued
    again or not; see `SlurmJob.over`.
    """

    PENDING = "pending"
    RUNNING = "running"
    COMPLETING = "completing"
    SUSPENDED = "suspended"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class SlurmReservation:
    """A reservation of nodes as Slurm reports it. Times are seconds UTC.

    Attributes:
        nodes: sorted; () for one of licences alone.
        flags: Slurm's words, such as `MAINT` and `FLEX`; pyslurm lacks some, such as `DAILY`.
        users: who may use it, or with a `-` before each name who may not.
    """

    name: str
    nodes: tuple[str, ...]
    start_s: float
    end_s: float
    flags: frozenset[str] = frozenset()
    users: str = ""


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as Slurm reports it.

    `gpus` and `gpus_used` are (type, count) pairs sorted by type; "gpu" is the type of GPUs that
    have none. Memory is MiB. What the site keeps for the system is not counted. `partitions` are
    those that it is in, None where that is not told. `condition` tells nothing of reservations but
    maintenance; one that is `asleep` (powered down, or not yet up) takes a job that wakes it.
    `features` are those that are active. `disk_mb` is its temporary disk, `gres` what it has beside
    GPUs, as (name, count) pairs. `up_since_s` is when its slurmd started. `reason` is why it is
    drained or down, in the words of Slurm or an admin.
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
    up_since_s: float = 0.0
    asleep: bool = False
    disk_mb: int = 0
    gres: tuple[tuple[str, int], ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class HostRequest:
    """What a job asks for beside GPUs. Memory is MiB. What is asked for in another way is 0."""

    cpus_per_task: int = 0
    memory_mb_per_node: int = 0
    memory_mb_per_cpu: int = 0
    memory_mb_per_gpu: int = 0
    cpus_per_gpu: int = 0


@dataclass(frozen=True, slots=True)
class Resources:
    """How a job asks for nodes, tasks and GPUs.

    GPUs are Slurm's texts, such as `gres/gpu:a100:4`, "" where it does not ask in this way; a job
    may ask in several. In a change, None leaves a field as it is.

    Attributes:
        nodes: the least and the most; the most is 0 where there is no limit. Slurm brings it down
            where there are fewer tasks or GPUs.
        tasks: in all.
        per_job: GPUs in all (`--gpus`).
        per_node: GPUs on each node (`--gpus-per-node`, `--gres`).
        per_socket: GPUs on each socket.
        per_task: GPUs for each task.
    """

    nodes: tuple[int, int] | None = None
    tasks: int | None = None
    per_job: str | None = None
    per_node: str | None = None
    per_socket: str | None = None
    per_task: str | None = None

    def placed(self, nodes: int, per_node: str, tasks: int) -> Resources:
        """Return what to change of a job that asks like this, for a run on so many nodes.

        There are `tasks` in all, and `per_node` is what each node gives. Slurm may run a job on
        fewer nodes than those that it is told to, and of a range takes as many as it can get. So
        the number is set, too, where it is not 1 anyhow. A job that asked for GPUs in all is told
        it always: without that Slurm 26.05 now and then never starts one that it has read back from
        its state file (it logs "No allocated cores found" at each try).
        """
        anyhow = {(1, 1)} if self.per_job else {(1, 0), (1, 1)}
        wanted = self.nodes if nodes == 1 and self.nodes in anyhow else (nodes, nodes)
        return Resources(wanted, tasks, "", per_node, "", "").changed_from(self)

    def changed_from(self, now: Resources) -> Resources:
        """Return what to change of a job that asks as in `now`, so that it asks like this."""
        return Resources(
            None if self.nodes == now.nodes else self.nodes,
            None if self.tasks == now.tasks else self.tasks,
            None if self.per_job == now.per_job else self.per_job,
            None if self.per_node == now.per_node else self.per_node,
            None if self.per_socket == now.per_socket else self.per_socket,
            None if self.per_task == now.per_task else self.per_task,
        )


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job as Slurm reports it. Times are seconds UTC, None where there is none.

    Both backends tell the same, with these limits. How a job asks for GPUs by job, socket or task,
    and for CPUs and memory by GPU, pyslurm cannot read; with whom it shares nodes, Slurm's JSON
    does not tell. Both ask squeue for that once, when they first see the job and when its nodes,
    tasks or GPUs per node have changed. Of a job that is in a reservation and asks by node, pyslurm
    tells that alone.

    Attributes:
        id: Slurm's id; it is handed out again after a crash of the controller.
        state: where it stands.
        reason: Slurm's words for why it waits, whole, for example `BeginTime` or
            `ReqNodeNotAvail, Reserved for maintenance`.
        mark: the AdminComment, which only hetsched.lua writes.
        nodes: the nodes that it holds, sorted; those that it still holds while COMPLETING.
        pinned: the nodes that it must run on, sorted; () for any.
        gpus: how many GPUs it holds in all; while it waits, how many it asks for.
        gpu_types: their types, sorted; () while it waits and any will do.
        memory_mb: MiB that it holds in all; while it waits, that it asks for.
        begin_s: when it may start at the earliest, as far as Slurm tells.
        start_s: start of the present run.
        end_s: its end, as Slurm's accounting has it. While a run is COMPLETING that is queued again
            Slurm shows the end of its time limit, which is yet to come.
        restarts: how often it was queued again.
        held: whether a priority of 0 keeps it back.
        asked: the CPUs and memory that it asks for.
        cpus: how many it holds in all; what it asks for while it waits.
        submit_line: the command line of its submission.
        qos: the quality of service that it runs under.
        array: the id of the array that it is an element of, "" for none.
        element: which one, from 0; the first of those that Slurm keeps as one.
        unsplit: the elements that it stands for while Slurm keeps several as one, in order.
        dependency: the jobs that it waits for, as Slurm writes them; "" for none.
        configuring: whether it has its nodes, and they are still being woken or booted.
        outcome: Slurm's word for how it ended, such as `COMPLETED`; "" while it has not.
        over: whether it will not be queued again, while it is COMPLETING.
        partitions: all that it may run in, in its user's order.
        reservation: the one that it is in, "" for none.
        batch: whether it has a script; `salloc` and `srun` have none.
        requeues: whether it can be queued again: it has a script, and no `--no-requeue`.
        constraint: its features as its user wrote them; see `slurm_plugin.backend.features`.
        excluded: the nodes that it must not run on, sorted.
        resources: how it asks for nodes, tasks and GPUs; no field is None.
        tasks_per_node: how many it asks for, 0 for no word on that.
        gres: what it asks for on each node beside GPUs: (name, count) pairs, sorted.
        licenses: what it asks for in all: (name, count) pairs; () where any of several will do.
        disk_mb: MiB of temporary disk that each of its nodes must have (`--tmp`).
        cpus_least: the CPUs that it needs on each node (`--mincpus`, or by its tasks there).
        exclusive: `node` if it shares no node; `user`, `mcs` or `topo` if only with those; else "".
        priority: Slurm's; 0 while it is held.
        throttle: how many elements of its array may run at once, 0 for any number.
        cron: whether it is of a scrontab, which Slurm lets nobody change.
        het_job: the id of the first part of the heterogeneous job that it is a part of, or "".
        gpus_on: its GPUs as (scheduling node, count) pairs; () where they are spread evenly over
            `nodes`, none of which has several GPU types. Where the type of GPUs on such a node is
            not told, Slurm's name of it stands. While it is COMPLETING these are fewer than `gpus`
            once some of its nodes are done.
        members: the other elements of a gang; see `slurm_plugin.daemon.jobs.gangs`.
        copies: the elements of a job of copies; see `slurm_plugin.daemon.jobs.copies`.
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
    asked: HostRequest = HostRequest()
    cpus: int = 0
    memory_mb: int = 0
    submit_line: str = ""
    qos: str = ""
    array: str = ""
    element: int = 0
    unsplit: tuple[int, ...] = ()
    dependency: str = ""
    outcome: str = ""
    over: bool = False
    partitions: tuple[str, ...] = ()
    reservation: str = ""
    batch: bool = True
    requeues: bool = True
    configuring: bool = False
    constraint: str = ""
    excluded: tuple[str, ...] = ()
    resources: Resources = Resources((1, 0), 1, "", "", "", "")
    tasks_per_node: int = 0
    gres: tuple[tuple[str, int], ...] = ()
    licenses: tuple[tuple[str, int], ...] = ()
    disk_mb: int = 0
    cpus_least: int = 0
    exclusive: str = ""
    priority: int = 0
    throttle: int = 0
    het_job: str = ""
    cron: bool = False
    gpus_on: tuple[tuple[str, int], ...] = ()
    members: tuple[SlurmJob, ...] = ()
    copies: tuple[SlurmJob, ...] = ()

    @property
    def entered(self) -> bool:
        """Whether it waits to start where it was placed."""
        return self.state is JobState.PENDING and self.in_hold

    @property
    def least_nodes(self) -> int:
        """On how many nodes it asks to run, at least."""
        return (self.resources.nodes or (1, 0))[0] or 1

    @property
    def on_each(self) -> tuple[float, float]:
        """The CPUs and MiB that it needs on each of its nodes."""
        nodes = len(self.nodes or self.pinned) or self.least_nodes
        return self.cpus / nodes, self.memory_mb / nodes

    @property
    def in_hold(self) -> bool:
        """Whether it may run in the reservation that holds the managed nodes.

        Slurm takes a list of reservations, and tells it as it was written.
        """
        return any(map(hold_number, self.reservation.split(",")))

    @property
    def lost_reservation(self) -> bool:
        """Whether Slurm itself holds it, because the reservation that it was in is gone."""
        if not self.held or not self.reason.startswith("Reservation"):
            return False
        return self.reason.lower().endswith("invalid")

    @property
    def held_by_slurm(self) -> bool:
        """Whether Slurm itself holds it, because a run of it could not be launched."""
        return self.held and self.reason.replace("_", " ").startswith("launch failed")


@dataclass(frozen=True, slots=True)
class SlurmState:
    """All nodes, and all jobs and reservations a moment later.

    In this order, so that no node shows what a job holds that is still shown to wait. `unread` are
    the records that could not be read, such as `job 12`, each with why.
    """

    nodes: tuple[SlurmNode, ...]
    jobs: Mapping[str, SlurmJob]
    reservations: tuple[SlurmReservation, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
