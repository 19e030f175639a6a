"""How many rounds a job still runs, from the losses that it has reported (Hare, TCC section V)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LEAST_POINTS = 4
"""Losses without which a curve is a guess."""

_FLOORS = np.linspace(0.0, 0.99, 34)


def rounds_to_converge(loss: Sequence[float], convergence: float) -> float | None:
    """Return after how many rounds the loss has lost all but `convergence` of what it can lose.

    The curve is l(r) = c + 1 / (a r + b), as SGD converges: linear in r once the floor c is taken
    off. The floor is the one of a few between 0 and the last loss that fits best.

    Args:
        loss: the loss after each round, oldest first.
        convergence: the part of the way from the first loss to the floor that is left in the end.

    Returns:
        None where there are too few points, or the loss does not fall.
    """
    points = np.asarray(loss, np.float64)
    if len(points) < LEAST_POINTS or not np.isfinite(points).all() or points[-1] >= points[0]:
        return None
    rounds = np.arange(1, len(points) + 1, dtype=np.float64)
    best_error, best = np.inf, None
    for floor in _FLOORS * max(0.0, float(points.min())):
        inverse = 1.0 / np.maximum(points - floor, 1e-12)
        slope, start = np.polyfit(rounds, inverse, 1)
        if slope <= 0 or start <= 0:
            continue
        error = float(np.sum((floor + 1.0 / (slope * rounds + start) - points) ** 2))
        if error < best_error:
            # l(r) - c is the part `convergence` of l(0) - c where a r + b = b / convergence.
            best_error, best = error, start * (1.0 / convergence - 1.0) / slope
    return best
