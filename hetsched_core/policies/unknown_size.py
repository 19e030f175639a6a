"""What is left of a job that told no size, by what the jobs before it took.

Those past jobs are chosen whose run times differ least: of its user and profile, its user, its
profile, or all; taken as they are, or as shares of their time limits. From them follows how the
job's run time may be distributed, and from all others, which weigh less the more the chosen are.

A job then counts as having as much left as its Gittins index says: of all times for which it might
be let run on, that in which a second is most likely to end it. To serve the least of these first
makes the mean completion time least on one server (Aalto, Ayesta and Righter, On the Gittins Index
in the M/G/1 Queue, Queueing Systems 63, 2009), and nearly so on many (Scully, Grosof and
Harchol-Balter, POMACS 4(3), 2020).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetsched_core.types import EndedJob, EndedJobs, Job
from hetsched_core.types.ended import ways_to_be_alike

Floats = NDArray[np.float64]

_OTHERS = 2.0
"""For how many jobs those of a wider set count beside a narrower one's own."""

_SPREAD_OF = 4.0
"""For how many jobs the spread of all counts beside that of a set's own."""

_LEAST_CHANCE = 0.25
"""Shorter times than that in which a quarter of the jobs alike would end are not looked at.

Else each run time that one past job had would seem to be an end that is near.
"""

_UNKNOWN_S: Floats = np.array([36.0 * 2.0**step for step in range(12)])
_SHARES_OF_LIMIT: Floats = np.array([0.02 * 2.0 ** (step / 2) for step in range(12)])
"""Run times that are thought of before any has been seen: seconds, and shares of the limit."""


class _Sample(NamedTuple):
    """Run times in ascending order: seconds, or shares of the limit; `spread` is a variance."""

    times: Floats
    of_limit: bool
    spread: float


class UnknownSizes:
    """What the jobs that have ended teach, at one moment."""

    def __init__(self, ended: EndedJobs) -> None:
        """Begin with these; what is asked for is remembered."""
        self._ended = ended
        self._whole: dict[bool, _Sample] = {}
        self._samples: dict[tuple[str, str, bool], tuple[_Sample, ...]] = {}
        self._mixtures: dict[tuple[str, str, float | None], tuple[Floats, Floats]] = {}

    @classmethod
    @lru_cache(maxsize=2)
    def of(cls, ended: EndedJobs) -> UnknownSizes:
        """Return what these jobs teach, the same object each time."""
        return cls(ended)

    def left_s(self, job: Job, ran_s: float) -> float:
        """Return the seconds that a job counts as having left after it has run for `ran_s`.

        That is no more than its time limit, after which Slurm ends it.
        """
        left_s = self._index_s(job, ran_s)
        return left_s if job.time_limit_s is None else min(left_s, job.time_limit_s)

    def _index_s(self, job: Job, ran_s: float) -> float:
        times, weights = self._mixture(job)
        first = int(np.searchsorted(times, ran_s, side="right"))
        if first == len(times):
            # Longer than all: as long again.
            return max(ran_s, float(times[-1]))
        more, weights = times[first:] - ran_s, weights[first:] / weights[first:].sum()
        ended = np.cumsum(weights)
        # Seconds that it runs if it is let run for so long at most.
        runs_s = np.cumsum(weights * more) + np.maximum(1.0 - ended, 0.0) * more
        likely = ended >= min(_LEAST_CHANCE, float(ended[-1])) - 1e-9
        return float((runs_s / ended)[likely].min())

    def _mixture(self, job: Job) -> tuple[Floats, Floats]:
        """Return (T,) run times in seconds, ascending, and (T,) how likely each is."""
        limit_s = job.time_limit_s
        key = job.user, job.profile, limit_s
        if key not in self._mixtures:
            times: list[Floats] = []
            weights: list[Floats] = []
            rest = 1.0
            for sample in self._chosen(job):
                count = len(sample.times)
                part = rest * count / (count + _OTHERS)
                scale = limit_s if limit_s and sample.of_limit else 1.0
                times.append(sample.times * scale)
                weights.append(np.full(count, part / count))
                rest -= part
            prior = _UNKNOWN_S if limit_s is None else _SHARES_OF_LIMIT * limit_s
            times.append(prior)
            weights.append(np.full(len(prior), rest / len(prior)))
            together, likely = np.concatenate(times), np.concatenate(weights)
            order = np.argsort(together, kind="stable")
            self._mixtures[key] = together[order], likely[order]
        return self._mixtures[key]

    def _chosen(self, job: Job) -> tuple[_Sample, ...]:
        """Return the sample of the jobs most alike, then that of all, unless they are the same."""
        limited = job.time_limit_s is not None
        key = job.user, job.profile, limited
        if key not in self._samples:
            *narrower, everybody = (
                self._ended.alike(name) for name in ways_to_be_alike(job.user, job.profile)
            )
            if not everybody:
                self._samples[key] = ()
            else:
                if limited not in self._whole:
                    self._whole[limited] = min(_samples(everybody, limited, 0.0), key=_spread)
                whole = self._whole[limited]
                each = (
                    sample
                    for alike in narrower
                    if alike
                    for sample in _samples(alike, limited, whole.spread)
                )
                best = min((*each, whole), key=_spread)
                self._samples[key] = (whole,) if best is whole else (best, whole)
        return self._samples[key]


def _spread(sample: _Sample) -> float:
    return sample.spread


def _samples(jobs: Sequence[EndedJob], limited: bool, spread: float) -> list[_Sample]:
    """Return the run times as they are, and as shares of limits where all have one.

    `spread` is the variance of the logarithms that is expected before any has been seen; 0: none.
    """
    run_s = np.array([max(job.run_s, 1.0) for job in jobs])
    limit_s = np.array([job.limit_s or math.inf for job in jobs])
    found = [_sample(run_s, False, spread)]
    if limited and np.isfinite(limit_s).all():
        found.append(_sample(run_s / limit_s, True, spread))
    return found


def _sample(times: Floats, of_limit: bool, spread: float) -> _Sample:
    logs, many = np.log(times), len(times)
    squares = float(((logs - logs.mean()) ** 2).sum())
    if spread > 0:
        # The next one differs from their mean, which differs from the true one, too.
        own = (squares + _SPREAD_OF * spread) / (many - 1 + _SPREAD_OF) * (many + 1) / many
    else:
        own = squares / max(many - 1, 1)
    return _Sample(np.sort(times), of_limit, own)
