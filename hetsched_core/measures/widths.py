"""Measures of the jobs that ask for as many GPUs: whether wide jobs pay for what others gain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hetsched_core.records.runlog import JobRecord
from hetsched_core.types import EndState


@dataclass(frozen=True, slots=True)
class WidthMeasures:
    """What became of the jobs of one width; times are of completed ones, None where there is none.

    Attributes:
        gpus: the count that they ask for; of a set of counts that which their user asked for, or
            the least.
        jobs: how many they are.
        completed: those that ended with all their work done.
        avg_jct_s: mean completion time, seconds.
        p99_jct_s: its 99th percentile.
        avg_wait_s: mean wait, seconds.
        p99_wait_s: its 99th percentile.
    """

    gpus: int
    jobs: int
    completed: int
    avg_jct_s: float | None
    p99_jct_s: float | None
    avg_wait_s: float | None
    p99_wait_s: float | None


def width_measures(records: Iterable[JobRecord]) -> tuple[WidthMeasures, ...]:
    """Return the measures of the jobs of each width, ascending."""
    by_width = defaultdict[int, list[JobRecord]](list)
    for record in records:
        by_width[record.job.requirements.default_count(record.job.asked_count)].append(record)
    return tuple(_measures(gpus, by_width[gpus]) for gpus in sorted(by_width))


def _measures(gpus: int, records: list[JobRecord]) -> WidthMeasures:
    done = [
        (record.end_s - record.job.submit_s, record.wait_s)
        for record in records
        if record.end_state is EndState.COMPLETED and record.end_s is not None
    ]
    if not done:
        return WidthMeasures(gpus, len(records), 0, None, None, None, None)
    mean, most = np.mean(done, axis=0), np.percentile(done, 99, axis=0)
    (avg_jct_s, avg_wait_s), (p99_jct_s, p99_wait_s) = mean.tolist(), most.tolist()
    return WidthMeasures(
        gpus, len(records), len(done), avg_jct_s, p99_jct_s, avg_wait_s, p99_wait_s
    )
