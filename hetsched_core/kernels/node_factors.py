"""Random effects of nodes: the mixed-model equations of many groups, by conjugate gradients.

The naive twin, in `tests/hetsched_core/throughput/naive.py`, solves them all at once.
"""

from __future__ import annotations

import numpy as np

from hetsched_core.kernels import Floats, FloatsOut, Ints, kernel, scalar


@scalar
def _add_shift(
    values: Floats,
    first: int,
    last: int,
    row_from: Ints,
    cell: Ints,
    weight: Floats,
    total: Floats,
    shift: Floats,
) -> None:
    """Add the mean value of the runs of each cell."""
    for e in range(first, last):
        for r in range(row_from[e], row_from[e + 1]):
            shift[cell[r]] += weight[r] / total[cell[r]] * values[e]


@kernel()
def solve_random_effects(
    row_from: Ints,
    cell: Ints,
    weight: Floats,
    deviation: Floats,
    total: Floats,
    drawn: Floats,
    entity_from: Ints,
    most_steps: int,
    tolerance: float,
    effect: FloatsOut,
    shift: FloatsOut,
) -> None:
    """Solve deviation = effect - shift, where shift is the mean effect of the runs of a cell.

    Each group takes as many steps as it has entities, and fewer when it is well connected.

    Args:
        row_from: (E+1,) where the rows of each entity begin.
        cell: (R,) cell of each row.
        weight: (R,) its number of measurements.
        deviation: (R,) of its mean from the cell's, relative.
        total: (C,) measurements of each cell, those of no known entity included.
        drawn: (E,) how many measurements of 0 each entity is thought to have had.
        entity_from: (G+1,) where the entities of each group begin; groups share no cell.
        most_steps: that a group may take.
        tolerance: by which the residual must have shrunk.
        effect: (E,) zero, and the solution afterwards.
        shift: (C,) zero, and the mean effect of each cell's runs afterwards.
    """
    entities = len(effect)
    diagonal = np.ones(entities)
    residual = np.zeros(entities)
    direction = np.zeros(entities)
    image = np.zeros(entities)
    for group in range(len(entity_from) - 1):
        first, last = entity_from[group], entity_from[group + 1]
        left = 0.0
        for e in range(first, last):
            own = drawn[e]
            for r in range(row_from[e], row_from[e + 1]):
                own += weight[r] * (1.0 - weight[r] / total[cell[r]])
                residual[e] += weight[r] * deviation[r]
            if own > 0.0:
                diagonal[e] = own
            direction[e] = residual[e] / diagonal[e]
            left += residual[e] * direction[e]
        enough = left * tolerance * tolerance
        for _ in range(most_steps):
            if not left > enough:
                break
            _add_shift(direction, first, last, row_from, cell, weight, total, shift)
            along = 0.0
            for e in range(first, last):
                image[e] = drawn[e] * direction[e]
                for r in range(row_from[e], row_from[e + 1]):
                    image[e] += weight[r] * (direction[e] - shift[cell[r]])
                along += direction[e] * image[e]
            for r in range(row_from[first], row_from[last]):
                shift[cell[r]] = 0.0
            if not along > 0.0:
                break
            step = left / along
            now = 0.0
            for e in range(first, last):
                effect[e] += step * direction[e]
                residual[e] -= step * image[e]
                now += residual[e] * residual[e] / diagonal[e]
            for e in range(first, last):
                direction[e] = residual[e] / diagonal[e] + now / left * direction[e]
            left = now
        _add_shift(effect, first, last, row_from, cell, weight, total, shift)
