"""The two measured layers: mean speeds by GPU type, and how far single nodes are from them.

Source: Hops (SoCC '24), section 3.3. Hops answers from a node's own records alone; here they give
one factor for each (profile, node), which also holds at GPU counts that were never run on it, and
which is drawn towards 1 as far as chance alone could explain it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hetsched_core.kernels.node_factors import solve_random_effects

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

USUAL_NOISE = 0.02
"""Relative deviation of one measurement, before there are enough to know it."""

USUAL_SPREAD = 0.02
"""Relative deviation between the nodes of a type, before there are enough to know it."""

BELIEF = 4.0
"""How many measurements, or nodes, the two usual values count for."""

LEAST_FACTOR = 1e-3
"""No node is slower than its type by more than this."""

_MOST_STEPS = 200
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class SpeedRows:
    """Measured speeds of one layer: each row the mean over `count` measurements.

    Attributes:
        profile: (R,) index of the profile.
        place: (R,) index of the GPU type, or of the node in the entity layer.
        gpus: (R,) GPUs of the job, over all its nodes.
        nodes: (R,) number of its nodes.
        per_gpu: (R,) mean samples/s per GPU.
        count: (R,) number of measurements.
        sd: (R,) their standard deviation, samples/s per GPU; 0 where there is one.
    """

    profile: Ints
    place: Ints
    gpus: Ints
    nodes: Ints
    per_gpu: Floats
    count: Ints
    sd: Floats

    @classmethod
    def none(cls) -> SpeedRows:
        """Return a layer without a measurement."""
        whole, real = np.empty(0, dtype=np.int64), np.empty(0)
        return cls(whole, whole, whole, whole, real, whole, real)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.profile)


@dataclass(frozen=True, slots=True, eq=False)
class NodeFactors:
    """Speeds of single nodes relative to their type, by profile.

    Attributes:
        start: (P+1,) where the entries of each profile begin.
        node: (E,) index of the node, ascending within a profile.
        factor: (E,) speed relative to the type's.
        count: (E,) number of measurements behind it.
    """

    start: Ints
    node: Ints
    factor: Floats
    count: Floats = field(repr=False)

    def of(self, profile: int) -> dict[int, float]:
        """Return node index -> factor of one profile."""
        entries = slice(int(self.start[profile]), int(self.start[profile + 1]))
        return dict(zip(self.node[entries].tolist(), self.factor[entries].tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Axes:
    """Sizes of the table that measured speeds are put into, and where each of them goes."""

    profiles: int
    gpu_types: int
    counts: Ints
    type_of_node: Ints

    def cells(self, rows: SpeedRows, gpu_type: Ints) -> Ints:
        """Return the position of each row in a flat (P, T, 2, K) table."""
        pair = rows.profile * self.gpu_types + gpu_type
        column = np.searchsorted(self.counts, rows.gpus)
        return (2 * pair + (rows.nodes > 1)) * len(self.counts) + column

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Return (P, T, 2, K)."""
        return self.profiles, self.gpu_types, 2, len(self.counts)


def combine(by_type: SpeedRows, by_node: SpeedRows, axes: Axes) -> tuple[Floats, NodeFactors]:
    """Return the speed of an ordinary node of each type, and how far the others are from it.

    A speed is a[cell] x f[profile, node]. Where few nodes make up a cell, a is what remains when
    their factors are taken out, so that a type that was only measured on its slow node is not
    thought slow. f - 1 is the best linear unbiased prediction of a random effect (Robinson 1991):
    with n measurements the mean relative deviation is multiplied by n / (n + noise^2 / spread^2),
    both estimated for each (profile, type). Runs on several nodes count for the type alone: each of
    their nodes was as slow as the slowest.

    Args:
        by_type: the type layer; every entity record is also in it.
        by_node: the entity layer.
        axes: the counts of both are among its counts, the indices within its sizes.

    Returns:
        (P, T, 2, K) samples/s per GPU, NaN where nothing was measured; the factors.
    """
    cells = int(np.prod(axes.shape))
    nodes = len(axes.type_of_node)
    cell_of_row = axes.cells(by_node, axes.type_of_node[by_node.place])
    mean, total = _pooled(by_type, axes.cells(by_type, by_type.place), cells)
    from_nodes, node_total = _pooled(by_node, cell_of_row, cells)
    # Nothing is lost where somebody kept the entity layer alone.
    mean = np.where(total > 0, mean, from_nodes)
    total = np.maximum(total, node_total)

    own = np.flatnonzero(by_node.nodes == 1)
    key = by_node.profile[own] * nodes + by_node.place[own]
    own = own[np.argsort(key, kind="stable")]
    entity, row_from, at = np.unique(np.sort(key), return_index=True, return_inverse=True)
    profile, node = np.divmod(entity, nodes)
    pair = profile * axes.gpu_types + axes.type_of_node[node]
    cell, weight = cell_of_row[own], by_node.count[own].astype(np.float64)
    runs = _sums(at, weight, len(entity))
    deviation = by_node.per_gpu[own] / mean[cell] - 1
    apart = _sums(at, weight * deviation, len(entity)) / runs
    start = np.searchsorted(profile, np.arange(axes.profiles + 1))
    effect, shift = np.zeros(len(entity)), np.zeros(cells)
    solve_random_effects(
        np.append(row_from, len(own)),
        cell,
        weight,
        deviation,
        total,
        _noise_to_spread(by_node, own, pair[at], apart, runs, pair, axes),
        start,
        _MOST_STEPS,
        _TOLERANCE,
        effect,
        shift,
    )
    factors = NodeFactors(start, node, np.maximum(1 + effect, LEAST_FACTOR), runs)
    return (mean / np.maximum(1 + shift, LEAST_FACTOR)).reshape(axes.shape), factors


def _pooled(rows: SpeedRows, cell: Ints, cells: int) -> tuple[Floats, Floats]:
    """Return the mean speed of each cell, NaN where there is none, and its count."""
    count = rows.count.astype(np.float64)
    total = _sums(cell, count, cells)
    summed = _sums(cell, count * rows.per_gpu, cells)
    with np.errstate(invalid="ignore"):
        return summed / total, total


def _noise_to_spread(
    by_node: SpeedRows,
    own: Ints,
    pair_of_row: Ints,
    apart: Floats,
    runs: Floats,
    pair: Ints,
    axes: Axes,
) -> Floats:
    """Return noise^2 / spread^2 for each (profile, node), by the method of moments."""
    pairs = axes.profiles * axes.gpu_types
    freedom = (by_node.count[own] - 1).astype(np.float64)
    squares = freedom * (by_node.sd[own] / by_node.per_gpu[own]) ** 2
    noise = (BELIEF * USUAL_NOISE**2 + _sums(pair_of_row, squares, pairs)) / (
        BELIEF + _sums(pair_of_row, freedom, pairs)
    )
    between = _sums(pair, apart**2 - noise[pair] / runs, pairs)
    spread = (BELIEF * USUAL_SPREAD**2 + between) / (BELIEF + np.bincount(pair, minlength=pairs))
    drawn: Floats = (noise / np.maximum(spread, 1e-3 * USUAL_SPREAD**2))[pair]
    return drawn


def _sums(at: Ints, values: Floats, size: int) -> Floats:
    """Return the sum of the values that go to each of `size` places."""
    return np.bincount(at, values, size).astype(np.float64, copy=False)
