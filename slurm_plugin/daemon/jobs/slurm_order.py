"""In which order Slurm looks at the jobs that are placed and have not started."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from slurm_plugin.backend import SlurmJob


class _Place(NamedTuple):
    """Where a job stands in Slurm's line: by PriorityTier, by its priority, then by age."""

    lower: int
    less: int
    submit_s: float
    job: str
    array: str


class Line:
    """The jobs that are placed and have not started.

    Where Slurm does not start one, it starts none of lower priority on the same nodes. So what
    stands behind another one has not failed, and what it is told is the first one's.

    Attributes:
        blamed: those behind which others stand that Slurm does not start.
    """

    def __init__(
        self,
        jobs: Iterable[SlurmJob] = (),
        tiers: Mapping[str, int] | None = None,
        blamed: Collection[str] = (),
    ) -> None:
        """Look at the jobs.

        Args:
            jobs: all that Slurm shows.
            tiers: the PriorityTier of partitions; 1 of one that is not there.
            blamed: those that the line before this one has blamed.
        """
        self._tiers = tiers or {}
        self._first: dict[str, _Place] = {}
        for job in jobs:
            if job.entered:
                place = self._place_of(job)
                for node in job.pinned:
                    self._first[node] = min(place, self._first.get(node, place))
        self._blamed_before = blamed
        self.blamed: set[str] = set()

    def ahead_of(self, job: SlurmJob) -> str:
        """Return the job that stands first on a node of this one; "" if it is this one itself."""
        places = (self._first[node] for node in job.pinned if node in self._first)
        found = min(places, default=self._place_of(job))
        own = found.job == job.id or (found.array and found.array == job.array)
        return "" if own else found.job

    def is_blamed(self, job: SlurmJob) -> bool:
        """Whether others stood behind a job when they were last looked at."""
        return job.id in self._blamed_before

    def _place_of(self, job: SlurmJob) -> _Place:
        tier = max(self._tiers.get(each, 1) for each in job.partitions or (job.partition,))
        return _Place(-tier, -job.priority, job.submit_s, job.id, job.array)
