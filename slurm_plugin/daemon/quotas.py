"""What Slurm has said, or done, of some jobs that holds for others like them.

What comes under a limit that it has named waits, too, until a job ends. Of a kind of which it has
not started several where they were placed, one at a time is tried, until it starts one.
"""

from __future__ import annotations

import math

from hetsched_core.types import Reason, ReasonCode
from slurm_plugin.backend import JobState, SlurmJob
from slurm_plugin.daemon.managed import BELIEVED_S, LIMITS, QUOTA_S, ManagedJob
from slurm_plugin.daemon.slurm_reasons import limits_together, partition_is_closed

_Peers = tuple[str, str, str, frozenset[str] | None]
"""Whose jobs come under a limit together: user, account, QOS, and which GPU types they accept."""


Kind = tuple[object, ...]
"""Whose job it is and what it asks for: what Slurm does with one it does with all of a kind."""

IN_VAIN = 3
"""After so many of a kind that Slurm did not start, one at a time is tried."""

_LIKE_IT = Reason(
    ReasonCode.NOT_STARTED,
    detail="others like it have not started where they were placed; one at a time is tried",
)


def kind_of(job: SlurmJob) -> Kind:
    """Return whose job it is, and what Slurm looks at before it starts one."""
    asks = (job.gpus, *job.on_each, job.least_nodes, job.constraint, job.time_limit_s)
    return job.user, job.account, job.qos, job.partitions, asks


class Quotas:
    """The limits of which Slurm has said that jobs have met them.

    Slurm names one once a job is placed. To place the job again in each cycle would not help, nor
    to place others of which the same limit holds.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._met: dict[_Peers, tuple[Reason, int, float]] = {}
        # How many of a kind Slurm has not started since it last started one; which one is tried.
        self._in_vain: dict[Kind, tuple[int, float]] = {}
        self._tried: dict[Kind, tuple[str, float]] = {}

    def __bool__(self) -> bool:
        """Whether any job waits for others like it."""
        return bool(self._met) or any(count >= IN_VAIN for count, _ in self._in_vain.values())

    def lift(self, ended: SlurmJob) -> None:
        """Forget those in which a job had its part: others may come under them now."""
        had = {ended.user, ended.account, ended.qos}
        self._met = {peers: met for peers, met in self._met.items() if had.isdisjoint(peers[:3])}

    def of(
        self, known: ManagedJob, seen: SlurmJob, named: Reason | None, now: float
    ) -> Reason | None:
        """Return the limit, or what else Slurm said of its last placement, that keeps a job back.

        Args:
            known: the job, whose own `quota` is brought up to date.
            seen: as Slurm shows it.
            named: what Slurm says of it.
            now: seconds UTC.
        """
        if known.in_vain:
            known.in_vain = False
            count, _ = self._in_vain.get(kind_of(seen), (0, now))
            self._in_vain[kind_of(seen)] = count + 1, now
        elif self._in_vain and seen.state is JobState.RUNNING:
            self._in_vain.pop(kind_of(seen), None)
        peers = (seen.user, seen.account, seen.qos, known.request.gpu_types)
        if named is not None and named.code in LIMITS:
            known.quota = named, now + QUOTA_S
            if limits_together(named.detail):
                gpus = 0 if "Job" in named.detail else seen.gpus
                self._met[peers] = named, gpus, now + QUOTA_S
        elif (seen.state is JobState.RUNNING and known.partial_s is None) or (
            known.quota and not now < known.quota[1] <= now + QUOTA_S
        ):
            known.quota = None
        if seen.state is not JobState.PENDING:
            return None
        if (believed := known.limited(seen, now)) is not None:
            return believed
        looked_at = not seen.entered and seen.reason.startswith("ReqNodeNotAvail")
        if looked_at and known.quota is not None and partition_is_closed(known.quota[0].detail):
            # Its partition is open again.
            known.quota = None
        if known.quota is not None:
            return known.quota[0]
        reason, gpus, until_s = self._met.get(peers, (None, 0, 0.0))
        limited = now < until_s <= now + QUOTA_S and min(known.request.counts) >= gpus
        # What is placed already Slurm may just start.
        if seen.entered:
            return None
        return reason if limited else self._after_others(seen, now)

    def _after_others(self, seen: SlurmJob, now: float) -> Reason | None:
        """Return why a job waits of whose kind Slurm has not started several."""
        if not self._in_vain:
            return None
        for old in [k for k, (_, s) in self._in_vain.items() if not now - BELIEVED_S <= s <= now]:
            # Those jobs are gone, or much has changed since.
            del self._in_vain[old]
        kind = kind_of(seen)
        if self._in_vain.get(kind, (0, now))[0] < IN_VAIN:
            return None
        job, since_s = self._tried.get(kind, ("", -math.inf))
        if not since_s <= now < since_s + QUOTA_S:
            job = seen.id
            self._tried[kind] = job, now
        return None if job == seen.id else _LIKE_IT
