"""Expected samples/s of many (model, configuration) pairs: formulas (1) to (5) of Hops, compiled.

The naive twin, and the text to read, is `TrainingModel.per_gpu` of
`hetsched_core.throughput.theory`.
"""

from __future__ import annotations

import math

import numpy as np

from hetsched_core.kernels import FloatsOut, FloatTable, Ints, kernel, scalar

# The columns of a row that stands for one model on one GPU type.
OVERLAPPED, BATCH, FORWARD, BACKWARD, UPDATE, LINK, NETWORK, NETWORK_RING = range(8)
FIRST_MODE = 8
"""Two modes follow, each of four columns: share, mean and deviation of T_d, mean of T_w."""
COLUMNS = 16


@scalar
def expected_max(mean: float, deviation: float, constant: float) -> float:
    """Return E[max(X, c)] of a normal X."""
    if deviation <= 0.0:
        return max(mean, constant)
    z = (mean - constant) / deviation
    # Beyond nine deviations what is left out is below 1e-19 deviations.
    if z > 9.0:
        return mean
    if z < -9.0:
        return constant
    cumulative = 0.5 * math.erfc(-z * 0.7071067811865476)
    density = 0.3989422804014327 * math.exp(-0.5 * z * z)
    return constant + deviation * (z * cumulative + density)


@kernel()
def samples_per_s_per_gpu(
    models: FloatTable, model: Ints, gpus: Ints, nodes: Ints, tail: float, out: FloatsOut
) -> None:
    """Fill `out` with samples/s per GPU; NaN where the bandwidth that matters is not known.

    Args:
        models: (M, COLUMNS) the models; LINK and NETWORK are params / bandwidth in seconds.
        model: (C,) row of each configuration's model.
        gpus: (C,) number of GPUs.
        nodes: (C,) number of nodes.
        tail: share of the communication that the backward pass cannot hide.
        out: (C,).
    """
    for i in range(len(out)):
        row = models[model[i]]
        n = float(gpus[i])
        if n == 1.0:
            communication = 0.0
        elif nodes[i] > 1:
            communication = row[NETWORK] * (1.0 + row[NETWORK_RING] * (n - 2.0) / n)
        else:
            communication = row[LINK] * (n - 1.0) / n
        if not communication >= 0.0:
            out[i] = np.nan
            continue
        step = max(row[BACKWARD] + tail * communication, communication) + row[UPDATE]
        expected = row[FORWARD]
        for m in (FIRST_MODE, FIRST_MODE + 4):
            share = row[m]
            if share > 0.0:
                if row[OVERLAPPED] > 0.0:
                    hidden = expected_max(row[m + 1], row[m + 2], step)
                else:
                    hidden = row[m + 1] + step
                expected += share * (hidden + row[m + 3])
        out[i] = row[BATCH] / expected
