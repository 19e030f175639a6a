"""Turn chosen GPU types and counts into nodes, so that who keeps both keeps its nodes.

For policies that decide how many GPUs of which type each job gets, and leave open where. No job
gets GPUs of several types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hetsched_core.placement.free import FreeGpus
from hetsched_core.placement.keep import may_keep
from hetsched_core.placement.pack import AHEAD, NEVER, NO_ROOM
from hetsched_core.placement.ways import Way, ways_to_fit
from hetsched_core.types import (
    Configuration,
    Diagnostics,
    Entry,
    Job,
    JobView,
    Placed,
    Placement,
    Plan,
    Reason,
    ReasonCode,
    Replan,
    Shape,
    Snapshot,
    Waiting,
)

MIXED_ONLY = Waiting(
    Reason(
        ReasonCode.NEVER_FITS,
        detail="only a mix of GPU types holds it, and this policy gives a job one type at a time",
    )
)


@dataclass(frozen=True, slots=True)
class Choice:
    """A job is to have `count` GPUs of this type, on at most `nodes` nodes if that is given."""

    view: JobView
    gpu_type: str
    count: int
    nodes: int | None = None


def immovable(snapshot: Snapshot) -> dict[str, Placed]:
    """Return what may not be stopped: jobs that run and are not preemptible, where they are."""
    return {
        view.id: _placed(snapshot, view, view.configuration)
        for view in snapshot.by_submission()
        if not view.job.preemptible and view.configuration is not None and view.blocked is None
    }


def present(snapshot: Snapshot, view: JobView) -> Configuration | None:
    """Return where the job is to run at present, whether it has got there or not."""
    before = snapshot.previous.entries.get(view.id)
    if isinstance(before, Placed) and before.placements:
        return before.placements[0].configuration
    return view.configuration


def open_gpus(snapshot: Snapshot, fixed: Mapping[str, Placed]) -> NDArray[np.float64]:
    """Return (T,) GPUs of each type on nodes that take new work, less what is `fixed`.

    The types are in the cluster's order.
    """
    gpus = dict.fromkeys(snapshot.cluster.gpu_types, 0)
    for node in snapshot.node_views():
        if node.open:
            gpus[node.node.gpu_type] += node.capacity
    for placed in fixed.values():
        for name, held in placed.placements[0].configuration:
            if snapshot.nodes[name].open:
                gpus[snapshot.cluster[name].gpu_type] -= held
    return np.array(list(gpus.values()), np.float64)


def one_type_way(view: JobView, snapshot: Snapshot) -> Way | None:
    """Return how a rigid job can run on GPUs of one type; None if it never can.

    Its count is the lower median of the requirement set, or of the counts that fit so.
    """
    ways = ways_to_fit(view.job, snapshot.cluster, snapshot.speeds, snapshot.shapes)
    return _one_type_way(ways, view.job.requirements.lower_median)


@lru_cache(maxsize=1 << 12)
def _one_type_way(ways: tuple[Way, ...], median: int) -> Way | None:
    single = [way for way in ways if not way.mixed]
    exact = next((way for way in single if way.count == median), None)
    return exact or (single[(len(single) - 1) // 2] if single else None)


def staying(snapshot: Snapshot) -> dict[str, Placed]:
    """Return what goes on under a policy that stops nobody: who has a place that it can keep."""
    free = FreeGpus.of(snapshot)
    stay = {}
    for view in snapshot.by_submission():
        has = present(snapshot, view)
        if has is None or view.blocked is not None:
            continue
        if may_keep(snapshot, view, has) and free.fits(view.job, has):
            free.take(view.job, has)
            stay[view.id] = _placed(snapshot, view, has)
    return stay


def assign(
    snapshot: Snapshot,
    fixed: Mapping[str, Placed],
    chosen: Sequence[Choice],
    spare: Iterable[Choice] = (),
) -> dict[str, Placed]:
    """Return where the chosen jobs go, those included that are `fixed`.

    Larger jobs find their nodes first, and among equals those that keep theirs. A job goes to one
    node if any has room for it, else to as few as possible. Who finds no room is left out.

    Args:
        snapshot: the state to plan for.
        fixed: jobs whose place is given.
        chosen: the others, no job twice, in the order in which equals choose.
        spare: what may take the room that is left, the first to fit first; jobs that have a place
            by then are passed over.
    """
    return _Assignment(snapshot, fixed).run(chosen, spare)


def revise(
    snapshot: Snapshot,
    placed: Mapping[str, Placed],
    replan: Replan,
    *,
    next_in_line: str | None = None,
    memory: Mapping[str, object] | None = None,
    diagnostics: Diagnostics | None = None,
) -> Plan:
    """Return the plan in which the placed jobs run and all others wait, with the reason for it.

    Those who could run are behind others, but for the one who is `next_in_line`: it has no room.
    """
    before = snapshot.previous.entries
    changes: dict[str, Entry] = {}
    for job_id, view in snapshot.jobs.items():
        if job_id in placed:
            entry: Entry = placed[job_id]
        else:
            entry = NO_ROOM if job_id == next_in_line else _waiting(snapshot, view)
        if entry != before.get(job_id):
            changes[job_id] = entry
    return snapshot.previous.revise(
        changes, snapshot.gone, replan=replan, memory=memory, diagnostics=diagnostics
    )


def _waiting(snapshot: Snapshot, view: JobView) -> Waiting:
    if view.blocked is not None:
        return Waiting(view.blocked)
    ways = ways_to_fit(view.job, snapshot.cluster, snapshot.speeds, snapshot.shapes)
    if not ways:
        return NEVER
    return MIXED_ONLY if all(way.mixed for way in ways) else AHEAD


class _Assignment:
    def __init__(self, snapshot: Snapshot, fixed: Mapping[str, Placed]) -> None:
        self._snapshot = snapshot
        self._placed = dict(fixed)
        self._kept: dict[str, tuple[Job, Placed]] = {}
        self._keepers: dict[str, list[str]] = {}
        # What nobody has got so far, and what of that nobody keeps who is still to come.
        self._left = FreeGpus.of(snapshot)
        for job_id, placed in fixed.items():
            self._left.take(snapshot.jobs[job_id].job, placed.placements[0].configuration)
        self._idle = self._left.copy()

    def run(self, chosen: Sequence[Choice], spare: Iterable[Choice]) -> dict[str, Placed]:
        by_size = sorted(chosen, key=lambda choice: -choice.count)
        for choice in by_size:
            self._keep(choice)
        for choice in sorted(by_size, key=lambda c: (-c.count, c.view.id not in self._kept)):
            self._place(choice)
        for choice in spare:
            if choice.view.id not in self._placed:
                if self._left.full:
                    break
                self._place(choice)
        return self._placed

    def _keep(self, choice: Choice) -> None:
        """Count what the job has as in use until its turn comes, if that is what it is to have."""
        view = choice.view
        configuration = present(self._snapshot, view)
        if configuration is None or configuration.gpus != choice.count:
            return
        cluster = self._snapshot.cluster
        if any(cluster[name].gpu_type != choice.gpu_type for name, _ in configuration):
            return
        if choice.nodes is not None and len(configuration) > choice.nodes:
            return
        if not may_keep(self._snapshot, view, configuration):
            return
        if not self._idle.fits(view.job, configuration):
            return
        self._idle.take(view.job, configuration)
        self._kept[view.id] = view.job, _placed(self._snapshot, view, configuration)
        for name, _ in configuration:
            self._keepers.setdefault(cluster[name].host, []).append(view.id)

    def _place(self, choice: Choice) -> None:
        job, job_id = choice.view.job, choice.view.id
        if job_id not in self._kept:
            # What it has may be free again, or is enough for a smaller choice.
            self._keep(choice)
        if job_id in self._kept:
            placed = self._release(job_id)
        else:
            found = self._find(choice)
            if found is None:
                return
            self._evict(job, found)
            placed = _placed(self._snapshot, choice.view, found)
        self._placed[job_id] = placed
        self._take(job, placed)

    def _find(self, choice: Choice) -> Configuration | None:
        job, gpu_type, count = choice.view.job, choice.gpu_type, choice.count
        if self._left.idle(gpu_type) < count:
            return None
        for free in (self._idle, self._left):
            if (found := free.one_node(job, gpu_type, count)) is not None:
                return found
        shapes, speeds = self._snapshot.shapes_for(job), self._snapshot.speeds
        if (
            count < 2
            or Shape.EVEN not in shapes
            or speeds.per_gpu(job.profile, gpu_type, count, nodes=2) <= 0
        ):
            return None
        even = Shape.UNEVEN not in shapes
        for free in (self._idle, self._left):
            found = free.fewest_nodes(job, (gpu_type,), count, even=even)
            if found is not None and (choice.nodes is None or len(found) <= choice.nodes):
                return found
        return None

    def _evict(self, job: Job, wanted: Configuration) -> None:
        """Let those who are still to come look for other nodes, the last ones first."""
        hosts = [self._snapshot.cluster[name].host for name, _ in wanted]
        while not self._idle.fits(job, wanted):
            for host in hosts:
                keepers = self._keepers.get(host, [])
                while keepers and keepers[-1] not in self._kept:
                    keepers.pop()
                if keepers:
                    self._release(keepers.pop())
                    break
            else:
                raise AssertionError(f"no room for {wanted} although nobody keeps its nodes")

    def _release(self, job_id: str) -> Placed:
        job, placed = self._kept.pop(job_id)
        self._idle.give(job, placed.placements[0].configuration)
        return placed

    def _take(self, job: Job, placed: Placed) -> None:
        configuration = placed.placements[0].configuration
        self._idle.take(job, configuration)
        self._left.take(job, configuration)


def _placed(snapshot: Snapshot, view: JobView, configuration: Configuration) -> Placed:
    """Return the entry, the one in force where it says the same."""
    before = snapshot.previous.entries.get(view.id)
    if isinstance(before, Placed) and before.placements == (Placement(configuration),):
        return before
    return Placed((Placement(configuration),))
