"""Jobs that told no size and have ended, as far as they tell of the next ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean

from immutables import Map

LATEST = 500
"""How many of the latest jobs count."""

Alike = tuple[str, ...]
"""Names a set of jobs that are alike in some way."""


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that told no size and ended with its work done.

    `run_s` are the seconds for which it held GPUs over all its runs, `limit_s` its time limit.
    """

    user: str
    profile: str
    run_s: float
    limit_s: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class EndedJobs:
    """The latest jobs that told no size and ended with their work done, by their ends.

    Persistent: a snapshot may keep it, and one more job costs little.
    """

    jobs: tuple[EndedJob, ...] = ()
    _alike: Map[Alike, tuple[EndedJob, ...]] = field(default=Map(), repr=False)
    _means: Map[str, float] = field(default=Map(), repr=False)

    @classmethod
    def of(cls, jobs: Iterable[EndedJob]) -> EndedJobs:
        """Return these jobs, the latest last."""
        found = NONE_ENDED
        for job in jobs:
            found = found.followed_by(job)
        return found

    def followed_by(self, job: EndedJob) -> EndedJobs:
        """Return them after one more job has ended."""
        jobs, alike, means = (*self.jobs, job), self._alike.mutate(), self._means
        changed = {job.profile}
        for name in ways_to_be_alike(job.user, job.profile):
            alike[name] = (*alike.get(name, ()), job)
        if len(jobs) > LATEST:
            oldest, jobs = jobs[0], jobs[1:]
            changed.add(oldest.profile)
            for name in ways_to_be_alike(oldest.user, oldest.profile):
                rest = alike[name][1:]
                if rest:
                    alike[name] = rest
                else:
                    del alike[name]
        for profile in changed:
            mine = alike.get(("profile", profile))
            if mine:
                means = means.set(profile, fmean(each.run_s for each in mine))
            else:
                means = means.delete(profile)
        return EndedJobs(jobs, alike.finish(), means)

    def alike(self, name: Alike) -> tuple[EndedJob, ...]:
        """Return the jobs of this name, in the order of their ends; () if there are none."""
        return self._alike.get(name, ())

    def mean_run_s(self, profile: str) -> float | None:
        """Return the mean run time of the jobs of a profile, seconds; None if there are none."""
        return self._means.get(profile)


NONE_ENDED = EndedJobs()
"""What there is at first."""


def ways_to_be_alike(user: str, profile: str) -> tuple[Alike, ...]:
    """Return the names of the sets that a job belongs to; the last one is that of all jobs."""
    return ("user and profile", user, profile), ("user", user), ("profile", profile), ()
