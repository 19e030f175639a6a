"""Turn chosen GPU types and counts into nodes; a job that keeps both keeps its nodes.

For policies that decide how many GPUs of which type each job gets, and leave open where. No job
gets GPUs of several types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hetsched_core.placement.free import FreeGpus
from hetsched_core.placement.keep import Claims, entry_at, may_keep, present
from hetsched_core.placement.ways import Way, rigid_way
from hetsched_core.types import Configuration, JobView, Placed, Shape, Snapshot


@dataclass(frozen=True, slots=True)
class Choice:
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
    chosen: Sequence[Choice],
    spare: Iterable[Choice] = (),
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


def _keep(snapshot: Snapshot, claims: Claims, choice: Choice) -> None:
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


def _place(snapshot: Snapshot, claims: Claims, choice: Choice, placed: dict[str, Placed]) -> None:
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


def _find(snapshot: Snapshot, claims: Claims, choice: Choice) -> Configuration | None:
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
