"""Placing a job on as few nodes as the idle cluster could give it, as where users ask for nodes.

For schedulers that are blind to speeds: types and nodes are taken in the order of the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from hetsched_core.placement.free import FreeGpus, PerGpu, idle_cluster
from hetsched_core.placement.ways import Way
from hetsched_core.types import Cluster, Configuration, Job, Shape, Snapshot

_REMEMBERED = 1 << 16

PART_OF_MIX = -1
"""Stands for a type that holds the job only together with others."""


@dataclass(frozen=True, slots=True)
class JobLayout:
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


def layout_of(job: Job, way: Way, cluster: Cluster, shapes: frozenset[Shape]) -> JobLayout:
    """Return the layout of a job that fits in this way on the idle, healthy cluster."""
    return _layout(cluster, shapes, way, PerGpu.of(job))


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
def _layout(cluster: Cluster, shapes: frozenset[Shape], way: Way, given: PerGpu) -> JobLayout:
    # Nodes that are closed for a time make no difference to how many it is to be on.
    needs = given._replace(closed=frozenset())
    even = Shape.UNEVEN not in shapes or needs.min_nodes > 1
    nodes, alone = [], []
    for gpu_type in cluster.gpu_types:
        if way.mixed or gpu_type not in way.types:
            nodes.append(PART_OF_MIX if gpu_type in way.types else 0)
            continue
        many = fewest_of_idle(cluster, shapes, (gpu_type,), way.count, needs)
        nodes.append(many)
        if not many:
            continue  # of a way that only other shapes allow
        largest = max(
            node.gpus
            for node in cluster
            if node.gpu_type == gpu_type and (needs.nodes is None or node.name in needs.nodes)
        )
        # What every one of so few nodes has to give.
        least = way.count // many if even else max(1, way.count - (many - 1) * largest)
        alone.append((gpu_type, many, least))
    mixed = fewest_of_idle(cluster, shapes, way.types, way.count, needs) if way.mixed else 0
    return JobLayout(
        way.count,
        (*nodes, mixed),
        tuple(alone),
        needs.cpus_per_gpu,
        needs.memory_mb_per_gpu,
        even,
        cluster.mask(given.nodes, given.closed),
    )


@lru_cache(maxsize=_REMEMBERED)
def fewest_of_idle(
    cluster: Cluster,
    shapes: frozenset[Shape],
    gpu_types: tuple[str, ...],
    count: int,
    needs: PerGpu,
) -> int:
    """Return on how few nodes of these types the idle, healthy cluster holds a job; 0 if on none.

    Several nodes give equal parts where `shapes` have no uneven ones.
    """
    free = idle_cluster(cluster)
    if len(gpu_types) == 1 and free.one_node(needs, gpu_types[0], count) is not None:
        return 1
    found = free.fewest_nodes(needs, gpu_types, count, even=Shape.UNEVEN not in shapes)
    return 0 if found is None else len(found)
