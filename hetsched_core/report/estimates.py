"""Means over seeds, and how far they can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds with the half width of its confidence interval, in the values' unit.

    The interval is Student's, two-sided, at `CONFIDENCE`; `half_width` is None for a single seed,
    which tells nothing about others.
    """

    mean: float
    half_width: float | None = None

    @property
    def in_doubt(self) -> bool:
        """Whether the interval holds 0, so that not even the sign is certain."""
        return bool(self.half_width) and abs(self.mean) <= (self.half_width or 0.0)


def estimate(values: Sequence[float | None]) -> Estimate | None:
    """Return the mean of a measure over the seeds for which it exists, None if there is none."""
    known = np.array([value for value in values if value is not None], np.float64)
    if known.size == 0:
        return None
    # Seeds that agree must agree exactly, whatever rounding makes of their mean.
    if np.all(known == known[0]):
        return Estimate(float(known[0]), 0.0 if known.size > 1 else None)
    quantile = float(stdtrit(known.size - 1, (1.0 + CONFIDENCE) / 2.0))
    error = float(known.std(ddof=1)) / math.sqrt(known.size)
    return Estimate(float(known.mean()), quantile * error)


def relative_change(old: Sequence[float | None], new: Sequence[float | None]) -> Estimate | None:
    """Return the relative change of a measure, seed by seed; None where nothing can change.

    What a seed does to both alike drops out, so that this is surer than the two means are.
    """
    pairs = zip(old, new, strict=True)
    return estimate([b / a - 1.0 for a, b in pairs if a and b is not None])
