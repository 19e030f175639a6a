"""What can be done to a job, and to the reservation that holds the nodes, each in one call."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from slurm_plugin.backend.state import Resources


@dataclass(frozen=True, slots=True)
class Terms:
    """What a job may have beside GPUs: minutes, CPUs for each task, MiB on each node.

    None leaves what Slurm has for the job. With CPUs for each task goes how many those are in all:
    Slurm does not take back by itself what a job asked for before.
    """

    time_limit_min: int | None = None
    cpus: int | None = None
    memory_mb: int | None = None
    cpus_in_all: int | None = None
    tasks_per_node: int | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a job for good."""

    job: str


class Recipients(StrEnum):
    """Which processes of a job get a signal: those of its steps, its script, or all."""

    STEPS = "children"
    SCRIPT = "batch"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Signal:
    """Send a signal, for example `USR1`, to a running job, which it may ignore."""

    job: str
    signal: str
    to: Recipients


@dataclass(frozen=True, slots=True)
class Requeue:
    """Stop a running job, with a SIGTERM to its script, and queue it again.

    Nothing becomes of it where the job has ended since it was read, or was cancelled and still
    ends: Slurm would queue that again, too, if it were not told that it is for a running job.
    """

    job: str


@dataclass(frozen=True, slots=True)
class RequeueEnded:
    """Queue a job again that has ended."""

    job: str


@dataclass(frozen=True, slots=True)
class Release:
    """Let go of a pending job that is held."""

    job: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Take a pending job out of its reservation: it waits for any node again, as its user asked.

    `nodes` are those that its user named, () for none. `resources` is what Slurm is to be told of
    its nodes, tasks and GPUs, None for nothing, and `partitions` are those that it may run in, ()
    for those that it has. A job that is COMPLETING after a requeue takes it, too.
    """

    job: str
    nodes: tuple[str, ...] = ()
    resources: Resources | None = None
    terms: Terms = Terms()
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Enter:
    """Place a pending job into the reservation, so that it starts at once.

    Slurm's main scheduler passes over all others in the reservation once it has met one that cannot
    start; they then wait for the next backfill. So nothing is to be placed where there is no room,
    and what does not start is to be taken out again.

    Slurm may take part of it and refuse the rest: the job may then start on the nodes in its own
    shape. `otherwise` takes it out again.

    Attributes:
        nodes: those that it has to run on; () leaves Slurm to choose among all of the reservation.
        otherwise: what to do if Slurm refuses.
        resources: what to change of its nodes, tasks and GPUs (see `Resources.placed`); None leaves
            them as they are.
        dependency: what it is to wait for from now on; "" for what it waits for as it is.
        due: whether to make it due now. A job that was queued again waits for a while else. For
            others Slurm would move the time from which it counts as eligible.
        partitions: those that it may run in, the one of the nodes first; () for those that it has.
            Of several, Slurm's main scheduler tries the first alone: a job on nodes of another
            starts with the next backfill. Where its user has no association in Slurm's accounting,
            Slurm says `Resource temporarily unavailable` to this.
    """

    job: str
    reservation: str
    nodes: tuple[str, ...]
    otherwise: Leave
    resources: Resources | None = None
    terms: Terms = Terms()
    due: bool = False
    dependency: str = ""
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Together:
    """Change several elements of one gang, in this order.

    Where a step is refused those behind it are not tried, and placements before it are undone.
    """

    job: str
    steps: tuple[Enter, ...]


@dataclass(frozen=True, slots=True)
class Depend:
    """Let a pending job wait for something else; "" for nothing."""

    job: str
    dependency: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep nodes for what is placed, by a reservation that ends `seconds` from now.

    It is renewed if it is there, which brings it back, too, if it has ended and jobs still run in
    it; else it is made. Unless somebody renews it, Slurm starts whatever waits when it ends. Jobs
    of all users but `denied` may be placed: a list of who may would have to name them all. That
    account must exist, have a uid that Slurm takes for somebody, and submit nothing.

    With an `owner`, which its comment then names, it is always made, and refused where one of its
    name is there: of several daemons that try one alone has it.
    """

    name: str
    nodes: tuple[str, ...]
    seconds: int
    denied: str = "daemon"
    owner: str = ""
    job: str = field(default="", init=False)


@dataclass(frozen=True, slots=True)
class Drop:
    """Give the nodes back: the reservation is deleted, or ends now if jobs run in it."""

    name: str
    job: str = field(default="", init=False)


Change = (
    Signal
    | Cancel
    | Requeue
    | RequeueEnded
    | Release
    | Leave
    | Depend
    | Enter
    | Together
    | Hold
    | Drop
)
"""What is done to a job, or, with "" for a job, to the reservation."""
