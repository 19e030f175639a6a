"""What of a job's wishes this cluster and its limits leave."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace

from hetsched_core.placement.ways import ways_to_fit
from hetsched_core.throughput.gpus import memory_gb
from hetsched_core.types import (
    Cluster,
    Configuration,
    Job,
    Reason,
    ReasonCode,
    RequirementSet,
    Shape,
    Speeds,
)
from slurm_plugin.backend import GpuLimit
from slurm_plugin.daemon.jobs.request import Own, Request, on_nodes
from slurm_plugin.daemon.settings import LIVE_SHAPES


@dataclass(frozen=True, slots=True)
class FeasibleRequest:
    """The counts and types that a job may be given.

    `refused` is why it may be given none, `warning` what its owner should know, "" for nothing.
    """

    requirements: RequirementSet
    gpu_types: frozenset[str] | None
    refused: Reason | None = None
    warning: str = ""


def feasible_request(
    request: Request, cluster: Cluster, limit: GpuLimit | None, held: Configuration | None
) -> FeasibleRequest:
    """Leave out counts beyond a limit, and types with less memory than the job needs.

    What a running job holds stays accepted, however the limits have changed since it began.

    Args:
        request: what the job asks for.
        cluster: its GPU types; those of which no memory is published are let through.
        limit: the most GPUs of one job, None for no limit.
        held: what the job holds.
    """
    counts, warning, refused = request.counts, "", None
    if limit is not None and limit.gpus < request.counts.largest:
        within = {count for count in request.counts if count <= limit.gpus}
        if held is not None and held.gpus in request.counts:
            within.add(held.gpus)
        words = f"{limit.where} allows {limit.gpus} GPUs"
        if within:
            counts = RequirementSet(tuple(sorted(within)))
            beyond = ",".join(str(count) for count in request.counts if count not in within)
            warning = f"its counts {beyond} are left out: {words}"
        else:
            refused = Reason(
                ReasonCode.QUOTA, detail=f"{words}, its least count is {counts.smallest}"
            )
    if not request.mark.options.least_gpu_memory_mb:
        return FeasibleRequest(counts, request.gpu_types, refused, warning)
    wide, unknown = _with_memory(cluster, request.mark.options.least_gpu_memory_mb)
    types = wide if request.gpu_types is None else wide & request.gpu_types
    if held is not None:
        types |= {cluster[name].gpu_type for name, _ in held}
    if doubtful := types & unknown:
        names = ", ".join(sorted(doubtful))
        told = f"it may be placed on {names}, of whose memory nothing is known"
        warning = f"{warning}; {told}" if warning else told
    return FeasibleRequest(counts, types, refused, warning)


def _with_memory(cluster: Cluster, least_mb: int) -> tuple[frozenset[str], frozenset[str]]:
    """Return the types that have so much memory or may have it, and those that may."""
    known = {name: memory_gb(name) for name in cluster.gpu_types}
    unknown = frozenset(name for name, gb in known.items() if gb is None)
    enough = (name for name, gb in known.items() if gb is not None and gb * 1024 >= least_mb)
    return unknown.union(enough), unknown


def with_enough_nodes(request: Request, cluster: Cluster, where: Collection[str] | None) -> Request:
    """Return a job without a set on as many nodes as its CPUs and memory need.

    Slurm spreads it over them. How many GPUs it has then may depend on how many they are.

    Args:
        request: what it asks for.
        cluster: all nodes.
        where: those on which it may run; None for all.
    """
    own = request.own
    if not (request.rigid and own.gpus):
        return request
    may = [
        node
        for node in cluster
        if (request.gpu_types is None or node.gpu_type in request.gpu_types)
        and (where is None or node.name in where)
        and node.gpus >= (own.gpus_on_each or 1)
    ]
    for nodes in range(request.least_nodes, min(own.most_nodes or len(may), len(may)) + 1):
        by_gpu_mb = own.asked.memory_mb_per_gpu * (own.gpus_on_each or 1)
        memory_mb = own.asked.memory_mb_per_node or max(own.memory_mb / nodes, by_gpu_mb)
        if any(
            own.cpus <= (node.cpus or math.inf) * nodes
            and memory_mb <= (node.memory_mb or math.inf)
            for node in may
        ):
            return on_nodes(request, nodes) if own.gpus_in_all(nodes) > own.gpus else request
    return request


def names_too_few(request: Request, cluster: Cluster) -> str:
    """Return what is wrong with the nodes that a job names, "" for nothing.

    Slurm would add others to them. Here a job runs on what it names alone.
    """
    own = request.own
    gpus = sum(node.gpus for node in cluster if node.host in own.nodes)
    if not own.nodes or not request.rigid:
        return ""
    if len(own.nodes) < request.least_nodes:
        has = f"{len(own.nodes)} of the {request.least_nodes} nodes that it asks for"
    elif gpus < request.own.gpus:
        has = f"nodes of {gpus} GPUs in all, and asks for {own.gpus}"
    else:
        return ""
    return f"it names {has}; name all of them, or exclude those on which it is not to run"


def as_slurm_spreads(
    job: Job, own: Own, cluster: Cluster, speeds: Speeds, shapes: frozenset[Shape]
) -> Job:
    """Return a job without a set in these shapes, if it fits in none of those of other jobs.

    Slurm itself puts unlike parts of it on nodes, and on nodes of several GPU types.

    Args:
        job: as policies see it.
        own: as it was submitted.
        cluster: all nodes.
        speeds: of its profile.
        shapes: those that Slurm can make of it.
    """
    gpus = job.requirements.smallest
    if gpus < 2 or ways_to_fit(job, cluster, speeds, LIVE_SHAPES):
        return job
    spread = replace(job, shapes=shapes)
    may = (
        node.gpus
        for node in cluster
        if job.accepts_type(node.gpu_type) and (job.nodes is None or node.name in job.nodes)
    )
    most = max(may, default=0)
    if own.gpus and not own.gpus_on_each and gpus > most * (job.min_nodes - 1):
        # It is on as many nodes anyhow, and those that must be several would have to be alike.
        spread = replace(spread, min_nodes=1)
    return spread if ways_to_fit(spread, cluster, speeds, LIVE_SHAPES) else job


def with_whole_nodes(
    job: Job, cluster: Cluster, held: Collection[str], memory_mb: int | None
) -> Job:
    """Return a job that shares no node, as one that asks for all GPUs of its nodes.

    Slurm gives it all of them, even if it asks for none. It stays on nodes of one size: that of
    those which it holds, else that of which there are most. Of a host with several GPU types it
    stands on the node of most GPUs; its CPUs are all the host's, so that no other job starts there.

    Args:
        job: with the GPUs and CPUs that it asks for itself.
        cluster: all nodes.
        held: what Slurm calls those that it holds.
        memory_mb: what it asks for in all; None where each GPU takes its part.
    """
    may = [
        node
        for node in cluster
        if (node.host in held if held else job.nodes is None or node.name in job.nodes)
        and job.accepts_type(node.gpu_type)
    ]
    largest = {node.host: node.name for node in sorted(may, key=lambda node: node.gpus)}
    may = [node for node in may if node.name == largest[node.host]]
    sizes = Counter(node.gpus for node in may)
    fits: dict[int, list[int]] = {}
    for size in sizes:
        many = {max(job.min_nodes, math.ceil(each / size)) for each in job.requirements.counts}
        if few := sorted(each for each in many if each <= (job.max_nodes or each)):
            fits[size] = few
    if not fits:
        return job
    size = max(fits, key=lambda each: (sizes[each], -each))
    chosen = [node for node in may if node.gpus == size]
    if memory_mb is not None:
        job = replace(job, memory_mb_per_gpu=memory_mb / (size * fits[size][0]))
    return replace(
        job,
        requirements=RequirementSet(tuple(size * many for many in fits[size])),
        nodes=frozenset(node.name for node in chosen),
        min_nodes=fits[size][0],
        max_nodes=fits[size][-1],
        cpus_per_gpu=min(node.cpus for node in chosen) / size,
    )
