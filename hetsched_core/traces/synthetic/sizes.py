"""Run times and numbers of GPUs with the statistics of a trace.

Between two published percentiles run times are log-uniform; the shortest tenth begins at a second,
and the longest hundredth reaches as far as the published mean asks for. So every percentile and the
mean are met exactly.

Larger jobs run longer: at a run time d the odds of k GPUs against 1 are exp(a_k) d^b_k (multinomial
logit in log d). The a and b are those with which both the share of jobs and the share of GPU hours
of every k are the published ones; the distribution of run times over all jobs stays what it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, root

from hetsched_core.errors import InputError
from hetsched_core.traces.synthetic.statistics import TraceStatistics

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHORTEST_S = 1.0
"""Accounting has whole seconds."""

LONGEST_S = 1e9

_CELLS = 256
"""Cells of equal probability between two percentiles, in each of which the odds are constant."""

_LARGEST_MISS = 1e-6
"""By which share the shares of the fitted odds may miss those asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """A joint distribution of run times and numbers of GPUs.

    Attributes:
        gpus: (C,) numbers of GPUs, ascending.
        quantiles: (K,) ascending from 0 to 1.
        log_s: (K,) logarithm of the run time at each, linear in between.
        edges: (E + 1,) quantiles between which the odds are constant.
        cumulative: (E, C) probability of a number of GPUs up to each.
    """

    gpus: Ints
    quantiles: Floats
    log_s: Floats
    edges: Floats
    cumulative: Floats

    def draw(self, first: Floats, second: Floats) -> tuple[Floats, Ints]:
        """Return the jobs that uniform numbers in [0, 1) stand for.

        Args:
            first: (N,) quantiles of the run times.
            second: (N,) what chooses the numbers of GPUs.

        Returns:
            (N,) run times in seconds, and (N,) indices into `gpus`.
        """
        seconds = np.exp(np.interp(first, self.quantiles, self.log_s))
        cell = np.searchsorted(self.edges, first, side="right") - 1
        chosen = np.sum(second[:, None] >= self.cumulative[cell], axis=1)
        return seconds, np.minimum(chosen, len(self.gpus) - 1)


def fit_sizes(trace: TraceStatistics) -> Sizes:
    """Return the distribution with the statistics of a trace.

    Raises:
        InputError: There is no such distribution; the message says which figure is impossible.
    """
    quantiles, log_s = _quantile_function(trace)
    inner = [np.linspace(low, high, _CELLS, endpoint=False) for low, high in pairwise(quantiles)]
    edges = np.append(np.concatenate(inner), 1.0)
    weights = np.diff(edges)
    seconds = _cell_means(np.interp(edges, quantiles, log_s))
    gpus = np.array([c.gpus for c in trace.gpu_classes], dtype=np.int64)
    jobs = np.array([c.jobs for c in trace.gpu_classes], dtype=np.float64)
    gpu_hours = np.array([c.gpu_hours for c in trace.gpu_classes], dtype=np.float64)
    jobs /= jobs.sum()
    mean_s = gpu_hours / (jobs * gpus)
    mean_s *= trace.mean_s / np.sum(jobs * mean_s)
    odds = _fit_odds(trace.name, weights, seconds, jobs, mean_s)
    return Sizes(gpus, quantiles, log_s, edges, np.cumsum(odds, axis=1))


def _quantile_function(trace: TraceStatistics) -> tuple[Floats, Floats]:
    """Return the knots of the quantile function, from the shortest to the longest job."""
    shares = np.array([0.0, *(share for share, _ in trace.percentiles)])
    seconds = np.array([SHORTEST_S, *(s for _, s in trace.percentiles)])
    widths = np.diff(shares)
    if np.any(widths <= 0) or np.any(np.diff(seconds) <= 0) or shares[-1] >= 1:
        raise InputError(f"{trace.name}: the percentiles {trace.percentiles} do not ascend")
    top = 1.0 - shares[-1]
    left = trace.mean_s - float(np.sum(widths * _cell_means(np.log(seconds))))

    def excess(log_longest: float) -> float:
        last = _cell_means(np.array([np.log(seconds[-1]), log_longest]))
        return float(top * last[0] - left)

    low, high = float(np.log(seconds[-1])) + 1e-9, float(np.log(LONGEST_S))
    if not excess(low) <= 0 <= excess(high):
        raise InputError(
            f"{trace.name}: no run times with these percentiles have a mean of {trace.mean_s:g} s"
        )
    longest = float(brentq(excess, low, high, xtol=1e-12))
    return np.append(shares, 1.0), np.append(np.log(seconds), longest)


def _cell_means(log_edges: Floats) -> Floats:
    """Return the mean of a log-uniform run time between each two edges."""
    return np.diff(np.exp(log_edges)) / np.diff(log_edges)


def _fit_odds(name: str, weights: Floats, seconds: Floats, jobs: Floats, mean_s: Floats) -> Floats:
    """Return (E, C) the probability of each number of GPUs in each cell of run times."""
    log_s = np.log(seconds)
    log_s = (log_s - log_s.mean()) / log_s.std()
    others = len(jobs) - 1

    def odds(parameters: Floats) -> Floats:
        a, b = np.append(0.0, parameters[:others]), np.append(0.0, parameters[others:])
        exponents = a + np.outer(log_s, b)
        powers = np.exp(exponents - exponents.max(axis=1, keepdims=True))
        found: Floats = powers / powers.sum(axis=1, keepdims=True)
        return found

    def miss(parameters: Floats) -> Floats:
        found = odds(parameters)
        had_jobs, had_s = weights @ found, (weights * seconds) @ found
        return np.concatenate(((had_jobs / jobs)[1:], (had_s / (jobs * mean_s))[1:])) - 1.0

    if not others:
        return np.ones((len(weights), 1))
    start = np.concatenate((np.log(jobs[1:] / jobs[0]), np.zeros(others)))
    found = root(miss, start, method="lm")
    if not np.max(np.abs(miss(found.x))) < _LARGEST_MISS:
        raise InputError(
            f"{name}: no run times give every number of GPUs its share of the GPU hours"
        )
    return odds(found.x)
