"""Nodes that sleep are woken only where those that are up have no room.

Policies choose GPU types and nodes by what they bring. To wake a node takes minutes that they do
not know of, so this is the same under each of them.
"""

from __future__ import annotations

from dataclasses import replace

from hetsched_core.placement.free import FreeGpus
from hetsched_core.placement.outrank import left_idle
from hetsched_core.types import Configuration, Entry, Job, JobView, Placed, Plan, Snapshot


def wake_last(snapshot: Snapshot, plan: Plan) -> Plan:
    """Return the plan in which what starts on nodes that sleep starts on others of their type.

    A job has as many GPUs of one type as before, on no more nodes. It stays where it was to be if
    nodes that are awake cannot hold all of it.

    Args:
        snapshot: the state that was planned for.
        plan: the policy's.
    """
    if not snapshot.asleep:
        return plan
    placed = {
        job_id: entry
        for job_id, entry in plan.entries.items()
        if isinstance(entry, Placed) and entry.placements
    }
    sleepy = [
        view
        for view in snapshot.by_submission()
        if view.id in placed and _wakes(snapshot, view, placed[view.id])
    ]
    if not sleepy:
        return plan
    free = left_idle(snapshot, plan)
    for view in sleepy:
        free.give(view.job, placed[view.id].placements[0].configuration)
    asleep = snapshot.cluster.mask(snapshot.asleep)
    changes: dict[str, Entry] = {}
    for view in sleepy:
        (placement,) = placed[view.id].placements
        here = placement.configuration
        there = _elsewhere(snapshot, free.outside(asleep), view.job, here) or here
        if not free.fits(view.job, there):
            # Those before it have taken it, on nodes that they wake anyway.
            return plan
        free.take(view.job, there)
        asleep &= ~snapshot.cluster.mask(frozenset(name for name, _ in there))
        if there != here:
            changes[view.id] = Placed((replace(placement, configuration=there),))
    return plan.revise(
        changes,
        profiles=plan.profiles,
        valid_from_s=plan.valid_from_s,
        reservations=plan.reservations,
    )


def _wakes(snapshot: Snapshot, view: JobView, entry: Placed) -> bool:
    """Whether a gang is to start on a node that sleeps."""
    if len(entry.placements) > 1:
        return False
    configuration = entry.placements[0].configuration
    starts = view.configuration != configuration
    return starts and any(name in snapshot.asleep for name, _ in configuration)


def _elsewhere(
    snapshot: Snapshot, awake: FreeGpus, job: Job, here: Configuration
) -> Configuration | None:
    """Return as many GPUs of the same type on nodes that are up; None where there are too few."""
    types = {snapshot.cluster[name].gpu_type for name, _ in here}
    if len(types) > 1:
        return None
    (gpu_type,) = types
    if (found := awake.one_node(job, gpu_type, here.gpus)) is not None:
        return found
    even = len({gpus for _, gpus in here}) == 1
    found = awake.fewest_nodes(job, (gpu_type,), here.gpus, even=even)
    return found if found is not None and len(found) <= len(here) else None
