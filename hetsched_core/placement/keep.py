"""Whether a job may keep the place that it was given."""

from __future__ import annotations

from hetsched_core.types import Configuration, JobView, Snapshot, shape_of


def may_keep(snapshot: Snapshot, view: JobView, place: Configuration) -> bool:
    """Return whether nothing but other jobs can be in the way of a job in this place.

    It runs there, or could start there now: a run that has ended must not begin anew on a node that
    has closed or is none of the job's, nor in a shape that the job can no longer have. Nobody stays
    where a window closes a node to it.
    """
    job = view.job
    if job.closed and any(name in job.closed for name, _ in place):
        return False
    if view.configuration == place:
        return True
    if not all(snapshot.nodes[name].open and job.may_start_on(name) for name, _ in place):
        return False
    return job.accepts_spread(place) and shape_of(place, snapshot.cluster) in snapshot.shapes_for(
        view.job
    )
