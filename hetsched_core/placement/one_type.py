"""Serving jobs that get GPUs of one type each: policies choose types and counts, or an order alone.

Four ways: `assign` finds nodes for the types and counts that a policy has chosen. `plan_rounds`
follows an order and is blind to speeds: a job gets the type that it has, or the one with the most
GPUs left, so that no order of types in a file makes a scheduler look good. `serve_line` keeps one
line by submission, in which no job starts before all ahead of it have started, and stops none. A
`Line` serves whatever order a policy finds, and keeps those behind off single nodes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hetsched_core.placement.entries import AHEAD, EACH_ROUND, NO_ROOM, behind, plan_placing
from hetsched_core.placement.free import FreeGpus
from hetsched_core.placement.keep import Claims, entry_at, immovable, may_keep, present, staying
from hetsched_core.placement.pack import Fit, nodes_down, not_barred, open_nodes_hold
from hetsched_core.placement.pools import Pools
from hetsched_core.placement.ways import Way, reach, rigid_way
from hetsched_core.site import in_turn
from hetsched_core.types import (
    Configuration,
    JobView,
    Placed,
    Placement,
    Plan,
    Replan,
    Shape,
    Snapshot,
    Trigger,
    Waiting,
)


@dataclass(frozen=True, slots=True)
class OneTypeChoice:
    """A job is to have `count` GPUs of this type, on at most `nodes` nodes if that is given."""

    view: JobView
    gpu_type: str
    count: int
    nodes: int | None = None


def one_type_way(view: JobView, snapshot: Snapshot) -> Way | None:
    """Return how a rigid job can run on GPUs of one type; None if it never can.

    Its count is the lower median of the requirement set, or of the counts that fit so.
    """
    return rigid_way(view.job, snapshot.cluster, snapshot.speeds, snapshot.shapes, one_type=True)


def assign(
    snapshot: Snapshot,
    fixed: Mapping[str, Placed],
    chosen: Sequence[OneTypeChoice],
    spare: Iterable[OneTypeChoice] = (),
) -> dict[str, Placed]:
    """Return where the chosen jobs go, those included that are `fixed`.

    Larger jobs find their nodes first, and among equals those that keep theirs. A job goes to one
    node if any has room for it, else to as few as possible. One that finds no room is left out.

    Args:
        snapshot: the state to plan for.
        fixed: jobs whose place is given.
        chosen: the others, no job twice, in the order in which equals choose.
        spare: what may take the room that is left, the first to fit first; jobs that have a place
            by then are passed over.
    """
    claims, placed = Claims(FreeGpus.beside(snapshot, fixed)), dict(fixed)
    by_size = sorted(chosen, key=lambda choice: -choice.count)
    for choice in by_size:
        _keep(snapshot, claims, choice)
    for choice in sorted(by_size, key=lambda c: (-c.count, c.view.id not in claims.kept)):
        _place(snapshot, claims, choice, placed)
    for choice in spare:
        if choice.view.id not in placed:
            if claims.left.full:
                break
            _place(snapshot, claims, choice, placed)
    return placed


def _keep(snapshot: Snapshot, claims: Claims, choice: OneTypeChoice) -> None:
    """Let a job keep what it has until its turn, if that is what it is to have."""
    view, cluster = choice.view, snapshot.cluster
    has = present(snapshot, view)
    if (
        has is not None
        and has.gpus == choice.count
        and all(cluster[name].gpu_type == choice.gpu_type for name, _ in has)
        and (choice.nodes is None or len(has) <= choice.nodes)
        and may_keep(snapshot, view, has)
        and claims.idle.fits(view.job, has)
    ):
        claims.keep(view.job, entry_at(snapshot, view, has))


def _place(
    snapshot: Snapshot, claims: Claims, choice: OneTypeChoice, placed: dict[str, Placed]
) -> None:
    job, job_id = choice.view.job, choice.view.id
    if job_id not in claims.kept:
        # What it has may be free again, or is enough for a smaller choice.
        _keep(snapshot, claims, choice)
    if job_id in claims.kept:
        entry = claims.release(job_id)
    else:
        found = _find(snapshot, claims, choice)
        if found is None:
            return
        claims.make_room(job, found)
        entry = entry_at(snapshot, choice.view, found)
    placed[job_id] = entry
    claims.take(job, entry)


def _find(snapshot: Snapshot, claims: Claims, choice: OneTypeChoice) -> Configuration | None:
    job, gpu_type, count = choice.view.job, choice.gpu_type, choice.count
    if claims.left.idle(gpu_type) < count:
        return None
    for free in (claims.idle, claims.left):
        if (found := free.one_node(job, gpu_type, count)) is not None:
            return found
    shapes, speeds = snapshot.shapes_for(job), snapshot.speeds
    if (
        count < 2
        or Shape.EVEN not in shapes
        or speeds.per_gpu(job.profile, gpu_type, count, nodes=2) <= 0
    ):
        return None
    even = Shape.UNEVEN not in shapes
    for free in (claims.idle, claims.left):
        found = free.fewest_nodes(job, (gpu_type,), count, even=even)
        if found is not None and (choice.nodes is None or len(found) <= choice.nodes):
            return found
    return None


MostNodes = Callable[[Snapshot, JobView, str, int], int | None]
"""On how many nodes a job may be, given GPU type and count; None for any number."""


def any_nodes(snapshot: Snapshot, view: JobView, gpu_type: str, count: int) -> None:
    """Let every job be on any number of nodes."""
    del snapshot, view, gpu_type, count


def plan_rounds(
    snapshot: Snapshot, key: Callable[[JobView], Any], most_nodes: MostNodes = any_nodes
) -> Plan:
    """Return the plan that serves all jobs anew when a round starts, and else fills what is idle.

    Args:
        snapshot: the state to plan for.
        key: what jobs are ordered by.
        most_nodes: on how many nodes a job may be.
    """
    starts = Trigger.ROUND in snapshot.triggers
    order = in_turn(snapshot, sorted(snapshot.jobs.values(), key=key), running_stay=not starts)
    serve = serve_anew if starts else fill
    return plan_placing(snapshot, serve(snapshot, order, most_nodes), behind, EACH_ROUND)


def serve_anew(
    snapshot: Snapshot, order: Sequence[JobView], most_nodes: MostNodes
) -> dict[str, Placed]:
    """Return which jobs run where if the order alone decides: one may be stopped for one ahead.

    Only jobs that are not preemptible go on whatever their place in the order.
    """
    fixed = immovable(snapshot)
    types = snapshot.cluster.gpu_types
    waiting = list(_waiting(snapshot, order, fixed))
    pools = Pools.of(snapshot, fixed, (view.job for view, _ in waiting))
    left, around = pools.capacity.tolist(), pools.around()
    chosen = []
    for view, way in waiting:
        own = dict(zip(types, pools.own(view.job), strict=True))
        room = {
            t: least
            for t in types
            if t in way.types
            and own[t] >= 0
            and (least := min(left[pool] for pool in around[own[t]])) >= way.count
        }
        if not room:
            continue
        place = present(snapshot, view)
        has = None if place is None else snapshot.cluster[place.pieces[0][0]].gpu_type
        gpu_type = has if has in room else max(room, key=room.__getitem__)
        for pool in around[own[gpu_type]]:
            left[pool] -= way.count
        limit = most_nodes(snapshot, view, gpu_type, way.count)
        chosen.append(OneTypeChoice(view, gpu_type, way.count, limit))
    return assign(snapshot, fixed, chosen, _choices(snapshot, waiting, most_nodes))


def fill(snapshot: Snapshot, order: Sequence[JobView], most_nodes: MostNodes) -> dict[str, Placed]:
    """Return which jobs run where if none is stopped and idle GPUs go to the first that fits."""
    stay = staying(snapshot)
    waiting = _waiting(snapshot, order, stay)
    return assign(snapshot, stay, (), _choices(snapshot, waiting, most_nodes))


def serve_line(snapshot: Snapshot, fit: Fit) -> Plan:
    """Return the plan that keeps what runs and starts the first in line as long as there is room.

    Jobs that are held, can never run, or would not fit on the open nodes if these were empty, stand
    in no job's way. Where jobs are limited to some nodes,
    there is a line for those whose nodes are the same, or meet.
    """
    placed = staying(snapshot)
    free = FreeGpus.beside(snapshot, placed)
    cluster, down, first = snapshot.cluster, nodes_down(snapshot), set()
    barred, every = 0, cluster.mask(None)
    order = in_turn(snapshot, snapshot.by_submission(), running_stay=True)
    for view, way in _waiting(snapshot, order, placed):
        mine = cluster.mask(view.job.nodes, view.job.closed)
        found = None if mine & barred else fit(snapshot, free, view.job, way, way.types)
        if found is not None:
            free.take(view.job, found)
            placed[view.id] = Placed((Placement(found),))
            continue
        if not barred:
            first.add(view.id)
        if open_nodes_hold(snapshot, down, view.job, way):
            barred |= mine
        if barred == every:
            break

    def waits(snapshot: Snapshot, view: JobView) -> Waiting:
        return NO_ROOM if view.id in first else behind(snapshot, view)

    return plan_placing(snapshot, placed, waits, Replan())


class Line:
    """Jobs served one after another, each beside what has a place already; none is stopped.

    One that finds no room keeps the nodes that it could use from all behind it.

    Attributes:
        placed: job -> its place.
        free: what no job has.
        waits: job -> why it waits, of those that were served and found no room.
    """

    def __init__(self, snapshot: Snapshot, placed: Mapping[str, Placed]) -> None:
        """Start with what has a place."""
        self.placed = dict(placed)
        self.free = FreeGpus.beside(snapshot, placed)
        self.waits: dict[str, Waiting] = {}
        self._snapshot = snapshot
        self._barred = 0

    @property
    def none_is_left(self) -> bool:
        """Whether no other job can begin: nothing is idle, or all of it is kept for some job."""
        return self.free.full or self._barred == self._snapshot.cluster.mask(None)

    def serve(self, view: JobView, way: Way, fit: Fit) -> None:
        """Place a job in a way on GPUs of one type, or let it wait; it may be served again."""
        snapshot, job = self._snapshot, view.job
        types, idle = not_barred(snapshot.cluster, self.free, job, way, self._barred)
        found = fit(snapshot, idle, job, way, types)
        if found is not None:
            self.free.take(job, found)
            self.placed[view.id] = Placed((Placement(found),))
            self.waits.pop(view.id, None)
            return
        mine = reach(job, way, snapshot.cluster)
        self.waits[view.id] = AHEAD if mine & self._barred else NO_ROOM
        self._barred |= mine


def _waiting(
    snapshot: Snapshot, order: Iterable[JobView], placed: Collection[str]
) -> Iterator[tuple[JobView, Way]]:
    """Yield the jobs that could run on GPUs of one type and have no place."""
    for view in order:
        if view.blocked is None and view.id not in placed:
            way = one_type_way(view, snapshot)
            if way is not None:
                yield view, way


def _choices(
    snapshot: Snapshot, waiting: Iterable[tuple[JobView, Way]], most_nodes: MostNodes
) -> Iterator[OneTypeChoice]:
    types = snapshot.cluster.gpu_types
    for view, way in waiting:
        for gpu_type in types:
            if gpu_type in way.types:
                limit = most_nodes(snapshot, view, gpu_type, way.count)
                yield OneTypeChoice(view, gpu_type, way.count, limit)
