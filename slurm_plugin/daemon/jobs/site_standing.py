"""Where jobs stand by the site's word: tier, shares, and limits over several jobs."""

from __future__ import annotations

from dataclasses import replace

from immutables import Map

from hetsched_core.types import Job
from hetsched_core.types.site import Association, Limit, Site
from slurm_plugin.backend import JobState, SlurmJob, SlurmSite
from slurm_plugin.backend.shares import SlurmShares

_NOTHING = SlurmShares()


class Standing:
    """What Slurm's accounting says of our jobs, as it was read last."""

    def __init__(self) -> None:
        """Know of nothing."""
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

    def observe(self, site: SlurmSite, *, anew: bool) -> bool:
        """Take in what was read; return whether jobs may stand in other tiers now.

        Args:
            site: as Slurm shows it; what could not be read stays as it was.
            anew: whether limits are other ones, so that all jobs are to be looked at again.
        """
        before = self._shares
        if site.shares and not (before and site.shares.says(before)):
            self._shares, self._site = site.shares, None
        if anew:
            self._limits.clear()
            self._site = None
        if before is None or self._shares is None:
            return before is not self._shares
        return not self._shares.ranks_as(before)

    def of(self, job: Job, seen: SlurmJob, site: SlurmSite | None) -> Job:
        """Return a job with its tier and its limits; it gives way if it can and is told to."""
        limits = site.limits.over_several(seen) if site and site.limits else {}
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
