"""Hops's queue (SoCC '24, section 3.6): priorities and weights, service window, notes on jobs.

A priority is a number, larger is sooner. Jobs sorted by it are the queue; its value is the weight
in the integer programme. The jobs at the head that could fill the cluster are the service window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetsched_core.measures.fairness import finish_time_fairness, latency_ratio, priority_weights
from hetsched_core.policies.job_size import expected_run_s
from hetsched_core.types import Job, JobView, Snapshot

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UNKNOWN_RUN_S = 3600.0
"""The expected run time where no job of the queue has one (seconds)."""

NOTES_VERSION = 2


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


def priorities_of(
    views: Sequence[JobView],
    priority: Priority,
    at_s: float,
    expected_run_s: Mapping[str, float],
    isolated_run_s: Callable[[Job, float], float | None],
) -> Floats:
    """Return (J,) the priority of each job.

    Args:
        views: the jobs.
        priority: what orders them.
        at_s: the time for which priorities are to hold, seconds UTC.
        expected_run_s: job id -> expected run time, seconds, of the jobs that have one; the others
            count with the mean of these.
        isolated_run_s: the run time of a job of so many samples on its fair share of the cluster.
    """
    known = list(expected_run_s.values())
    stand_in_s = sum(known) / len(known) if known else UNKNOWN_RUN_S
    run_s = [expected_run_s.get(view.job.id, stand_in_s) for view in views]
    match priority:
        case Priority.FIFO:
            values = [at_s - view.job.submit_s for view in views]
        case Priority.LAS:
            values = [-view.service_at(at_s) for view in views]
        case Priority.SJF:
            values = [-each for each in run_s]
        case Priority.SRTF:
            values = [-each * _left(v, at_s) for each, v in zip(run_s, views, strict=True)]
        case Priority.FINISH_TIME_FAIRNESS:
            values = [
                _finish_time_fairness(view, at_s, each, isolated_run_s)
                for each, view in zip(run_s, views, strict=True)
            ]
        case Priority.LATENCY_RATIO:
            wait_s = np.array([view.wait_at(at_s) for view in views], np.float64)
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


def _finish_time_fairness(
    view: JobView, now: float, run_s: float, isolated_run_s: Callable[[Job, float], float | None]
) -> float:
    """(elapsed + remaining at the mean speed so far) / T_isolated.

    The mean is over the time for which the job held GPUs. A job that has done nothing counts with
    its speed on its fair share; one whose size is unknown with its expected run time.
    """
    job = view.job
    elapsed_s = max(0.0, now - job.submit_s)
    held_s = max(0.0, elapsed_s - view.wait_at(now))
    isolated_s = isolated_run_s(job, job.total_samples) if job.total_samples else None
    if not isolated_s or not job.total_samples:
        return finish_time_fairness(elapsed_s + max(0.0, run_s - held_s), run_s)
    done = view.samples_at(now)
    speed = done / held_s if held_s > 0 and done > 0 else job.total_samples / isolated_s
    left_s = max(0.0, job.total_samples - done) / speed
    return finish_time_fairness(elapsed_s + left_s, isolated_s)


def service_window(smallest: Ints, gpus: float) -> int:
    """Return how many jobs from the head of the queue are in the service window.

    Args:
        smallest: (J,) the smallest requirement of each job, in queue order.
        gpus: GPUs of the cluster; the job with which the sum reaches them is the last one in.
    """
    reached = np.cumsum(smallest) >= gpus
    return int(np.argmax(reached)) + 1 if reached.any() else len(smallest)


def sensitivity_adjustment(
    sensitivity: Floats, smallest: Ints, window: int, idle_gpus: int
) -> Ints:
    """Return the positions of jobs behind the window that may be planned for with it.

    While the jobs let in are on average more sensitive to being spread than the queue, jobs less
    sensitive than the queue are let in, in queue order, if the idle GPUs hold them. What is let in
    does not count against the idle GPUs.

    Args:
        sensitivity: (J,) of each job, in queue order.
        smallest: (J,) its smallest requirement.
        window: how many jobs at the head are in the window.
        idle_gpus: idle GPUs of the cluster.
    """
    admitted: list[int] = []
    if 0 < window < len(sensitivity):
        queue = float(sensitivity.mean())
        total, members = float(sensitivity[:window].sum()), window
        able = (sensitivity[window:] < queue) & (smallest[window:] <= idle_gpus)
        for at in (window + np.flatnonzero(able)).tolist():
            if total / members <= queue:
                break
            admitted.append(at)
            total, members = total + float(sensitivity[at]), members + 1
    return np.array(admitted, np.int64)


@dataclass(frozen=True, slots=True)
class HopsNotes:
    """What is written down for the next plan: JSON values only, and nothing that it needs.

    Attributes:
        prices: class of node -> price of a GPU in the last round's plan.
        expected_run_s: job id -> expected run time as it was when the job's profiling ended.
        profiled: profiles with the GPU types on which runs were begun in this round.
        since_s: since when active jobs have been counted, seconds UTC; None for not yet.
        at_s: until when.
        job_s: seconds that they were active in that time, all jobs together.
        active: how many there are since.
    """

    prices: Mapping[str, float] = field(default_factory=dict)
    expected_run_s: Mapping[str, float] = field(default_factory=dict)
    profiled: tuple[tuple[str, str], ...] = ()
    since_s: float | None = None
    at_s: float = 0.0
    job_s: float = 0.0
    active: int = 0

    @classmethod
    def read(cls, memory: Mapping[str, object]) -> HopsNotes:
        """Return what `write` wrote; empty notes where there is nothing that can be read."""
        if memory.get("version") != NOTES_VERSION:
            return cls()
        kept: dict[str, Any] = {name: memory[name] for name in cls.__slots__}
        return cls(**kept | {"profiled": tuple((key, t) for key, t in kept["profiled"])})

    def write(self) -> dict[str, object]:
        """Return the notes as `Plan.memory`."""
        kept = {name: getattr(self, name) for name in self.__slots__}
        return (
            {"version": NOTES_VERSION} | kept | {"profiled": [list(each) for each in self.profiled]}
        )

    def counted(self, now: float, active: int) -> HopsNotes:
        """Return the notes at `now`, when so many jobs are active."""
        job_s = self.job_s + self.active * max(0.0, now - self.at_s)
        since_s = self.since_s
        if since_s is None:
            since_s, job_s = now, 0.0
        return replace(self, since_s=since_s, at_s=now, job_s=job_s, active=active)

    def with_run_times(
        self, run_s: Mapping[str, float], settled: Iterable[str], gone: Iterable[str]
    ) -> HopsNotes:
        """Return the notes with the run times of `settled` jobs, and of none that is gone."""
        noted = dict(self.expected_run_s)
        for job in gone:
            noted.pop(job, None)
        noted |= {job: run_s[job] for job in settled if job in run_s}
        return replace(self, expected_run_s=noted)

    @property
    def mean_active(self) -> float:
        """The time-average number of active jobs, at least 1."""
        if self.since_s is None or self.at_s <= self.since_s:
            return max(1.0, float(self.active))
        return max(1.0, self.job_s / (self.at_s - self.since_s))
