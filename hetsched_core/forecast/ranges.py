"""From possible starts to a range that holds as often as it says: conformal calibration, online.

Of n futures as likely as the true one, the k-th in order lies above it with a chance of k / (n+1):
so the ends of a range are quantiles at such ranks (Weibull's). What the futures do not know of is
learned from past ranges, each end for itself, by quantile tracking (Angelopoulos, Candès,
Tibshirani, Conformal PID Control, NeurIPS 2023, section 2.2): a start beyond an end moves that end
outward for those that come, one within it a little inward, the first ones by more (Angelopoulos,
Barber, Bates, Online conformal prediction with decaying step sizes, ICML 2024). In the long run
starts lie beyond it as often as they may, whatever happens and however alike the errors of
neighbours in a queue are, as long as no end has to be moved further than it may; and there is
nothing to be fitted. Distances are in units of the range's own width: waits span seconds to days,
and what was wide to begin with errs by more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

LOW, HIGH = 0.1, 0.9
"""The quantiles that a range goes from and to."""

MISS = 0.08
"""How often the true start may lie beyond either end: both together leave 84 % inside."""

_STEP = 0.05
"""How far one start moves an end, in widths: a miss by nearly as much, a hit by `MISS` of it."""

_FIRST_STEP = 0.3
"""The same of the first start; after n of them so much by the root of n + 1, `_STEP` at least."""

_BEGIN = 0.1
"""How far the ends lie outward before the first start, in widths."""

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
    """How far the ends of ranges are to be moved outward, for those that come."""

    def __init__(self, past: Iterable[tuple[StartRange, float]] = ()) -> None:
        """Begin with past ranges and the true starts, in the order of the starts."""
        self._low = self._high = _BEGIN
        self._seen = 0
        for given, start_s in past:
            self.learn(given, start_s)

    def learn(self, given: StartRange, start_s: float) -> None:
        """Take note of a true start, seconds UTC."""
        step = max(_STEP, _FIRST_STEP / math.sqrt(1 + self._seen))
        self._seen += 1
        self._low = _moved(self._low, start_s < given.low_s, step)
        self._high = _moved(self._high, start_s > given.high_s, step)

    def range_of(self, at_s: float, starts: Sequence[float]) -> StartRange:
        """Return the range for a job with these possible starts (at least one)."""
        ends = np.quantile(starts, (LOW, HIGH), method="weibull")
        drawn_low_s, drawn_high_s = (float(end) for end in ends)
        unit_s = _unit_s(at_s, drawn_low_s, drawn_high_s)
        middle_s = (drawn_low_s + drawn_high_s) / 2
        low_s = min(drawn_low_s - self._low * unit_s, middle_s)
        high_s = max(drawn_high_s + self._high * unit_s, middle_s)
        return StartRange(
            at_s, drawn_low_s, drawn_high_s, max(at_s, low_s), max(at_s, high_s), len(starts)
        )


def _moved(widths: float, missed: bool, step: float) -> float:
    """Return by how many widths an end is moved once it is known whether a start lay beyond it."""
    return min(max(widths + step * (missed - MISS), -_MOST), _MOST)


def _unit_s(at_s: float, low_s: float, high_s: float) -> float:
    """Return the width by which the errors of a range are measured."""
    return max(high_s - low_s, _LEAST_WIDTH * (high_s - at_s), _GRAIN_S)


# How good they were -------------------------------------------------------------------------------

LEAST_PAST = 10
"""So many waits must have been seen for a constant range."""


@dataclass(frozen=True, slots=True)
class RangeAccuracy:
    """How good ranges were. Times are seconds; None where there is nothing to compare with.

    Attributes:
        ranges: how many.
        inside: share of true starts inside.
        median_width_s: median width.
        median_wait_s: median of the true waits from the question on.
        score_s: mean interval score (Gneiting and Raftery, JASA 2007) at 80 %: width, and ten times
            the distance of a start outside.
        constant_score_s: the same of the constant range, p10 to p90 of the waits that had ended
            before the question.
    """

    ranges: int
    inside: float
    median_width_s: float
    median_wait_s: float
    score_s: float | None
    constant_score_s: float | None


def interval_score(low_s: float, high_s: float, true_s: float) -> float:
    """Return the interval score of one range: less is better."""
    alpha = 1.0 - (HIGH - LOW)
    outside = max(low_s - true_s, 0.0) + max(true_s - high_s, 0.0)
    return (high_s - low_s) + 2.0 / alpha * outside


def range_accuracy(
    given: Sequence[tuple[StartRange, float]], first: int = 0
) -> RangeAccuracy | None:
    """Judge ranges by the true starts, seconds UTC; None without any.

    Scores are over the same questions for both: those before which enough waits had ended.

    Args:
        given: ranges and true starts, in the order in which the ranges were given.
        first: how many of them are not judged; the constant range is made from their waits, too.
    """
    counted = given[first:]
    if not counted:
        return None
    widths = [each.high_s - each.low_s for each, _ in counted]
    waits = [start_s - each.at_s for each, start_s in counted]
    scores, constants = [], []
    for each, start_s in counted:
        past = [begun_s - one.at_s for one, begun_s in given if begun_s < each.at_s]
        if len(past) < LEAST_PAST:
            continue
        low, high = np.quantile(past, (LOW, HIGH))
        constants.append(interval_score(float(low), float(high), start_s - each.at_s))
        scores.append(interval_score(each.low_s, each.high_s, start_s))
    return RangeAccuracy(
        ranges=len(counted),
        inside=float(np.mean([each.holds(start_s) for each, start_s in counted])),
        median_width_s=float(np.median(widths)),
        median_wait_s=float(np.median(waits)),
        score_s=float(np.mean(scores)) if scores else None,
        constant_score_s=float(np.mean(constants)) if constants else None,
    )
