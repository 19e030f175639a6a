"""One line, in the order of submission: nobody starts before everybody ahead has started.

Nobody is stopped either, and no job gets GPUs of several types. Where jobs are limited to some
nodes, there is a line for those whose nodes are the same, or meet.
"""

from __future__ import annotations

from collections.abc import Callable

from hetsched_core.placement.assign import one_type_way
from hetsched_core.placement.entries import NO_ROOM, behind, revise
from hetsched_core.placement.free import FreeGpus
from hetsched_core.placement.keep import staying
from hetsched_core.placement.ways import Way
from hetsched_core.types import (
    Configuration,
    Job,
    JobView,
    Placed,
    Placement,
    Plan,
    Replan,
    Snapshot,
    Waiting,
)

Find = Callable[[Snapshot, FreeGpus, Job, Way], Configuration | None]
"""Finds free GPUs of one type for a job, or None."""


def serve_line(snapshot: Snapshot, find: Find) -> Plan:
    """Return the plan that keeps what runs and starts who is first, as long as there is room.

    Jobs that are held or can never run stand in nobody's way.
    """
    placed = staying(snapshot)
    free = FreeGpus.beside(snapshot, placed)
    cluster, next_in_line = snapshot.cluster, None
    barred, every = 0, cluster.mask(None)
    for view in snapshot.by_submission():
        if view.id in placed or view.blocked is not None:
            continue
        way = one_type_way(view, snapshot)
        if way is None:
            continue
        mine = cluster.mask(view.job.nodes, view.job.closed)
        found = None if mine & barred else find(snapshot, free, view.job, way)
        if found is None:
            next_in_line = next_in_line or view.id
            barred |= mine
            if barred == every:
                break
            continue
        free.take(view.job, found)
        placed[view.id] = Placed((Placement(found),))

    def waits(snapshot: Snapshot, view: JobView) -> Waiting:
        return NO_ROOM if view.id == next_in_line else behind(snapshot, view)

    return revise(snapshot, placed, waits, Replan())
