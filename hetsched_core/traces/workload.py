"""A workload: jobs with the work they really have, and how that came to be known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from hetsched_core.types import SpeedTable, Submission

LATEST_S = 1e11
"""The latest time of a job, seconds UTC: in the year 5138. Later ones are milliseconds or wrong."""


@dataclass(frozen=True, slots=True)
class RejectedJob:
    """A job of a log or trace that is not in the workload, and why.

    `line` is where it stands in its file, 0 where that is not known.
    """

    job: str
    reason: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs to be run, in order of (submission, id).

    Attributes:
        submissions: The jobs, each id once.
        tables: Speeds that came with the workload, by profile; other profiles are built in.
        assumptions: In sentences, what was assumed to get from the source to these jobs.
        rejected: What could not be used.
    """

    submissions: tuple[Submission, ...]
    tables: Mapping[str, SpeedTable] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    rejected: tuple[RejectedJob, ...] = ()

    def rejections(self) -> tuple[tuple[str, int], ...]:
        """Return (reason, number of jobs), the most frequent first."""
        counts = Counter(rejected.reason for rejected in self.rejected)
        return tuple(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def arrival_order(submission: Submission) -> tuple[float, str]:
    """Key that sorts the jobs of a workload: `submission_order` of a job that has no view yet."""
    return (submission.job.submit_s, submission.job.id)
