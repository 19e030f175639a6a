"""Which places jobs have and may keep, and what is free while they are given others."""

from __future__ import annotations

from hetsched_core.placement.free import FreeGpus
from hetsched_core.types import (
    Configuration,
    Job,
    JobView,
    Placed,
    Placement,
    Snapshot,
    shape_of,
)


def present(snapshot: Snapshot, view: JobView) -> Configuration | None:
    """Return where the job is to run at present, whether it has got there or not."""
    before = snapshot.previous.entries.get(view.id)
    if isinstance(before, Placed) and before.placements:
        return before.placements[0].configuration
    return view.configuration


def lasting(snapshot: Snapshot, view: JobView) -> Configuration | None:
    """Return the same, but of a job that may not be stopped where it runs, whatever was planned."""
    fixed = not view.job.preemptible and view.configuration is not None
    return view.configuration if fixed else present(snapshot, view)


def may_keep(snapshot: Snapshot, view: JobView, place: Configuration) -> bool:
    """Return whether nothing but other jobs can be in the way of a job in this place.

    It runs there, or could start there now: a run that has ended must not begin anew on a node that
    has closed or is none of the job's, nor in a shape that the job can no longer have. No job stays
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


def entry_at(snapshot: Snapshot, view: JobView, place: Configuration) -> Placed:
    """Return the entry of a job in a place: the one in force where it says the same."""
    before = snapshot.previous.entries.get(view.id)
    if isinstance(before, Placed) and before.placements == (Placement(place),):
        return before
    return Placed((Placement(place),))


def immovable(snapshot: Snapshot) -> dict[str, Placed]:
    """Return what may not be stopped: jobs that run and are not preemptible, where they are."""
    return {
        view.id: entry_at(snapshot, view, view.configuration)
        for view in snapshot.by_submission()
        if not view.job.preemptible and view.configuration is not None and view.blocked is None
    }


def staying(snapshot: Snapshot) -> dict[str, Placed]:
    """Return what goes on under a policy that stops no job: each with a place that it can keep.

    What runs comes first: others may have begun where a job is only planned.
    """
    free, stay = FreeGpus.of(snapshot), {}
    for view in sorted(snapshot.by_submission(), key=lambda each: each.configuration is None):
        has = lasting(snapshot, view)
        if has is None or view.blocked is not None:
            continue
        if may_keep(snapshot, view, has) and free.fits(view.job, has):
            free.take(view.job, has)
            stay[view.id] = entry_at(snapshot, view, has)
    return stay


class Claims:
    """What is free while jobs get places in turn, and what those keep whose turn is to come.

    Attributes:
        left: what no job has got so far.
        idle: what of that no job keeps either.
        kept: job -> its place, of those that are still to come.
    """

    def __init__(self, free: FreeGpus) -> None:
        """Start with what is free, which no job keeps."""
        self.left = free
        self.idle = free.copy()
        self.kept: dict[str, tuple[Job, Placed]] = {}
        self._keepers: dict[str, list[str]] = {}

    def keep(self, job: Job, placed: Placed) -> None:
        """Count a place as in use until the turn of the job that has it."""
        place = placed.placements[0].configuration
        self.idle.take(job, place)
        self.kept[job.id] = job, placed
        for name, _ in place:
            self._keepers.setdefault(self.left.host(name), []).append(job.id)

    def release(self, job_id: str) -> Placed:
        """Return what a job keeps, and keep it no more."""
        job, placed = self.kept.pop(job_id)
        self.idle.give(job, placed.placements[0].configuration)
        return placed

    def take(self, job: Job, placed: Placed) -> None:
        """Give a job its place, of what is idle."""
        place = placed.placements[0].configuration
        self.idle.take(job, place)
        self.left.take(job, place)

    def make_room(self, job: Job, wanted: Configuration) -> None:
        """Let jobs keep their places no more until `wanted` is idle, the last ones first."""
        hosts = [self.left.host(name) for name, _ in wanted]
        while not self.idle.fits(job, wanted):
            for host in hosts:
                keepers = self._keepers.get(host, [])
                while keepers and keepers[-1] not in self.kept:
                    keepers.pop()
                if keepers:
                    self.release(keepers.pop())
                    break
            else:
                raise AssertionError(f"no room for {wanted} although no job keeps its nodes")
