"""Turn an order of jobs into a plan: the whole of a list scheduler but its order.

Jobs are rigid here: each gets the lower median of its requirement set, on the fastest idle GPUs
that fit, of one type unless only a mix of types can ever hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum
from functools import lru_cache
from typing import Any

from immutables import Map

from hetsched_core.placement.entries import AHEAD, EACH_ROUND, NEVER, NO_ROOM
from hetsched_core.placement.free import FreeGpus, PerGpu
from hetsched_core.placement.keep import Claims, entry_at, may_keep
from hetsched_core.placement.ways import Way, fits_without, of_type, reach, rigid_way, ways_to_fit
from hetsched_core.site import LimitsLeft, in_turn
from hetsched_core.types import (
    Cluster,
    Configuration,
    Entry,
    Job,
    JobView,
    NodeCondition,
    NodeView,
    Placed,
    Placement,
    Plan,
    ReasonCode,
    Replan,
    Shape,
    Snapshot,
    Trigger,
    Waiting,
)

Fit = Callable[[Snapshot, FreeGpus, Job, Way, tuple[str, ...]], Configuration | None]
"""Where a job goes in this way, on free GPUs of these of its types; None if nowhere."""

Bars = Callable[[Job, Way, Cluster], int]
"""Which nodes a job that does not fit keeps from those behind it, a bit each."""


class Packing(Enum):
    """What the order means.

    STRICT_ORDER: running jobs stay; a job that does not fit keeps those behind it off the nodes
    that it could use (or that `Bars` says), all of a GPU type but for those that are none of its
    nodes. One that the open nodes would not hold, if they were empty, keeps none. FILL: running
    jobs stay; any job that fits starts. PREEMPT: the order alone decides which run; running jobs
    that are still in keep their nodes where they can, and those that are not preemptible stay
    whatever the order.
    """

    STRICT_ORDER = "in turn"
    FILL = "fill"
    PREEMPT = "preempt"


def fastest_fit(
    snapshot: Snapshot, free: FreeGpus, job: Job, way: Way, types: tuple[str, ...]
) -> Configuration | None:
    """Return the fastest configuration of `way` on free GPUs of these of its types, if any."""
    shapes, speeds, count = snapshot.shapes_for(job), snapshot.speeds, way.count
    if way.mixed:
        return free.fewest_nodes(job, types, count)
    best: Configuration | None = None
    best_speed = 0.0
    for gpu_type in types:
        if free.idle(gpu_type) < count:
            continue
        found = free.one_node(job, gpu_type, count)
        alone = found is not None
        if found is None and best is None and count > 1 and Shape.EVEN in shapes:
            found = free.fewest_nodes(job, (gpu_type,), count, even=Shape.UNEVEN not in shapes)
        if found is not None and (speed := speeds.speed(job.profile, found)) > best_speed:
            best, best_speed = found, speed
        if alone:
            # No slower type can beat a job that sits on one node of this one.
            break
    return best


def fits(snapshot: Snapshot, free: FreeGpus, job: Job) -> bool:
    """Whether a job could be placed on these free GPUs in any of its ways."""
    ways = ways_to_fit(job, snapshot.cluster, snapshot.speeds, snapshot.shapes)
    return any(fastest_fit(snapshot, free, job, way, way.types) is not None for way in ways)


def why_no_nodes(snapshot: Snapshot, job: Job) -> ReasonCode | None:
    """Return why a job fits nowhere, other jobs or not; None if that is not so.

    `CLOSED` where it would fit on nodes that are closed to it or left out, else `NODES_DOWN`.
    """
    cluster = snapshot.cluster
    shut = _shut(cluster, snapshot.nodes)
    if not (shut or job.closed):
        return None
    if fits(snapshot, _without_jobs(cluster, shut), job):
        return None
    anyhow = replace(job, closed=frozenset())
    # Of those that are shut, which are few and known: this is asked for many jobs.
    down = tuple(name for name in shut if snapshot.nodes[name].condition is not NodeCondition.UP)
    closed = (job.closed or shut != down) and fits(snapshot, _without_jobs(cluster, down), anyhow)
    return ReasonCode.CLOSED if closed else ReasonCode.NODES_DOWN


def open_nodes_hold(snapshot: Snapshot, down: tuple[str, ...], job: Job, way: Way) -> bool:
    """Whether the nodes that are not down would hold a job in this way if no other were there.

    What is closed to this job alone makes no difference, nor what is left out for a while: a node
    on which another job still ends, say, it waits for.

    Args:
        snapshot: the state.
        down: its `nodes_down`, which are asked for once for many jobs.
        job: the job.
        way: how it is to run.
    """
    return not down or fits_without(
        down, job, way, snapshot.cluster, snapshot.speeds, snapshot.shapes
    )


def nodes_down(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the nodes that are down or drained; they change only where `nodes_changed`."""
    views = snapshot.node_views()
    return tuple(view.node.name for view in views if view.condition is not NodeCondition.UP)


@lru_cache(maxsize=2)
def _shut(cluster: Cluster, nodes: Map[str, NodeView]) -> tuple[str, ...]:
    """Return the nodes on which nothing may start; that is asked for many jobs of one snapshot."""
    return tuple(node.name for node in cluster if not nodes[node.name].open)


@lru_cache(maxsize=2)
def _without_jobs(cluster: Cluster, closed: tuple[str, ...]) -> FreeGpus:
    """Return all GPUs of the nodes that are open; nothing is to be taken of them."""
    down = frozenset(closed)
    state = {True: NodeCondition.DOWN, False: NodeCondition.UP}
    return FreeGpus(cluster, tuple(NodeView(node, state[node.name in down]) for node in cluster))


def pack(
    snapshot: Snapshot,
    order: Iterable[JobView],
    packing: Packing,
    replan: Replan,
    fit: Fit = fastest_fit,
    bars: Bars = reach,
) -> Plan:
    """Return the plan that serves the jobs in this order, users by turns where they have shares.

    Args:
        snapshot: the state to plan for.
        order: every active job, the first to be served first.
        packing: what happens to running jobs, and to those behind one that does not fit.
        replan: when to plan again.
        fit: where a job goes.
        bars: which nodes one that does not fit keeps from those behind it, in strict order.
    """
    turns = in_turn(snapshot, list(order), running_stay=packing is not Packing.PREEMPT)
    return pack_as_ordered(snapshot, turns, packing, replan, fit, bars)


def pack_as_ordered(
    snapshot: Snapshot,
    order: Iterable[JobView],
    packing: Packing,
    replan: Replan,
    fit: Fit = fastest_fit,
    bars: Bars = reach,
    limits: LimitsLeft | None = None,
) -> Plan:
    """Return the plan that serves the jobs in just this order, as `pack` does otherwise.

    In strict order, a job that would pass one of the `limits` waits. It keeps something from others
    only if it finds no nodes: Slurm looks for nodes first, and at limits then. What is placed is
    counted there.
    """
    return _Packer(snapshot, packing, fit, bars, limits).pack(list(order), replan)


def pack_rounds(snapshot: Snapshot, key: Callable[[JobView], Any]) -> Plan:
    """Return the plan of a list scheduler that stops jobs when a round starts, and only then.

    Args:
        snapshot: the state to plan for.
        key: what jobs are ordered by.
    """
    order = sorted(snapshot.jobs.values(), key=key)
    starts = Trigger.ROUND in snapshot.triggers
    return pack(snapshot, order, Packing.PREEMPT if starts else Packing.FILL, EACH_ROUND)


def not_barred(
    cluster: Cluster, free: FreeGpus, job: Job, way: Way, barred: int
) -> tuple[tuple[str, ...], FreeGpus]:
    """Return the GPU types that a job may take, and what is free, but for nodes that are barred.

    None where it needs a mix of types and some of it is barred.
    """
    mine = reach(job, way, cluster)
    if not mine & barred:
        return way.types, free
    if way.mixed:
        return (), free
    left = mine & ~barred
    types = tuple(t for t in way.types if left & of_type(cluster, t))
    parts = any(barred & of_type(cluster, t) for t in types)
    return types, free.outside(barred) if parts else free


def _is_there(view: JobView, before: Entry | None) -> bool:
    """Whether a job runs where the plan in force has put it."""
    return (
        isinstance(before, Placed)
        and bool(before.placements)
        and before.placements[0].configuration == view.configuration
    )


class _Packer:
    def __init__(
        self,
        snapshot: Snapshot,
        packing: Packing,
        fit: Fit,
        bars: Bars,
        limits: LimitsLeft | None,
    ) -> None:
        self._snapshot = snapshot
        self._limits = limits
        self._packing = packing
        self._fit = fit
        self._bars = bars
        self._claims = Claims(FreeGpus.of(snapshot))
        # What has its place whatever its turn.
        self._stays: dict[str, Placed] = {}
        # Whether something has its place that the plan in force gave to others.
        self._regained = False
        self._down = nodes_down(snapshot)
        # The nodes that a job waits for, a bit each.
        self._barred = 0
        self._all = snapshot.cluster.mask(None)
        self._hopeless: dict[tuple[int, frozenset[str]], Way] = {}

    def pack(self, order: list[JobView], replan: Replan) -> Plan:
        previous = self._snapshot.previous.entries
        queue = [(view, previous.get(view.job.id)) for view in order]
        for view, before in queue:
            # What may not be stopped goes on, whatever was to take its GPUs: it was to be stopped
            # when it still could be, or Slurm has started it where no plan had put it.
            if view.blocked is None and self._is_found(view, before):
                self._hold(view, None)
                self._regained = True
        for view, before in queue:
            held = view.id in self._stays or view.id in self._claims.kept
            if not held and view.blocked is None and not isinstance(before, Waiting):
                self._hold(view, before)
        changes: dict[str, Entry] = {}
        for view, before in queue:
            entry = self._entry(view, before)
            if entry is not before:
                changes[view.job.id] = entry
        if self._packing is Packing.PREEMPT:
            self._let_stay(changes)
        return self._snapshot.previous.revise(changes, self._snapshot.gone, replan=replan)

    def _entry(self, view: JobView, before: Entry | None) -> Entry:
        claims = self._claims
        if view.blocked is not None:
            return before if before == (entry := Waiting(view.blocked)) else entry
        if view.id in self._stays:
            return self._stays[view.id]
        if view.id in claims.kept:
            kept = claims.release(view.id)
            claims.take(view.job, kept)
            return kept
        as_before = before is NO_ROOM or before is AHEAD
        if as_before and self._limits is None and view.id not in self._snapshot.changed:
            # It fits in principle, so when no job can start there is nothing to work out.
            if self._packing is not Packing.STRICT_ORDER:
                if claims.left.full:
                    return NO_ROOM
            elif self._barred == self._all and self._could_start(view.job):
                return AHEAD
        served = self._serve(view)
        if self._limits is not None and isinstance(served, Placed):
            self._limits.take(view, served.placements[0].configuration.gpus)
        return before if before == served else served

    def _serve(self, view: JobView) -> Entry:
        job, snapshot = view.job, self._snapshot
        way = rigid_way(job, snapshot.cluster, snapshot.speeds, snapshot.shapes)
        if way is None:
            return NEVER
        limited = None
        if self._limits is not None and (name := self._limits.met(view, way.count)) is not None:
            limited = Waiting(self._limits.reason(name))
        if (id(way), job.closed) in self._hopeless or not self._could_start(job):
            return NO_ROOM
        claims = self._claims
        allowed, idle, behind = way.types, claims.idle, False
        if self._barred:
            allowed, idle = not_barred(snapshot.cluster, idle, job, way, self._barred)
            behind = bool(reach(job, way, snapshot.cluster) & self._barred)
        found = self._fit(snapshot, idle, job, way, allowed)
        if limited is not None:
            if found is None:
                self._barred |= self._bars(job, way, snapshot.cluster)
            return limited
        if found is None and self._packing is Packing.PREEMPT:
            found = self._fit(snapshot, claims.left, job, way, allowed)
            if found is not None:
                claims.make_room(job, found)
        if found is not None:
            placed = Placed((Placement(found),))
            claims.take(job, placed)
            return placed
        if self._packing is not Packing.STRICT_ORDER:
            # What is left only shrinks, so the next job of the same kind need not look.
            self._hopeless[id(way), job.closed] = way
            return NO_ROOM
        self._barred |= self._bars(job, way, snapshot.cluster)
        return AHEAD if behind else NO_ROOM

    def _could_start(self, job: Job) -> bool:
        """Whether a job may keep nodes from those behind it: some are open that would hold it."""
        snapshot = self._snapshot
        way = rigid_way(job, snapshot.cluster, snapshot.speeds, snapshot.shapes)
        strict = self._packing is Packing.STRICT_ORDER
        return way is None or not strict or open_nodes_hold(snapshot, self._down, job, way)

    def _hold(self, view: JobView, before: Placed | None) -> None:
        """Count the GPUs of a job that runs as in use until its turn comes."""
        # The plan in force was valid; only a change of the nodes or of the job, whose run may have
        # ended on a node that has closed, can have made it otherwise.
        snapshot, placed = self._snapshot, before
        runs_on = view.configuration
        if runs_on is not None and self._goes_on(view):
            # It stays where it is, whatever was planned: Slurm may have started it elsewhere.
            placed = entry_at(snapshot, view, runs_on)
        changed = self._regained or snapshot.nodes_changed or view.job.id in snapshot.changed
        if placed is None or changed:
            place = view.configuration if placed is None else placed.placements[0].configuration
            if (
                place is None
                or not may_keep(snapshot, view, place)
                or not self._claims.idle.fits(view.job, place)
            ):
                return
            # Without an entry it is new, or was found running by a scheduler that has just come up.
            placed = placed or Placed((Placement(place),))
        if self._packing is Packing.PREEMPT and not self._fixed(view):
            self._claims.keep(view.job, placed)
        else:
            self._claims.take(view.job, placed)
            self._stays[view.id] = placed
            if self._limits is not None:
                self._limits.take(view, placed.placements[0].configuration.gpus)

    def _is_found(self, view: JobView, before: Entry | None) -> bool:
        """Whether a job has GPUs that no plan gave it, and goes on, or need not go."""
        unplanned = before is None and view.configuration is not None
        return unplanned or (self._goes_on(view) and not _is_there(view, before))

    def _goes_on(self, view: JobView) -> bool:
        """Whether a job runs, and nothing here stops it."""
        stops = self._packing is Packing.PREEMPT
        return self._fixed(view) or (not stops and view.configuration is not None)

    @staticmethod
    def _fixed(view: JobView) -> bool:
        """Whether a job runs and may not be stopped."""
        return not view.job.preemptible and view.configuration is not None

    def _let_stay(self, changes: dict[str, Entry]) -> None:
        """Exchange places that are alike among equals, so that what runs stays where it does."""
        new = {job: entry for job, entry in changes.items() if isinstance(entry, Placed)}
        takers: dict[tuple[PerGpu, Configuration], list[str]] = {}
        for job, entry in new.items():
            view = self._snapshot.jobs[job]
            place = entry.placements[0].configuration
            if view.configuration != place:
                takers.setdefault((PerGpu.of(view.job), place), []).append(job)
        for job in new:
            view = self._snapshot.jobs[job]
            has, needs = view.configuration, PerGpu.of(view.job)
            place = new[job].placements[0].configuration
            if has is None or has == place or self._types(has) != self._types(place):
                continue
            if others := takers.get((needs, has)):
                other = others.pop()
                new[job], new[other] = new[other], new[job]
                takers[needs, place].remove(job)
                if self._snapshot.jobs[other].configuration != place:
                    takers[needs, place].append(other)
        changes |= new

    def _types(self, configuration: Configuration) -> list[tuple[str, int]]:
        cluster = self._snapshot.cluster
        return sorted((cluster[name].gpu_type, gpus) for name, gpus in configuration)
