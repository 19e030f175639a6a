"""Which models and GPU types a job of some size may get, and how fast it is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hetsched_core.errors import InputError
from hetsched_core.throughput import ModelProfile, SizeClass
from hetsched_core.types import Cluster, SpeedTable

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CLASS_HOURS = np.array([1.0, 10.0, np.nextafter(50.0, 51.0)])
"""GPU hours from which on a job is of the next class of `SizeClass`."""


def most_gpus(
    cluster: Cluster, models: Sequence[ModelProfile], tables: Mapping[str, SpeedTable]
) -> int:
    """Return the GPUs of the largest type on which a model runs.

    Raises:
        InputError: No model runs on any type.
    """
    found = [
        total
        for gpu_type, total in cluster.gpus_by_type().items()
        if any(tables[model.name].runs_on(gpu_type) for model in models)
    ]
    if not found:
        raise InputError(
            f"no model ({', '.join(model.name for model in models)}) runs on a GPU type of cluster "
            f"{cluster.name!r} ({', '.join(cluster.gpu_types)})"
        )
    return max(found)


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """Answers for S sizes, M models and T GPU types, as tables for many jobs at once.

    What a job asks for is one of T types or, at position T, any of them.

    Attributes:
        models: (S, 4, M) models of a class of GPU hours that run at a size, or, where there are
            none, all that do; the first `counts` of each row count.
        counts: (S, 4) how many.
        type_shares: (S, M, T) cumulative share of the types among the GPUs on which a model runs.
        mean_speed: (S, M, T + 1) samples/s per GPU, on average over the GPUs that are asked for.
        least_speed: (S, M, T + 1) samples/s per GPU of the slowest of them.
        accepted: (S, M, T + 1) the types that a job accepts, nested tuples; None: all.
    """

    models: Ints
    counts: Ints
    type_shares: Floats
    mean_speed: Floats
    least_speed: Floats
    accepted: tuple[tuple[tuple[frozenset[str] | None, ...], ...], ...]

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        models: Sequence[ModelProfile],
        tables: Mapping[str, SpeedTable],
        gpus: Sequence[int],
    ) -> Choices:
        """Build the tables for these sizes, in GPUs."""
        types = cluster.gpu_types
        totals = np.array([cluster.gpus_by_type()[t] for t in types], dtype=np.float64)
        speed = _speeds(cluster, models, tables, gpus)
        runs: Bools = np.asarray(speed > 0)
        weights = np.where(runs, totals, 0.0)
        # A model that runs nowhere at a size is never drawn there.
        usable = np.maximum(weights.sum(axis=2, keepdims=True), 1.0)
        mean = (weights * speed).sum(axis=2, keepdims=True) / usable
        least = np.where(runs, speed, np.inf).min(axis=2, keepdims=True)
        candidates, counts = _candidates(gpus, models, np.any(runs, axis=2))
        return cls(
            candidates,
            counts,
            np.cumsum(weights, axis=2) / usable,
            np.concatenate((speed, mean), axis=2),
            np.concatenate((speed, least), axis=2),
            tuple(tuple(_accepted(types, row) for row in rows) for rows in runs),
        )

    def draw_models(self, size: Ints, gpu_hours: Floats, uniform: Floats) -> Ints:
        """Return (N,) indices of models for jobs of these sizes and GPU hours."""
        size_class = np.sum(gpu_hours[:, None] >= _CLASS_HOURS, axis=1)
        at = (uniform * self.counts[size, size_class]).astype(np.int64)
        drawn: Ints = self.models[size, size_class, at]
        return drawn

    def draw_types(self, size: Ints, model: Ints, typed: Bools, uniform: Floats) -> Ints:
        """Return (N,) what jobs ask for: typed ones a type, in proportion to its GPUs."""
        shares = self.type_shares[size, model]
        types = shares.shape[1]
        chosen = np.minimum(np.sum(uniform[:, None] >= shares, axis=1), types - 1)
        asked: Ints = np.where(typed, chosen, types)
        return asked


def _speeds(
    cluster: Cluster,
    models: Sequence[ModelProfile],
    tables: Mapping[str, SpeedTable],
    gpus: Sequence[int],
) -> Floats:
    """Return (S, M, T) samples/s per GPU on as few nodes as can be; 0 where there is no room."""
    totals = cluster.gpus_by_type()
    largest = {t: max(n.gpus for n in cluster if n.gpu_type == t) for t in totals}
    speed = np.zeros((len(gpus), len(models), len(totals)))
    for (s, count), (m, model), (t, gpu_type) in product(
        enumerate(gpus), enumerate(models), enumerate(totals)
    ):
        if count <= totals[gpu_type]:
            nodes = 1 if count <= largest[gpu_type] else 2
            speed[s, m, t] = tables[model.name].per_gpu(gpu_type, count, nodes)
    return speed


def _candidates(
    gpus: Sequence[int], models: Sequence[ModelProfile], runs: Bools
) -> tuple[Ints, Ints]:
    """Return the models that may be drawn for each size and class, and how many there are."""
    candidates = np.zeros((len(gpus), len(SizeClass), len(models)), dtype=np.int64)
    counts = np.zeros((len(gpus), len(SizeClass)), dtype=np.int64)
    for (s, count), (k, size_class) in product(enumerate(gpus), enumerate(SizeClass)):
        running = np.flatnonzero(runs[s]).tolist()
        if not running:
            raise InputError(
                f"no model ({', '.join(model.name for model in models)}) runs on {count} GPUs of a "
                "type of the cluster"
            )
        of_class = [m for m in running if models[m].size is size_class]
        chosen = of_class or running
        candidates[s, k, : len(chosen)] = chosen
        counts[s, k] = len(chosen)
    return candidates, counts


def _accepted(types: Sequence[str], runs: Bools) -> tuple[frozenset[str] | None, ...]:
    """Return what a job accepts that asks for each of the types; last, for any."""
    usable = frozenset(t for t, fits in zip(types, runs, strict=True) if fits)
    return *(frozenset((t,)) for t in types), None if len(usable) == len(types) else usable
