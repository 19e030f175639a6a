"""The speed of a job on each GPU type, for policies that choose types and counts but no nodes."""

from __future__ import annotations

from functools import lru_cache

from hetsched_core.placement.ways import Way
from hetsched_core.types import Cluster, Job, Speeds


def type_speeds(cluster: Cluster, speeds: Speeds, job: Job, way: Way) -> tuple[float, ...]:
    """Return samples/s of the whole job on each type of the cluster, in its order.

    On one node where the job has one of the type that is large enough, and may be on one, else on
    two; 0 on a type that is none of the way's.
    """
    return _type_speeds(cluster, speeds, job.profile, way, job.nodes, job.min_nodes > 1)


@lru_cache(maxsize=1 << 12)
def _type_speeds(
    cluster: Cluster,
    speeds: Speeds,
    profile: str,
    way: Way,
    nodes: frozenset[str] | None,
    several: bool,
) -> tuple[float, ...]:
    largest = dict.fromkeys(cluster.gpu_types, 0)
    for node in cluster:
        if not several and (nodes is None or node.name in nodes):
            largest[node.gpu_type] = max(node.gpus, largest[node.gpu_type])
    return tuple(
        way.count * speeds.per_gpu(profile, t, way.count, 1 if way.count <= largest[t] else 2)
        if t in way.types
        else 0.0
        for t in cluster.gpu_types
    )
