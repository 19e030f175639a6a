"""Submission times that come in bursts and follow the hours of the day.

Gaps are hyperexponential with balanced means (two exponentials, each with half of the time; Tijms
1994, section B.2), on a clock that runs faster by day than by night. The gaps' own coefficient of
variation is chosen such that the one seen, through the clock, is the one asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from hetsched_core.errors import InputError

Floats = NDArray[np.float64]

DAY_S = 86_400.0
BUSIEST_S = 15 * 3600.0
"""Time of day at which most jobs are submitted; twelve hours later it is the fewest."""

MOST_CV = 1000.0

_PHASES = 96
_NODES = 64


@dataclass(frozen=True, slots=True)
class ArrivalClock:
    """A clock that runs `ratio` times as fast at the busiest hour as at the quietest.

    Over a whole day it is as fast as a clock on the wall.
    """

    ratio: float = 1.0

    def busy(self, wall_s: Floats) -> Floats:
        """Return what the clock shows at some times; it begins at midnight with 0."""
        swing = (self.ratio - 1) / (self.ratio + 1)
        turn = 2 * math.pi / DAY_S
        shift = math.sin(turn * BUSIEST_S)
        return wall_s + swing / turn * (np.sin(turn * (wall_s - BUSIEST_S)) + shift)

    def wall(self, busy_s: Floats) -> Floats:
        """Return when the clock shows this, to within a second."""
        days = np.floor(busy_s / DAY_S)
        minutes = np.linspace(0.0, DAY_S, 1441)
        return days * DAY_S + np.interp(busy_s - days * DAY_S, self.busy(minutes), minutes)


@dataclass(frozen=True, slots=True)
class Gaps:
    """Hyperexponential gaps of mean 1: with probability `short` of mean 1 / (2 short)."""

    short: float

    @classmethod
    def of_cv(cls, cv: float) -> Gaps:
        """Return the gaps of this coefficient of variation, 1 or more."""
        return cls((1 + math.sqrt((cv**2 - 1) / (cv**2 + 1))) / 2)

    @property
    def parts(self) -> tuple[tuple[float, float], ...]:
        """(Probability, mean) of the two exponentials."""
        return tuple((p, 0.5 / p) for p in (self.short, 1 - self.short))

    def draw(self, first: Floats, second: Floats) -> Floats:
        """Return the gaps that uniform numbers in [0, 1) stand for."""
        (short, short_mean), (_, long_mean) = self.parts
        return np.where(first < short, short_mean, long_mean) * -np.log1p(-second)


def fit_gaps(cv: float, mean_s: float, clock: ArrivalClock) -> Gaps:
    """Return the gaps with which submissions have this coefficient of variation.

    Args:
        cv: Coefficient of variation of the time between two submissions.
        mean_s: Mean time between two submissions, seconds.
        clock: The clock on which the gaps pass.

    Raises:
        InputError: Gaps that come at random vary more than that, or no gaps do.
    """
    least = seen_cv(Gaps.of_cv(1.0), mean_s, clock)
    if not least - 1e-6 <= cv <= MOST_CV:
        raise InputError(
            f"the variation of arrivals (CV) is {cv:g}; expected {least:.2f} to {MOST_CV:g}: "
            f"days {clock.ratio:g} times as busy as nights alone make {least:.2f}"
        )
    if cv <= least:
        return Gaps.of_cv(1.0)
    largest = 2 * MOST_CV
    if seen_cv(Gaps.of_cv(largest), mean_s, clock) < cv:
        return Gaps.of_cv(largest)
    own = brentq(lambda x: seen_cv(Gaps.of_cv(x), mean_s, clock) - cv, 1.0, largest, xtol=1e-9)
    return Gaps.of_cv(float(own))


def seen_cv(gaps: Gaps, mean_s: float, clock: ArrivalClock) -> float:
    """Return the coefficient of variation on the wall of gaps that pass on a clock."""
    # A submission finds the clock anywhere in its day with equal probability.
    busy = (np.arange(_PHASES) + 0.5) / _PHASES * DAY_S
    nodes, weights = np.polynomial.laguerre.laggauss(_NODES)
    square = 0.0
    for probability, mean in gaps.parts:
        ends = clock.wall(busy[:, None] + mean * mean_s * nodes)
        lengths = ends - clock.wall(busy)[:, None]
        square += probability * float(np.mean(lengths**2 @ weights))
    return math.sqrt(max(0.0, square / mean_s**2 - 1))
