"""What a workload asks of a cluster, in numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from hetsched_core.traces.workload import Workload
from hetsched_core.types import Cluster, Job, Speeds, Submission

SECONDS_PER_HOUR = 3600.0
PERCENTILES = (10, 50, 75, 90, 99)


@dataclass(frozen=True, slots=True)
class WorkloadShare:
    """Jobs that have something in common: how many they are, and their GPU hours."""

    label: str
    jobs: int
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """A workload as if each job ran alone, on its default number of GPUs of its fastest type.

    Attributes:
        jobs: Number of jobs.
        misfits: Ids of jobs for whose GPUs the cluster has no room; the rest leaves them out.
        first_s: First arrival (UTC).
        last_s: Last arrival (UTC).
        gpu_hours: GPU hours of all jobs.
        run_s: The `PERCENTILES` of the run time; empty where no job fits.
        mean_run_s: The mean of the run time; 0 where no job fits.
        arrival_cv: Coefficient of variation of the time between two arrivals: 1 at random, more in
            bursts; None where all jobs arrive at once.
        by_gpus: By number of GPUs, ascending.
        by_profile: By profile, the most GPU hours first.
        load: GPU hours over those that the cluster has between first and last arrival; None
            where all jobs arrive at once.
        mean_load: the same with the speed that each job has in the mean over the cluster's GPUs
            that it may have. Where it is above 1, jobs wait ever longer.
    """

    jobs: int
    misfits: tuple[str, ...]
    first_s: float
    last_s: float
    gpu_hours: float
    run_s: tuple[float, ...]
    mean_run_s: float
    arrival_cv: float | None
    by_gpus: tuple[WorkloadShare, ...]
    by_profile: tuple[WorkloadShare, ...]
    load: float | None
    mean_load: float | None


def summarise(workload: Workload, speeds: Speeds, cluster: Cluster) -> WorkloadSummary:
    """Return the summary of a workload of at least one job."""
    rooms = _rooms(cluster)
    alone = [(s.job, _run_s(s, speeds, rooms)) for s in workload.submissions]
    fitting = [(job, seconds[0]) for job, seconds in alone if seconds is not None]
    mean_gpu_hours = sum(_gpu_hours(job, s[1]) for job, s in alone if s is not None)
    first_s = min(job.submit_s for job, _ in alone)
    last_s = max(job.submit_s for job, _ in alone)
    gpu_hours = sum(_gpu_hours(job, seconds) for job, seconds in fitting)
    span_hours = (last_s - first_s) / SECONDS_PER_HOUR
    times = [seconds for _, seconds in fitting]
    gaps = np.diff(np.sort([job.submit_s for job, _ in alone]))
    return WorkloadSummary(
        jobs=len(alone),
        misfits=tuple(job.id for job, seconds in alone if seconds is None),
        first_s=first_s,
        last_s=last_s,
        gpu_hours=gpu_hours,
        run_s=tuple(np.percentile(times, PERCENTILES).tolist()) if times else (),
        mean_run_s=float(np.mean(times)) if times else 0.0,
        arrival_cv=float(np.std(gaps) / np.mean(gaps)) if span_hours else None,
        by_gpus=tuple(
            sorted(_shares(fitting, lambda job: str(_gpus(job))), key=lambda s: int(s.label))
        ),
        by_profile=tuple(
            sorted(_shares(fitting, lambda job: job.profile), key=lambda s: (-s.gpu_hours, s.label))
        ),
        load=gpu_hours / (cluster.gpus * span_hours) if span_hours else None,
        mean_load=mean_gpu_hours / (cluster.gpus * span_hours) if span_hours else None,
    )


def _gpus(job: Job) -> int:
    return job.requirements.default_count(job.asked_count)


def _gpu_hours(job: Job, seconds: float) -> float:
    return _gpus(job) * seconds / SECONDS_PER_HOUR


def _shares(
    jobs: Iterable[tuple[Job, float]], label_of: Callable[[Job], str]
) -> Iterable[WorkloadShare]:
    found: dict[str, WorkloadShare] = {}
    for job, seconds in jobs:
        label = label_of(job)
        so_far = found.get(label, WorkloadShare(label, 0, 0.0))
        found[label] = WorkloadShare(
            label, so_far.jobs + 1, so_far.gpu_hours + _gpu_hours(job, seconds)
        )
    return found.values()


def _rooms(cluster: Cluster) -> dict[str, tuple[int, int]]:
    """Return type -> (GPUs of all its nodes, GPUs of the largest)."""
    rooms: dict[str, tuple[int, int]] = {}
    for node in cluster:
        total, largest = rooms.get(node.gpu_type, (0, 0))
        rooms[node.gpu_type] = total + node.gpus, max(largest, node.gpus)
    return rooms


def _run_s(
    submission: Submission, speeds: Speeds, rooms: Mapping[str, tuple[int, int]]
) -> tuple[float, float] | None:
    """Return the run time on the fastest type that has room, and at the mean speed over the GPUs.

    None where none has room. A type on which it does not fit counts for nothing.
    """
    job, gpus = submission.job, _gpus(submission.job)
    found = []
    for gpu_type, (total, largest) in rooms.items():
        if total >= gpus and job.accepts_type(gpu_type):
            nodes = 1 if largest >= gpus else 2
            speed = gpus * speeds.per_gpu(job.profile, gpu_type, gpus, nodes)
            found += [(speed, total)] if speed else []
    if not found:
        return None
    mean = sum(speed * total for speed, total in found) / sum(total for _, total in found)
    samples = submission.steady_samples
    return samples / max(found)[0], samples / mean
