"""What jobs keep while Hops plans for the others, at the cost of what changed since the last plan.

Within a round every job keeps what it has that can. In a new one those alone do that may not be
stopped, or whose nodes close: they end where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from hetsched_core.placement.keep import lasting, may_keep, staying
from hetsched_core.policies.hops.configurations import PossibleKinds
from hetsched_core.policies.hops.room import ClusterLayout, Room
from hetsched_core.types import Configuration, Job, JobView, Plan, Snapshot

Places = Mapping[str, tuple[Job, Configuration]]


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """What is not planned for, and what there is for the rest.

    Attributes:
        everything: what managed jobs may use altogether.
        places: job -> it, and the place that it keeps.
        room: what they leave of everything.
        fresh: whose place may be another than in the plan in force; None for all of them.
        without: jobs among which those are that keep nothing; None for all of them.
    """

    everything: Room
    places: Places
    room: Room
    fresh: frozenset[str] | None = None
    without: frozenset[str] | None = None

    def others(self, snapshot: Snapshot) -> list[JobView]:
        """Return the jobs that keep nothing."""
        places, jobs = self.places, snapshot.jobs
        if self.without is None:
            return [view for job_id, view in jobs.items() if job_id not in places]
        return [jobs[job_id] for job_id in self.without - places.keys() if job_id in jobs]

    def unsettled(self, snapshot: Snapshot) -> Iterable[JobView]:
        """Return the jobs that keep a place which may be another than in the plan in force."""
        among = self.places if self.fresh is None else self.fresh & self.places.keys()
        return [snapshot.jobs[job_id] for job_id in among]


def kept(snapshot: Snapshot, everything: Room, *, new_round: bool) -> Kept:
    """Return what jobs keep, by a look at each of them."""
    all_open = bool(everything.open.all())
    places = {
        view.job.id: (view.job, has)
        for view in snapshot.jobs.values()
        if view.blocked is None
        and not (new_round and all_open and _goes_anywhere(view.job))
        and (has := lasting(snapshot, view)) is not None
        and (not new_round or _may_not_move(snapshot, view, has))
        and may_keep(snapshot, view, has)
    }
    room = _without(snapshot, everything, places)
    if room.overdrawn:
        # Other users of the nodes have grown, or others run where a job was to: look at each.
        stay, jobs = staying(snapshot), snapshot.jobs
        if new_round:
            places = {
                job_id: at
                for job_id, at in places.items()
                if job_id in stay or jobs[job_id].configuration
            }
        else:
            places = {
                job_id: (jobs[job_id].job, placed.placements[0].configuration)
                for job_id, placed in stay.items()
            }
        room = _without(snapshot, everything, places)
    return Kept(everything, places, room)


def _goes_anywhere(job: Job) -> bool:
    """Whether a job may move, to any node that is open."""
    return job.preemptible and job.nodes is None and not job.closed


def _may_not_move(snapshot: Snapshot, view: JobView, has: Configuration) -> bool:
    """Whether a job stays where it is when a round begins."""
    job, nodes = view.job, snapshot.nodes
    # On a node that is no place for it any more, it ends where it is, too.
    return not job.preemptible or any(
        not (nodes[name].open and job.may_start_on(name)) for name, _ in has
    )


@dataclass(slots=True, eq=False)
class Standing:
    """What jobs have under the plan that was made last.

    It may be forgotten or given any snapshot at any time: what it remembers is used only if the
    snapshot follows on that plan. `kept` is the twin that it is tested against.

    Attributes:
        possible: which kinds of jobs the open nodes could hold.
    """

    possible: PossibleKinds = field(default_factory=PossibleKinds)

    _plan: Plan | None = None
    _everything: Room | None = None
    _places: Places = field(default_factory=dict)
    _room: Room | None = None
    # Jobs of which the plan says something else than where they run.
    _astray: frozenset[str] = frozenset()
    _waiting: frozenset[str] = frozenset()

    def kept(self, snapshot: Snapshot, layout: ClusterLayout, *, new_round: bool) -> Kept:
        """Return what `kept` does for this snapshot."""
        everything, room = self._everything, self._room
        if (
            everything is None
            or everything.layout is not layout
            or snapshot.nodes_changed
            or self._plan is None
            or snapshot.previous.identity is not self._plan.identity
        ):
            return kept(snapshot, Room.of(snapshot, layout), new_round=new_round)
        if new_round or room is None:
            return kept(snapshot, everything, new_round=new_round)
        places, room = dict(self._places), room.copy()
        left = [places.pop(job_id) for job_id in sorted(snapshot.gone) if job_id in places]
        fresh = snapshot.changed | (self._astray - snapshot.gone)
        come = {}
        for job_id in sorted(fresh):
            if (had := places.pop(job_id, None)) is not None:
                left.append(had)
            view = snapshot.jobs[job_id]
            has = None if view.blocked is not None else lasting(snapshot, view)
            if has is not None and may_keep(snapshot, view, has):
                come[job_id] = view.job, has
        _take(snapshot, room, left, sign=-1)
        _take(snapshot, room, come.values())
        if room.overdrawn:
            return kept(snapshot, everything, new_round=False)
        return Kept(everything, places | come, room, fresh, self._waiting | fresh)

    def follow(
        self,
        plan: Plan,
        before: Kept,
        room: Room,
        placed: Sequence[tuple[JobView, Configuration]],
        waiting: Sequence[JobView],
    ) -> None:
        """Remember a plan.

        Args:
            plan: it.
            before: what was kept when it was made.
            room: what it leaves.
            placed: what it gives the others.
            waiting: those that it gives nothing.
        """
        self._plan, self._everything = plan, before.everything
        # Where there are profiling runs, the room is not all that is left.
        self._room = None if plan.profiles else room
        self._places = dict(before.places)
        for view, place in placed:
            self._places[view.job.id] = view.job, place
        self._waiting = frozenset(view.job.id for view in waiting)
        self._astray = frozenset(
            view.job.id
            for view, place in chain(placed, ((view, None) for view in waiting))
            if view.configuration not in (None, place)
        )


def _without(snapshot: Snapshot, everything: Room, places: Places) -> Room:
    """Return what these jobs leave of everything."""
    room = everything.copy()
    _take(snapshot, room, places.values())
    return room


def _take(
    snapshot: Snapshot, room: Room, places: Iterable[tuple[Job, Configuration]], sign: int = 1
) -> None:
    """Take what jobs have from the room, or (sign -1) give it back."""
    index = snapshot.cluster.index
    pieces = [
        (index(name), sign * gpus, job.cpus_per_gpu, job.memory_mb_per_gpu)
        for job, place in places
        for name, gpus in place
    ]
    if pieces:
        nodes, gpus, cpus, memory_mb = zip(*pieces, strict=True)
        room.take_all(
            np.array(nodes, np.int64), np.array(gpus, np.int64), np.array(cpus), np.array(memory_mb)
        )
