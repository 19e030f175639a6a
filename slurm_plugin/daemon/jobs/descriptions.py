"""What policies see of each job itself: what it asks for, and where it may have that now."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from hetsched_core.placement.ways import shut_out
from hetsched_core.types import (
    ALL_SHAPES,
    Cluster,
    Configuration,
    Knowledge,
    Reason,
    ReasonCode,
    Shape,
)
from slurm_plugin.backend import JobState, SlurmJob
from slurm_plugin.daemon.jobs.checkpoint import may_move
from slurm_plugin.daemon.jobs.copies import has_its_end, startable
from slurm_plugin.daemon.jobs.feasible import (
    as_slurm_spreads,
    feasible_request,
    names_too_few,
    with_enough_nodes,
    with_whole_nodes,
)
from slurm_plugin.daemon.jobs.gangs import is_finishing, spares
from slurm_plugin.daemon.jobs.managed import ManagedJob, described
from slurm_plugin.daemon.jobs.request import Request
from slurm_plugin.daemon.jobs.site_standing import Standing
from slurm_plugin.daemon.jobs.terms import limit_min
from slurm_plugin.daemon.nodes.closures import Closures
from slurm_plugin.daemon.nodes.managed_nodes import ManagedNodes
from slurm_plugin.daemon.nodes.one_partition import OnePartition
from slurm_plugin.daemon.settings import LIVE_SHAPES, DaemonSettings
from slurm_plugin.daemon.speeds import LiveSpeeds

_NO_SHAPES: frozenset[Shape] = frozenset()
_OF_SEVERAL = ALL_SHAPES - LIVE_SHAPES
_UNEVEN = _OF_SEVERAL - {Shape.MIXED_TYPES}


class Descriptions:
    """Describes jobs by how the nodes, the site and the clock stand.

    Attributes:
        settings: the daemon's.
        knows: what the policy may know of a job.
        standing: where jobs stand by the site's word.
        warnings: what is wrong with what jobs say of themselves, by job id.
    """

    def __init__(
        self,
        settings: DaemonSettings,
        knows: frozenset[Knowledge],
        estimates: LiveSpeeds,
        managed_nodes: ManagedNodes,
        closures: Closures,
    ) -> None:
        """Describe by these, which others keep up to date."""
        self.settings, self.knows = settings, knows
        self.standing = Standing()
        self.warnings: dict[str, str] = {}
        self._estimates = estimates
        self._managed_nodes = managed_nodes
        self._closures = closures
        self._partitions: OnePartition
        self._now = 0.0

    def look(self, now: float) -> None:
        """Go by how the nodes stand now, at `now` seconds UTC."""
        self._now = now
        self._partitions = OnePartition(
            self._managed_nodes.where, self._cluster, self._managed_nodes.views
        )

    @property
    def _cluster(self) -> Cluster:
        cluster = self._managed_nodes.cluster
        assert cluster is not None
        return cluster

    def renew(self, known: ManagedJob, seen: SlurmJob) -> None:
        """Make anew what policies see of the job itself; who calls it renews the view."""
        if not (known.runs or seen.entered or seen.nodes):
            known.partition = self._partitions.of(known.request, seen, known.partition)
        where = self.nodes(known.request, seen, known.partition)
        request = with_enough_nodes(known.request, self._cluster, where)
        held = known.run.configuration if known.run else None
        limit = self.standing.limit(seen)
        wishes = feasible_request(request, self._cluster, limit, held)
        known.refused = wishes.refused
        if why_not := request.why_not or names_too_few(known.request, self._cluster):
            known.refused = Reason(ReasonCode.REFUSED, detail=why_not)
        if wishes.warning:
            self.warnings[seen.id] = wishes.warning
        told = known.progress is not None and known.progress.checkpoint_s > 0
        # What is suspended is not stopped, and a job that was to have its GPUs would only wait. One
        # that was held as it ran would, once stopped, not start again.
        finishing = is_finishing(seen) or has_its_end(seen)
        held_running = seen.held and seen.state is JobState.RUNNING
        stoppable = not (seen.state is JobState.SUSPENDED or held_running or finishing)
        movable = may_move(request, seen.submit_line, told, self.settings)
        key = request.mark.options.profile
        profile = self._estimates.name(key, seen.user, measurable=movable)
        known.whole = replace(
            described(seen, request),
            requirements=wishes.requirements,
            gpu_types=wishes.gpu_types,
            profile=profile,
            preemptible=movable and stoppable,
            gives_way=seen.requeues and stoppable,
            time_limit_s=request.own.time_limit_s,
            cpus_per_gpu=float(request.cpus_per_gpu),
            memory_mb_per_gpu=float(request.memory_mb_per_gpu),
            nodes=where,
            min_nodes=request.least_nodes,
            max_nodes=request.most_nodes,
            shapes=self._shapes(request, seen),
            copies=_copies(known),
        )
        known.whole = self.standing.of(known.whole, seen)
        if seen.exclusive == "node":
            memory_mb = request.own.memory_mb if request.rigid else None
            known.whole = with_whole_nodes(known.whole, self._cluster, seen.nodes, memory_mb)
        if request.rigid and self._estimates.speeds is not None:
            known.whole = as_slurm_spreads(
                known.whole, request.own, self._cluster, self._estimates.speeds, self._several
            )
        self.close(known)

    def close(self, known: ManagedJob) -> None:
        """Show a job without the nodes that are closed to it now."""
        lead_s = self.settings.grace_s + self.settings.checkpoint_wait_s
        known.closed = self._closures.of(known, self._now, lead_s)
        known.job = replace(known.whole, closed=known.closed.nodes).hidden_from(self.knows)

    def nodes(self, request: Request, seen: SlurmJob, partition: str = "") -> frozenset[str] | None:
        """Return the nodes on which a job may be, open or not; None for all."""
        return self._managed_nodes.where.of(seen, request.own.nodes, partition)

    def partition(self, request: Request, seen: SlurmJob) -> str:
        """Return the partition on whose nodes a job is to be; "" where that is no matter."""
        return self._partitions.of(request, seen)

    def better_elsewhere(self, jobs: Iterable[ManagedJob]) -> list[ManagedJob]:
        """Return those that wait for one of their partitions while another has room."""
        return [
            known
            for known in jobs
            if known.partition and not (known.runs or known.slurm.entered or known.slurm.nodes)
            if self._partitions.of(known.request, known.slurm, known.partition) != known.partition
        ]

    def shut_out(self, known: ManagedJob, now: float) -> Reason | None:
        """Return why a job fits nowhere now: windows, or nodes on which Slurm has not started it.

        No policy is to keep others off the rest of its nodes meanwhile.
        """
        shunned = known.kept_back.nodes_at(now)
        closed = shunned | known.closed.nodes
        speeds = self._estimates.speeds
        if not closed or speeds is None:
            return None
        if not shut_out(replace(known.whole, closed=closed), self._cluster, speeds, LIVE_SHAPES):
            return None
        if shunned:
            return known.kept_back.why_not_there
        mine = closed if known.whole.nodes is None else closed & known.whole.nodes
        return Reason(ReasonCode.CLOSED, detail=self._closures.words(known.slurm, mine))

    def limit_min(self, known: ManagedJob, configuration: Configuration) -> int | None:
        """Return the time limit of a run there, in minutes; None for a job without one."""
        limit_s, speeds = known.request.own.time_limit_s, self._estimates.speeds
        if limit_s is None or speeds is None:
            return None
        return limit_min(
            limit_s,
            known.job,
            known.request.default_count,
            configuration,
            self._cluster,
            speeds,
            self.standing.longest_s(known.slurm),
        )

    def shapes(self, jobs: Collection[ManagedJob]) -> frozenset[Shape]:
        """Return the shapes that all these jobs take."""
        theirs = [each.job.shapes for each in jobs]
        return LIVE_SHAPES.union(frozenset.intersection(*theirs)) if theirs else LIVE_SHAPES

    def _shapes(self, request: Request, seen: SlurmJob) -> frozenset[Shape]:
        """Return the shapes that a job takes beside those that one Slurm job can have."""
        mark = request.mark
        whole = seen.state is not JobState.PENDING or spares(seen) >= mark.elements - 1
        # Two GPUs, be they of two types, are as many on each node: such a job is no array.
        counts = mark.options.counts
        enough = mark.elements > 1 or (counts is not None and max(counts.counts) <= 2)
        takes = mark.options.any_shape and enough and whole
        return self._several if takes else _NO_SHAPES

    @property
    def _several(self) -> frozenset[Shape]:
        """The shapes that some jobs take beside those that all can have."""
        # Elements are told apart by their counts, and two types of one node may have the same.
        return _UNEVEN if self._managed_nodes.where.parts else _OF_SEVERAL


def _copies(known: ManagedJob) -> int:
    """Return how many copies a job can have, at least the one that it waits for."""
    if known.copies:
        return max(1, startable(known))
    mark = known.request.mark
    return mark.elements if mark.copies else 1
