"""What a log says the site did, as columns: what figures and sentences show beside the replays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hetsched_core.logged import waits_s
from hetsched_core.report.history import Floats, Spans
from hetsched_core.types import Submission


@dataclass(frozen=True, slots=True, eq=False)
class LoggedHistory:
    """What the site's own scheduler did with the jobs of its log.

    Attributes:
        first_wait_s: (N,) seconds that each job was eligible before its first start.
        held: GPUs held.
        waiting: jobs that were eligible and held no GPU.
    """

    first_wait_s: Floats
    held: Spans
    waiting: Spans

    @classmethod
    def of(cls, submissions: Iterable[Submission]) -> LoggedHistory | None:
        """Read the history from the logged runs of a workload; None if no job has any."""
        jobs = [(one.job, one.logged) for one in submissions if one.logged]
        if not jobs:
            return None
        return cls(
            first_wait_s=np.array(
                [max(0.0, runs[0].start_s - job.eligible_from_s) for job, runs in jobs]
            ),
            held=Spans.of((run.start_s, run.end_s, run.gpus) for _, runs in jobs for run in runs),
            waiting=Spans.of((*wait, 1.0) for job, runs in jobs for wait in waits_s(job, runs)),
        )

    @property
    def span_s(self) -> tuple[float, float]:
        """First wait or start, and when the last GPU was given back (UTC)."""
        begin_s = np.concatenate([self.held.since_s, self.waiting.since_s]).min()
        return float(begin_s), float(self.held.until_s.max())

    def held_while_waiting(self) -> float | None:
        """Return the mean of the GPUs held over the time in which jobs waited; None without it."""
        edges = np.unique(
            np.concatenate(
                [self.held.since_s, self.held.until_s, self.waiting.since_s, self.waiting.until_s]
            )
        )
        if not self.waiting.since_s.size:
            return None
        waits = self.waiting.mean_over(edges) > 0.5
        seconds = np.diff(edges)[waits]
        return float(np.average(self.held.mean_over(edges)[waits], weights=seconds))
