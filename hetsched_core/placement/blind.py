"""Serving an order of jobs without looking at speeds: types are chosen by room alone.

For policies that do not know that GPU types differ. A job gets GPUs of one type: the one it has,
or the one with the most GPUs left, so that no order of types in a file makes a scheduler look good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hetsched_core.placement.assign import Choice, assign, one_type_way
from hetsched_core.placement.entries import EACH_ROUND, behind, revise
from hetsched_core.placement.keep import immovable, present, staying
from hetsched_core.placement.pools import Pools
from hetsched_core.placement.ways import Way
from hetsched_core.types import JobView, Placed, Plan, Snapshot, Trigger

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
    order = sorted(snapshot.jobs.values(), key=key)
    serve = serve_anew if Trigger.ROUND in snapshot.triggers else fill
    return revise(snapshot, serve(snapshot, order, most_nodes), behind, EACH_ROUND)


def serve_anew(
    snapshot: Snapshot, order: Sequence[JobView], most_nodes: MostNodes
) -> dict[str, Placed]:
    """Return who runs where if the order alone decides: who runs may be stopped for who is ahead.

    Only jobs that are not preemptible go on whatever their place in the order.
    """
    fixed = immovable(snapshot)
    types = snapshot.cluster.gpu_types
    waiting = list(_able(snapshot, order, fixed))
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
        has = _type_of(snapshot, view)
        gpu_type = has if has in room else max(room, key=room.__getitem__)
        for pool in around[own[gpu_type]]:
            left[pool] -= way.count
        limit = most_nodes(snapshot, view, gpu_type, way.count)
        chosen.append(Choice(view, gpu_type, way.count, limit))
    return assign(snapshot, fixed, chosen, _choices(snapshot, waiting, most_nodes))


def fill(snapshot: Snapshot, order: Sequence[JobView], most_nodes: MostNodes) -> dict[str, Placed]:
    """Return who runs where if nobody is stopped and idle GPUs go to the first who fits."""
    stay = staying(snapshot)
    waiting = list(_able(snapshot, order, stay))
    return assign(snapshot, stay, (), _choices(snapshot, waiting, most_nodes))


def _able(
    snapshot: Snapshot, order: Sequence[JobView], placed: Mapping[str, Placed]
) -> Iterator[tuple[JobView, Way]]:
    for view in order:
        if view.blocked is None and view.id not in placed:
            way = one_type_way(view, snapshot)
            if way is not None:
                yield view, way


def _choices(
    snapshot: Snapshot, waiting: Sequence[tuple[JobView, Way]], most_nodes: MostNodes
) -> Iterator[Choice]:
    types = snapshot.cluster.gpu_types
    for view, way in waiting:
        for gpu_type in types:
            if gpu_type in way.types:
                limit = most_nodes(snapshot, view, gpu_type, way.count)
                yield Choice(view, gpu_type, way.count, limit)


def _type_of(snapshot: Snapshot, view: JobView) -> str | None:
    has = present(snapshot, view)
    return None if has is None else snapshot.cluster[has.pieces[0][0]].gpu_type
