"""Estimates that are learned in a replay: the layers of Hops, filled by what has run so far.

Source: Hops (SoCC '24), sections 3.2, 3.3 and 3.5. Nothing is known of a profile at first but its
batch size and on which GPU types it fits; a profiling run gives the formula, every other run a
measurement of its GPU type and, on one node, of that node. Speeds are looked up by the estimator
that the live scheduler has; the layers are kept in memory, in the place of the database.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hetsched_core.errors import InputError
from hetsched_core.simulate.settings import MEASUREMENT_NOISE, RunMeasurement
from hetsched_core.throughput.estimate import Layers, estimate
from hetsched_core.throughput.first_estimate import ProfileFacts
from hetsched_core.throughput.fit import Prior, Rate, Variant, fit_training
from hetsched_core.throughput.measured import SpeedRows
from hetsched_core.throughput.moments import Moments
from hetsched_core.throughput.theory import IterationTheory, TrainingModel
from hetsched_core.types import Cluster, Configuration, Purpose, Speeds, SpeedTable

Floats = NDArray[np.float64]

Key = TypeVar("Key")

Place = tuple[int, int, int]
"""Index of a node or GPU type, GPUs, nodes."""

FORMULA_2 = Prior(network_ring=0.0)
"""Gradients between nodes take the time of formula (2), as in the built-in speeds: no ring."""

LEAST_ITERATIONS = 10
"""A run of fewer iterations is not measured (Hops profiles 10 to 50, section 3.2)."""


@dataclass(slots=True)
class _Known:
    """What was measured of one profile: samples/s per GPU, and formulas by GPU type.

    `by_node` has (node, GPUs) of runs on one node, `by_type` (GPU type, GPUs, nodes) of all runs.
    """

    by_node: dict[tuple[str, int], Moments] = field(default_factory=dict)
    by_type: dict[tuple[str, int, int], Moments] = field(default_factory=dict)
    theories: dict[str, TrainingModel] = field(default_factory=dict)


class LearnedSpeeds:
    """`Estimates` that know only what was measured of runs that have ended.

    The true speeds serve as the nature that is measured; what a policy is shown never has more of
    them than that, and where a job cannot run at all, which its user is taken to know. Times of
    tasks (Hare) are given, not learned.
    """

    def __init__(
        self,
        cluster: Cluster,
        truth: Speeds,
        *,
        seed: int = 0,
        noise: float = MEASUREMENT_NOISE,
        prior: Prior = FORMULA_2,
    ) -> None:
        """Know nothing yet.

        Args:
            cluster: the nodes.
            truth: the speeds that jobs really run at.
            seed: of the noise.
            noise: relative deviation of each measurement.
            prior: what a profiling run believes beforehand.
        """
        if not 0 <= noise < 1:
            raise InputError(f"a measurement noise of {noise}; expected 0 up to 1")
        self._cluster, self._truth = cluster, truth
        self._noise, self._prior = noise, prior
        self._random = np.random.default_rng(seed)
        self._known = {profile: _Known() for profile in truth.profiles}
        self._stale: set[str] = set()
        self._speeds = Speeds(cluster, {p: self._table(p) for p in truth.profiles})

    def speeds(self, now: float) -> Speeds:
        """Return the estimates; `now` is the time of the last run that was observed, or later."""
        del now
        if self._stale:
            tables = {profile: self._table(profile) for profile in sorted(self._stale)}
            self._speeds = self._speeds.revised(tables)
            self._stale.clear()
        return self._speeds

    def observe(self, measured: RunMeasurement) -> None:
        """Measure a run that has just ended, if it was long enough and on one type of GPU."""
        profile, configuration = measured.job.profile, measured.configuration
        gpus, nodes = configuration.gpus, len(configuration)
        batch = self._truth.table(profile).batch_size * gpus
        types = {self._cluster[node].gpu_type for node, _ in configuration}
        if measured.samples < LEAST_ITERATIONS * batch * (1 - 1e-9) or len(types) > 1:
            return
        (gpu_type,) = types
        known = self._known[profile]
        noise = math.exp(self._noise * self._random.standard_normal())
        per_gpu = measured.samples / measured.seconds / gpus * noise
        if measured.purpose is Purpose.PROFILE:
            known.theories[gpu_type] = self._profile(profile, gpu_type, configuration, per_gpu)
        else:
            _add(known.by_type, (gpu_type, gpus, nodes), per_gpu)
            if configuration.aggregated:
                _add(known.by_node, (configuration.pieces[0][0], gpus), per_gpu)
        self._stale.add(profile)

    def _profile(
        self, profile: str, gpu_type: str, configuration: Configuration, per_gpu: float
    ) -> TrainingModel:
        """Return what the profiler of a run finds: the formula behind the speeds at 1 and 2 GPUs.

        How long gradients take follows from their size and the type's bandwidths, so that the
        second GPU need not be tried; all of it is off by as much as the measured speed.
        """
        speed = self._truth.per_gpu
        gpus, nodes = configuration.gpus, len(configuration)
        off = per_gpu / speed(profile, gpu_type, gpus, nodes)
        rates = [(n, m, off * speed(profile, gpu_type, n, m)) for n, m in ((1, 1), (2, 1), (2, 2))]
        variant = Variant(
            self._truth.table(profile).batch_size, tuple(Rate(*r) for r in rates if r[2] > 0)
        )
        return fit_training([variant], prior=self._prior)[0]

    def _table(self, profile: str) -> SpeedTable:
        """Look one profile up through the layers."""
        known, truth = self._known[profile], self._truth.table(profile)
        types = {name: at for at, name in enumerate(self._cluster.gpu_types)}
        by_node = {(self._cluster.index(n), g, 1): m for (n, g), m in known.by_node.items()}
        by_type = {(types[t], g, n): m for (t, g, n), m in known.by_type.items()}
        models = IterationTheory.of((0, types[t], m) for t, m in sorted(known.theories.items()))
        layers = Layers(
            profiles=(profile,),
            gpu_types=tuple(types),
            by_node=_rows(by_node),
            by_type=_rows(by_type),
            theories=(models,),
            profile_facts=(ProfileFacts(batch_size=truth.batch_size),),
        )
        counts = truth.counts[truth.counts <= self._cluster.gpus]
        found = estimate(self._cluster, layers, counts).table(profile)
        return replace(
            found,
            one_node=np.where(_runs(truth, found, truth.one_node), found.one_node, 0.0),
            several_nodes=np.where(
                _runs(truth, found, truth.several_nodes), found.several_nodes, 0.0
            ),
            tasks=truth.tasks,
            batch_size=truth.batch_size,
        )


def _add(seen: dict[Key, Moments], key: Key, per_gpu: float) -> None:
    new = Moments(1, per_gpu)
    before = seen.get(key)
    seen[key] = new if before is None else before.merged(new)


def _rows(seen: Mapping[Place, Moments]) -> SpeedRows:
    places = np.array(list(seen), dtype=np.int64).reshape(-1, 3)
    moments = list(seen.values())
    return SpeedRows(
        np.zeros(len(places), dtype=np.int64),
        places[:, 0],
        places[:, 1],
        places[:, 2],
        np.array([m.mean for m in moments]),
        np.array([m.count for m in moments], dtype=np.int64),
        np.array([m.sd for m in moments]),
    )


def _runs(truth: SpeedTable, found: SpeedTable, speeds: Floats) -> NDArray[np.bool_]:
    """(T, K) whether the job can run there, for the types and counts of an estimate."""
    nothing = np.zeros(len(truth.counts))
    rows = [
        speeds[truth.gpu_types.index(t)] if t in truth.gpu_types else nothing
        for t in found.gpu_types
    ]
    return np.array([np.interp(found.counts, truth.counts, row) > 0 for row in rows])
