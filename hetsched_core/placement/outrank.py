"""Tiers stop: no job of a lower tier is in the way of one of a higher tier that could run instead.

Policies serve higher tiers first and stop jobs by their own lights. What a site says of tiers goes
further, and is the same under each of them: jobs of a lower tier that a plan starts, or that run
and can be stopped, make room; among them those that are stopped for nothing else.
"""

from __future__ import annotations

from hetsched_core.placement.free import FreeGpus
from hetsched_core.placement.pack import fastest_fit
from hetsched_core.placement.ways import Way, reach, ways_to_fit
from hetsched_core.site import in_turn
from hetsched_core.types import (
    Configuration,
    Entry,
    JobView,
    Placed,
    Placement,
    Plan,
    Reason,
    ReasonCode,
    Snapshot,
    Waiting,
)


def outrank(snapshot: Snapshot, plan: Plan) -> Plan:
    """Return the plan of gangs in which what waits has the places of lower tiers.

    A job that waits gets its place if jobs of lower tiers that can be stopped, or would only start,
    leave it. As few of them go as possible, the lowest tier first and what has run for the shortest
    time. Where that is not enough, nothing of a lower tier starts in its way that it could not stop
    later.

    Where there is room for it the plan lets it wait, and so does this.
    """
    if snapshot.site is None:
        return plan
    tiers = {view.job.tier for view in snapshot.jobs.values()}
    if len(tiers) < 2:
        return plan
    lowest = min(tiers)
    waiting = [
        view
        for view in in_turn(snapshot, snapshot.by_submission(), running_stay=True)
        if view.job.tier > lowest
        and view.blocked is None
        and isinstance(plan.entries.get(view.id), Waiting)
    ]
    if not waiting:
        return plan
    room = _Room(snapshot, plan)
    for view in waiting:
        room.serve(view)
    if not room.changes:
        return plan
    return plan.revise(
        room.changes,
        profiles=plan.profiles,
        valid_from_s=plan.valid_from_s,
        reservations=plan.reservations,
    )


def left_idle(snapshot: Snapshot, plan: Plan) -> FreeGpus:
    """Return the GPUs that a plan of gangs leaves idle, also those that jobs are to leave."""
    free = FreeGpus.of(snapshot)
    for job_id, entry in plan.entries.items():
        if isinstance(entry, Placed) and entry.placements and job_id in snapshot.jobs:
            free.take(snapshot.jobs[job_id].job, entry.placements[0].configuration)
    for profile in plan.profiles:
        free.take(snapshot.jobs[profile.job].job, profile.placement.configuration)
    return free


class _Room:
    """What is free, and which jobs could leave what they have."""

    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        self._snapshot = snapshot
        self._placed = {
            job_id: entry.placements[0].configuration
            for job_id, entry in plan.entries.items()
            if isinstance(entry, Placed) and entry.placements
        }
        self._free = left_idle(snapshot, plan)
        self._hopeless: set[tuple[int, int, frozenset[str]]] = set()
        self.changes: dict[str, Entry] = {}

    def serve(self, view: JobView) -> None:
        """Find a place for a job, if lower tiers have one."""
        snapshot, job = self._snapshot, view.job
        ways = ways_to_fit(job, snapshot.cluster, snapshot.speeds, snapshot.shapes)
        kind = (id(ways), job.tier, job.closed)
        if not ways or kind in self._hopeless:
            return
        found = self._fit(view, ways)
        if found is not None and not self.changes:
            return
        left: list[JobView] = []
        for other in self._below(view) if found is None else ():
            self._give(other)
            left.append(other)
            found = self._fit(view, ways)
            if found is not None:
                break
        if found is not None:
            self._free.take(job, found)
        for other in reversed(tuple(left)):
            place = self._placed[other.id]
            if self._free.fits(other.job, place):
                self._free.take(other.job, place)
                left.remove(other)
        if found is None:
            self._hopeless.add(kind)
            left = [other for other in self._below(view) if self._stays_in_the_way(other, view)]
            for other in left:
                self._give(other)
        else:
            self._placed[view.id] = found
            self.changes[view.id] = Placed((Placement(found),))
        for other in left:
            del self._placed[other.id]
            self.changes[other.id] = Waiting(Reason(ReasonCode.AHEAD, behind=(view.id,)))

    def _fit(self, view: JobView, ways: tuple[Way, ...]) -> Configuration | None:
        for way in ways:
            found = fastest_fit(self._snapshot, self._free, view.job, way, way.types)
            if found is not None:
                return found
        return None

    def _give(self, other: JobView) -> None:
        self._free.give(other.job, self._placed[other.id])

    def _below(self, view: JobView) -> list[JobView]:
        """Return the jobs that could leave for another: the first one first."""
        cluster, mine = self._snapshot.cluster, 0
        for way in ways_to_fit(view.job, cluster, self._snapshot.speeds, self._snapshot.shapes):
            mine |= reach(view.job, way, cluster)
        below = [
            other
            for name, place in self._placed.items()
            if (other := self._snapshot.jobs[name]).job.tier < view.job.tier
            and (_can_stop(other) or other.configuration is None)
            and cluster.mask(frozenset(node for node, _ in place)) & mine
        ]

        def first(other: JobView) -> tuple[int, bool, float, str]:
            since_s = max((run.since_s for run in other.runs), default=self._snapshot.now)
            return (other.job.tier, other.configuration is not None, -since_s, other.id)

        return sorted(below, key=first)

    def _stays_in_the_way(self, other: JobView, view: JobView) -> bool:
        """Whether a job would start that could not be stopped for the other later."""
        return other.configuration is None and not _can_stop(other)


def _can_stop(view: JobView) -> bool:
    return view.job.preemptible or view.job.gives_way
