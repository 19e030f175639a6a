"""From possible starts to a range that holds as often as it says: conformal calibration.

Source: conformalised quantile regression (Romano, Patterson, Candès, NeurIPS 2019), each end of the
range for itself, over the latest ranges whose true starts are known. Distances are of logarithms,
in units of the range's own width: waits span seconds to days, and a range that was wide to begin
with errs by more.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

LOW, HIGH = 0.1, 0.9
"""The quantiles that a range goes from and to."""

MISS = 0.06
"""How often the true start may lie beyond either end: both together leave 88 % inside."""

REMEMBERED = 300
"""How many past ranges count."""

LEAST = 20
"""With fewer, a range is as drawn."""

_GRAIN_S = 30.0
"""Differences of waits below this do not count."""

_LEAST_SPREAD = 0.15
"""A range of all equal futures has this spread, of logarithms."""

_MOST = 1.5
"""No end is moved by more than this, of logarithms: a factor of 4.5."""


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
        true = _log(start_s - given.at_s)
        low, high = _log(given.drawn_low_s - given.at_s), _log(given.drawn_high_s - given.at_s)
        spread = max(high - low, _LEAST_SPREAD)
        self._low.append((low - true) / spread)
        self._high.append((true - high) / spread)

    def range_of(self, at_s: float, starts: Sequence[float]) -> StartRange:
        """Return the range for a job with these possible starts (at least one)."""
        drawn_low_s, drawn_high_s = (float(q) for q in np.quantile(starts, (LOW, HIGH)))
        low, high = _log(drawn_low_s - at_s), _log(drawn_high_s - at_s)
        spread = max(high - low, _LEAST_SPREAD)
        middle = (low + high) / 2
        low = min(low - _corrected(self._low, spread), middle)
        high = max(high + _corrected(self._high, spread), middle)
        return StartRange(
            at_s,
            drawn_low_s,
            drawn_high_s,
            at_s + _exp(low),
            at_s + max(_exp(high), _GRAIN_S),
            len(starts),
        )


def _corrected(scores: Iterable[float], spread: float) -> float:
    """Return by how much an end is to be moved outward, of logarithms, in a range so wide."""
    known = sorted(scores)
    if len(known) < LEAST:
        return 0.0
    rank = min(len(known) - 1, math.ceil((1 - MISS) * (len(known) + 1)) - 1)
    return min(known[rank] * spread, _MOST)


def _log(wait_s: float) -> float:
    return math.log(max(wait_s, 0.0) + _GRAIN_S)


def _exp(value: float) -> float:
    return max(0.0, math.exp(min(value, 30.0)) - _GRAIN_S)
