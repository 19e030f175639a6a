"""What goes on between the rounds of a policy that plans when a round starts.

The plan in force does, filled up: what waits gets the GPUs that it leaves idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hetsched_core.placement.entries import AHEAD, NEVER, NO_ROOM
from hetsched_core.placement.keep import entry_at, may_keep
from hetsched_core.placement.outrank import left_idle
from hetsched_core.placement.pack import (
    Packing,
    fastest_fit,
    nodes_down,
    not_barred,
    open_nodes_hold,
)
from hetsched_core.placement.ways import Way, reach, rigid_way, ways_to_fit
from hetsched_core.site import in_turn
from hetsched_core.types import (
    Configuration,
    Entry,
    JobView,
    Placed,
    Placement,
    Plan,
    ReasonCode,
    Snapshot,
    Waiting,
)

_REFUSED = frozenset({ReasonCode.PRICE, ReasonCode.BELOW_WINDOW})
"""What waits for one of these the policy would not run if there were room."""

_OWN = _REFUSED | {
    *(ReasonCode.NEVER_FITS, ReasonCode.AHEAD, ReasonCode.NO_ROOM),
    *(ReasonCode.NO_CPUS, ReasonCode.PROFILING),
}
"""The reasons that are a policy's own; others are of what blocked a job, and may be over."""


def filled_up(snapshot: Snapshot, packing: Packing) -> Plan:
    """Return the plan in force, in which what waits has GPUs that are idle, in the site's order.

    What it places it goes on placing, and what it stops it stops. A job gets GPUs of one type, as
    many as the policies give that take jobs for rigid, or fewer where that is not to be had. What
    the policy has refused waits for its next round.

    Args:
        snapshot: the state to plan for.
        packing: FILL, or STRICT_ORDER, in which none overtakes one that waits longer for the same
            nodes, refused or not.
    """
    plan = _as_before(snapshot, NO_ROOM if packing is Packing.FILL else AHEAD)
    free = left_idle(snapshot, plan)
    changes: dict[str, Entry] = {}
    barred, down = 0, nodes_down(snapshot)
    # With their ways, since an identity is given anew once its object has gone.
    hopeless: dict[tuple[int, frozenset[str]], Way] = {}
    order = () if free.full else in_turn(snapshot, snapshot.by_submission(), running_stay=True)
    for view in order:
        entry, job = plan.entries[view.id], view.job
        if not isinstance(entry, Waiting) or view.blocked is not None or view.holds is not None:
            continue
        if entry.reason.code is ReasonCode.NEVER_FITS:
            continue
        ways = tuple(_ways(snapshot, view))
        if not ways or (id(ways[0]), job.closed) in hopeless:
            continue
        found: Configuration | None = None
        for way in () if entry.reason.code in _REFUSED else ways:
            types, idle = not_barred(snapshot.cluster, free, job, way, barred)
            found = found or fastest_fit(snapshot, idle, job, way, types)
        if found is not None:
            free.take(job, found)
            changes[view.id] = Placed((Placement(found),))
            continue
        if packing is Packing.STRICT_ORDER:
            for way in ways:
                if open_nodes_hold(snapshot, down, job, way):
                    barred |= reach(job, way, snapshot.cluster)
        if entry.reason.code not in _REFUSED:
            hopeless[id(ways[0]), job.closed] = ways[0]
    return _changed(plan, changes) if changes else plan


def _ways(snapshot: Snapshot, view: JobView) -> Iterator[Way]:
    """Yield the ways in which a job may be given idle GPUs of one type, the most GPUs first."""
    job = view.job
    rigid = rigid_way(job, snapshot.cluster, snapshot.speeds, snapshot.shapes, one_type=True)
    if rigid is None:
        return
    yield rigid
    fewer = ways_to_fit(job, snapshot.cluster, snapshot.speeds, snapshot.shapes)
    yield from (way for way in reversed(fewer) if way.count < rigid.count and not way.mixed)


def _as_before(snapshot: Snapshot, in_line: Waiting) -> Plan:
    """Return the plan in force, in which jobs wait that have come since, or may not start now.

    What has come and runs already stays, and what may start again waits in line. So does what has
    not started and may not do so any more where it was to.
    """
    plan = snapshot.previous
    changes: dict[str, Entry] = {}
    for job_id, view in snapshot.jobs.items():
        entry = plan.entries.get(job_id)
        if view.blocked is not None and view.configuration is None:
            if entry != Waiting(view.blocked):
                changes[job_id] = Waiting(view.blocked)
        elif entry is None and view.configuration is not None:
            changes[job_id] = entry_at(snapshot, view, view.configuration)
        elif _in_line(snapshot, view, entry):
            ways = ways_to_fit(view.job, snapshot.cluster, snapshot.speeds, snapshot.shapes)
            changes[job_id] = in_line if ways else NEVER
    return _changed(plan, changes, snapshot.gone)


def _in_line(snapshot: Snapshot, view: JobView, entry: Entry | None) -> bool:
    if isinstance(entry, Placed):
        places = (placement.configuration for placement in entry.placements)
        return view.configuration is None and not all(
            may_keep(snapshot, view, place) for place in places
        )
    return entry is None or entry.reason.code not in _OWN


def _changed(plan: Plan, changes: dict[str, Entry], gone: Iterable[str] = ()) -> Plan:
    return plan.revise(changes, gone, profiles=plan.profiles, reservations=plan.reservations)
