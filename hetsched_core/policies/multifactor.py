"""The order in which Slurm serves jobs: priorities from several factors (priority/multifactor).

Source: "Multifactor Priority Plugin" and "Fair Tree Fairshare Algorithm" in Slurm's documentation;
what each weight is called in slurm.conf stands in `docs/policies/slurm.md`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeVar

from hetsched_core.types import Configuration, Job, JobView, Snapshot

_Sibling = TypeVar("_Sibling", bound=Hashable)

Association = tuple[str, str]
"""Who a job is charged to: account and user."""


def association(job: Job) -> Association:
    """Return who a job is charged to."""
    return (job.account, job.user)


@dataclass(frozen=True, slots=True)
class Usage:
    """GPU seconds used by each association, those of the past decayed.

    Attributes:
        at_s: when these amounts hold (UTC).
        gpu_s: decayed GPU seconds of everybody who was ever seen.
        gpus: GPUs held from then on.
    """

    at_s: float = -math.inf
    gpu_s: Mapping[Association, float] = field(default_factory=dict)
    gpus: Mapping[Association, int] = field(default_factory=dict)

    def carried_on(self, now: float, half_life_s: float) -> Usage:
        """Return the usage at `now`: what was held counts, and everything halves in a half-life.

        With GPUs held at a constant rate, u' = gpus - u ln 2 / half-life.
        """
        seconds = now - self.at_s
        if seconds <= 0:
            return self
        kept = 0.5 ** (seconds / half_life_s)
        counted_s = (1.0 - kept) * half_life_s / math.log(2.0)
        gpu_s = {
            who: kept * used + counted_s * self.gpus.get(who, 0) for who, used in self.gpu_s.items()
        }
        return Usage(now, gpu_s, self.gpus)

    def knowing(self, jobs: Iterable[Job]) -> Usage:
        """Return the usage with all these jobs' associations; who is new has used nothing."""
        return Usage(
            self.at_s, {**{association(job): 0.0 for job in jobs}, **self.gpu_s}, self.gpus
        )

    def holding(self, placed: Iterable[tuple[Job, Configuration]]) -> Usage:
        """Return the usage with these GPUs, and no others, held from `at_s` on."""
        gpus: Counter[Association] = Counter()
        for job, configuration in placed:
            gpus[association(job)] += configuration.gpus
        return Usage(self.at_s, self.gpu_s, gpus)


def fair_tree(gpu_s: Mapping[Association, float]) -> dict[Association, float]:
    """Return the fair-share factor of each association, in (0, 1], by Fair Tree.

    Accounts are children of the root and users of their accounts, siblings with equal shares. The
    level fairshare of each is shares / usage, both relative to its siblings. Users are ranked
    depth first, accounts and then users of a higher level fairshare before others; the factor is
    rank / number of users, and who ties shares the higher rank.
    """
    accounts: dict[str, dict[Association, float]] = {}
    for who, used in gpu_s.items():
        accounts.setdefault(who[0], {})[who] = used
    of_account = _level_fairshare({name: sum(users.values()) for name, users in accounts.items()})
    of_user = {w: lf for users in accounts.values() for w, lf in _level_fairshare(users).items()}

    def place(who: Association) -> tuple[float, float]:
        return (-of_account[who[0]], -of_user[who])

    factors: dict[Association, float] = {}
    for _, tied in groupby(sorted(gpu_s, key=place), key=place):
        rank = len(gpu_s) - len(factors)
        factors.update(dict.fromkeys(tied, rank / len(gpu_s)))
    return factors


def _level_fairshare(used: Mapping[_Sibling, float]) -> dict[_Sibling, float]:
    """Return (share / usage) of each of these siblings; infinity for who has used nothing."""
    total = sum(used.values())
    return {who: total / (len(used) * u) if u > 0 else math.inf for who, u in used.items()}


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each factor counts; with all at 0 jobs are served in the order of submission."""

    age: int = 0
    fairshare: int = 0
    job_size: int = 0
    partition: int = 0

    @property
    def change_with_time(self) -> bool:
        """Whether the order of two jobs may change while they wait."""
        return self.age > 0 or self.fairshare > 0


_NONE = Weights()


@dataclass(frozen=True, slots=True)
class Ranking:
    """An order of jobs: higher priority first, then by submission.

    Attributes:
        weights: of the factors.
        max_age_s: the age from which on the age factor is 1.
        favor_small: small jobs have the greater size factor, not large ones.
        partitions: number of each partition, relative to the greatest; 0 where it is not named, and
            for all where the greatest is 0.
        at_s: when ages and shares were looked at (UTC).
        shares: fair-share factors; 1 for who was unknown then.
    """

    weights: Weights
    max_age_s: float
    favor_small: bool
    partitions: Mapping[str, int]
    at_s: float = -math.inf
    shares: Mapping[Association, float] = field(default_factory=dict)

    @property
    def by_submission(self) -> bool:
        """Whether jobs are served in the order of submission."""
        return self.weights == _NONE

    def __call__(self, view: JobView, snapshot: Snapshot) -> tuple[int, float, str]:
        """Return the key that sorts jobs by priority; it does not change while the ranking holds.

        As in Slurm the priority is a whole number, and who ties is served by submission.
        """
        job = view.job
        if self.by_submission:
            return (0, job.submit_s, job.id)
        return (-math.floor(self.priority(view, snapshot.cluster.gpus)), job.submit_s, job.id)

    def priority(self, view: JobView, gpus: int) -> float:
        """Return the weighted sum of a job's factors, on a cluster of so many GPUs."""
        weights, job = self.weights, view.job
        priority = 0.0
        if weights.age:
            priority += weights.age * self._age(job)
        if weights.fairshare:
            priority += weights.fairshare * self.shares.get(association(job), 1.0)
        if weights.job_size:
            size = min(1.0, job.requirements.lower_median / gpus)
            priority += weights.job_size * (1.0 - size if self.favor_small else size)
        greatest = max(self.partitions.values(), default=0)
        if weights.partition and greatest:
            number = self.partitions.get(job.partition, 0)
            priority += weights.partition * number / greatest
        return priority

    def _age(self, job: Job) -> float:
        return min(1.0, max(0.0, self.at_s - job.eligible_from_s) / self.max_age_s)
