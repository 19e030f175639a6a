"""Runs of a run log as columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def repeated(rows: Floats) -> Floats:
    """A column for each repetition of rows that end in since_s, freed_s, times and every_s."""
    times = rows[:, -2].astype(np.int64)
    nth = np.arange(int(times.sum())) - np.repeat(np.cumsum(times) - times, times)
    each = np.repeat(rows, times, axis=0)
    each[:, -4:-2] += (nth * each[:, -1])[:, None]
    return each.T
