"""When each waiting job could start if every job ran for its time limit, the first in line first.

Whoever can start at once on such terms makes nobody ahead of it wait longer, and is started out of
turn; the others may be promised the GPUs that they are to get.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from hetsched_core.kernels.backfill import earliest_starts
from hetsched_core.placement.fewest import Layout, layout_of
from hetsched_core.placement.turns import InTurn
from hetsched_core.placement.ways import rigid_way
from hetsched_core.types import (
    Cluster,
    Configuration,
    Entry,
    Job,
    JobView,
    NodeView,
    Purpose,
    Reservation,
    Shape,
    Snapshot,
)

OVERDUE_S = 60.0
"""A job that has run past its limit is taken to end so much later than now, at any time."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A waiting job: where it can be, and for how many seconds it may run."""

    job: str
    layout: Layout
    limit_s: float


@dataclass(frozen=True, slots=True)
class Start:
    """The earliest start of a job (UTC) and the GPUs that it is then to get."""

    job: str
    configuration: Configuration
    start_s: float


class Timeline:
    """The room on every node from now on, as those who run are expected to end."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Start with nobody running, on the nodes as they stand."""
        cluster, views = snapshot.cluster, tuple(snapshot.node_views())
        self._cluster = cluster
        self._even = Shape.UNEVEN not in snapshot.shapes
        names = {host: at for at, host in enumerate(dict.fromkeys(n.host for n in cluster))}
        self._hosts = np.array([_room(cluster, views, host) for host in names])
        slots = [cluster.on_host(node.host).index(node.name) for node in cluster]
        self._where = np.array(
            [
                (names[view.node.host], slot, max(0, view.capacity))
                for view, slot in zip(views, slots, strict=True)
            ],
            np.int64,
        )
        by_type = [
            [at for at, v in enumerate(views) if v.open and v.node.gpu_type == gpu_type]
            for gpu_type in cluster.gpu_types
        ]
        self._members = np.array([at for nodes in by_type for at in nodes], np.int64)
        self._type_from = np.cumsum([0, *map(len, by_type)], dtype=np.int64)
        self._held = np.full((64, 2), -1, np.int64)
        self._held_until = np.zeros((64, 3))
        self._unused = list(range(64))
        self._rows: dict[str, list[int]] = {}

    def hold(self, job: Job, configuration: Configuration, until_s: float) -> None:
        """Note that a job is expected to hold GPUs until then (UTC), and nothing else."""
        self.release(job.id)
        rows = self._rows[job.id] = []
        for name, gpus in configuration:
            if not self._unused:
                self._grow()
            row = self._unused.pop()
            rows.append(row)
            self._held[row, 0] = self._cluster.index(name)
            self._held[row, 1] = gpus
            self._held_until[row, 0] = until_s
            self._held_until[row, 1] = gpus * job.cpus_per_gpu
            self._held_until[row, 2] = gpus * job.memory_mb_per_gpu

    def release(self, job_id: str) -> None:
        """Note that a job holds nothing."""
        for row in self._rows.pop(job_id, ()):
            self._held[row, 0] = -1
            self._unused.append(row)

    def earliest_starts(
        self, queue: Sequence[Candidate], now_s: float, *, reserve_all: bool
    ) -> list[Start]:
        """Return the earliest start of each job, no earlier than now, given those ahead of it.

        Args:
            queue: the jobs, the first in line first.
            now_s: the present (UTC).
            reserve_all: whether every job that cannot start keeps the room that it is to have from
                those behind it (conservative backfilling), or only one for each GPU type: the first
                that waits for it (EASY).

        Returns:
            In the order of the queue, without those who neither start nor keep anything.
        """
        if not queue:
            return []
        layouts = [candidate.layout for candidate in queue]
        jobs = [(c.limit_s, c.layout.cpus_per_gpu, c.layout.memory_mb_per_gpu) for c in queue]
        starts_s = np.empty(len(queue))
        pieces = np.empty((sum(max(layout.nodes) for layout in layouts), 3), np.int64)
        earliest_starts(
            now_s,
            OVERDUE_S,
            reserve_all,
            self._even,
            self._hosts,
            self._where,
            self._members,
            self._type_from,
            self._held,
            self._held_until,
            np.array([layout.count for layout in layouts], np.int64),
            np.array(jobs, np.float64),
            np.array([layout.nodes for layout in layouts], np.int64),
            starts_s,
            pieces,
        )
        return self._starts(queue, starts_s.tolist(), pieces.tolist())

    def _starts(
        self, queue: Sequence[Candidate], starts_s: list[float], pieces: Iterable[list[int]]
    ) -> list[Start]:
        nodes = self._cluster.nodes
        found: dict[int, list[tuple[str, int]]] = {}
        for job, node, gpus in pieces:
            if job < 0:
                break
            found.setdefault(job, []).append((nodes[node].name, gpus))
        return [
            Start(queue[at].job, Configuration.of(parts), starts_s[at])
            for at, parts in found.items()
        ]

    def _grow(self) -> None:
        rows = len(self._held)
        self._unused.extend(range(rows, 2 * rows))
        self._held = np.concatenate((self._held, np.full_like(self._held, -1)))
        self._held_until = np.concatenate((self._held_until, np.zeros_like(self._held_until)))


@dataclass(slots=True)
class Backfill:
    """Starts jobs out of turn beside an `InTurn`; its timeline costs what changed between passes.

    Attributes:
        turns: who is served in turn, and where jobs go.
        limit_s: for how many seconds a job may run.
    """

    turns: InTurn
    limit_s: Callable[[Job], float]
    _timeline: Timeline | None = None
    _candidates: dict[str, Candidate] = field(default_factory=dict)
    _touched: set[str] = field(default_factory=set)

    def serve(self, snapshot: Snapshot) -> dict[str, Entry]:
        """Start jobs in turn; return the entries that change."""
        follows = self.turns.follows(snapshot)
        changes = self.turns.serve(snapshot)
        if follows:
            self._touched.update(snapshot.changed, snapshot.gone, changes)
        else:
            self._timeline = None
        return changes

    def fill(
        self, snapshot: Snapshot, changes: dict[str, Entry], most: int, *, reserve_all: bool
    ) -> tuple[Reservation, ...]:
        """Start those of the first so many waiting jobs for whom nobody ahead waits longer.

        Args:
            snapshot: the state that was served.
            changes: the entries that change; the starts are added to them.
            most: how many jobs are looked at.
            reserve_all: see `Timeline.earliest_starts`.

        Returns:
            What those keep who have to wait.
        """
        timeline, now_s = self._brought_up_to(snapshot), snapshot.effective_s
        queue = [self._candidate(snapshot, name) for name in islice(self.turns.waiting(), most)]
        reservations = []
        for start in timeline.earliest_starts(queue, now_s, reserve_all=reserve_all):
            if start.start_s > now_s:
                end_s = start.start_s + self._candidates[start.job].limit_s
                reservations.append(
                    Reservation(start.job, start.configuration, start.start_s, end_s)
                )
            else:
                self.turns.start(snapshot.jobs[start.job].job, start.configuration, changes)
                self._touched.add(start.job)
        return tuple(reservations)

    def _brought_up_to(self, snapshot: Snapshot) -> Timeline:
        """Return the timeline with those on it who hold GPUs now."""
        timeline = self._timeline
        if timeline is None:
            timeline = self._timeline = Timeline(snapshot)
            self._candidates.clear()
            self._touched = set(self.turns.placed)
        unsettled = set()
        for job_id in self._touched:
            self._candidates.pop(job_id, None)
            held = self.turns.placed.get(job_id)
            if held is None:
                timeline.release(job_id)
                continue
            job, configuration = held
            since_s = _running_since(snapshot.jobs[job_id])
            if since_s is None:
                since_s = snapshot.effective_s
                unsettled.add(job_id)
            timeline.hold(job, configuration, since_s + self.limit_s(job))
        self._touched = unsettled
        return timeline

    def _candidate(self, snapshot: Snapshot, job_id: str) -> Candidate:
        known = self._candidates.get(job_id)
        if known is None:
            job = snapshot.jobs[job_id].job
            way = rigid_way(job, snapshot.cluster, snapshot.speeds, snapshot.shapes)
            assert way is not None, f"job {job_id} waits and fits nowhere"
            layout = layout_of(job, way, snapshot.cluster, snapshot.shapes)
            known = self._candidates[job_id] = Candidate(job_id, layout, self.limit_s(job))
        return known


def _running_since(view: JobView) -> float | None:
    """When the job got the GPUs that it keeps; None while it has none."""
    for run in view.runs:
        if run.purpose is Purpose.RUN and run.draining_until_s is None:
            return run.since_s
    return None


def _room(cluster: Cluster, views: Sequence[NodeView], host: str) -> tuple[float, float]:
    """CPUs and MiB of a host that managed jobs may use; infinite where they are not counted."""
    siblings = [views[cluster.index(name)] for name in cluster.on_host(host)]
    cpus = max(view.node.cpus for view in siblings) or math.inf
    memory_mb = max(view.node.memory_mb for view in siblings) or math.inf
    return (
        cpus - sum(view.foreign_cpus for view in siblings),
        memory_mb - sum(view.foreign_memory_mb for view in siblings),
    )
