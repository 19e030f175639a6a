"""What jobs of GPUs keep from those without: their part beside each GPU, or more of a node."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from hetsched_core.placement.ways import shut_out, ways_to_fit
from hetsched_core.types import Cluster, Job, Node, NodeView, Shape, Speeds
from slurm_plugin.daemon.jobs.managed import ManagedJob
from slurm_plugin.daemon.jobs.request import Request


class Kept(NamedTuple):
    """What a job of GPUs keeps that needs more of a node than its GPUs' part.

    Attributes:
        nodes: where.
        share: the CPUs, MiB and GPUs that it needs on each.
        needs: what idle GPUs keep there for all others, as in `CpuCycle`.
    """

    nodes: frozenset[str] = frozenset()
    share: tuple[float, float, float] = (0.0, 0.0, 0.0)
    needs: tuple[float, float] = (0.0, 0.0)


NOTHING_KEPT = Kept()


def could_use(job: Job, node: Node) -> bool:
    """Whether a job may start on a node, and GPUs there have CPUs and memory enough for it."""
    accepts = job.accepts_type(node.gpu_type) and job.may_start_on(node.name)
    return accepts and _most_gpus(job, node) > 0


def kept_for(waiting: Iterable[ManagedJob], nodes: Iterable[NodeView]) -> Kept:
    """Return what is kept for the first job that needs more of a node than its GPUs' part.

    All memory beside one GPU (`--mem=0`), for example: what idle GPUs keep is too little for it,
    and on each node there would always be jobs without GPUs that came after it.

    Args:
        waiting: the jobs of GPUs that may start.
        nodes: the managed nodes.
    """
    able = sorted(waiting, key=lambda known: (known.job.submit_s, known.job.id))
    views = sorted((view for view in nodes if view.open), key=_in_use)
    cpus = min((view.node.cpus / view.node.gpus for view in views), default=math.inf)
    memory_mb = min((view.node.memory_mb / view.node.gpus for view in views), default=math.inf)
    for known in able:
        job = known.job
        if job.cpus_per_gpu <= cpus and job.memory_mb_per_gpu <= memory_mb:
            continue
        on = {view.node: _most_gpus(job, view.node) for view in views if could_use(job, view.node)}
        if on and all(most < node.gpus for node, most in on.items()):
            many = max(job.min_nodes, math.ceil(job.requirements.smallest / max(on.values())))
            gpus = math.ceil(job.requirements.smallest / many)
            return Kept(
                frozenset(node.name for node in islice(on, many)),
                (job.cpus_per_gpu * gpus, job.memory_mb_per_gpu * gpus, gpus),
                needs_of(other.request for other in able if other is not known),
            )
    return NOTHING_KEPT


def needs_of(waiting: Iterable[Request]) -> tuple[float, float]:
    """Return the CPUs and MiB that jobs ask for with a GPU, at the most; one CPU if none does."""
    asked = [each for each in waiting if each.own.gpus or not each.rigid]
    return (
        max((each.cpus_per_gpu for each in asked), default=1),
        max((each.memory_mb_per_gpu for each in asked), default=0),
    )


def has_place(
    job: Job, cluster: Cluster, speeds: Speeds, shapes: frozenset[Shape], closed: frozenset[str]
) -> bool:
    """Whether a job could start if nothing else ran: it fits on nodes that are open to it.

    Args:
        job: it.
        cluster: all nodes.
        speeds: of its profile.
        shapes: those that every job takes.
        closed: nodes that take no jobs now.
    """
    if not ways_to_fit(job, cluster, speeds, shapes):
        return False
    closed |= job.closed
    return not closed or not shut_out(replace(job, closed=closed), cluster, speeds, shapes)


def _in_use(view: NodeView) -> float:
    """Return the share of a node's memory that is in use."""
    return (view.held_memory_mb + view.foreign_memory_mb) / max(1.0, view.node.memory_mb)


def _most_gpus(job: Job, node: Node) -> int:
    """Return how many GPUs of an empty node a job can use."""
    by_cpus = node.cpus / job.cpus_per_gpu if job.cpus_per_gpu else math.inf
    by_memory = node.memory_mb / job.memory_mb_per_gpu if job.memory_mb_per_gpu else math.inf
    return int(min(node.gpus, by_cpus, by_memory))
