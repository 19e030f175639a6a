"""The order in which Slurm serves jobs: priorities from several factors (priority/multifactor).

Source: "Multifactor Priority Plugin" in Slurm's documentation; what each weight is called in
slurm.conf stands in `docs/policies/slurm.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from hetsched_core.types import Job, JobView, Snapshot
from hetsched_core.types.site import Association, association_of


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
    """An order of jobs: higher tier first, then higher priority, then by submission.

    Attributes:
        weights: of the factors.
        max_age_s: the age from which on the age factor is 1.
        favor_small: small jobs have the greater size factor, not large ones.
        partitions: number of each partition, relative to the greatest; 0 where it is not named, and
            for all where the greatest is 0.
        at_s: when ages and shares were looked at (UTC).
        shares: fair-share factors; 1 for users unknown then.
    """

    weights: Weights
    max_age_s: float
    favor_small: bool
    partitions: Mapping[str, int]
    at_s: float = -math.inf
    shares: Mapping[Association, float] = field(default_factory=dict)

    @property
    def by_submission(self) -> bool:
        """Whether jobs of a tier are served in the order of submission."""
        return self.weights == _NONE

    def __call__(self, view: JobView, snapshot: Snapshot) -> tuple[int, int, float, str]:
        """Return the key that sorts jobs by priority; it does not change while the ranking holds.

        As in Slurm the priority is a whole number, and ties are served by submission. Tiers are the
        site's: without its word there are none.
        """
        job = view.job
        tier = 0 if snapshot.site is None else -job.tier
        priority = 0
        if not self.by_submission:
            priority = math.floor(self.priority(view, snapshot.cluster.gpus))
        return (tier, -priority, job.submit_s, job.id)

    def priority(self, view: JobView, gpus: int) -> float:
        """Return the weighted sum of a job's factors, on a cluster of so many GPUs."""
        weights, job = self.weights, view.job
        priority = 0.0
        if weights.age:
            priority += weights.age * self._age(job)
        if weights.fairshare:
            priority += weights.fairshare * self.shares.get(association_of(job), 1.0)
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
