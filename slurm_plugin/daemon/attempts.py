"""Kinds of jobs that Slurm does not start where they are placed: one at a time is tried."""

from __future__ import annotations

import math

from slurm_plugin.backend import SlurmJob
from slurm_plugin.daemon.request import Request

Kind = tuple[object, ...]
"""Whose job it is and what it asks for: what Slurm does with one it does with all of a kind."""

IN_VAIN = 3
"""After so many of a kind that Slurm did not start one at a time is tried."""

_NEXT_S = 60.0
"""How long the next one of its kind waits for the one that is tried."""

_FORGOTTEN_S = 600.0
"""After so long without another one a kind is like all others again."""


def kind_of(job: SlurmJob, request: Request) -> Kind:
    """Return the kind of a job, the same whether it waits, is placed or runs."""
    whose = job.user, job.account, job.qos, frozenset(job.partitions)
    return *whose, job.constraint, request.own, request.counts


class Attempts:
    """How many of a kind Slurm has not started since it last started one."""

    def __init__(self) -> None:
        """Begin with none."""
        self._in_vain: dict[Kind, tuple[int, float]] = {}
        self._tried: dict[Kind, tuple[str, float]] = {}

    def __bool__(self) -> bool:
        """Whether any job waits for others like it."""
        return any(count >= IN_VAIN for count, _ in self._in_vain.values())

    def failed(self, kind: Kind, now: float) -> None:
        """Note that Slurm has not started one where it was placed."""
        count, _ = self._in_vain.get(kind, (0, now))
        self._in_vain[kind] = count + 1, now

    def started(self, kind: Kind) -> None:
        """Note that Slurm has started one."""
        self._in_vain.pop(kind, None)
        self._tried.pop(kind, None)

    def may_try(self, kind: Kind, job: str, now: float) -> bool:
        """Whether a job is to be placed now, or waits for another one of its kind."""
        if self._in_vain.get(kind, (0, now))[0] < IN_VAIN:
            return True
        tried, since_s = self._tried.get(kind, ("", -math.inf))
        if not since_s <= now < since_s + _NEXT_S:
            tried = job
            self._tried[kind] = job, now
        return tried == job

    def forget(self, now: float) -> None:
        """Forget kinds of which no other one was tried for long: their jobs may be gone."""
        for kind, (_, last_s) in tuple(self._in_vain.items()):
            if not now - _FORGOTTEN_S <= last_s <= now:
                self.started(kind)
