"""Twins of the estimator's fast loops: slow, short, and obviously right."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad

from hetsched_core.throughput.measured import (
    BELIEF,
    LEAST_FACTOR,
    USUAL_NOISE,
    USUAL_SPREAD,
    Axes,
    SpeedRows,
)
from hetsched_core.types import Layer

Floats = NDArray[np.float64]


def expected_max(mean: float, sd: float, constant: float) -> float:
    """E[max(X, c)] of a normal X by numerical integration."""
    if sd == 0:
        return max(mean, constant)

    def weighted(z: float) -> float:
        return max(mean + sd * z, constant) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

    bend = (constant - mean) / sd
    points = [bend] if -12 < bend < 12 else None
    return float(quad(weighted, -12, 12, points=points, epsabs=1e-14, epsrel=1e-13, limit=200)[0])


def fill_from_above(
    measured: Floats, theory: Floats, counts: list[int]
) -> tuple[list[list[float]], list[list[int]]]:
    """Fill the (2, K) speeds of one pair and name their layers; -1 and NaN if nothing is known."""
    measured, theory = measured.copy(), theory.copy()
    if counts[0] == 1:
        measured[1, 0], theory[1, 0] = measured[0, 0], theory[0, 0]
    log_counts = np.log2(counts)

    def bias(half: int, k: int) -> float:
        for table in (half, 1 - half):
            both = [i for i in range(len(counts)) if measured[table, i] > 0 < theory[table, i]]
            if both:
                ratios = [math.log(measured[table, i] / theory[table, i]) for i in both]
                return float(np.interp(log_counts[k], log_counts[both], ratios))
        return 0.0

    speeds = [[math.nan] * len(counts) for _ in range(2)]
    layers = [[-1] * len(counts) for _ in range(2)]
    for half in range(2):
        for k in range(len(counts)):
            if not math.isnan(measured[half, k]):
                speeds[half][k], layers[half][k] = measured[half, k], Layer.GPU_TYPE
            elif not math.isnan(theory[half, k]):
                speeds[half][k] = theory[half, k] * math.exp(bias(half, k))
                layers[half][k] = Layer.THEORY
    for half in range(2):
        known = [k for k in range(len(counts)) if layers[half][k] >= 0]
        for k in range(len(counts)):
            if known and k not in known:
                at = [counts[i] for i in known]
                speeds[half][k] = float(np.interp(counts[k], at, [speeds[half][i] for i in known]))
                inside = known[0] < k < known[-1]
                near = (
                    (max(i for i in known if i < k), min(i for i in known if i > k))
                    if inside
                    else ()
                )
                layers[half][k] = min((layers[half][i] for i in near), default=Layer.FIRST_ESTIMATE)
    for half in range(2):
        for k in range(len(counts)):
            if layers[half][k] < 0 <= layers[1 - half][k]:
                speeds[half][k], layers[half][k] = speeds[1 - half][k], Layer.FIRST_ESTIMATE
    return speeds, layers


def node_factors(
    by_type: SpeedRows, by_node: SpeedRows, axes: Axes, profile: int, gpu_type: int
) -> tuple[Floats, dict[int, float]]:
    """Speeds of a profile on an ordinary node of a type, and its nodes' factors, solved at once.

    For each row: speed / mean - 1 = effect - mean effect of the runs of its cell; each node has had
    as many more runs of effect 0 as noise and spread say. No factor is less than `LEAST_FACTOR`.
    """
    type_cell = axes.cells(by_type, by_type.place)
    type_of_row = axes.type_of_node[by_node.place]
    mine = (by_node.profile == profile) & (type_of_row == gpu_type) & (by_node.nodes == 1)
    own = np.flatnonzero(mine)
    cell = axes.cells(by_node, type_of_row)[own]
    mean, total = np.full(int(np.prod(axes.shape)), np.nan), np.zeros(int(np.prod(axes.shape)))
    for at in set(type_cell.tolist()):
        rows = type_cell == at
        mean[at] = np.average(by_type.per_gpu[rows], weights=by_type.count[rows])
        total[at] = by_type.count[rows].sum()
    nodes = sorted(set(by_node.place[own].tolist()))
    weight, share = np.zeros((len(own), len(nodes))), np.zeros((len(mean), len(nodes)))
    for at, row in enumerate(own):
        node = nodes.index(int(by_node.place[row]))
        weight[at, node] = by_node.count[row]
        share[cell[at], node] += by_node.count[row] / total[cell[at]]
    apart, runs = by_node.per_gpu[own] / mean[cell] - 1, weight.sum(axis=0)
    freedom = by_node.count[own] - 1
    squares = freedom * (by_node.sd[own] / by_node.per_gpu[own]) ** 2
    noise = (BELIEF * USUAL_NOISE**2 + squares.sum()) / (BELIEF + freedom.sum())
    between = ((weight.T @ apart / runs) ** 2 - noise / runs).sum()
    spread = (BELIEF * USUAL_SPREAD**2 + between) / (BELIEF + len(nodes))
    drawn = noise / max(spread, 1e-3 * USUAL_SPREAD**2)
    left = np.diag(runs + drawn) - weight.T @ share[cell]
    effect = np.linalg.solve(left, weight.T @ apart)
    speeds = (mean / np.maximum(1 + share @ effect, LEAST_FACTOR)).reshape(axes.shape)
    factors = np.maximum(1 + effect, LEAST_FACTOR).tolist()
    return speeds[profile, gpu_type], dict(zip(nodes, factors, strict=True))
