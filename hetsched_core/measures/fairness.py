"""How long a job would run alone, and how fairly it is treated against that.

Hops: expected run time (age, formula 9), latency ratio (formulas 6 and 8), RAQLR (formula 7) and
the weights of its integer programme (section 3.6). Sia: finish-time fairness as its published
evaluation computes it. All are pure functions of numbers, for policies and reports alike.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from hetsched_core.types import Cluster, Job, RequirementSet, Speeds

Floats = NDArray[np.float64]
Number = TypeVar("Number", float, Floats)

RAQLR_HOURS = 24.0
"""How far RAQLR looks back unless told otherwise."""

_REMEMBERED = 1 << 16


class RunTimes:
    """Run times of jobs that have a cluster to themselves, at the given speeds.

    A run time is proportional to the samples, and jobs of one kind share the factor, so that a
    million jobs cost little. Speeds that change need a new object.
    """

    def __init__(self, speeds: Speeds, cluster: Cluster) -> None:
        """Sum up the cluster by GPU type and size of node."""
        self._speeds = speeds
        self._profiles = frozenset(speeds.profiles)
        self._cluster = cluster
        self._sizes_in = lru_cache(_REMEMBERED)(self._count_sizes)
        self._expected_per_sample = lru_cache(_REMEMBERED)(self._expected)
        self._isolated_per_sample = lru_cache(_REMEMBERED)(self._isolated)

    def expected_run_s(self, job: Job, samples: float) -> float | None:
        """Return the seconds that `samples` of a job take without waiting (Hops formula 9).

        The mean over the GPU types, weighted with their shares of the cluster's GPUs, of
        samples / (samples/s of one GPU x mean of the requirement set). Types on which the job does
        not fit are left out and the shares of the others renormalised. None where it has no speed.
        Of the cluster only the nodes count that the job may use.
        """
        per_sample = self._expected_per_sample(_Kind.of(job))
        return None if per_sample is None else samples * per_sample

    def isolated_run_s(self, job: Job, samples: float, gpus: float) -> float | None:
        """Return the seconds that `samples` of a job take on its fair share, T_isolated.

        As Sia's published evaluation computes it: `gpus` (all GPUs / time-average number of active
        jobs, any positive number) of each type in turn; the time interpolated between neighbouring
        requirements, below the smallest divided by gpus / smallest, above the largest that of the
        largest; averaged with the types' shares of the cluster's GPUs. A requirement that no node
        of the type holds runs at the speed of several nodes. None where the job has no speed.
        """
        per_sample = self._isolated_per_sample(_Kind.of(job), gpus)
        return None if per_sample is None else samples * per_sample

    def _expected(self, kind: _Kind) -> float | None:
        return self._mean(
            kind,
            {
                gpu_type: 1.0 / (speed * kind.requirements.mean)
                for gpu_type in self._types(kind)
                if (speed := self._speeds.per_gpu(kind.profile, gpu_type, 1)) > 0
            },
        )

    def _isolated(self, kind: _Kind, gpus: float) -> float | None:
        return self._mean(
            kind,
            {
                gpu_type: _interpolated(curve, gpus)
                for gpu_type in self._types(kind)
                if (curve := self._curve(kind, gpu_type))
            },
        )

    def _curve(self, kind: _Kind, gpu_type: str) -> list[tuple[int, float]]:
        """Seconds per sample at each requirement that runs on this type, fewest GPUs first."""
        largest = max(usable for usable, _ in self._room(kind, gpu_type))
        points = []
        for count in kind.requirements:
            nodes = 1 if count <= largest and not kind.several else 2
            speed = self._speeds.per_gpu(kind.profile, gpu_type, count, nodes)
            if speed > 0:
                points.append((count, 1.0 / (speed * count)))
        return points

    def _types(self, kind: _Kind) -> list[str]:
        """The types that hold the job; where none does alone, those that do together."""
        if kind.profile not in self._profiles:
            return []
        table = self._speeds.table(kind.profile)
        room = {
            gpu_type: sum(usable * nodes for usable, nodes in self._room(kind, gpu_type))
            for gpu_type in self._sizes_in(kind.nodes)
            if (kind.gpu_types is None or gpu_type in kind.gpu_types) and table.runs_on(gpu_type)
        }
        least = kind.requirements.smallest
        enough = [t for t in room if room[t] >= least]
        if enough or sum(room.values()) < least:
            return enough
        return [t for t in room if room[t] > 0]

    def _room(self, kind: _Kind, gpu_type: str) -> list[tuple[int, int]]:
        """(GPUs that the job could use of an empty node, number of such nodes) by size of node."""
        room = []
        for (gpus, cpus, memory_mb), nodes in self._sizes_in(kind.nodes)[gpu_type].items():
            usable = gpus
            if cpus and kind.cpus_per_gpu:
                usable = min(usable, int(cpus / kind.cpus_per_gpu + 1e-9))
            if memory_mb and kind.memory_mb_per_gpu:
                usable = min(usable, int(memory_mb / kind.memory_mb_per_gpu + 1e-9))
            room.append((usable, nodes))
        return room

    def _count_sizes(
        self, nodes: frozenset[str] | None
    ) -> dict[str, Counter[tuple[int, int, int]]]:
        """GPU type -> how many of these nodes (None: of all) have so many GPUs, CPUs and MiB."""
        sizes: dict[str, Counter[tuple[int, int, int]]] = {}
        for node in self._cluster:
            if nodes is None or node.name in nodes:
                of_type = sizes.setdefault(node.gpu_type, Counter())
                of_type[node.gpus, node.cpus, node.memory_mb] += 1
        return sizes

    def _mean(self, kind: _Kind, seconds: dict[str, float]) -> float | None:
        """The mean over types, weighted with their shares of these types' GPUs."""
        sizes = self._sizes_in(kind.nodes)
        of_type = {t: sum(gpus * n for (gpus, _, _), n in sizes[t].items()) for t in seconds}
        gpus = sum(of_type.values())
        return sum(of_type[t] * s for t, s in seconds.items()) / gpus if gpus else None


class _Kind(NamedTuple):
    """What a job's run time per sample depends on."""

    profile: str
    requirements: RequirementSet
    gpu_types: frozenset[str] | None
    cpus_per_gpu: float
    memory_mb_per_gpu: float
    nodes: frozenset[str] | None
    several: bool

    @classmethod
    def of(cls, job: Job) -> _Kind:
        return cls(
            job.profile,
            job.requirements,
            job.gpu_types,
            job.cpus_per_gpu,
            job.memory_mb_per_gpu,
            job.nodes,
            job.min_nodes > 1,
        )


def _interpolated(curve: list[tuple[int, float]], gpus: float) -> float:
    """Seconds per sample on `gpus` GPUs, from (count, seconds per sample) points."""
    smallest, slowest = curve[0]
    if gpus <= smallest:
        return slowest * smallest / gpus
    for (low, above), (high, below) in pairwise(curve):
        if gpus <= high:
            return above + (below - above) * (gpus - low) / (high - low)
    return curve[-1][1]


def latency_ratio(wait_s: Number, expected_run_s: Number) -> Number:
    """Return wait / expected run time, the expected run time being > 0 (Hops formulas 6 and 8)."""
    return wait_s / expected_run_s


def finish_time_fairness(shared_s: Number, isolated_run_s: Number) -> Number:
    """Return T_shared / T_isolated, both from submission to end: unfair above 1 (Themis, Sia)."""
    return shared_s / isolated_run_s


def raqlr(
    end_s: Floats, latency_ratios: Floats, now_s: float, hours: float = RAQLR_HOURS
) -> float | None:
    """Return the recent average queue latency ratio (Hops formula 7).

    Args:
        end_s: (N,) when each job ended, seconds UTC.
        latency_ratios: (N,) their latency ratios.
        now_s: the present, seconds UTC.
        hours: how far to look back.

    Returns:
        The mean over the jobs that ended in the last `hours`; None if there is none.
    """
    recent = latency_ratios[(end_s <= now_s) & (end_s >= now_s - hours * 3600.0)]
    return float(recent.mean()) if recent.size else None


def priority_weights(priorities: Floats, lam: float = 1.0) -> Floats:
    """Return (priority + bias) ** lambda for the jobs of one plan (Hops section 3.6).

    Args:
        priorities: (N,) of any sign.
        lam: lambda; 0 makes all jobs equal, a large one comes near to strict priority.

    Returns:
        (N,) weights; the bias is 0 if all priorities are positive, else |least| + 0.01.
    """
    if priorities.size == 0:
        return priorities.copy()
    least = float(priorities.min())
    bias = 0.0 if least > 0 else abs(least) + 0.01
    weights: Floats = (priorities + bias) ** lam
    return weights
