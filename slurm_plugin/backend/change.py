"""What can be done to a job, or to the nodes that are held: each is one call to Slurm."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from slurm_plugin.backend.state import Asked


@dataclass(frozen=True, slots=True)
class Terms:
    """What a job may have beside GPUs: minutes, CPUs on each node, MiB on each node.

    None leaves what Slurm has for the job.
    """

    time_limit_min: int | None = None
    cpus: int | None = None
    memory_mb: int | None = None


@dataclass(frozen=True, slots=True)
class Enter:
    """Place a pending job: into the reservation, on these nodes, to start at once.

    With `gpus_per_node` it gets so many GPUs, of `gpu_type` if that is not "", and one task on each
    node; None leaves the shape in which it was submitted. `own` is what it goes back to if Slurm
    takes only part of the change. `dependency` is what it has to wait for, "" for what it waits for
    as it is.
    """

    job: str
    hold: str
    nodes: tuple[str, ...]
    gpus_per_node: int | None
    gpu_type: str = ""
    terms: Terms = Terms()
    own: Asked | None = None
    dependency: str = ""


@dataclass(frozen=True, slots=True)
class Leave:
    """Take a pending job out of the reservation, into the shape `own`; None for the one it has.

    `nodes` are those that its user named, () for none.
    """

    job: str
    own: Asked | None = None
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Depend:
    """Let a pending job wait for something else; "" for nothing."""

    job: str
    dependency: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep nodes by the reservation `job` for so many whole seconds from now.

    It is made where it is not there, and given these nodes and this end where it is.
    """

    job: str
    nodes: tuple[str, ...]
    seconds: int
    deny: str


@dataclass(frozen=True, slots=True)
class Drop:
    """End the reservation `job`."""

    job: str


@dataclass(frozen=True, slots=True)
class Together:
    """Change several elements of one gang, in this order.

    Where a step is refused those behind it are not tried, and placements before it are undone.
    """

    job: str
    steps: tuple[Enter, ...]


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
    """Stop a running job, with a SIGTERM to its script, and queue it again."""

    job: str


@dataclass(frozen=True, slots=True)
class Release:
    """Let go of a pending job that is held."""

    job: str


Change = Signal | Cancel | Requeue | Leave | Depend | Release | Enter | Together | Hold | Drop
