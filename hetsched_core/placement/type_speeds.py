"""The speed of a job on each GPU type, for policies that choose types and counts but no nodes."""

from __future__ import annotations

from functools import lru_cache

from hetsched_core.placement.ways import Way
from hetsched_core.types import Cluster, Speeds


@lru_cache(maxsize=1 << 12)
def type_speeds(cluster: Cluster, speeds: Speeds, profile: str, way: Way) -> tuple[float, ...]:
    """Return samples/s of the whole job on each type of the cluster, in its order.

    On one node where the type has one that is large enough, else on two; 0 on a type that is none
    of the way's.
    """
    largest: dict[str, int] = {}
    for node in cluster:
        largest[node.gpu_type] = max(node.gpus, largest.get(node.gpu_type, 0))
    return tuple(
        way.count * speeds.per_gpu(profile, t, way.count, 1 if way.count <= largest[t] else 2)
        if t in way.types
        else 0.0
        for t in cluster.gpu_types
    )
