"""From possible starts to a range that holds as often as it says: conformal calibration.

Source: conformalised quantile regression (Romano, Patterson, Candès, NeurIPS 2019), each end of the
range for itself, over the latest ranges whose true starts are known. Distances are in units of the
range's own width: waits span seconds to days, and what was wide to begin with errs by more.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

LOW, HIGH = 0.1, 0.9
"""The quantiles that a range goes from and to."""

MISS = 0.08
"""How often the true start may lie beyond either end: both together leave 84 % inside."""

REMEMBERED = 300
"""How many past ranges count."""

LEAST = 20
"""With fewer, a range is as drawn."""

_GRAIN_S = 30.0
"""Widths below this do not count."""

_LEAST_WIDTH = 0.15
"""A range counts as no narrower than this part of the wait to its end."""

_MOST = 5.0
"""No end is moved by more than so many widths."""


@dataclass(frozen=True, slots=True)
class StartRange:
    """A range for the start of a job.

    Attributes:
        at_s: when it was given, seconds UTC.
        drawn_low_s, drawn_high_s: quantiles of the possible starts.
        low_s, high_s: the same, calibrated; what was told.
        starts: how many futures were drawn.
    """

    at_s: float
    drawn_low_s: float
    drawn_high_s: float
    low_s: float
    high_s: float
    starts: int = 0

    def holds(self, start_s: float) -> bool:
        """Whether a start lies in the range."""
        return self.low_s <= start_s <= self.high_s


class Calibration:
    """How far the ends of ranges were off, for those that come."""

    def __init__(self, past: Iterable[tuple[StartRange, float]] = ()) -> None:
        """Begin with past ranges and the true starts, in the order of the starts."""
        self._low: deque[float] = deque(maxlen=REMEMBERED)
        self._high: deque[float] = deque(maxlen=REMEMBERED)
        for given, start_s in past:
            self.learn(given, start_s)

    def learn(self, given: StartRange, start_s: float) -> None:
        """Take note of a true start, seconds UTC."""
        unit_s = _unit_s(given.at_s, given.drawn_low_s, given.drawn_high_s)
        self._low.append((given.drawn_low_s - start_s) / unit_s)
        self._high.append((start_s - given.drawn_high_s) / unit_s)

    def range_of(self, at_s: float, starts: Sequence[float]) -> StartRange:
        """Return the range for a job with these possible starts (at least one)."""
        drawn_low_s, drawn_high_s = (float(q) for q in np.quantile(starts, (LOW, HIGH)))
        unit_s = _unit_s(at_s, drawn_low_s, drawn_high_s)
        middle_s = (drawn_low_s + drawn_high_s) / 2
        low_s = min(drawn_low_s - _corrected(self._low) * unit_s, middle_s)
        high_s = max(drawn_high_s + _corrected(self._high) * unit_s, middle_s)
        return StartRange(
            at_s, drawn_low_s, drawn_high_s, max(at_s, low_s), max(at_s, high_s), len(starts)
        )


def _unit_s(at_s: float, low_s: float, high_s: float) -> float:
    """Return the width by which the errors of a range are measured."""
    return max(high_s - low_s, _LEAST_WIDTH * (high_s - at_s), _GRAIN_S)


def _corrected(scores: Iterable[float]) -> float:
    """Return by how many widths an end is to be moved outward."""
    known = sorted(scores)
    if len(known) < LEAST:
        return 0.0
    rank = min(len(known) - 1, math.ceil((1 - MISS) * (len(known) + 1)) - 1)
    return min(known[rank], _MOST)
