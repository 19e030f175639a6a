"""Whether Slurm refuses whatever is placed: nodes that are held then only idle."""

from __future__ import annotations

import math

from slurm_plugin.backend import ApplyResult
from slurm_plugin.backend.change import Enter

GIVEN_BACK_S = 300.0
"""How long Slurm has the nodes before it is asked again."""

_LEAST_JOBS = 3
"""So many jobs must have been refused: one may be odd by itself."""

_AGAIN_S = 90.0
"""Within which what was refused is tried again; if not, it is gone, or waits for something."""


class Refusals:
    """The jobs of which Slurm takes no change, not even back, since it took a placement.

    A site's own `slurm_job_modify` that fails, for example, refuses every change of every job.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._last_s: dict[str, float] = {}
        self._since_s = self._until_s = -math.inf
        self._words = ""

    def note(self, outcome: ApplyResult, now: float, for_s: float) -> None:
        """Take in what became of a cycle's placements.

        Args:
            outcome: what was made, and what was refused.
            now: seconds UTC.
            for_s: the nodes are given back once it has been so for so many seconds.
        """
        made = any(isinstance(change, Enter) for change in outcome.made)
        before = {} if made else self._last_s
        self._last_s = {job: at for job, at in before.items() if 0 <= now - at < _AGAIN_S}
        if not outcome.stuck:
            return
        if not self._last_s:
            self._since_s = now
        self._last_s |= dict.fromkeys(outcome.stuck, now)
        # Of a gang the element that was refused need not be one that cannot be taken back.
        self._words = outcome.refused[0][1]
        if len(self._last_s) >= _LEAST_JOBS and now - self._since_s >= for_s:
            self._until_s = now + GIVEN_BACK_S
            self._last_s = {}

    def given_back(self, now: float) -> bool:
        """Whether Slurm has the nodes now."""
        return now < self._until_s <= now + GIVEN_BACK_S

    def warning(self, now: float) -> str:
        """Return what is to be told of it; "" for nothing."""
        if not self.given_back(now):
            return ""
        return (
            "Slurm takes no change of any job that is placed, and has the nodes back for five "
            f"minutes; it says {self._words}. Does the site's own slurm_job_modify fail? Slurm's "
            "log tells"
        )
