"""Jobs that Slurm does not start where they are placed: one of their kind at a time is tried."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from slurm_plugin.backend import SlurmJob
from slurm_plugin.daemon.jobs.kept_back import LONGEST_S, QUOTA_S, again_after_s
from slurm_plugin.daemon.jobs.request import Request

IN_VAIN = 3
"""After so many of a kind that Slurm did not start one at a time is tried."""

_FOR_NODES = 2
"""After so many, where others of the kind start elsewhere, it is for the nodes."""

_FORGOTTEN_S = 1800.0
"""After so long without another one a kind is like all others again."""


class Kind(NamedTuple):
    """Whose job it is, and what it asks for: Slurm does the same with all of a kind.

    What a user asks for in vain, such as a disk that no node has, may be in jobs of many kinds.
    """

    user: str
    asks: tuple[object, ...] = ()


def kind_of(job: SlurmJob, request: Request, waited_for: Collection[str] = ()) -> Kind:
    """Return the kind of a job, the same whether it waits, is placed or runs.

    `waited_for` are the partitions that it waited for: of what runs Slurm shows one alone.
    """
    under = job.account, job.qos, frozenset(waited_for or job.partitions), job.constraint
    return Kind(job.user, (*under, request.own, request.counts))


class _Failed(NamedTuple):
    """How many of a kind have failed, from when until when, and on which nodes when last.

    Without nodes where Slurm named something that does not depend on them.
    """

    times: int
    first_s: float
    last_s: float
    nodes: Mapping[str, float]


class Attempts:
    """How many of a kind Slurm has not started since it last started one on one of those nodes.

    Where it starts one on other nodes, it is for the nodes: the kind is kept off them, but for one
    job a minute, since they may be as good as others again.

    So many kinds of one user stand for all kinds of that user, but for those of which Slurm has
    started one there. Of kinds that have not failed one is tried each minute: the user
    may have mended what was wrong.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._in_vain: dict[Kind, _Failed] = {}
        self._tried: dict[Kind, tuple[str, float]] = {}
        self._good: set[Kind] = set()
        self._elsewhere: set[Kind] = set()
        # Which kinds of a user have failed.
        self._of_user: dict[str, set[Kind]] = {}

    def __bool__(self) -> bool:
        """Whether any job waits for others like it, or may be kept off nodes."""
        return any(failed.times >= _FOR_NODES for failed in self._in_vain.values())

    def failed(
        self, kind: Kind, nodes: Collection[str], now: float, since_s: float | None = None
    ) -> None:
        """Note that Slurm has not started one on these nodes, or, without any, where it stood.

        `since_s` is since when it was placed there: what has started elsewhere from then on says
        that it is for the nodes.
        """
        since_s = now if since_s is None else since_s
        self._good.discard(kind)
        self._of_user.setdefault(kind.user, set()).add(kind)
        for each in (kind, Kind(kind.user)):
            times, first_s, _, before = self._in_vain.get(each, _NEVER)
            # Of a user's kinds the last to fail tells whether it is for nodes at all: one that has
            # failed on nodes before need not start there for the others to be tried again.
            before = before if each.asks or nodes else {}
            on = {**before, **dict.fromkeys(nodes, now)}
            self._in_vain[each] = _Failed(times + 1, min(first_s, since_s), now, on)

    def started(self, kind: Kind, nodes: Iterable[str], at_s: float) -> None:
        """Note that Slurm has started one on these nodes, and when."""
        if not self._in_vain:
            return
        there, user = frozenset(nodes), Kind(kind.user)
        if self._is_over(kind, there, at_s):
            self._drop(kind)
        elif kind in self._in_vain and at_s > self._in_vain[kind].first_s:
            self._elsewhere.add(kind)
        if kind not in self._good and self._is_over(user, there, at_s):
            self._drop(user)
            self._good.add(kind)

    def may_try(self, kind: Kind, job: str, now: float) -> bool:
        """Whether a job is to be placed now, or waits for another one of its kind."""
        if kind in self._elsewhere:
            return True
        if not self._waits(kind):
            if kind in self._good or not self._waits(Kind(kind.user)):
                return True
            kind = Kind(kind.user, () if kind in self._in_vain else _NEW)
        times = self._in_vain.get(kind, _NEVER).times
        return self._is_next(kind, job, -math.inf, again_after_s(max(0, times - IN_VAIN)), now)

    def bad_nodes(self, kind: Kind, job: str, now: float) -> frozenset[str]:
        """Return the nodes on which Slurm lately did not start a kind that it starts on others.

        None for the one job that is tried there all the same.
        """
        failed = self._in_vain.get(kind, _NEVER)
        if kind not in self._elsewhere or self._is_next(kind, job, failed.last_s, QUOTA_S, now):
            return frozenset()
        return frozenset(name for name, s in failed.nodes.items() if s <= now < s + LONGEST_S)

    def forget(self, now: float) -> None:
        """Forget kinds of which no other one was tried for long: their jobs may be gone."""
        for kind, failed in tuple(self._in_vain.items()):
            if not now - _FORGOTTEN_S <= failed.last_s <= now:
                self._drop(kind)
        if not self._in_vain:
            self._good.clear()

    def _is_next(self, kind: Kind, job: str, since_s: float, each_s: float, now: float) -> bool:
        """Whether a job is the one of its kind that is tried: another one after so long."""
        tried, tried_s = self._tried.get(kind, ("", since_s))
        since_s = max(since_s, tried_s)
        if not since_s <= now < since_s + each_s:
            tried = job
            self._tried[kind] = job, now
        return tried == job

    def _is_over(self, kind: Kind, there: frozenset[str], at_s: float) -> bool:
        """Whether a start shows that what kept a kind from starting does so no more."""
        failed = self._in_vain.get(kind)
        if failed is None:
            return False
        return bool(there & failed.nodes.keys()) if failed.nodes else at_s > failed.last_s

    def _waits(self, kind: Kind) -> bool:
        if not kind.asks:
            return len(self._of_user.get(kind.user, ())) >= IN_VAIN
        return self._in_vain.get(kind, _NEVER).times >= IN_VAIN

    def _drop(self, kind: Kind) -> None:
        self._in_vain.pop(kind, None)
        self._elsewhere.discard(kind)
        self._tried.pop(kind, None)
        if not kind.asks:
            self._of_user.pop(kind.user, None)
            self._tried.pop(Kind(kind.user, _NEW), None)


_NEVER = _Failed(0, math.inf, -math.inf, {})

_NEW = ("new",)
"""What stands for all kinds of a user that have not failed."""
