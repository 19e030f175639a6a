"""The elements of arrays, as jobs: those that may start next.

Slurm keeps the waiting elements of an array as one record. A policy is shown elements, of which
each starts, ends and is queued again by itself; of a long array only the next ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice

from slurm_plugin.backend import JobState, SlurmJob

MOST = 64
"""So many elements of an array wait for a place at a time; the others wait behind them."""

_MOST_OF_ALL = 4096
"""Of many arrays each has fewer candidates, so that these are no more than this, one each apart."""


def candidates(jobs: Mapping[str, SlurmJob], now: float) -> dict[str, SlurmJob]:
    """Return all jobs, those that Slurm keeps as one taken apart: those that may start next.

    An array's own limit on how many run at a time (`%4`) holds for the candidates, too: those that
    run or have run come first, then those that were split off, and the last one, which stands for
    itself. What is held, starts later or depends on what has not ended keeps no other waiting.

    Args:
        jobs: as Slurm shows them.
        now: seconds UTC.
    """
    limits = {job.array: job.throttle for job in jobs.values() if job.array and job.throttle}
    taken = Counter(
        job.array
        for job in jobs.values()
        if not (job.unsplit or job.held or job.state is JobState.ENDED or _fresh(job))
    )
    found: dict[str, SlurmJob] = {}
    arrays = sum(bool(job.unsplit) for job in jobs.values())
    most = min(MOST, max(1, _MOST_OF_ALL // max(1, arrays)))
    for job_id, job in jobs.items():
        if job.unsplit:
            continue
        due = (job.begin_s or 0.0) <= now and not job.dependency
        if job.array in limits and due and _fresh(job):
            if taken[job.array] >= limits[job.array]:
                continue
            taken[job.array] += 1
        found[job_id] = job
    for job in jobs.values() if arrays else ():
        left = min(most, limits.get(job.array, math.inf) - taken[job.array])
        for element in islice(elements(job), int(max(0, left))):
            found[element.id] = element
    return found


def _fresh(job: SlurmJob) -> bool:
    """Whether an element waits for its first place."""
    waits = job.state is JobState.PENDING and not (job.held or job.entered or job.restarts)
    return waits and not job.unsplit


def elements(job: SlurmJob) -> Iterable[SlurmJob]:
    """Yield the elements that a record stands for; what is changed of it, Slurm splits off."""
    for number in job.unsplit:
        yield replace(job, id=f"{job.array}_{number}", element=number, unsplit=())
