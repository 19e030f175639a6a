"""Whether a job may keep the place that it was given."""

from __future__ import annotations

from hetsched_core.types import Configuration, JobView, Snapshot, shape_of


def may_keep(snapshot: Snapshot, view: JobView, place: Configuration) -> bool:
    """Return whether nothing but other jobs can be in the way of a job in this place.

    It runs there, or could start there now: a run that has ended must not begin anew on a node that
    has closed, nor in a shape that the job can no longer have.
    """
    if view.configuration == place:
        return True
    if not all(snapshot.nodes[name].open for name, _ in place):
        return False
    return shape_of(place, snapshot.cluster) in snapshot.shapes_for(view.job)
