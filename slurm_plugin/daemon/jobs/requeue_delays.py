"""The delay that Slurm gives to what it queues again, and where it is passed over."""

from __future__ import annotations

import math
from collections.abc import Container
from typing import Final

from slurm_plugin.backend import JobState, SlurmJob
from slurm_plugin.daemon.jobs.managed import ManagedJob

HURRIED_S: Final = 300.0
"""Once in so long a job that ended by itself is started again without Slurm's delay, which is
shorter; a later begin is its user's word."""

_ENTERING_S: Final = 60.0
"""So near to when the daemon placed a job, by its clock then, a begin is the daemon's own."""


class Delays:
    """Which jobs that wait start only later, by their users' word or by Slurm's.

    Slurm lets what it queues again wait for a while. That is passed over where the daemon has
    stopped the run, and else once in `HURRIED_S`: a job that fails at each start would take others'
    turns.
    """

    def __init__(self) -> None:
        """Nothing has been passed over."""
        # Which run of a job did not wait, and since when.
        self._hurried: dict[str, tuple[int, float]] = {}
        self._entered_s: dict[str, float] = {}

    def keep(self, jobs: Container[str]) -> None:
        """Forget all but these jobs."""
        self._hurried = {job: each for job, each in self._hurried.items() if job in jobs}
        self._entered_s = {job: at_s for job, at_s in self._entered_s.items() if job in jobs}

    def entered(self, job: str, now: float) -> None:
        """Note that the daemon has placed a job, which is due then by the daemon's clock."""
        self._entered_s[job] = now

    def begins_later(self, seen: SlurmJob, now: float, known: ManagedJob | None = None) -> bool:
        """Return whether a job starts only later.

        Args:
            seen: the job.
            now: seconds UTC.
            known: what was known of it before, if anything.
        """
        if seen.begin_s is None or seen.begin_s <= now or seen.state is not JobState.PENDING:
            return False
        if not seen.restarts:
            return True
        if seen.begin_s > now + HURRIED_S:
            # If it is when the daemon placed it, the clock has been set back since.
            return abs(seen.begin_s - self._entered_s.get(seen.id, -math.inf)) > _ENTERING_S
        run, at_s = self._hurried.get(seen.id, (-1, -math.inf))
        if run != seen.restarts:
            stopped = seen.copies or (known is not None and known.was_stopped(seen))
            if not stopped and at_s <= now < at_s + HURRIED_S:
                return True
            self._hurried[seen.id] = seen.restarts, (at_s if stopped else now)
        return False
