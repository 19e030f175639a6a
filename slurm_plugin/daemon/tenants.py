"""Jobs that share nodes with those of their own user alone (`--exclusive=user`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from slurm_plugin.backend import JobState, SlurmJob

_OWN_USER = frozenset({"user", "mcs"})
"""Kinds of `exclusive` that share no node with others; whose MCS label is the same is not known."""


@dataclass(frozen=True, slots=True)
class Tenants:
    """Whose jobs are on the nodes, by node: all, and those that share with no other user."""

    users: Mapping[str, frozenset[str]] = field(default_factory=dict)
    alone: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, jobs: Iterable[SlurmJob]) -> Tenants:
        """Return whose jobs run or were placed where; nothing where all share with all."""
        found = tuple(job for job in jobs if job.state is not JobState.ENDED)
        if not any(job.exclusive in _OWN_USER for job in found):
            return _NONE
        users: defaultdict[str, set[str]] = defaultdict(set)
        alone: defaultdict[str, set[str]] = defaultdict(set)
        for job in found:
            for name in job.nodes or (job.pinned if job.entered else ()):
                users[name].add(job.user)
                if job.exclusive in _OWN_USER:
                    alone[name].add(job.user)
        return cls(_frozen(users), _frozen(alone))

    def closed_to(self, job: SlurmJob) -> frozenset[str]:
        """Return the nodes on which Slurm would not start a job, for the jobs of others there."""
        there = self.users if job.exclusive in _OWN_USER else self.alone
        return frozenset(name for name, users in there.items() if users - {job.user})


_NONE = Tenants()


def _frozen(found: Mapping[str, set[str]]) -> dict[str, frozenset[str]]:
    return {name: frozenset(users) for name, users in found.items()}


class Comers:
    """What enters which node in one cycle, of which a policy knows nothing."""

    def __init__(self) -> None:
        """Begin with none."""
        self._there: dict[str, set[tuple[str, bool]]] = {}

    def take(self, job: SlurmJob, nodes: Iterable[str]) -> bool:
        """Let a job enter nodes; False where Slurm would start it beside none that enters one."""
        own, names = job.exclusive in _OWN_USER, tuple(nodes)
        others = {each for name in names for each in self._there.get(name, ())}
        if any(user != job.user and (own or alone) for user, alone in others):
            return False
        for name in names:
            self._there.setdefault(name, set()).add((job.user, own))
        return True
