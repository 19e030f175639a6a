"""The profiling queue of Hops (SoCC '24, section 3.2).

A new job is run for a few iterations on one GPU of each type, on all types at once, before anything
else at the start of a round, or within it where a GPU is idle. Jobs with the same profile key are
measured once. A type on which the run failed is tried again in a later round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache

import numpy as np

from hetsched_core.placement.free import PerGpu
from hetsched_core.placement.ways import of_type
from hetsched_core.policies.hops.room import Room, pieces_of
from hetsched_core.types import (
    Cluster,
    Configuration,
    JobView,
    Phase,
    Placement,
    ProfilePlacement,
    Purpose,
    Snapshot,
    Speeds,
    SpeedTable,
)


def unprofiled(view: JobView, speeds: Speeds, cluster: Cluster) -> list[str]:
    """Return those of the cluster's GPU types on which a job could run and is not profiled yet."""
    job, missing = view.job, _missing(speeds.table(view.job.profile), cluster.gpu_types)
    return [
        gpu_type
        for gpu_type in missing
        if job.accepts_type(gpu_type)
        and (job.nodes is None or of_type(cluster, gpu_type) & cluster.mask(job.nodes))
    ]


@lru_cache(maxsize=1 << 12)
def _missing(table: SpeedTable, gpu_types: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(t for t in gpu_types if table.runs_on(t) and not table.profiled(t))


def full(snapshot: Snapshot, runs: int) -> bool:
    """Whether a job with so many runs may have no other beside them."""
    return snapshot.runs_per_job is not None and runs >= snapshot.runs_per_job


def running_profiles(snapshot: Snapshot, room: Room) -> tuple[ProfilePlacement, ...]:
    """Return the runs of the plan in force that go on, and take their GPUs from `room`.

    One that has not begun gives way to what has: of others in its place, or of its job elsewhere.
    """
    found = []
    views = snapshot.jobs
    profiles = [each for each in snapshot.previous.profiles if each.job in views]
    profiles.sort(key=lambda each: not _has_begun(snapshot, each.placement, views[each.job]))
    for profile in profiles:
        view, placement = views[profile.job], profile.placement
        place, need = pieces_of(snapshot.cluster, placement.configuration), PerGpu.of(view.job)
        if _may_go_on(snapshot, placement, view) and (
            _has_begun(snapshot, placement, view)
            or (_may_begin(snapshot, placement, view) and room.holds(*place, need))
        ):
            found.append(profile)
            room.take(*place, need)
    return tuple(found)


def _may_go_on(snapshot: Snapshot, placement: Placement, view: JobView) -> bool:
    over = placement.until_s is None or placement.until_s <= snapshot.now
    closed = any(name in view.job.closed for name, _ in placement.configuration)
    return view.blocked is None and not over and not closed


def _may_begin(snapshot: Snapshot, placement: Placement, view: JobView) -> bool:
    names = (name for name, _ in placement.configuration)
    open_to_it = all(snapshot.nodes[n].open and view.job.may_start_on(n) for n in names)
    return open_to_it and not full(snapshot, view.going_on)


def _has_begun(snapshot: Snapshot, placement: Placement, view: JobView) -> bool:
    return any(
        run.phase(snapshot.now) is Phase.PROFILING and run.configuration == placement.configuration
        for run in view.runs
    )


def start_profiles(
    snapshot: Snapshot,
    queue: Sequence[JobView],
    running: Sequence[ProfilePlacement],
    room: Room,
    *,
    tried: AbstractSet[tuple[str, str]],
    from_s: float,
    limit_s: float,
    iterations: int,
) -> list[ProfilePlacement]:
    """Return new profiling runs, and take their GPUs out of `room`.

    Args:
        snapshot: the state.
        queue: jobs that may not be profiled on all types yet, first come first served.
        running: profiling runs that go on.
        room: what is free.
        tried: profiles with the types on which they are not to be run.
        from_s: when the runs begin, seconds UTC.
        limit_s: how long one may take.
        iterations: how many iterations one does.
    """
    types = room.layout.gpu_types
    served = {*tried, *(pair for profile in running for pair in measured_pairs(snapshot, profile))}
    begun = []
    runs = Counter(profile.job for profile in running)
    for view in queue:
        job = view.job
        need = PerGpu.of(job)
        for gpu_type in unprofiled(view, snapshot.speeds, snapshot.cluster):
            if full(snapshot, runs[job.id]):
                break
            if (job.profile, gpu_type) in served:
                continue
            node = _node(snapshot, room, need, types.index(gpu_type), job.requirements.smallest)
            if node is None:
                continue
            room.take(np.array([node]), np.array([1]), need)
            served.add((job.profile, gpu_type))
            runs[job.id] += 1
            batch = snapshot.speeds.table(job.profile).batch_size
            begun.append(
                ProfilePlacement(
                    job.id,
                    Placement(
                        Configuration(((snapshot.cluster.nodes[node].name, 1),)),
                        copy=types.index(gpu_type),
                        purpose=Purpose.PROFILE,
                        budget=iterations * batch,
                        until_s=from_s + limit_s,
                    ),
                )
            )
    return begun


def measured_pairs(snapshot: Snapshot, run: ProfilePlacement) -> list[tuple[str, str]]:
    """Return the profile that a run measures, with the GPU type."""
    profile = snapshot.jobs[run.job].job.profile
    return [(profile, snapshot.cluster[name].gpu_type) for name, _ in run.placement.configuration]


def _node(snapshot: Snapshot, room: Room, need: PerGpu, gpu_type: int, smallest: int) -> int | None:
    """Return the node of this type that one GPU fills best, one with a GPU idle now if any."""
    layout = room.layout
    (usable,) = room.usable([need])
    able = np.flatnonzero((layout.type_of == gpu_type) & (usable > 0))
    if usable[able].sum() < smallest:
        return None
    views = [snapshot.nodes[snapshot.cluster.nodes[node].name] for node in able.tolist()]
    busy = np.array([view.held_gpus >= view.capacity for view in views])
    return int(able[np.lexsort((able, usable[able], busy))[0]])
