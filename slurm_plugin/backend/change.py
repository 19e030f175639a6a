"""What can be done to a job, and to the reservation that holds the nodes, each in one call."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from slurm_plugin.backend.state import Request


@dataclass(frozen=True, slots=True)
class Terms:
    """What a job may have beside GPUs: minutes, CPUs on each node, MiB on each node.

    None leaves what Slurm has for the job.
    """

    time_limit_min: int | None = None
    cpus: int | None = None
    memory_mb: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Pin a pending job to nodes, with the same number of GPUs on each, and let it start at once.

    `gpu_type` is "" for whatever the nodes have. `otherwise` is what to do if Slurm takes only part
    of the change. `dependency` is what it has to wait for from now on, "" for nothing and None for
    what it waits for as it is.
    """

    job: str
    nodes: tuple[str, ...]
    gpus_per_node: int
    otherwise: Park | SetAside
    gpu_type: str = ""
    terms: Terms = Terms()
    dependency: str | None = None


@dataclass(frozen=True, slots=True)
class Park:
    """Unpin a pending job, give it the shape of its default count, and let it begin in a while.

    The shape is `gpus_per_node` GPUs, of `gpu_type` if it is not "", on each of `nodes` nodes.
    `delay_s` whole seconds from now, Slurm starts the job by itself unless somebody acts.
    """

    job: str
    gpus_per_node: int
    delay_s: int
    nodes: int = 1
    gpu_type: str = ""
    terms: Terms = Terms()


@dataclass(frozen=True, slots=True)
class SetAside:
    """Unpin a pending element of a gang, and have it wait for what cannot be.

    That is, that the `leader` ends well and does not: however the leader ends, Slurm then cancels
    the element. `job` may be several elements, such as `12_[1-3]`.
    """

    job: str
    leader: str

    @property
    def dependency(self) -> str:
        """What it waits for."""
        return f"afterok:{self.leader},afternotok:{self.leader}"


@dataclass(frozen=True, slots=True)
class Together:
    """Change several elements of one gang, in this order.

    Where a step is refused those behind it are not tried, and placements before it are undone.
    """

    job: str
    steps: tuple[Place | Park | SetAside, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a job for good."""

    job: str


@dataclass(frozen=True, slots=True)
class Push:
    """Move the begin time of a parked job to `delay_s` whole seconds from now."""

    job: str
    delay_s: int


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
    """Stop a running job, with a SIGTERM to its script, and queue it again."""

    job: str


@dataclass(frozen=True, slots=True)
class Release:
    """Let go of a pending job that is held; its begin time still keeps it back."""

    job: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Take a pending job out of its reservation: it waits for any node again, as its user asked.

    `nodes` are those that its user named, () for none. `request` is what Slurm is to be told of its
    nodes, tasks and GPUs, None for nothing, and `partitions` are those that it may run in, () for
    those that it has. A job that is COMPLETING after a requeue takes it, too.
    """

    job: str
    nodes: tuple[str, ...] = ()
    request: Request | None = None
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
        request: what to change of its nodes, tasks and GPUs (see `Request.placed`); None leaves
            them as they are.
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
    request: Request | None = None
    terms: Terms = Terms()
    due: bool = False
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep nodes for what is placed, by a reservation that ends `seconds` from now.

    It is renewed if it is there, which brings it back, too, if it has ended and jobs still run in
    it; else it is made. Unless somebody renews it, Slurm starts whatever waits when it ends. Jobs
    of all users but `denied` may be placed: a list of who may would have to name them all. That
    account must exist, have a uid that Slurm takes for somebody, and submit nothing.
    """

    name: str
    nodes: tuple[str, ...]
    seconds: int
    denied: str = "daemon"
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
    | Park
    | SetAside
    | Push
    | Release
    | Place
    | Together
    | Enter
    | Leave
    | Hold
    | Drop
)
"""What is done to a job, or, with "" for a job, to the reservation."""
