"""A workload with fewer jobs, or with its jobs closer together or further apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hetsched_core.errors import InputError
from hetsched_core.traces.summary import summarise
from hetsched_core.traces.workload import LATEST_S, Workload
from hetsched_core.types import Cluster, Speeds, Submission

MOST_LOAD = 1e6
"""More is a slip of the keyboard."""


def thinned(workload: Workload, share: float, seed: int) -> Workload:
    """Return a workload with a share of its jobs, drawn by chance; arrivals stay where they are.

    Args:
        workload: the jobs.
        share: of the jobs that stay, above 0 to 1.
        seed: of what is drawn.

    Raises:
        InputError: it is no such share, or none would stay.
    """
    if not 0.0 < share <= 1.0:
        raise InputError(f"a share of {share:g} of the jobs; give more than 0, up to 1")
    jobs = workload.submissions
    drawn = np.random.default_rng(seed).random(len(jobs)) < share
    kept = tuple(job for job, stays in zip(jobs, drawn, strict=True) if stays)
    if not kept:
        raise InputError(f"a share of {share:g} leaves none of {len(jobs)} jobs; give a larger one")
    words = f"{len(kept)} of {len(jobs)} jobs were kept, drawn by chance (share {share:g})."
    return replace(workload, submissions=kept, assumptions=(*workload.assumptions, words))


def at_load(workload: Workload, load: float, speeds: Speeds, cluster: Cluster) -> Workload:
    """Return a workload that asks for so much of a cluster, its jobs moved in time alone.

    Arrivals are counted from the first and multiplied by one factor. A job has as long as before
    until it may start, until its deadline, and until its user withdraws it. What the site's
    own scheduler did is dropped.

    Args:
        workload: the jobs.
        load: the `mean_load` of the summary that it is to have, more than 0.
        speeds: their speeds.
        cluster: the cluster.

    Raises:
        InputError: it is no load, all jobs arrive at once, none fits, or times were too late.
    """
    if not 0.0 < load <= MOST_LOAD:
        raise InputError(f"a load of {load:g}; give more than 0, up to {MOST_LOAD:g}")
    summary = summarise(workload, speeds, cluster)
    if not summary.mean_load:
        why = "all jobs arrive at once" if summary.mean_load is None else "no job fits the cluster"
        raise InputError(f"the workload cannot be given a load: {why}")
    factor = summary.mean_load / load
    if summary.first_s + factor * (summary.last_s - summary.first_s) > LATEST_S:
        raise InputError(f"a load of {load:g} puts the last job beyond the year 5138; give more")
    words = (
        f"Arrivals were put {factor:.4g} times as far apart, for a load of {load:g} at the mean "
        f"speed of {cluster.name}."
    )
    moved = tuple(_moved(each, summary.first_s, factor) for each in workload.submissions)
    return replace(workload, submissions=moved, assumptions=(*workload.assumptions, words))


def _moved(submission: Submission, first_s: float, factor: float) -> Submission:
    job = submission.job
    submit_s = first_s + factor * (job.submit_s - first_s)

    def later(at_s: float | None) -> float | None:
        return None if at_s is None else submit_s + (at_s - job.submit_s)

    return replace(
        submission,
        job=replace(
            job,
            submit_s=submit_s,
            eligible_s=later(job.eligible_s),
            deadline_s=later(job.deadline_s),
        ),
        cancel_s=later(submission.cancel_s),
        logged=(),
    )
