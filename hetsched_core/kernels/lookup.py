"""Looking speeds up: the layers of many (profile, GPU type) pairs.

The naive twin is in `tests/hetsched_core/throughput/naive.py`. Where a table has an axis of two,
its first half is for GPUs on one node, its second for GPUs on several.
"""

from __future__ import annotations

import math

import numpy as np

from hetsched_core.kernels import (
    FloatCube,
    FloatCubeOut,
    Floats,
    IntCubeOut,
    Ints,
    kernel,
    scalar,
)

# `hetsched_core.types.Layer`, whose numbers do not change; -1 where nothing is known.
FIRST_ESTIMATE, THEORY, GPU_TYPE = 0, 1, 2
NOTHING = -1


@scalar
def _between(x: float, left: float, left_y: float, right: float, right_y: float) -> float:
    """Return y at x on the line through two points."""
    return left_y + (right_y - left_y) * (x - left) / (right - left)


@scalar
def _bias(measured: Floats, theory: Floats, log_counts: Floats, k: int) -> float:
    """Return log(measured / theory) at column k from the columns that have both, else NaN."""
    left = right = -1
    for i in range(k, -1, -1):
        if measured[i] > 0.0 and theory[i] > 0.0:
            left = i
            break
    for i in range(k, len(measured)):
        if measured[i] > 0.0 and theory[i] > 0.0:
            right = i
            break
    if left < 0 and right < 0:
        return np.nan
    if left < 0 or left == right:
        return math.log(measured[right] / theory[right])
    if right < 0:
        return math.log(measured[left] / theory[left])
    return _between(
        log_counts[k],
        log_counts[left],
        math.log(measured[left] / theory[left]),
        log_counts[right],
        math.log(measured[right] / theory[right]),
    )


@kernel()
def fill_from_above(
    measured: FloatCube, theory: FloatCube, counts: Ints, speed: FloatCubeOut, layer: IntCubeOut
) -> None:
    """Fill every speed of each pair from the highest layer that knows it.

    Args:
        measured: (Q, 2, K) samples/s per GPU that were measured, NaN where there is none.
        theory: (Q, 2, K) what the formula says, NaN where it cannot say.
        counts: (K,) ascending GPU counts.
        speed: (Q, 2, K) out; NaN all over a pair of which nothing is known.
        layer: (Q, 2, K) out; the layer of each speed, -1 where it is NaN.
    """
    pairs, _, width = measured.shape
    log_counts = np.log2(counts.astype(np.float64))
    near = np.empty((2, width))
    far = np.empty((2, width))
    for q in range(pairs):
        near[:] = measured[q]
        far[:] = theory[q]
        if counts[0] == 1:
            # One GPU is on one node, so what is known of it holds for both halves.
            near[1, 0] = near[0, 0]
            far[1, 0] = far[0, 0]
        known = 0
        for s in range(2):
            for k in range(width):
                speed[q, s, k], layer[q, s, k] = np.nan, NOTHING
                if not np.isnan(near[s, k]):
                    speed[q, s, k], layer[q, s, k] = near[s, k], GPU_TYPE
                elif not np.isnan(far[s, k]):
                    bias = _bias(near[s], far[s], log_counts, k)
                    if np.isnan(bias):
                        bias = _bias(near[1 - s], far[1 - s], log_counts, k)
                    if np.isnan(bias):
                        bias = 0.0
                    speed[q, s, k], layer[q, s, k] = far[s, k] * math.exp(bias), THEORY
                known += layer[q, s, k] != NOTHING
        if known == 0:
            continue
        for s in range(2):
            _fill_gaps(speed[q, s], layer[q, s], counts)
        for s in range(2):
            for k in range(width):
                if layer[q, s, k] == NOTHING:
                    speed[q, s, k], layer[q, s, k] = speed[q, 1 - s, k], FIRST_ESTIMATE


@scalar
def _fill_gaps(speed: Floats, layer: Ints, counts: Ints) -> None:
    """Interpolate between what is known; beyond it take the nearest, as a first estimate."""
    width = len(speed)
    left = -1
    k = 0
    while k < width:
        if layer[k] != NOTHING:
            left = k
            k += 1
            continue
        right = k
        while right < width and layer[right] == NOTHING:
            right += 1
        for i in range(k, right):
            if left >= 0 and right < width:
                speed[i] = _between(
                    counts[i], counts[left], speed[left], counts[right], speed[right]
                )
                layer[i] = min(layer[left], layer[right])
            elif left >= 0:
                speed[i], layer[i] = speed[left], FIRST_ESTIMATE
            elif right < width:
                speed[i], layer[i] = speed[right], FIRST_ESTIMATE
        k = right
