"""How a job could ever run on a cluster: which of its GPU counts fit, and on which GPU types."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from hetsched_core.placement.free import FreeGpus, PerGpu
from hetsched_core.types import Cluster, Job, RequirementSet, Shape, Speeds, SpeedTable

_REMEMBERED = 1 << 16


@dataclass(frozen=True, slots=True)
class Way:
    """A GPU count that the idle, healthy cluster can hold for a job.

    `types` are the GPU types it can be held on, fastest per GPU first; `mixed` says that none of
    them can do it alone.
    """

    count: int
    types: tuple[str, ...]
    mixed: bool


def ways_to_fit(
    job: Job, cluster: Cluster, speeds: Speeds, shapes: frozenset[Shape]
) -> tuple[Way, ...]:
    """Return the ways in which the job fits the idle, healthy cluster, by ascending count.

    Empty for a job that can never run: too large, of a type that is not there, or too slow to move.
    """
    return _ways(cluster, speeds.table(job.profile), shapes, *_kind(job))


def rigid_way(job: Job, cluster: Cluster, speeds: Speeds, shapes: frozenset[Shape]) -> Way | None:
    """Return the one way of a rigid job: the lower median of its counts, or of those that fit.

    None for a job that can never run. Jobs of one kind get the same object.
    """
    return _rigid_way(cluster, speeds.table(job.profile), shapes, *_kind(job))


_Kind = tuple[str, RequirementSet, frozenset[str] | None, float, float]


def _kind(job: Job) -> _Kind:
    """What the ways of a job depend on."""
    return (
        job.profile,
        job.requirements,
        job.gpu_types,
        job.cpus_per_gpu,
        job.memory_mb_per_gpu,
    )


@lru_cache(maxsize=_REMEMBERED)
def _rigid_way(
    cluster: Cluster, table: SpeedTable, shapes: frozenset[Shape], *kind: *_Kind
) -> Way | None:
    ways = _ways(cluster, table, shapes, *kind)
    middle = kind[1].lower_median
    exact = next((way for way in ways if way.count == middle), None)
    return exact or (ways[(len(ways) - 1) // 2] if ways else None)


@lru_cache(maxsize=_REMEMBERED)
def _ways(
    cluster: Cluster,
    table: SpeedTable,
    shapes: frozenset[Shape],
    profile: str,
    requirements: RequirementSet,
    gpu_types: frozenset[str] | None,
    cpus_per_gpu: float,
    memory_mb_per_gpu: float,
) -> tuple[Way, ...]:
    speeds = Speeds(cluster, {profile: table})
    free, needs = FreeGpus.empty(cluster), PerGpu(cpus_per_gpu, memory_mb_per_gpu)
    even = Shape.UNEVEN not in shapes

    def holds(gpu_type: str, count: int) -> bool:
        if free.one_node(needs, gpu_type, count) is not None:
            return True
        return (
            count > 1
            and Shape.EVEN in shapes
            and speeds.per_gpu(profile, gpu_type, count, nodes=2) > 0
            and free.fewest_nodes(needs, (gpu_type,), count, even=even) is not None
        )

    ways = []
    for count in requirements:
        runs_on = tuple(
            t for t in speeds.fastest_types(profile, count) if gpu_types is None or t in gpu_types
        )
        types = tuple(t for t in runs_on if holds(t, count))
        if types:
            ways.append(Way(count, types, mixed=False))
        elif count > 1 and Shape.MIXED_TYPES in shapes:
            types = tuple(t for t in runs_on if speeds.per_gpu(profile, t, count, nodes=2) > 0)
            if free.fewest_nodes(needs, types, count) is not None:
                ways.append(Way(count, types, mixed=True))
    return tuple(ways)
