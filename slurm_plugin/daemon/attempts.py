"""Jobs that Slurm does not start where they are placed: one of their kind at a time is tried."""

from __future__ import annotations

import math
from typing import NamedTuple

from slurm_plugin.backend import SlurmJob
from slurm_plugin.daemon.request import Request

IN_VAIN = 3
"""After so many of a kind that Slurm did not start one at a time is tried."""

_NEXT_S = 60.0
"""How long the next one of its kind waits for the one that is tried."""

_FORGOTTEN_S = 600.0
"""After so long without another one a kind is like all others again."""


class Kind(NamedTuple):
    """Whose job it is, and what it asks for: Slurm does the same with all of a kind.

    What a user asks for in vain, such as a disk that no node has, may be in jobs of many kinds.
    """

    user: str
    asks: tuple[object, ...] = ()


def kind_of(job: SlurmJob, request: Request) -> Kind:
    """Return the kind of a job, the same whether it waits, is placed or runs."""
    under = job.account, job.qos, frozenset(job.partitions), job.constraint
    return Kind(job.user, (*under, request.own, request.counts))


class Attempts:
    """How many of a kind Slurm has not started since it last started one.

    So many of several kinds of one user stand for all kinds of that user, but for those of which
    Slurm has started one.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._in_vain: dict[Kind, tuple[int, float]] = {}
        self._tried: dict[Kind, tuple[str, float]] = {}
        self._good: set[Kind] = set()

    def __bool__(self) -> bool:
        """Whether any job waits for others like it."""
        return any(count >= IN_VAIN for count, _ in self._in_vain.values())

    def failed(self, kind: Kind, now: float) -> None:
        """Note that Slurm has not started one where it was placed."""
        self._good.discard(kind)
        for each in (kind, Kind(kind.user)):
            count, _ = self._in_vain.get(each, (0, now))
            self._in_vain[each] = count + 1, now

    def started(self, kind: Kind) -> None:
        """Note that Slurm has started one."""
        self._drop(kind)
        if kind not in self._good:
            self._drop(Kind(kind.user))
        if self._in_vain:
            self._good.add(kind)

    def may_try(self, kind: Kind, job: str, now: float) -> bool:
        """Whether a job is to be placed now, or waits for another one of its kind."""
        if not self._waits(kind):
            if kind in self._good or not self._waits(Kind(kind.user)):
                return True
            kind = Kind(kind.user)
        tried, since_s = self._tried.get(kind, ("", -math.inf))
        if not since_s <= now < since_s + _NEXT_S:
            tried = job
            self._tried[kind] = job, now
        return tried == job

    def forget(self, now: float) -> None:
        """Forget kinds of which no other one was tried for long: their jobs may be gone."""
        for kind, (_, last_s) in tuple(self._in_vain.items()):
            if not now - _FORGOTTEN_S <= last_s <= now:
                self._drop(kind)
        if not self._in_vain:
            self._good.clear()

    def _waits(self, kind: Kind) -> bool:
        return self._in_vain.get(kind, (0, 0.0))[0] >= IN_VAIN

    def _drop(self, kind: Kind) -> None:
        self._in_vain.pop(kind, None)
        self._tried.pop(kind, None)
