"""Placing a job on as few nodes as the idle cluster could give it, as who asks for nodes does.

For schedulers that are blind to speeds: types and nodes are taken in the order of the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from hetsched_core.placement.free import FreeGpus, PerGpu
from hetsched_core.placement.ways import Way
from hetsched_core.types import Cluster, Configuration, Job, Shape, Snapshot

_REMEMBERED = 1 << 16

PART_OF_MIX = -1
"""Stands for a type that holds the job only together with others."""


@dataclass(frozen=True, slots=True)
class Layout:
    """On how many nodes a job is to be.

    Attributes:
        count: GPUs of the job.
        nodes: for each GPU type of the cluster, in its order, the number of nodes that it takes
            there, 0 where it cannot be; then the number of nodes that it takes of a mix of those
            types that are `PART_OF_MIX`.
        alone: (type, number of nodes, least GPUs on each) for the types that can hold it alone.
        cpus_per_gpu, memory_mb_per_gpu: what it takes beside each GPU.
        evenly: whether its nodes have to give equal parts.
        may_use: the nodes that it may use now, a bit each.
    """

    count: int
    nodes: tuple[int, ...]
    alone: tuple[tuple[str, int, int], ...]
    cpus_per_gpu: float
    memory_mb_per_gpu: float
    evenly: bool
    may_use: int


def layout_of(job: Job, way: Way, cluster: Cluster, shapes: frozenset[Shape]) -> Layout:
    """Return the layout of a job that fits in this way on the idle, healthy cluster."""
    return _layout(
        cluster,
        shapes,
        way,
        job.closed,
        job.cpus_per_gpu,
        job.memory_mb_per_gpu,
        job.nodes,
        job.min_nodes,
        job.max_nodes,
    )


def fewest_fit(
    snapshot: Snapshot, free: FreeGpus, job: Job, way: Way, types: tuple[str, ...]
) -> Configuration | None:
    """Return free GPUs of the first of these types that has them on so few nodes, if any has."""
    count = way.count
    shapes = snapshot.shapes_for(job)
    layout = layout_of(job, way, snapshot.cluster, shapes)
    if way.mixed:
        found = free.fewest_nodes(job, types, count)
        return found if found is not None and len(found) <= layout.nodes[-1] else None
    for gpu_type, nodes, least in layout.alone:
        if gpu_type not in types:
            continue
        if nodes == 1:
            found = free.one_node(job, gpu_type, count)
        elif free.nodes_with(gpu_type, least) < nodes:
            continue
        else:
            even = Shape.UNEVEN not in shapes
            found = free.fewest_nodes(job, (gpu_type,), count, even=even)
        if found is not None and len(found) <= nodes:
            return found
    return None


@lru_cache(maxsize=_REMEMBERED)
def _layout(
    cluster: Cluster,
    shapes: frozenset[Shape],
    way: Way,
    closed: frozenset[str],
    cpus_per_gpu: float,
    memory_mb: float,
    own: frozenset[str] | None,
    min_nodes: int,
    max_nodes: int | None,
) -> Layout:
    free, even = FreeGpus.empty(cluster), Shape.UNEVEN not in shapes or min_nodes > 1
    # Nodes that are closed for a time make no difference to how many it is to be on.
    needs = PerGpu(cpus_per_gpu, memory_mb, nodes=own, min_nodes=min_nodes, max_nodes=max_nodes)

    def nodes_of(types: tuple[str, ...]) -> int:
        if len(types) == 1 and free.one_node(needs, types[0], way.count) is not None:
            return 1
        found = free.fewest_nodes(needs, types, way.count, even=even)
        return 0 if found is None else len(found)

    nodes, alone = [], []
    for gpu_type in cluster.gpu_types:
        if way.mixed or gpu_type not in way.types:
            nodes.append(PART_OF_MIX if gpu_type in way.types else 0)
            continue
        many = nodes_of((gpu_type,))
        nodes.append(many)
        if not many:
            continue  # of a way that only other shapes allow
        largest = max(
            node.gpus
            for node in cluster
            if node.gpu_type == gpu_type and (own is None or node.name in own)
        )
        # What every one of so few nodes has to give.
        least = way.count // many if even else max(1, way.count - (many - 1) * largest)
        alone.append((gpu_type, many, least))
    nodes.append(nodes_of(way.types) if way.mixed else 0)
    may_use = cluster.mask(own, closed)
    return Layout(way.count, tuple(nodes), tuple(alone), cpus_per_gpu, memory_mb, even, may_use)
