"""What jobs are worth and what GPUs cost in Hadar: utilities, U_max, U_min and eta.

Source: Sultana et al., "Resource Heterogeneity-Aware and Utilization-Enhanced Scheduling for Deep
Learning Clusters" (Hadar), section III-B, equations (6) and (7). A utility takes the duration from
submission to end. The paper's condition on eta lacks the horizon T, without which the dual
objective starts above half the optimum: here 1/eta = min_j t_j^max W_j / (T sum_hr c_h^r).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from hetsched_core.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PricedJobs:
    """J jobs as their prices see them, on R GPU types.

    Attributes:
        work: (J,) samples in all, E_j N_j.
        gpus: (J,) W_j.
        rates: (J, R) samples/s per GPU, X_j^r; 0 where the job cannot run.
    """

    work: Floats
    gpus: Floats
    rates: Floats

    @property
    def shortest_s(self) -> Floats:
        """t_j^min: (J,) seconds with all GPUs of its fastest type."""
        best: Floats = self.work / (self.gpus * self.rates.max(axis=1, initial=0.0))
        return best

    @property
    def longest_s(self) -> Floats:
        """t_j^max: (J,) seconds with all GPUs of its slowest type."""
        usable = np.where(self.rates > 0, self.rates, np.inf)
        worst: Floats = self.work / (self.gpus * usable.min(axis=1, initial=np.inf))
        return worst


class Utility(StrEnum):
    """What a job is worth that ends so many seconds after its submission."""

    EFFECTIVE_THROUGHPUT = "effective-throughput"
    RELATIVE_SPEED = "relative-speed"
    INVERSE_JCT = "inverse-jct"


UtilityOf = Callable[[PricedJobs, Floats], Floats]
"""(J,) or (J, S) utilities, above 0 and not increasing, of durations in seconds of that shape."""


def _effective_throughput(jobs: PricedJobs, seconds: Floats) -> Floats:
    """Samples per second of its stay: E_j N_j / (f_j - a_j), the paper's example and default."""
    return _each(jobs.work, seconds)


def _relative_speed(jobs: PricedJobs, seconds: Floats) -> Floats:
    """Share of its stay that it needs at best, t_j^min / (f_j - a_j): equal for all models."""
    return _each(jobs.shortest_s, seconds)


def _inverse_jct(jobs: PricedJobs, seconds: Floats) -> Floats:
    """One over its stay: every job counts the same, so short ones go first."""
    return _each(np.ones_like(jobs.work), seconds)


def _each(worth: Floats, seconds: Floats) -> Floats:
    utility: Floats = worth.reshape(-1, *(1,) * (seconds.ndim - 1)) / seconds
    return utility


UTILITIES: Mapping[Utility, UtilityOf] = {
    Utility.EFFECTIVE_THROUGHPUT: _effective_throughput,
    Utility.RELATIVE_SPEED: _relative_speed,
    Utility.INVERSE_JCT: _inverse_jct,
}


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Between what the price of a GPU moves.

    Attributes:
        lowest: (R,) U_min of each type, the price on an idle node.
        highest: (R,) U_max of each type, the price on a full one.
        eta: what scales the dual objective's start, at its smallest.
    """

    lowest: Floats
    highest: Floats
    eta: float

    @property
    def alpha(self) -> float:
        """Half the competitive ratio of Theorem 2."""
        return max(1.0, float(np.log(self.highest / self.lowest).max(initial=1.0)))


def price_bounds(
    jobs: PricedJobs,
    utility: UtilityOf,
    *,
    gpus: int,
    horizon_s: float,
    until_horizon_s: Floats,
    slot_s: float = 1.0,
) -> Bounds:
    """Return U_max, U_min (equations 6 and 7) and the smallest eta, times counted in slots.

    w_j^r is W_j for every type that the job can use, and sum_r w_j^r is W_j. A type that no job can
    use has one price.

    Args:
        jobs: at least one job, each with a type on which it runs.
        utility: what the jobs are worth.
        gpus: all GPUs, sum_hr c_h^r.
        horizon_s: T in seconds.
        until_horizon_s: (J,) T - a_j, seconds from each submission to the end of the horizon.
        slot_s: length of a slot.

    Raises:
        InputError: there is no job, or one that runs nowhere.
    """
    if len(jobs.work) == 0 or not (jobs.rates.max(axis=1, initial=0.0) > 0).all():
        raise InputError("prices need at least one job, and a GPU type on which each of them runs")
    consumed = jobs.longest_s / slot_s * jobs.gpus
    eta = horizon_s / slot_s * gpus / float(consumed.min())
    least = float((utility(jobs, until_horizon_s) / consumed).min()) / (4.0 * eta)
    per_gpu = utility(jobs, jobs.shortest_s) / jobs.gpus
    usable = np.where(jobs.rates > 0, per_gpu[:, None], least)
    highest = np.maximum(usable.max(axis=0), least)
    return Bounds(np.full_like(highest, least), highest, eta)
