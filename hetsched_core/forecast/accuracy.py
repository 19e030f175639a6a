"""How good ranges were: coverage, width, and the interval score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hetsched_core.forecast.ranges import HIGH, LOW, StartRange

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
