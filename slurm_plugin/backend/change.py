"""What can be done to a job, each in one call to Slurm."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """Pin a pending job to nodes, with the same number of GPUs on each, and let it start at once.

    `gpu_type` is "" for whatever the nodes have. `default_count` is the shape to go back to if
    Slurm takes only part of the change.
    """

    job: str
    nodes: tuple[str, ...]
    gpus_per_node: int
    default_count: int
    gpu_type: str = ""


@dataclass(frozen=True, slots=True)
class Park:
    """Unpin a pending job, give it the shape of its default count, and let it begin in a while.

    `delay_s` whole seconds from now, Slurm starts the job by itself unless somebody acts.
    """

    job: str
    default_count: int
    delay_s: int


@dataclass(frozen=True, slots=True)
class Push:
    """Move the begin time of a parked job to `delay_s` whole seconds from now."""

    job: str
    delay_s: int


@dataclass(frozen=True, slots=True)
class Requeue:
    """Stop a running job, with a SIGTERM to its script, and queue it again."""

    job: str


Change = Requeue | Park | Push | Place
