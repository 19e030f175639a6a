"""How a job could ever run on a cluster: which of its GPU counts fit, and on which GPU types."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from hetsched_core.placement.free import PerGpu, idle_cluster
from hetsched_core.types import Cluster, Job, RequirementSet, Shape, Speeds, SpeedTable

_REMEMBERED = 1 << 16

_TABLES_REMEMBERED = 1 << 12
"""Fewer, since learned estimates bring new tables all the time, and each is kept alive."""


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

    `shapes` are those that every job takes; those that this one takes beside them are added.

    Empty for a job that can never run: too large, of a type that is not there, or too slow to move.
    What windows close to it makes no difference.
    """
    return _ways(cluster, speeds.table(job.profile), shapes | job.shapes, *_kind(job))


def shut_out(job: Job, cluster: Cluster, speeds: Speeds, shapes: frozenset[Shape]) -> bool:
    """Whether windows alone keep a job that fits from fitting: too little is open to it."""
    if not job.closed or not ways_to_fit(job, cluster, speeds, shapes):
        return False
    kind = (*_kind(job)[:-1], PerGpu.of(job))
    return not _ways(cluster, speeds.table(job.profile), shapes | job.shapes, *kind)


def fits_without(
    down: tuple[str, ...],
    job: Job,
    way: Way,
    cluster: Cluster,
    speeds: Speeds,
    shapes: frozenset[Shape],
) -> bool:
    """Whether a job fits in this way on the idle cluster but for some of its nodes."""
    profile, requirements, gpu_types, needs = _kind(job)
    kind = (profile, requirements, gpu_types, needs._replace(closed=frozenset(down)))
    left = _ways(cluster, speeds.table(job.profile), shapes | job.shapes, *kind)
    return any(each.count == way.count and each.mixed <= way.mixed for each in left)


def rigid_way(
    job: Job,
    cluster: Cluster,
    speeds: Speeds,
    shapes: frozenset[Shape],
    *,
    one_type: bool = False,
) -> Way | None:
    """Return the one way of a rigid job: the lower median of its counts, or of those that fit.

    With `one_type`, of those that fit on GPUs of a single type. None for a job that can never run.
    Jobs of one kind get the same object, those of different kinds (another profile, say) different
    ones, so that its identity stands for the kind.
    """
    table = speeds.table(job.profile)
    return _rigid_way(one_type, cluster, table, shapes | job.shapes, *_kind(job))


def reach(job: Job, way: Way, cluster: Cluster) -> int:
    """Return the nodes that a job could be on now if no other job were there, a bit each."""
    return _reach(cluster, way.types, job.nodes, job.closed)


@lru_cache(maxsize=1 << 10)
def of_type(cluster: Cluster, gpu_type: str) -> int:
    """Return the nodes of a GPU type, a bit each."""
    return cluster.mask(frozenset(node.name for node in cluster if node.gpu_type == gpu_type))


@lru_cache(maxsize=_TABLES_REMEMBERED)
def _reach(
    cluster: Cluster,
    types: tuple[str, ...],
    nodes: frozenset[str] | None,
    closed: frozenset[str],
) -> int:
    of_types = 0
    for gpu_type in types:
        of_types |= of_type(cluster, gpu_type)
    return of_types & cluster.mask(nodes, closed)


_Kind = tuple[str, RequirementSet, frozenset[str] | None, PerGpu]
_NONE: frozenset[str] = frozenset()


def _kind(job: Job) -> _Kind:
    """What the ways of a job depend on."""
    needs = PerGpu(
        job.cpus_per_gpu, job.memory_mb_per_gpu, job.nodes, _NONE, job.min_nodes, job.max_nodes
    )
    return (job.profile, job.requirements, job.gpu_types, needs)


@lru_cache(maxsize=_TABLES_REMEMBERED)
def _rigid_way(
    one_type: bool, cluster: Cluster, table: SpeedTable, shapes: frozenset[Shape], *kind: *_Kind
) -> Way | None:
    ways = [way for way in _ways(cluster, table, shapes, *kind) if not (one_type and way.mixed)]
    middle = kind[1].lower_median
    exact = next((way for way in ways if way.count == middle), None)
    return exact or (ways[(len(ways) - 1) // 2] if ways else None)


class _Place(NamedTuple):
    """Where a profile runs with a count: types, fastest first, and those that do on many nodes."""

    gpus: int
    types: tuple[str, ...]
    several_nodes: frozenset[str]


@lru_cache(maxsize=_TABLES_REMEMBERED)
def _ways(
    cluster: Cluster,
    table: SpeedTable,
    shapes: frozenset[Shape],
    profile: str,
    requirements: RequirementSet,
    gpu_types: frozenset[str] | None,
    needs: PerGpu,
) -> tuple[Way, ...]:
    speeds = Speeds(cluster, {profile: table})
    places = tuple(
        _Place(
            count,
            types := speeds.fastest_types(profile, count),
            frozenset(t for t in types if speeds.per_gpu(profile, t, count, nodes=2) > 0),
        )
        for count in requirements
    )
    # Copies, so that jobs of different kinds never share one.
    return tuple(replace(way) for way in _ways_among(cluster, places, shapes, gpu_types, needs))


@lru_cache(maxsize=_REMEMBERED)
def _ways_among(
    cluster: Cluster,
    places: tuple[_Place, ...],
    shapes: frozenset[Shape],
    gpu_types: frozenset[str] | None,
    needs: PerGpu,
) -> tuple[Way, ...]:
    """Return the ways by what seldom changes when speeds are revised: where they are above 0."""
    free = idle_cluster(cluster)
    even = Shape.UNEVEN not in shapes

    def holds(gpu_type: str, place: _Place) -> bool:
        if free.one_node(needs, gpu_type, place.gpus) is not None:
            return True
        return (
            place.gpus > 1
            and Shape.EVEN in shapes
            and gpu_type in place.several_nodes
            and spread(place.gpus, (gpu_type,), even=even)
        )

    def spread(count: int, types: tuple[str, ...], *, even: bool = False) -> bool:
        if even or needs.min_nodes > 1:
            return free.fewest_nodes(needs, types, count, even=even) is not None
        return count <= _most_spread(cluster, needs, types)

    ways = []
    for place in places:
        count = place.gpus
        runs_on = tuple(t for t in place.types if gpu_types is None or t in gpu_types)
        types = tuple(t for t in runs_on if holds(t, place))
        if types:
            ways.append(Way(count, types, mixed=False))
        elif count > 1 and Shape.MIXED_TYPES in shapes:
            types = tuple(t for t in runs_on if t in place.several_nodes)
            if spread(count, types):
                ways.append(Way(count, types, mixed=True))
    return tuple(ways)


@lru_cache(maxsize=_TABLES_REMEMBERED)
def _most_spread(cluster: Cluster, needs: PerGpu, types: tuple[str, ...]) -> int:
    return idle_cluster(cluster).most_spread(needs, types)


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
