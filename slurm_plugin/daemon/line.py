"""In which order Slurm looks at the jobs that are placed and have not started."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from slurm_plugin.backend import SlurmJob


class _Place(NamedTuple):
    """Where a job stands in Slurm's line: by its priority, then by age."""

    less: int
    submit_s: float
    job: str
    array: str


def _place_of(job: SlurmJob) -> _Place:
    return _Place(-job.priority, job.submit_s, job.id, job.array)


class Line:
    """The jobs that are placed and have not started.

    Where Slurm does not start one, it starts none of lower priority on the same nodes. So what
    stands behind another one has not failed, and what it is told is the first one's.

    Attributes:
        blamed: those behind which others stand that Slurm does not start.
    """

    def __init__(self, jobs: Iterable[SlurmJob] = (), blamed: Collection[str] = ()) -> None:
        """Look at all jobs that Slurm shows, and remember who was blamed when last looked at."""
        self._first: dict[str, _Place] = {}
        for job in jobs:
            if job.entered:
                place = _place_of(job)
                for node in job.pinned:
                    self._first[node] = min(place, self._first.get(node, place))
        self._blamed_before = blamed
        self.blamed: set[str] = set()

    def ahead_of(self, job: SlurmJob) -> str:
        """Return the job that stands first on a node of this one; "" if it is this one itself."""
        places = (self._first[node] for node in job.pinned if node in self._first)
        found = min(places, default=_place_of(job))
        own = found.job == job.id or (found.array and found.array == job.array)
        return "" if own else found.job

    def is_blamed(self, job: SlurmJob) -> bool:
        """Whether others stood behind a job when they were last looked at."""
        return job.id in self._blamed_before
