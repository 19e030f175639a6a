"""What Slurm keeps off a node for the jobs that are there already.

Jobs that share nodes with those of their own user alone (`--exclusive=user`), and partitions whose
jobs may have no more than some CPUs of each node (`MaxCPUsPerNode`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from slurm_plugin.backend import JobState, SlurmJob

_OWN_USER = frozenset({"user", "mcs"})
"""Kinds of `exclusive` that share no node with others; whose MCS label is the same is not known."""


@dataclass(frozen=True, slots=True)
class Tenants:
    """Whose jobs are on the nodes.

    Attributes:
        users: node -> the users of all jobs there.
        alone: node -> those of jobs that share it with no other user.
        most: partition -> the CPUs that its jobs may have of each node, where there is a limit.
        cpus: (such a partition, node) -> the CPUs that its jobs have there.
    """

    users: Mapping[str, frozenset[str]] = field(default_factory=dict)
    alone: Mapping[str, frozenset[str]] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)
    cpus: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @classmethod
    def of(cls, jobs: Iterable[SlurmJob], most: Mapping[str, int]) -> Tenants:
        """Return whose jobs run or were placed where, as far as that keeps any job off a node."""
        found = tuple(job for job in jobs if job.state is not JobState.ENDED)
        users: defaultdict[str, set[str]] = defaultdict(set)
        alone: defaultdict[str, set[str]] = defaultdict(set)
        cpus: defaultdict[tuple[str, str], float] = defaultdict(float)
        for job in found if any(job.exclusive in _OWN_USER for job in found) else ():
            for name in _where(job):
                users[name].add(job.user)
                if job.exclusive in _OWN_USER:
                    alone[name].add(job.user)
        for job in found if most else ():
            for name in _where(job) if job.partition in most else ():
                cpus[job.partition, name] += job.on_each[0]
        return cls(_frozen(users), _frozen(alone), most, dict(cpus))

    def closed_to(self, job: SlurmJob) -> frozenset[str]:
        """Return the nodes on which Slurm would not start a job, for those that are there."""
        return self.others(job) | self.full(job)

    def others(self, job: SlurmJob) -> frozenset[str]:
        """Return the nodes that it would share with another user, which it or that does not."""
        there = self.users if job.exclusive in _OWN_USER else self.alone
        return frozenset(name for name, users in there.items() if users - {job.user})

    def full(self, job: SlurmJob) -> frozenset[str]:
        """Return the nodes on which its partitions' jobs have too many CPUs."""
        if not self.cpus or not all(each in self.most for each in job.partitions):
            return _NONE
        comers, cpus = Comers(self), job.on_each[0]
        names = {name for partition, name in self.cpus if partition in job.partitions}
        return frozenset(name for name in names if not comers.admits(job, name, cpus))


_NONE: frozenset[str] = frozenset()


def _where(job: SlurmJob) -> tuple[str, ...]:
    """Return the nodes that a job holds, or was placed on."""
    return job.nodes or (job.pinned if job.entered else ())


def _frozen(found: Mapping[str, set[str]]) -> dict[str, frozenset[str]]:
    return {name: frozenset(users) for name, users in found.items()}


class Comers:
    """What enters which node in one cycle, of which a policy knows nothing."""

    def __init__(self, tenants: Tenants) -> None:
        """Begin with what is there."""
        self._users: dict[str, set[tuple[str, bool]]] = {}
        self._most, self._cpus = tenants.most, dict(tenants.cpus)

    def admits(self, job: SlurmJob, name: str, cpus: float) -> bool:
        """Whether a partition of a job lets it have so many CPUs more of a node."""
        return not self._most or self._partition(job, name, cpus) != _FULL

    def take(self, job: SlurmJob, cpus: Mapping[str, float]) -> bool:
        """Let a job enter nodes, with so many CPUs of each; False where Slurm would not start it.

        That is beside what enters with it, or within what its partition leaves of a node.
        """
        own = job.exclusive in _OWN_USER
        others = {each for name in cpus for each in self._users.get(name, ())}
        if any(user != job.user and (own or alone) for user, alone in others):
            return False
        if not all(self.admits(job, name, more) for name, more in cpus.items()):
            return False
        for name, more in cpus.items():
            self._users.setdefault(name, set()).add((job.user, own))
            partition = self._partition(job, name, more)
            if partition in self._most:
                taken = self._cpus.get((partition, name), 0.0)
                self._cpus[partition, name] = taken + more
        return True

    def _partition(self, job: SlurmJob, name: str, cpus: float) -> str:
        """Return the first of its partitions under which there is room for a job, or `_FULL`."""
        for each in job.partitions or (job.partition,):
            most = self._most.get(each)
            if most is None or self._cpus.get((each, name), 0.0) + cpus <= most:
                return each
        return _FULL


_FULL = ""
"""The name of no partition."""
