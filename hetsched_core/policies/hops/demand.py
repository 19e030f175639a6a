"""What the jobs of Hops's queue ask for, as columns over their kinds.

Jobs of one kind have the same profile, requirement set, GPU types, nodes, shapes, and needs beside
each GPU: they have the same configurations at the same speeds. Sensitivity to being spread (formula
10) is theirs too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hetsched_core.kernels.configurations import EVEN, ONE_NODE, UNEVEN
from hetsched_core.placement.free import PerGpu
from hetsched_core.policies.hops.room import ClusterLayout
from hetsched_core.types import Job, JobView, Shape, Speeds, SpeedTable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Thing = TypeVar("Thing")

MOST_SENSITIVE = 1e3
"""Stands for the sensitivity of a profile that cannot be spread at all, so that means exist."""


@dataclass(frozen=True, slots=True, eq=False)
class HopsDemand:
    """What J jobs ask for: K kinds, P profiles, D needs, U wants (GPU counts) in all.

    Attributes:
        kind: (J,) kind of each job.
        first: (K,) the first job of each kind.
        asked: what tells each of the K kinds from others.
        tables: P speed tables.
        needs: D needs.
        shapes: what configurations of each need may look like (`kernels.configurations`).
        wants: (U,) ascending GPU counts that some job accepts, and 1 and 2.
        profile, need: (K,) of each kind.
        types: (K, T) whether the kind may run on each GPU type.
        want_from: (K+1,) where the wants of each kind begin in `want`.
        want: positions in `wants`, ascending for each kind.
        smallest: (K,) smallest requirement.
        per_gpu: (P, T, 2, U) samples/s per GPU, on one node and on several.
        sensitivity: (P, T) speed per GPU of one GPU over that of two on two nodes.
    """

    kind: Ints
    first: Ints
    asked: tuple[tuple[object, ...], ...]
    tables: tuple[SpeedTable, ...]
    needs: tuple[PerGpu, ...]
    shapes: tuple[int, ...]
    wants: Ints
    profile: Ints
    need: Ints
    types: Bools
    want_from: Ints
    want: Ints
    smallest: Ints
    per_gpu: Floats
    sensitivity: Floats

    @property
    def limited(self) -> bool:
        """Whether any job may use some nodes only."""
        return any(need.nodes is not None or need.closed for need in self.needs)

    def mean_sensitivity(self, gpus: Ints) -> Floats:
        """Return (K,) the mean sensitivity of each kind over the types it may run on.

        Weighted with the (T,) GPUs of each type, as the expected run time is (formula 9).
        """
        weight = self.types * gpus
        total = (weight * self.sensitivity[self.profile]).sum(axis=1)
        return np.asarray(total / np.maximum(weight.sum(axis=1), 1))

    def accepts(
        self, jobs: Sequence[int], pieces: Sequence[tuple[Ints, Ints]], layout: ClusterLayout
    ) -> Bools:
        """Return (M,) whether M jobs may have these pieces, each nodes and the GPUs on them."""
        if not jobs:
            return np.zeros(0, np.bool_)
        kind = self.kind[np.array(jobs, np.int64)]
        sizes = np.array([len(nodes) for nodes, _ in pieces], np.int64)
        first = np.cumsum(sizes) - sizes
        nodes = np.concatenate([nodes for nodes, _ in pieces])
        gpus = np.add.reduceat(np.concatenate([gpus for _, gpus in pieces]), first)
        of_kind = np.zeros((len(self.profile), len(self.wants)), np.bool_)
        of_kind[np.repeat(np.arange(len(self.profile)), np.diff(self.want_from)), self.want] = True
        want = np.minimum(np.searchsorted(self.wants, gpus), len(self.wants) - 1)
        typed = self.types[np.repeat(kind, sizes), layout.type_of[nodes]]
        wanted = of_kind[kind, want] & (self.wants[want] == gpus)
        accepted: Bools = wanted & np.logical_and.reduceat(typed, first)
        return accepted


def shape_code(shapes: frozenset[Shape]) -> int:
    """Return what configurations may look like where these shapes can be realised."""
    if Shape.UNEVEN in shapes and Shape.EVEN in shapes:
        return UNEVEN
    return EVEN if Shape.EVEN in shapes else ONE_NODE


def demand_of(
    views: Sequence[JobView],
    speeds: Speeds,
    layout: ClusterLayout,
    shapes: frozenset[Shape],
    *,
    only_profiled: bool,
) -> HopsDemand:
    """Return what the jobs ask for.

    Args:
        views: the jobs.
        speeds: estimates.
        layout: the cluster.
        shapes: what can be realised for every job; some take others besides.
        only_profiled: leave out GPU types on which a profile has not been measured yet.
    """
    kind, asked_of = _numbered(_asked_of(view.job) for view in views)
    first = np.unique(kind, return_index=True)[1].astype(np.int64)
    firsts = [views[at].job for at in first.tolist()]
    profile, profiles = _numbered(job.profile for job in firsts)
    need, needs = _numbered((PerGpu.of(job), shape_code(shapes | job.shapes)) for job in firsts)
    counts = [job.requirements.counts for job in firsts]
    wants = np.unique(np.array([1, 2, *(count for each in counts for count in each)], np.int64))
    tables = tuple(speeds.table(name) for name in profiles)
    asked = tuple(wants.tolist())
    per_gpu = np.zeros((len(tables), len(layout.gpu_types), 2, len(wants)))
    runs = np.zeros(per_gpu.shape[:2], np.bool_)
    for at, table in enumerate(tables):
        per_gpu[at] = _per_gpu(table, layout.gpu_types, asked)
        runs[at] = _runs(table, layout.gpu_types, only_profiled)
    types = runs[profile]
    for at, job in enumerate(firsts):
        if job.gpu_types is not None:
            types[at] &= [t in job.gpu_types for t in layout.gpu_types]
    return HopsDemand(
        kind=kind,
        first=first,
        asked=tuple(asked_of),
        tables=tables,
        needs=tuple(per_gpu for per_gpu, _ in needs),
        shapes=tuple(shape for _, shape in needs),
        wants=wants,
        profile=profile,
        need=need,
        types=types,
        want_from=np.cumsum([0, *map(len, counts)], dtype=np.int64),
        want=np.searchsorted(wants, [count for each in counts for count in each]),
        smallest=np.array([each[0] for each in counts], np.int64),
        per_gpu=per_gpu,
        sensitivity=sensitivity_of(per_gpu, wants),
    )


def sensitivity_of(per_gpu: Floats, wants: Ints) -> Floats:
    """Return (P, T) speed per GPU of {a: 1} over that of {a: 1, b: 1} (formula 10).

    Args:
        per_gpu: (P, T, 2, U) samples/s per GPU.
        wants: (U,) GPU counts, 1 and 2 among them.
    """
    one, two = np.searchsorted(wants, [1, 2])
    together, apart = per_gpu[:, :, 0, one], per_gpu[:, :, 1, two]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = together / apart
    return np.where(apart > 0, np.minimum(ratio, MOST_SENSITIVE), MOST_SENSITIVE)


@lru_cache(maxsize=1 << 12)
def _per_gpu(table: SpeedTable, gpu_types: tuple[str, ...], counts: tuple[int, ...]) -> Floats:
    return table.per_gpu_at(gpu_types, np.array(counts, np.int64))


@lru_cache(maxsize=1 << 12)
def _runs(table: SpeedTable, gpu_types: tuple[str, ...], only_profiled: bool) -> Bools:
    return np.array(
        [table.runs_on(t) and (not only_profiled or table.profiled(t)) for t in gpu_types]
    )


def _asked_of(job: Job) -> tuple[object, ...]:
    """Return what jobs of one kind have in common."""
    return (
        job.profile,
        job.requirements.counts,
        job.gpu_types,
        job.cpus_per_gpu,
        job.memory_mb_per_gpu,
        job.nodes,
        job.closed,
        job.min_nodes,
        job.max_nodes,
        job.shapes,
    )


def _numbered(things: Iterable[Thing]) -> tuple[Ints, list[Thing]]:
    """Return the number of each thing, equal ones having one, and the things by number."""
    numbers: dict[Thing, int] = {}
    number = [numbers.setdefault(thing, len(numbers)) for thing in things]
    return np.array(number, np.int64), list(numbers)
