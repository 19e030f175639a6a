"""What Slurm has said, or done, of some jobs that holds for others like them.

What comes under a limit that it has named waits, too, until a job ends.
"""

from __future__ import annotations

from hetsched_core.types import Cluster, Reason, ReasonCode
from slurm_plugin.backend import JobState, SlurmJob
from slurm_plugin.daemon.jobs.attempts import IN_VAIN, Attempts, kind_of
from slurm_plugin.daemon.jobs.kept_back import LIMITS, QUOTA_S, Ban
from slurm_plugin.daemon.jobs.managed import ManagedJob
from slurm_plugin.daemon.jobs.slurm_reasons import (
    exceeds_partition,
    limits_gres,
    limits_together,
    partition_is_closed,
)

_Peers = tuple[str, str, str, frozenset[str] | None]
"""Whose jobs come under a limit together: user, account, QOS, and which GPU types they accept."""


_ALL = ""
"""In place of a GPU type: a limit on all GPUs, or on something else."""


_LIKE_IT = Reason(
    ReasonCode.NOT_STARTED,
    detail="others like it, or several kinds of its user's jobs, have not started where they were "
    "placed; one at a time is tried",
)


_NOT_THERE = Reason(
    ReasonCode.NOT_STARTED, detail="others like it have not started on some of its nodes"
)


class Quotas:
    """The limits of which Slurm has said that jobs have met them.

    Slurm names one once a job is placed. To place the job again in each cycle would not help, nor
    to place others of which the same limit holds.
    """

    def __init__(self) -> None:
        """Begin with none."""
        # By the GPU type that they are on; and how many GPUs the job asked for.
        self._met: dict[_Peers, dict[str, tuple[Ban, int]]] = {}
        self._attempts = Attempts()

    def __bool__(self) -> bool:
        """Whether any job waits for others like it."""
        return bool(self._met) or bool(self._attempts)

    def lift(self, ended: SlurmJob) -> None:
        """Forget those in which a job had its part: others may come under them now."""
        had = {ended.user, ended.account, ended.qos}
        self._met = {peers: met for peers, met in self._met.items() if had.isdisjoint(peers[:3])}

    def of(
        self,
        known: ManagedJob,
        seen: SlurmJob,
        named: Reason | None,
        cluster: Cluster,
        now: float,
    ) -> Reason | None:
        """Return the limit, or what else Slurm said of its last placement, that keeps a job back.

        Args:
            known: the job; where it is kept back is brought up to date in it.
            seen: as Slurm shows it.
            named: what Slurm says of it.
            cluster: the nodes.
            now: seconds UTC.
        """
        own = known.kept_back
        if seen.state is JobState.PENDING and not seen.entered:
            own.waited_for = seen.partitions
        kind = kind_of(seen, known.request, own.waited_for)
        if own.in_vain is not None:
            nodes, since_s = own.in_vain
            self._attempts.failed(kind, nodes, now, since_s)
            own.in_vain = None
        elif self._attempts and seen.state is JobState.RUNNING:
            began_s = now if seen.start_s is None else seen.start_s
            self._attempts.started(kind, known.share, began_s)
        peers = (seen.user, seen.account, seen.qos, known.request.gpu_types)
        if named is not None and named.code in LIMITS:
            self._note(peers, known, seen, named, cluster, now)
        elif (seen.state is JobState.RUNNING and known.partial_s is None) or (
            own.everywhere and not own.everywhere.holds(now)
        ):
            own.everywhere = None
        if seen.state is not JobState.PENDING:
            known.keep_off({}, now)
            return None
        if (believed := own.limited(seen, known.request, now)) is not None:
            return believed
        looked_at = not seen.entered and seen.reason.startswith("ReqNodeNotAvail")
        if looked_at and own.everywhere is not None:
            said = own.everywhere.why.detail
            # Of a set of counts Slurm knows the submitted one alone, and it may say one thing of
            # what is placed and another of what is not.
            alike = known.request.rigid and own.failures < IN_VAIN
            if partition_is_closed(said) or (alike and exceeds_partition(said)):
                # Its partition is open again, or allows as much.
                own.everywhere = None
        if own.everywhere is not None:
            return own.everywhere.why
        # What is placed already Slurm may just start.
        if seen.entered:
            return None
        limits = self._limits(peers, known, now)
        accepted = known.request.gpu_types or set(cluster.gpu_types)
        if limits and (_ALL in limits or limits.keys() >= accepted):
            return next(iter(limits.values()))
        off = {node.name: limits[node.gpu_type] for node in cluster if node.gpu_type in limits}
        if self._attempts:
            self._attempts.forget(now)
            if not self._attempts.may_try(kind, seen.id, now):
                return _LIKE_IT
            off |= dict.fromkeys(self._attempts.bad_nodes(kind, seen.id, now), _NOT_THERE)
        # Until it is seen what is closed to it now it is not to be placed.
        return next(iter(off.values()), None) if known.keep_off(off, now) else None

    def _note(
        self,
        peers: _Peers,
        known: ManagedJob,
        seen: SlurmJob,
        named: Reason,
        cluster: Cluster,
        now: float,
    ) -> None:
        """Note a limit; one on GRES of the GPU types alone that the job was placed on.

        Slurm's word does not tell of which type they are. A job that accepts others goes there.
        """
        placed = known.placement.configuration if known.placement is not None else ()
        on = {cluster[name].gpu_type for name, _ in placed if name in cluster}
        others = set(known.request.gpu_types or cluster.gpu_types) - on
        own, ban = known.kept_back, Ban(named, now + QUOTA_S)
        gpus = 0 if "Job" in named.detail else seen.gpus
        if on and others and limits_gres(named.detail):
            own.everywhere = None
            own.on_types |= dict.fromkeys(on, ban)
        else:
            own.everywhere, on = ban, {_ALL}
        if limits_together(named.detail):
            met = self._met.setdefault(peers, {})
            for each in on:
                before, least = met.get(each, (ban, gpus))
                met[each] = ban, min(least, gpus) if now < before.until_s else gpus

    def _limits(self, peers: _Peers, known: ManagedJob, now: float) -> dict[str, Reason]:
        """Return the limits that keep a job back, as they did it or others, by GPU type."""
        least = min(known.request.counts)
        own = known.kept_back
        own.on_types = {each: ban for each, ban in own.on_types.items() if ban.holds(now, QUOTA_S)}
        met = self._met.get(peers, {}).items()
        bans = {each: ban for each, (ban, gpus) in met if ban.holds(now, QUOTA_S) and least >= gpus}
        return {each: ban.why for each, ban in (bans | own.on_types).items()}
