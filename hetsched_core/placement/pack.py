"""Turn an order of jobs into a plan: the whole of a list scheduler but its order.

Jobs are rigid here: each gets the lower median of its requirement set, on the fastest idle GPUs
that fit, of one type unless only a mix of types can ever hold it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from hetsched_core.placement.free import FreeGpus
from hetsched_core.types import (
    Cluster,
    Configuration,
    Entry,
    JobView,
    Placed,
    Placement,
    Plan,
    Reason,
    ReasonCode,
    Replan,
    RequirementSet,
    Shape,
    Snapshot,
    Waiting,
)

NEVER = Waiting(Reason(ReasonCode.NEVER_FITS))
NO_ROOM = Waiting(Reason(ReasonCode.NO_ROOM))
AHEAD = Waiting(Reason(ReasonCode.AHEAD))


class Packing(Enum):
    """What the order means.

    IN_TURN: running jobs stay; a job that does not fit keeps those behind it off the GPU types it
    could use. FILL: running jobs stay; whoever fits starts. PREEMPT: the order alone decides who
    runs; running jobs that are still in keep their nodes where they can.
    """

    IN_TURN = "in turn"
    FILL = "fill"
    PREEMPT = "preempt"


def pack(snapshot: Snapshot, order: Iterable[JobView], packing: Packing, replan: Replan) -> Plan:
    """Return the plan that serves the jobs in this order.

    Args:
        snapshot: the state to plan for.
        order: every active job, the first to be served first.
        packing: what happens to running jobs, and to those behind one that does not fit.
        replan: when to plan again.
    """
    return _Packer(snapshot, packing).pack(list(order), replan)


class _Packer:
    def __init__(self, snapshot: Snapshot, packing: Packing) -> None:
        self._snapshot = snapshot
        self._packing = packing
        # What nobody that was served so far holds, and what of that is also not in use right now.
        self._left = FreeGpus.of(snapshot)
        self._idle = FreeGpus.of(snapshot)
        self._kept: dict[str, Placed] = {}
        self._holders: dict[str, list[JobView]] = {}
        self._barred: set[str] = set()

    def pack(self, order: list[JobView], replan: Replan) -> Plan:
        previous = self._snapshot.previous.entries
        for view in order:
            placed = _placed_before(view, previous.get(view.id), self._idle)
            if placed is not None:
                self._hold(view, placed)
        changes: dict[str, Entry] = {}
        for view in order:
            before = previous.get(view.id)
            entry = self._entry(view, before)
            if entry is not before:
                changes[view.id] = entry
        return self._snapshot.previous.revise(changes, self._snapshot.gone, replan=replan)

    def _entry(self, view: JobView, before: Entry | None) -> Entry:
        kept = self._kept.get(view.id)
        if view.blocked is not None:
            if kept is not None:
                self._release(view)
            return before if before == (entry := Waiting(view.blocked)) else entry
        if kept is not None:
            if self._packing is Packing.PREEMPT:
                self._release(view)
                self._take(view, kept)
            return kept
        if before is NEVER:
            return NEVER
        return self._serve(view)

    def _serve(self, view: JobView) -> Entry:
        job, snapshot = view.job, self._snapshot
        types = tuple(
            t for t in snapshot.speeds.fastest_types(job.profile, 1) if job.accepts_type(t)
        )
        ways = ways_to_fit(
            snapshot.cluster,
            snapshot.shapes,
            job.requirements,
            types,
            job.cpus_per_gpu,
            job.memory_mb_per_gpu,
        )
        if not ways:
            return NEVER
        count, mixed = rigid_choice(job.requirements, ways)
        allowed = types
        if self._barred:
            allowed = tuple(t for t in types if t not in self._barred)
            if mixed and len(allowed) < len(types):
                allowed = ()
        found = self._find(self._idle, view, allowed, count, mixed)
        if found is None and self._packing is Packing.PREEMPT:
            found = self._find(self._left, view, allowed, count, mixed)
            if found is not None:
                self._evict(view, found)
        if found is not None:
            placed = Placed((Placement(found),))
            self._take(view, placed)
            return placed
        if self._packing is not Packing.IN_TURN:
            return NO_ROOM
        behind = len(allowed) < len(types)
        self._barred.update(types)
        return AHEAD if behind else NO_ROOM

    def _find(
        self, free: FreeGpus, view: JobView, types: tuple[str, ...], count: int, mixed: bool
    ) -> Configuration | None:
        job, shapes, speeds = view.job, self._snapshot.shapes, self._snapshot.speeds
        if mixed:
            if free.idle(types) < count:
                return None
            return free.fewest_nodes(job, types, count)
        best: Configuration | None = None
        for gpu_type in types:
            if free.idle((gpu_type,)) < count:
                continue
            found = free.one_node(job, gpu_type, count)
            alone = found is not None
            if found is None and best is None and count > 1 and Shape.EVEN in shapes:
                found = free.fewest_nodes(job, (gpu_type,), count, even=Shape.UNEVEN not in shapes)
            if found is not None and (
                best is None or speeds.speed(job.profile, found) > speeds.speed(job.profile, best)
            ):
                best = found
            if alone:
                # No slower type can beat a job that sits on one node of this one.
                break
        return best

    def _hold(self, view: JobView, placed: Placed) -> None:
        """Count the GPUs of a job that runs as in use until its turn comes."""
        configuration = placed.placements[0].configuration
        self._kept[view.id] = placed
        self._idle.take(view.job, configuration)
        if self._packing is Packing.PREEMPT:
            for name, _ in configuration:
                self._holders.setdefault(self._snapshot.cluster[name].host, []).append(view)
        else:
            self._left.take(view.job, configuration)

    def _release(self, view: JobView) -> None:
        self._idle.give(view.job, self._kept.pop(view.id).placements[0].configuration)

    def _take(self, view: JobView, placed: Placed) -> None:
        configuration = placed.placements[0].configuration
        self._idle.take(view.job, configuration)
        self._left.take(view.job, configuration)

    def _evict(self, view: JobView, wanted: Configuration) -> None:
        """Make room among the jobs whose turn is still to come, the last in order first."""
        hosts = [self._snapshot.cluster[name].host for name, _ in wanted]
        while not self._idle.fits(view.job, wanted):
            for host in hosts:
                holders = self._holders.get(host, [])
                while holders and holders[-1].id not in self._kept:
                    holders.pop()
                if holders:
                    self._release(holders.pop())
                    break
            else:
                raise AssertionError(f"no room for {wanted} although nobody holds its nodes")


def _placed_before(view: JobView, entry: Entry | None, free: FreeGpus) -> Placed | None:
    """What the job has under the plan in force and can keep, if anything."""
    if isinstance(entry, Placed):
        placed = entry
    elif entry is None and view.configuration is not None:
        # Found running by a scheduler that has just come up.
        placed = Placed((Placement(view.configuration),))
    else:
        return None
    configuration = placed.placements[0].configuration
    if free.closed(configuration) and view.configuration != configuration:
        return None
    return placed if free.fits(view.job, configuration) else None


@dataclass(frozen=True, slots=True)
class _Needs:
    cpus_per_gpu: float
    memory_mb_per_gpu: float


@lru_cache(maxsize=1 << 16)
def ways_to_fit(
    cluster: Cluster,
    shapes: frozenset[Shape],
    requirements: RequirementSet,
    types: tuple[str, ...],
    cpus_per_gpu: float,
    memory_mb_per_gpu: float,
) -> tuple[tuple[int, bool], ...]:
    """Return the counts of a requirement set that fit on the idle, healthy cluster.

    Each comes with whether only a mix of GPU types can hold it. Types are those that the job
    accepts and runs on; CPUs and memory (MiB) are per GPU.
    """
    free, needs = FreeGpus.empty(cluster), _Needs(cpus_per_gpu, memory_mb_per_gpu)
    ways = []
    for count in requirements:
        even = Shape.UNEVEN not in shapes
        if any(
            free.one_node(needs, t, count) is not None
            or (
                count > 1
                and Shape.EVEN in shapes
                and free.fewest_nodes(needs, (t,), count, even=even) is not None
            )
            for t in types
        ):
            ways.append((count, False))
        elif (
            count > 1
            and Shape.MIXED_TYPES in shapes
            and free.fewest_nodes(needs, types, count) is not None
        ):
            ways.append((count, True))
    return tuple(ways)


def rigid_choice(
    requirements: RequirementSet, ways: tuple[tuple[int, bool], ...]
) -> tuple[int, bool]:
    """Return the lower median of the requirement set, or of what of it fits at all."""
    for way in ways:
        if way[0] == requirements.lower_median:
            return way
    return ways[(len(ways) - 1) // 2]
