"""Whether Slurm refuses whatever is placed: nodes that are held then only idle."""

from __future__ import annotations

import math

from slurm_plugin.backend import ApplyResult
from slurm_plugin.backend.change import Enter

GIVEN_BACK_S = 300.0
"""How long Slurm has the nodes before it is asked again."""

_LEAST_JOBS = 3
"""So many jobs must have been refused: one may be odd by itself."""


class Refusals:
    """The placements that Slurm has refused since it took one.

    A site's own `slurm_job_modify` that fails, for example, refuses every change of every job.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._jobs: set[str] = set()
        self._since_s = self._until_s = -math.inf
        self._words = ""

    def note(self, outcome: ApplyResult, now: float, for_s: float) -> None:
        """Take in what became of a cycle's placements.

        Args:
            outcome: what was made, and what was refused.
            now: seconds UTC.
            for_s: after so many seconds of refusals alone the nodes are given back.
        """
        if any(isinstance(change, Enter) for change in outcome.made):
            self._jobs.clear()
        refused = {c.job: words for c, words in outcome.refused if isinstance(c, Enter)}
        if not refused:
            return
        if not self._jobs or now < self._since_s:
            self._since_s = now
        self._jobs |= refused.keys()
        self._words = next(iter(refused.values()))
        if len(self._jobs) >= _LEAST_JOBS and now - self._since_s >= for_s:
            self._until_s = now + GIVEN_BACK_S
            self._jobs.clear()

    def given_back(self, now: float) -> bool:
        """Whether Slurm has the nodes now."""
        return now < self._until_s <= now + GIVEN_BACK_S

    def warning(self, now: float) -> str:
        """Return what is to be told of it; "" for nothing."""
        if not self.given_back(now):
            return ""
        return (
            "Slurm refuses every placement, and has the nodes back for five minutes; it says "
            f"{self._words}. Does the site's own slurm_job_modify fail? Slurm's log tells"
        )
