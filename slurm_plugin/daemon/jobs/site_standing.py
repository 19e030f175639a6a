"""Where jobs stand by the site's word: tier, shares, and limits over several jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from immutables import Map

from hetsched_core.types import Job
from hetsched_core.types.site import Association, Limit, Site
from slurm_plugin.backend import JobState, SlurmJob, SlurmSite
from slurm_plugin.backend.limits import GpuLimit
from slurm_plugin.backend.shares import SlurmShares

_NOTHING = SlurmShares()


class Standing:
    """What Slurm's accounting says of our jobs, as it was read last.

    Attributes:
        slurm: all that the site has set; None while that is not known.
    """

    def __init__(self) -> None:
        """Know of nothing."""
        self.slurm: SlurmSite | None = None
        self._shares: SlurmShares | None = None
        self._limits: dict[str, Limit] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._site: Site | None = None

    @property
    def site(self) -> Site | None:
        """What policies are told; None where the site makes no difference between jobs."""
        shares = self._shares
        if self._site is None and (self._limits or (shares and shares.ranks)):
            told = shares or _NOTHING
            # Slurm does not tell how much the cluster could have given: it was busy, say.
            whole = sum(told.used.values()) or 1.0
            used: Map[Association, float] = Map(
                {user: amount / whole for user, amount in told.used.items()}
            )
            self._site = Site(told.tree, used, dict(self._limits))
        return self._site

    @property
    def tiers(self) -> Mapping[str, int]:
        """The tier of each partition."""
        return (self._shares or _NOTHING).partitions

    @property
    def private_jobs(self) -> bool:
        """Whether Slurm shows users their own jobs alone."""
        return self.slurm is not None and self.slurm.private_jobs

    def limit(self, seen: SlurmJob) -> GpuLimit | None:
        """Return the limit on the GPUs of one job, None without one."""
        limits = self.slurm.limits if self.slurm else None
        return limits.of(seen) if limits else None

    def longest_s(self, seen: SlurmJob) -> float | None:
        """Return how long the partition, QOS and account let a job run, None for no bound."""
        if self.slurm is None:
            return None
        limits = self.slurm.limits
        own_s = limits.longest_s(seen) if limits else None
        both = self.slurm.longest_s.get(seen.partition), own_s
        return min((each for each in both if each is not None), default=None)

    def observe(self, site: SlurmSite) -> bool:
        """Take in what was read; return whether jobs may stand otherwise now.

        What could not be read stays as it was.
        """
        before, shares = self.slurm, self._shares
        if site.limits is None and before is not None:
            site = replace(site, limits=before.limits)
        self.slurm = site
        if site.shares and not (shares and site.shares.says(shares)):
            self._shares, self._site = site.shares, None
        if before is None or before.limits != site.limits:
            self._limits.clear()
            self._site = None
            return True
        if shares is None or self._shares is None:
            return self._shares is not shares
        return not self._shares.ranks_as(shares)

    def of(self, job: Job, seen: SlurmJob) -> Job:
        """Return a job with its tier and its limits; it gives way if it can and is told to."""
        every = self.slurm.limits if self.slurm else None
        limits = every.over_several(seen) if every else {}
        if not limits.keys() <= self._limits.keys():
            self._limits |= limits
            self._site = None
        names = tuple(limits)
        shares = self._shares or _NOTHING
        waits = seen.state is JobState.PENDING
        where = (waits and seen.partitions) or (seen.partition,)
        return replace(
            job,
            tier=max(shares.tier(each, seen.qos) for each in where),
            gives_way=job.gives_way and shares.gives_way(seen.partition, seen.qos),
            limits=self._names.setdefault(names, names),
        )
