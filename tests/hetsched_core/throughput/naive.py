"""Twins of the estimator's fast loops: slow, short, and obviously right."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad

from hetsched_core.throughput.measured import Axes, SpeedRows
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
    by_type: SpeedRows, by_node: SpeedRows, axes: Axes, drawn: float
) -> tuple[Floats, dict[tuple[int, int], float]]:
    """Mean speed of each cell without its factors, and factors, by solving for all of them at once.

    For each row: speed / mean - 1 = effect - mean effect of the runs of its cell; each entity has
    had `drawn` more runs of effect 0.
    """
    type_cell = axes.cells(by_type, by_type.place)
    node_cell = axes.cells(by_node, axes.type_of_node[by_node.place])
    mean = np.full(int(np.prod(axes.shape)), np.nan)
    for cell in set(type_cell.tolist()):
        rows = type_cell == cell
        mean[cell] = np.average(by_type.per_gpu[rows], weights=by_type.count[rows])
    entities = sorted(set(zip(by_node.profile.tolist(), by_node.place.tolist(), strict=True)))
    share = np.zeros((len(mean), len(entities)))
    weight = np.zeros((len(by_node), len(entities)))
    for row in np.flatnonzero(by_node.nodes == 1):
        entity = entities.index((int(by_node.profile[row]), int(by_node.place[row])))
        count = by_type.count[type_cell == node_cell[row]].sum()
        share[node_cell[row], entity] += by_node.count[row] / count
        weight[row, entity] = by_node.count[row]
    right = weight.T @ (by_node.per_gpu / mean[node_cell] - 1)
    left = np.diag(weight.sum(axis=0) + drawn) - weight.T @ share[node_cell]
    effect = np.linalg.solve(left, right)
    factors = {entity: 1 + effect[at] for at, entity in enumerate(entities)}
    return (mean / (1 + share @ effect)).reshape(axes.shape), factors
