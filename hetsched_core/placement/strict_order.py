"""Serving jobs in strict order, at the cost of what changed since the last plan.

The result is that of `pack(..., Packing.STRICT_ORDER)`, which looks at every job anew and is the
twin that this is tested against. Here the waiting jobs stay sorted between plans, in one queue for
each set of nodes that they could use (and bar to those behind): once the head of a queue does not
fit, none behind it can start, so a plan looks at the heads only.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hetsched_core.placement.entries import AHEAD, NEVER, NO_ROOM, passes_limit
from hetsched_core.placement.free import FreeGpus
from hetsched_core.placement.keep import may_keep
from hetsched_core.placement.pack import (
    Bars,
    Fit,
    Packing,
    fastest_fit,
    nodes_down,
    not_barred,
    open_nodes_hold,
    pack,
    pack_as_ordered,
)
from hetsched_core.placement.ways import Way, of_type, reach, rigid_way
from hetsched_core.site import LimitsLeft
from hetsched_core.types import (
    NONE_ENDED,
    Cluster,
    Configuration,
    EndedJobs,
    Entry,
    Job,
    JobView,
    Placed,
    Placement,
    Plan,
    Replan,
    Reservation,
    Shape,
    Snapshot,
    Speeds,
    Waiting,
)
from hetsched_core.types.making import maker

_make_placed, _make_placement = maker(Placed), maker(Placement)

Key = Any
"""What jobs are ordered by: any values that can be compared, unique to each job."""

_VOID = 64
"""So many jobs that wait no more may stay in a queue, beside twice as many as jobs wait."""

QueuedJob = tuple[Key, str, int, int]
"""A waiting job: its key, its id, the nodes that it could use and those that it bars, a bit each.

None where the open ones would not hold it. It waits for the cluster to change then, and for no job.
"""


@dataclass(slots=True)
class StrictOrder:
    """Plans a list scheduler whose order of two jobs never changes while both are there.

    It may be forgotten or given any snapshot at any time: what it remembers is used only if the
    snapshot follows on the plan that it made last, and is otherwise made again.

    Attributes:
        key: the place of a job in the order; fixed for a job, given the speeds and the past run
            time of its profile.
        fit: where a job goes.
        bars: which nodes a job that does not fit keeps from all behind it: those that it could use,
            at least.
        placed: the jobs that hold GPUs, or are to get them, with what.
        waiting: the jobs that wait and could run here, with their places in the order.
        ways: in which way each of the waiting jobs is to run.
        limits: what is left under the site's limits, None where there are none. It is counted when
            all jobs are looked at anew, and jobs that would pass one are not among those that wait.
    """

    key: Callable[[JobView, Snapshot], Key]
    fit: Fit = fastest_fit
    bars: Bars = reach
    placed: dict[str, tuple[Job, Configuration]] = field(init=False, default_factory=dict)
    waiting: dict[str, QueuedJob] = field(init=False, default_factory=dict)
    ways: dict[str, Way] = field(init=False, default_factory=dict)
    limits: LimitsLeft | None = field(init=False, default=None)
    _last: Plan | None = None
    _speeds: Speeds | None = None
    _shapes: frozenset[Shape] = frozenset()
    _ended: EndedJobs = NONE_ENDED
    _free: FreeGpus | None = None
    _down: tuple[str, ...] = ()
    # Heaps. What `waiting` no longer holds stays until it is the first.
    _queues: dict[tuple[int, int], list[QueuedJob]] = field(default_factory=dict)
    _told_no_room: set[str] = field(default_factory=set)
    # Whether no job can start, whatever has come to wait behind others since that was found.
    _settled: bool = False
    # A job that could not start, and the nodes, a bit each, that it keeps from all behind.
    _barred: dict[str, int] = field(default_factory=dict)

    def plan(self, snapshot: Snapshot, replan: Replan) -> Plan:
        """Return the plan that keeps what runs and starts waiting jobs in order.

        Where the site has a word, the order of two jobs may change, and all are looked at anew.
        """
        if snapshot.site is not None:
            self._last = None
            order = self._in_order(snapshot)
            return pack(snapshot, order, Packing.STRICT_ORDER, replan, self.fit, self.bars)
        return self.conclude(snapshot, self.serve(snapshot), replan)

    def follows(self, snapshot: Snapshot) -> bool:
        """Whether what is remembered of the last plan holds for this snapshot."""
        return self._goes_on(snapshot) and not self._revised(snapshot)

    def _goes_on(self, snapshot: Snapshot) -> bool:
        """Whether what is remembered holds but for jobs whose estimates were revised."""
        return (
            self._last is not None
            and snapshot.previous.identity is self._last.identity
            and not snapshot.nodes_changed
            and snapshot.shapes == self._shapes
        )

    def _revised(self, snapshot: Snapshot) -> bool:
        return snapshot.speeds is not self._speeds or snapshot.ended is not self._ended

    def serve(self, snapshot: Snapshot) -> dict[str, Entry]:
        """Start waiting jobs in order; return the entries that change, for `conclude`."""
        if self._free is None or self._speeds is None or not self._goes_on(snapshot):
            return self._afresh(snapshot)
        changes: dict[str, Entry] = {}
        for job_id in snapshot.gone:
            self._forget(job_id, self._free)
        for job_id in sorted(snapshot.changed):
            entry = self._take_in(snapshot, snapshot.jobs[job_id], self._free)
            if entry is not None:
                changes[job_id] = entry
        if self._revised(snapshot):
            changes.update(self._reconsider(snapshot, self._speeds, self._free))
        self._serve(snapshot, self._free, changes)
        return changes

    def _reconsider(
        self, snapshot: Snapshot, before: Speeds, free: FreeGpus
    ) -> Iterator[tuple[str, Entry]]:
        """Put the waiting jobs whose estimates were revised into their new places."""
        speeds, ended, known = snapshot.speeds, snapshot.ended, set(before.profiles)
        revised = {
            profile
            for profile in speeds.profiles
            if profile not in known
            or speeds.table(profile) is not before.table(profile)
            or ended.mean_run_s(profile) != self._ended.mean_run_s(profile)
        }
        for view in snapshot.jobs.values():
            job_id = view.job.id
            if view.job.profile not in revised or job_id in self.placed or view.blocked is not None:
                continue
            waited = self.waiting.get(job_id)
            self._forget(job_id, free)
            if self._enqueue(snapshot, view):
                if (entry := self._in_line(job_id, waited)) is not None:
                    yield job_id, entry
            elif waited is not None:
                yield job_id, NEVER

    def start(self, job: Job, configuration: Configuration, changes: dict[str, Entry]) -> None:
        """Start a waiting job out of order, on GPUs that are free: one more of the changes."""
        assert self._free is not None
        self._forget(job.id, self._free)
        self._hold(job, configuration, self._free, changes)

    def conclude(
        self,
        snapshot: Snapshot,
        changes: Mapping[str, Entry],
        replan: Replan,
        *,
        reservations: Sequence[Reservation] = (),
        memory: Mapping[str, object] | None = None,
    ) -> Plan:
        """Return the plan with these changes, on which the next snapshot will follow."""
        self._last = snapshot.previous.revise(
            changes, snapshot.gone, replan=replan, reservations=reservations, memory=memory
        )
        self._speeds, self._ended = snapshot.speeds, snapshot.ended
        self._shapes = snapshot.shapes
        return self._last

    def spoken_for(self, cluster: Cluster) -> Mapping[str, Sequence[str]]:
        """GPU type -> the jobs that waited, when last served, and kept its nodes from all behind.

        Types of which a node is left to others are missing.
        """
        spoken_for = {}
        for gpu_type in cluster.gpu_types:
            left, jobs = of_type(cluster, gpu_type), []
            for job_id, nodes in self._barred.items():
                if left & nodes:
                    jobs.append(job_id)
                    left &= ~nodes
            if not left:
                spoken_for[gpu_type] = jobs
        return spoken_for

    def reorder(self, key: Callable[[JobView, Snapshot], Key]) -> None:
        """Order the jobs by another key from the next plan on."""
        self.key, self._last = key, None

    def _afresh(self, snapshot: Snapshot) -> dict[str, Entry]:
        """Serve by looking at every job, and remember how things stand."""
        order = self._in_order(snapshot)
        limits = snapshot.site.limits if snapshot.site is not None else {}
        self.limits = LimitsLeft(limits) if limits else None
        plan = pack_as_ordered(
            snapshot, order, Packing.STRICT_ORDER, Replan(), self.fit, self.bars, self.limits
        )
        self._free, self._down, self._settled = FreeGpus.of(snapshot), nodes_down(snapshot), False
        self.placed, self._queues, self._told_no_room = {}, {}, set()
        self.ways, self.waiting = {}, {}
        for view in order:
            entry = plan.entries[view.id]
            if isinstance(entry, Placed):
                configuration = entry.placements[0].configuration
                self.placed[view.id] = (view.job, configuration)
                self._free.take(view.job, configuration)
            elif entry is not NEVER and not passes_limit(entry) and view.blocked is None:
                self._enqueue(snapshot, view)
                if entry is NO_ROOM:
                    self._told_no_room.add(view.id)
        if self.limits is None:
            # None starts any more: this finds what those that are first keep from the others.
            self._serve(snapshot, self._free, {})
        return {
            job_id: plan.entries[job_id] for job_id in plan.changed or () if job_id in plan.entries
        }

    def _in_order(self, snapshot: Snapshot) -> list[JobView]:
        return sorted(snapshot.jobs.values(), key=lambda view: self.key(view, snapshot))

    def _take_in(self, snapshot: Snapshot, view: JobView, free: FreeGpus) -> Entry | None:
        """Note what happened to a job; return its entry if it is another one now."""
        job_id, before = view.job.id, snapshot.previous.entries.get(view.job.id)
        if view.blocked is not None:
            self._forget(job_id, free)
            entry = Waiting(view.blocked)
            return None if before == entry else entry
        held, waited = self.placed.get(job_id), self.waiting.get(job_id)
        if held is not None and may_keep(snapshot, view, held[1]):
            return None
        if held is not None or waited is not None:
            # Its run ended where none may begin, or it may have other shapes than before.
            self._forget(job_id, free)
        if not self._enqueue(snapshot, view):
            return None if before is NEVER else NEVER
        return self._in_line(job_id, waited)

    def _in_line(self, job_id: str, before: QueuedJob | None) -> Entry | None:
        """Return what is told of a job that waits; None if that is what was told before."""
        _, _, nodes, _ = self.waiting[job_id]
        if before is not None and bool(before[2]) == bool(nodes):
            return None
        return AHEAD if nodes else NO_ROOM

    def _enqueue(self, snapshot: Snapshot, view: JobView) -> bool:
        way = rigid_way(view.job, snapshot.cluster, snapshot.speeds, snapshot.shapes)
        if way is None:
            return False
        job_id, nodes, bars = view.job.id, 0, 0
        if open_nodes_hold(snapshot, self._down, view.job, way):
            nodes = reach(view.job, way, snapshot.cluster)
            bars = self.bars(view.job, way, snapshot.cluster)
        queue = self._queues.setdefault((nodes, bars), [])
        queued = (self.key(view, snapshot), job_id, nodes, bars)
        heapq.heappush(queue, queued)
        self.ways[job_id], self.waiting[job_id] = way, queued
        if self._first(queue) is queued:
            self._settled = False
        if len(queue) > _VOID + 2 * len(self.waiting):
            queue[:] = [each for each in queue if self.waiting.get(each[1]) is each]
            heapq.heapify(queue)
        return True

    def _forget(self, job_id: str, free: FreeGpus) -> None:
        self._settled = False
        if held := self.placed.pop(job_id, None):
            free.give(*held)
        elif self.waiting.pop(job_id, None):
            del self.ways[job_id]

    def _first(self, queue: list[QueuedJob]) -> QueuedJob | None:
        """Return the first job of a queue that still waits."""
        while queue and self.waiting.get(queue[0][1]) is not queue[0]:
            heapq.heappop(queue)
        return queue[0] if queue else None

    def _serve(self, snapshot: Snapshot, free: FreeGpus, changes: dict[str, Entry]) -> None:
        """Start from the heads of the queues, in order, until every node is spoken for."""
        if self._settled:
            return
        self._settled = True
        barred, self._barred = 0, {}
        told_before, self._told_no_room = self._told_no_room, set()
        heads = [head for queue in self._queues.values() if (head := self._first(queue))]
        heapq.heapify(heads)
        while heads:
            _, job_id, nodes, bars = heapq.heappop(heads)
            left = nodes & ~barred
            if not left:
                barred |= bars
                continue
            view = snapshot.jobs[job_id]
            found = self._find(snapshot, free, view, barred)
            if found is None:
                if left == nodes:
                    self._told_no_room.add(job_id)
                self._barred[job_id] = left
                barred |= bars
                continue
            self._hold(view.job, found, free, changes)
            del self.ways[job_id], self.waiting[job_id]
            if head := self._first(self._queues[nodes, bars]):
                heapq.heappush(heads, head)
        for job_id in sorted(told_before ^ self._told_no_room):
            if job_id in self.waiting:
                changes[job_id] = NO_ROOM if job_id in self._told_no_room else AHEAD

    def _hold(
        self, job: Job, configuration: Configuration, free: FreeGpus, changes: dict[str, Entry]
    ) -> None:
        free.take(job, configuration)
        self.placed[job.id] = (job, configuration)
        changes[job.id] = _make_placed((_make_placement(configuration),))

    def _find(
        self, snapshot: Snapshot, free: FreeGpus, view: JobView, barred: int
    ) -> Configuration | None:
        way = self.ways[view.job.id]
        allowed = way.types
        if barred:
            allowed, free = not_barred(snapshot.cluster, free, view.job, way, barred)
        if sum(map(free.idle, allowed)) < way.count:
            return None
        return self.fit(snapshot, free, view.job, way, allowed)
