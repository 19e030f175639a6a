"""How jobs stand before Hops plans: who keeps what it has, and why others wait."""

from __future__ import annotations

import numpy as np

from hetsched_core.placement.keep import may_keep, present, staying
from hetsched_core.placement.pack import why_no_nodes
from hetsched_core.placement.ways import ways_to_fit
from hetsched_core.policies.hops import profiling_queue
from hetsched_core.policies.hops.room import Room
from hetsched_core.types import (
    Configuration,
    Entry,
    JobView,
    Placed,
    Placement,
    Reason,
    ReasonCode,
    Snapshot,
    Waiting,
)

NEVER = Waiting(Reason(ReasonCode.NEVER_FITS))
MIXED_ONLY = Waiting(
    Reason(
        ReasonCode.NEVER_FITS,
        detail="only a mix of GPU types holds it, and this policy gives a job one type at a time",
    )
)
SHUT = {code: Waiting(Reason(code)) for code in (ReasonCode.NODES_DOWN, ReasonCode.CLOSED)}
NO_ROOM = Waiting(Reason(ReasonCode.NO_ROOM))
BELOW_WINDOW = Waiting(Reason(ReasonCode.BELOW_WINDOW))
PROFILING = Waiting(Reason(ReasonCode.PROFILING))


def keepers(snapshot: Snapshot, room: Room, *, new_round: bool) -> dict[str, Configuration]:
    """Return who keeps what, and take it out of `room`.

    Within a round everybody does who can. In a new one those alone who may not be stopped, or whose
    nodes close: they end where they are.
    """
    keep = {}
    for view in snapshot.jobs.values():
        if view.blocked is not None:
            continue
        runs, fixed = view.configuration, not view.job.preemptible
        # What is to start may have started when a plan takes effect that is made ahead.
        has = runs if fixed and runs is not None else present(snapshot, view)
        if has is None:
            continue
        # On a node that is no place for it any more, it ends where it is, too.
        closed = any(
            not (snapshot.nodes[name].open and view.job.may_start_on(name)) for name, _ in has
        )
        if may_keep(snapshot, view, has) and (closed or fixed or not new_round):
            keep[view.job.id] = has
    taken = room.copy()
    _take(snapshot, taken, keep)
    if taken.overdrawn and not new_round:
        # Other users of the nodes have grown: look at each job in turn.
        stay = staying(snapshot)
        keep = {job_id: placed.placements[0].configuration for job_id, placed in stay.items()}
    _take(snapshot, room, keep)
    return keep


def _take(snapshot: Snapshot, room: Room, keep: dict[str, Configuration]) -> None:
    index = snapshot.cluster.index
    pieces = [
        (index(name), gpus, job.cpus_per_gpu, job.memory_mb_per_gpu)
        for job, configuration in ((snapshot.jobs[job_id].job, keep[job_id]) for job_id in keep)
        for name, gpus in configuration
    ]
    if pieces:
        nodes, gpus, cpus, memory_mb = zip(*pieces, strict=True)
        room.take_all(
            np.array(nodes, np.int64), np.array(gpus, np.int64), np.array(cpus), np.array(memory_mb)
        )


def entry_at(before: Entry | None, configuration: Configuration) -> Placed:
    """Return the entry of a job in a configuration: the one before if it says the same."""
    if isinstance(before, Placed) and len(before.placements) == 1:
        (placement,) = before.placements
        if placement.configuration == configuration and placement.budget is None:
            return before
    return Placed((Placement(configuration),))


def hopeless(snapshot: Snapshot, view: JobView, *, profiling: bool) -> Waiting:
    """Return why a job waits that has no configuration on any node that is open.

    With `profiling`, types on which its speed is only guessed do not count.
    """
    ways = ways_to_fit(view.job, snapshot.cluster, snapshot.speeds, snapshot.shapes)
    if not ways:
        return NEVER
    if all(way.mixed for way in ways):
        return MIXED_ONLY
    if profiling and profiling_queue.unprofiled(view, snapshot.speeds, snapshot.cluster):
        return PROFILING
    shut = why_no_nodes(snapshot, view.job)
    return NO_ROOM if shut is None else SHUT[shut]
