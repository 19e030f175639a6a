"""Who comes first in Hops's queue, and how much that weighs (SoCC '24, section 3.6).

All priorities are numbers, the larger the sooner; their order is the queue, their size the weight
in the integer programme.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from hetsched_core.fairness import RunTimes, finish_time_fairness, latency_ratio, priority_weights
from hetsched_core.policies.job_size import expected_run_s
from hetsched_core.types import JobView, Snapshot

Floats = NDArray[np.float64]

UNKNOWN_RUN_S = 3600.0
"""The expected run time where no job of the queue has one (seconds)."""


class Priority(StrEnum):
    """What orders the queue; sizes and service are negated, so that small ones come first."""

    LATENCY_RATIO = "latency_ratio"
    FINISH_TIME_FAIRNESS = "finish_time_fairness"
    LAS = "las"
    SJF = "sjf"
    SRTF = "srtf"
    FIFO = "fifo"


NEED_RUN_TIMES = frozenset(Priority) - {Priority.FIFO, Priority.LAS}
"""Priorities that ask for expected run times."""


@dataclass(frozen=True, slots=True)
class Known:
    """What priorities are made of besides the views of the jobs.

    Attributes:
        at_s: the time for which they are to hold, seconds UTC.
        expected_run_s: job id -> expected run time, seconds, of the jobs that have one.
        run_times: run times on a share of the cluster (finish-time fairness).
        share: GPUs that are a job's fair share (finish-time fairness).
    """

    at_s: float
    expected_run_s: Mapping[str, float]
    run_times: RunTimes
    share: float

    @property
    def stand_in_s(self) -> float:
        """The expected run time of a job of which nothing is known: the mean of the others."""
        known = self.expected_run_s
        return sum(known.values()) / len(known) if known else UNKNOWN_RUN_S


def priorities_of(views: Sequence[JobView], priority: Priority, known: Known) -> Floats:
    """Return (J,) the priority of each job."""
    now = known.at_s
    match priority:
        case Priority.FIFO:
            values = [now - view.job.submit_s for view in views]
        case Priority.LAS:
            values = [-view.service_at(now) for view in views]
        case Priority.FINISH_TIME_FAIRNESS:
            stand_in_s = known.stand_in_s
            values = [_finish_time_fairness(view, known, stand_in_s) for view in views]
        case Priority.LATENCY_RATIO | Priority.SJF | Priority.SRTF:
            stand_in_s = known.stand_in_s
            run_s = [known.expected_run_s.get(view.job.id, stand_in_s) for view in views]
            if priority is Priority.SJF:
                values = [-each for each in run_s]
            elif priority is Priority.SRTF:
                values = [-each * _left(v, now) for each, v in zip(run_s, views, strict=True)]
            else:
                wait_s = np.array([view.wait_at(now) for view in views], np.float64)
                return latency_ratio(wait_s, np.array(run_s, np.float64))
    return np.array(values, np.float64)


def weights_of(priorities: Floats, lam: float) -> Floats:
    """Return (J,) (priority + bias) ** lambda, scaled to a largest weight of 1.

    The scale leaves the best choice as it is and keeps a large lambda within a float's range;
    weights too small for that come out as 0.
    """
    if priorities.size == 0:
        return priorities.copy()
    base = priority_weights(priorities)
    weights: Floats = (base / base.max()) ** lam
    return weights


def known_run_times(
    snapshot: Snapshot, views: Sequence[JobView], noted: Mapping[str, float]
) -> dict[str, float]:
    """Return the expected run time of each job that has one, seconds (formula 9).

    Those that are `noted` stay as they are, so that estimates that improve do not move the order.
    """
    found = {}
    for view in views:
        job_id = view.job.id
        run_s = noted.get(job_id)
        if run_s is None:
            run_s = expected_run_s(view.job, snapshot)
        if 0 < run_s < math.inf:
            found[job_id] = run_s
    return found


def _left(view: JobView, now: float) -> float:
    """Share of a job's work that is not done, 1 where its size is unknown."""
    total = view.job.total_samples
    return 1.0 if not total else max(0.0, 1.0 - view.samples_at(now) / total)


def _finish_time_fairness(view: JobView, known: Known, stand_in_s: float) -> float:
    """(elapsed + remaining at the mean speed so far) / T_isolated.

    The mean is over the time for which the job held GPUs. A job that has done nothing counts with
    its speed on its fair share; one whose size is unknown with its expected run time.
    """
    job, now = view.job, known.at_s
    elapsed_s = max(0.0, now - job.submit_s)
    held_s = max(0.0, elapsed_s - view.wait_at(now))
    isolated_s = None
    if job.total_samples:
        isolated_s = known.run_times.isolated_run_s(job, job.total_samples, known.share)
    if not isolated_s or not job.total_samples:
        run_s = known.expected_run_s.get(job.id, stand_in_s)
        return finish_time_fairness(elapsed_s + max(0.0, run_s - held_s), run_s)
    done = view.samples_at(now)
    speed = done / held_s if held_s > 0 and done > 0 else job.total_samples / isolated_s
    left_s = max(0.0, job.total_samples - done) / speed
    return finish_time_fairness(elapsed_s + left_s, isolated_s)
