"""What Slurm keeps from a job for what others have already.

Nodes, for jobs that share nodes with those of their own user alone (`--exclusive=user`), and for
partitions whose jobs may have no more than some CPUs of each node (`MaxCPUsPerNode`). Licences.
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
    """Whose jobs are on the nodes, and what they have.

    Attributes:
        users: node -> the users of all jobs there.
        alone: node -> those of jobs that share it with no other user.
        most: partition -> the CPUs that its jobs may have of each node, where there is a limit.
        cpus: (such a partition, node) -> the CPUs that its jobs have there.
        licenses: how many of each are free; below 0 where more was placed than there are.
    """

    users: Mapping[str, frozenset[str]] = field(default_factory=dict)
    alone: Mapping[str, frozenset[str]] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)
    cpus: Mapping[tuple[str, str], float] = field(default_factory=dict)
    licenses: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, jobs: Iterable[SlurmJob], most: Mapping[str, int], licenses: Mapping[str, int]
    ) -> Tenants:
        """Return what jobs that run, or were placed, have that keeps others from starting.

        Args:
            jobs: all jobs, each element of an array by itself.
            most: as in `Tenants`.
            licenses: how many of each kind jobs may have together.
        """
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
        free = dict(licenses)
        for job in found if free else ():
            if job.entered or job.state in _HAVE_LICENSES:
                _take(free, job)
        return cls(_frozen(users), _frozen(alone), most, dict(cpus), free)

    def closed_to(self, job: SlurmJob) -> frozenset[str]:
        """Return the nodes on which Slurm would not start a job, for those that are there."""
        return self.others(job) | self.full(job)

    def counts(self, job: SlurmJob) -> bool:
        """Whether it is known how many there are of all licences that a job asks for."""
        return bool(job.licenses) and all(name in self.licenses for name, _ in job.licenses)

    def lacks(self, job: SlurmJob) -> str:
        """Return which licence keeps a waiting job from starting; "" for none.

        One that is placed counts among those that have theirs.
        """
        for name, count in job.licenses:
            free = self.licenses.get(name, count)
            if free < (0 if job.entered else count):
                return f"it asks for {count} of {name}, and {max(0, free)} are free"
        return ""

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


_HAVE_LICENSES = (JobState.RUNNING, JobState.SUSPENDED)


def _take(free: dict[str, int], job: SlurmJob) -> None:
    for name, count in job.licenses:
        if name in free:
            free[name] -= count


def _where(job: SlurmJob) -> tuple[str, ...]:
    """Return the nodes that a job holds, or was placed on."""
    return job.nodes or (job.pinned if job.entered else ())


def _frozen(found: Mapping[str, set[str]]) -> dict[str, frozenset[str]]:
    return {name: frozenset(users) for name, users in found.items()}


class Comers:
    """What enters which node after a read, and has what no policy knows of."""

    def __init__(self, tenants: Tenants) -> None:
        """Begin with what is there."""
        self._users: dict[str, set[tuple[str, bool]]] = {}
        self._most, self._cpus = tenants.most, dict(tenants.cpus)
        self._licenses = dict(tenants.licenses)

    def admits(self, job: SlurmJob, name: str, cpus: float) -> bool:
        """Whether a partition of a job lets it have so many CPUs more of a node."""
        return not self._most or self._partition(job, name, cpus) != _FULL

    def has_licenses(self, job: SlurmJob) -> bool:
        """Whether a job finds the licences that it asks for."""
        return all(self._licenses.get(name, count) >= count for name, count in job.licenses)

    def take(self, job: SlurmJob, cpus: Mapping[str, float]) -> bool:
        """Let a job enter nodes, with so many CPUs of each; False where Slurm would not start it.

        That is beside what enters with it, within what its partition leaves of a node, or without
        its licences.
        """
        if not self.has_licenses(job):
            return False
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
        _take(self._licenses, job)
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
