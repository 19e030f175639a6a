"""How long a worker waits for its data: one or two modes, each a normal distribution.

Source: Hops (SoCC '24), section 3.5, formula (3): a batch that is already in memory (a hit) is
there soon, one that must be loaded (a miss) takes longer, and the time in which workers wait for
each other goes with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_SAMPLES = 10
"""With fewer samples there is one mode: Hops profiles 10 to 50 iterations."""

LEAST_IN_MODE = 3
"""Fewer samples than this, far from all others, are outliers: the first batch, a stalled disk."""

MOST_OUTLIERS = 0.05
"""Share of the samples that may be left out as outliers."""

EVIDENCE = 10.0
"""By how much a second mode must lower BIC: "very strong" (Kass and Raftery 1995, section 3.2)."""

_LEAST_DEVIATION = 1e-3
"""Of the whole's deviation: a mode of equal values would have infinite density."""


@dataclass(frozen=True, slots=True)
class DataMode:
    """One way in which data arrives: T_d ~ N(data_s, data_sd_s), with T_w of mean `wait_s`.

    `share` is the share of iterations. T_w needs no deviation: it is only ever added.
    """

    share: float
    data_s: float
    data_sd_s: float = 0.0
    wait_s: float = 0.0


def expected_max(mean: float, deviation: float, constant: float) -> float:
    """Return E[max(X, c)] of a normal X: mu Phi(z) + c Phi(-z) + s phi(z), z = (mu - c) / s.

    This goes beyond Hops, whose formula (1) takes the larger of the means; they agree at s = 0.
    Source: Clark, "The Greatest of a Finite Set of Random Variables", 1961, with one constant.
    """
    if deviation <= 0:
        return max(mean, constant)
    z = (mean - constant) / deviation
    below = 0.5 * math.erfc(-z / math.sqrt(2))
    return constant + (mean - constant) * below + deviation * _density(z)


def fit_modes(data_s: Floats, wait_s: Floats | None = None) -> tuple[DataMode, ...]:
    """Return the modes of measured data times, the faster one first: two where the data say so.

    Two normal distributions are fitted by expectation maximisation from the best split of the
    sorted samples, and taken if BIC says so. Fewer than `LEAST_IN_MODE` samples far from all others
    are left out.

    Args:
        data_s: (n,) T_d of each iteration, seconds; at least one.
        wait_s: (n,) T_w of the same iterations; 0 if left out.
    """
    order = np.argsort(data_s, kind="stable")
    wait_s = np.zeros_like(data_s) if wait_s is None else wait_s
    data, wait = data_s[order], wait_s[order]
    kept, below = _without_outliers(data)
    data, wait = data[kept], wait[kept]
    one = _mode(data, wait, np.ones_like(data))
    if len(data) < LEAST_SAMPLES or below == 0 or one.data_sd_s <= 1e-9 * one.data_s:
        return (one,)
    least = _LEAST_DEVIATION * one.data_sd_s
    first = _memberships(data, below, least)
    if not LEAST_IN_MODE <= first.sum() <= len(data) - LEAST_IN_MODE:
        return (one,)
    two = sorted(
        (_mode(data, wait, weight) for weight in (first, 1 - first)), key=lambda mode: mode.data_s
    )
    # The second mode costs a mean, a deviation and a share.
    saved = _misfit(data, (one,), least) - _misfit(data, two, least) - 3 * math.log(len(data))
    return tuple(two) if saved > EVIDENCE else (one,)


def _without_outliers(data: Floats) -> tuple[slice, int]:
    """Return which part of the sorted samples to keep, and how many of it are below its split."""
    low, high = 0, len(data)
    may_drop = max(int(MOST_OUTLIERS * len(data)), int(len(data) >= 5))
    while True:
        below = _best_split(data[low:high])
        above = high - low - below
        few = min(below, above)
        if below == 0 or few >= LEAST_IN_MODE or few + low + len(data) - high > may_drop:
            return slice(low, high), below
        if not _far(data[low:high], below):
            return slice(low, high), below
        low, high = (low, high - above) if above < below else (low + below, high)


def _far(data: Floats, below: int) -> bool:
    """Whether the smaller side of a split lies more than ten deviations from the larger one."""
    lower, upper = data[:below], data[below:]
    larger = lower if len(lower) >= len(upper) else upper
    gap = upper[0] - larger.mean() if larger is lower else larger.mean() - lower[-1]
    return bool(gap > 10 * larger.std())


def _best_split(data: Floats) -> int:
    """Return how many sorted samples are below the split with the least sum of squares (Fisher)."""
    n = len(data)
    if n < 2 or data[0] == data[-1]:
        return 0
    below = np.arange(1, n)
    sums = np.cumsum(data - data[0])
    lower, upper = sums[:-1], sums[-1] - sums[:-1]
    return int(below[np.argmax(lower**2 / below + upper**2 / (n - below))])


def _memberships(data: Floats, below: int, least: float) -> Floats:
    """Return the probability that each sample belongs to the faster of two modes."""
    first = (np.arange(len(data)) < below).astype(np.float64)
    for _ in range(200):
        terms = []
        for weight in (first, 1 - first):
            total = max(float(weight.sum()), 1e-9)
            mean = float(weight @ data / total)
            deviation = max(math.sqrt(float(weight @ (data - mean) ** 2 / total)), least)
            terms.append(math.log(total / len(data)) + _log_density(data, mean, deviation))
        odds = np.clip(terms[1] - terms[0], -700, 700)
        updated = 1 / (1 + np.exp(odds))
        if np.abs(updated - first).max() < 1e-9:
            return updated
        first = updated
    return first


def _mode(data: Floats, wait: Floats, weight: Floats) -> DataMode:
    total = float(weight.sum())
    mean = float(weight @ data) / total
    return DataMode(
        share=total / len(data),
        data_s=mean,
        data_sd_s=math.sqrt(float(weight @ (data - mean) ** 2) / total),
        wait_s=float(weight @ wait) / total,
    )


def _misfit(data: Floats, modes: Sequence[DataMode], least: float) -> float:
    """Return -2 log likelihood."""
    density = sum(
        mode.share * np.exp(_log_density(data, mode.data_s, max(mode.data_sd_s, least)))
        for mode in modes
    )
    return -2 * float(np.log(density).sum())


def _log_density(data: Floats, mean: float, deviation: float) -> Floats:
    return -0.5 * ((data - mean) / deviation) ** 2 - math.log(deviation * math.sqrt(2 * math.pi))


def _density(z: float) -> float:
    return math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
