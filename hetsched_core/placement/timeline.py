"""The room on every node from now on, and when each job of a queue could start in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hetsched_core.kernels import Floats, Ints
from hetsched_core.kernels.backfill import (
    NAME,
    WINDOWS,
    Chains,
    Limited,
    Places,
    Windows,
    earliest_starts,
)
from hetsched_core.kernels.expected_room import AGAIN, expect_room
from hetsched_core.placement.fewest import JobLayout
from hetsched_core.placement.free import host_room
from hetsched_core.placement.starts import Queue, Starts
from hetsched_core.types import Configuration, Job, Snapshot, Window

OVERDUE_S = 60.0
"""A job that has run past its limit is taken to end so much later than now, at any time."""

_LATEST_S = 1e15
"""Later than anything: what has no end is taken to end then."""

_ROWS = 8
"""For how many parts of runs a host has rows at first."""


class Timeline:
    """The room on every node from now on, as the jobs that run are expected to end."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Start without runs, on the nodes as they stand."""
        cluster, views = snapshot.cluster, tuple(snapshot.node_views())
        self._cluster = cluster
        hosts = {host: at for at, host in enumerate(dict.fromkeys(n.host for n in cluster))}
        cpus, memory_mb = host_room(cluster, views)
        self._hosts = np.array([(cpus[host], memory_mb[host]) for host in hosts])
        self._where = [
            (hosts[node.host], cluster.on_host(node.host).index(node.name)) for node in cluster
        ]
        places = 1 + max(place for _, place in self._where)
        self._capacity = np.zeros((len(hosts), places), np.int64)
        for where, view in zip(self._where, views, strict=True):
            self._capacity[where] = max(0, view.capacity)
        by_type = [
            [at for at, v in enumerate(views) if v.open and v.node.gpu_type == gpu_type]
            for gpu_type in cluster.gpu_types
        ]
        members = [
            (*self._where[at], at, of_type) for of_type, nodes in enumerate(by_type) for at in nodes
        ]
        rows = [(*member, row) for row, member in enumerate(members)]
        self._members = np.array(rows, np.int64).reshape(-1, 5)
        self._member_of = {at: row for row, at in enumerate(self._members[:, NAME].tolist())}
        self._type_from = np.cumsum([0, *map(len, by_type)], dtype=np.int64)
        self._held = np.zeros((len(hosts), _ROWS, 2), np.int64)
        self._held_until = np.zeros((len(hosts), _ROWS, 3))
        self._unused = [list(range(_ROWS)) for _ in hosts]
        self._rows: dict[str, list[tuple[int, int]]] = {}
        self._kinds = _Kinds(self._members, len(cluster))
        self._room = _Room(len(hosts), places, self._members, len(by_type))

    def kind(self, layout: JobLayout) -> int:
        """Return the number that stands for this layout in a queue."""
        return self._kinds.number(layout)

    def hold(self, job: Job, configuration: Configuration, until_s: float) -> None:
        """Note that a job that holds nothing is expected to hold GPUs until then (UTC)."""
        assert job.id not in self._rows, f"job {job.id} holds GPUs already"
        rows = self._rows[job.id] = []
        for name, gpus in configuration.pieces:
            host, place = self._where[self._cluster.index(name)]
            if not self._unused[host]:
                self._grow()
            row = (host, self._unused[host].pop())
            rows.append(row)
            self._room.holds_until_s[host] = AGAIN
            self._held[row] = (place, gpus)
            self._held_until[row] = (
                until_s,
                gpus * job.cpus_per_gpu,
                gpus * job.memory_mb_per_gpu,
            )

    def release(self, job_id: str) -> None:
        """Note that a job holds nothing."""
        for host, row in self._rows.pop(job_id, ()):
            self._room.holds_until_s[host] = AGAIN
            self._held[host, row, 1] = 0
            self._unused[host].append(row)

    def earliest_starts(
        self,
        queue: Queue,
        now_s: float,
        *,
        reserve_all: bool,
        windows: Sequence[Window] = (),
    ) -> Starts:
        """Return the earliest start of each job, no earlier than now, given those ahead of it.

        Args:
            queue: the jobs, the first in line first.
            now_s: the present (UTC).
            reserve_all: whether every job that cannot start keeps the room that it is to have from
                those behind it (conservative backfilling), or only one for each GPU type: the first
                that waits for it (EASY), or for one of its nodes where it may not have them all.
            windows: spans in which nodes are closed to all jobs.

        Returns:
            In the order of the queue, without those that neither start nor keep anything. The queue
            is followed up to the last job that can start now or that is the first to want a GPU
            type; what is left of it keeps no job from anything.
        """
        if not len(queue):
            return Starts(queue, np.empty(0), np.empty((0, 3), np.int64), self._cluster)
        kinds, room = self._kinds, self._room
        kinds.draw_up()
        start_s = np.empty(len(queue))
        shut, shut_s = self._shut(windows, now_s)
        most = len(queue) * kinds.most_nodes + len(shut)
        room.fit(self._held.shape[1], most, len(kinds.sizes))
        chains = room.chains
        expect_room(
            now_s,
            OVERDUE_S,
            self._capacity,
            self._hosts,
            self._held,
            self._held_until,
            self._members,
            kinds.sizes,
            room.holds_until_s,
            chains.at_s,
            chains.gpus,
            chains.room,
            chains.following,
            room.ready_s,
        )
        earliest_starts(
            now_s,
            reserve_all,
            room.first_rows,
            chains,
            room.ready_s,
            self._members,
            self._type_from,
            kinds.sizes,
            kinds.counts,
            kinds.needs,
            kinds.nodes,
            kinds.columns,
            Limited(kinds.may_use, kinds.all_nodes, kinds.evenly, shut, shut_s),
            queue.kinds,
            queue.limits_s,
            room.windows,
            room.places,
            start_s,
            room.pieces,
            room.used,
        )
        return Starts(queue, start_s, room.pieces[: room.used[0]].copy(), self._cluster)

    def _shut(self, windows: Sequence[Window], now_s: float) -> tuple[Ints, Floats]:
        """Return (W,) members that are closed for a time, and (W, 2) from when until when."""
        shut = [
            (self._member_of[node], window.from_s, min(window.until_s, _LATEST_S))
            for window in windows
            if window.until_s > now_s
            for name in sorted(window.nodes)
            if (at := self._cluster.get(name)) is not None
            and (node := self._cluster.index(at.name)) in self._member_of
        ]
        times = np.array([span[1:] for span in shut], np.float64).reshape(-1, 2)
        return np.array([span[0] for span in shut], np.int64), times

    def _grow(self) -> None:
        rows = self._held.shape[1]
        for unused in self._unused:
            unused.extend(range(rows, 2 * rows))
        self._held = np.concatenate((self._held, np.zeros_like(self._held)), axis=1)
        self._held_until = np.concatenate(
            (self._held_until, np.zeros_like(self._held_until)), axis=1
        )


class _Room:
    """The chains of all hosts as the kernels keep them, made anew only where something changed.

    Beside them what the kernels write at every pass and nothing keeps.
    """

    def __init__(self, hosts: int, places: int, members: Ints, types: int) -> None:
        self.holds_until_s = np.full(hosts, AGAIN)
        self.used = np.empty(1, np.int64)
        self._places, self._members, self._types = places, members, types
        self._shape = (0, 0, 0)

    def fit(self, held: int, pieces: int, sizes: int) -> None:
        """Make room for so many rows of a host, and so many pieces that are booked."""
        hosts, members = len(self.holds_until_s), len(self._members)
        rows, most, columns = self._shape
        if (rows, columns) == (held, sizes) and pieces <= most:
            return
        self._shape = (held, pieces, sizes)
        self.holds_until_s[:] = AGAIN
        self.first_rows = np.arange(hosts + 1, dtype=np.int64) * (held + 1)
        steps = 2 * int(self.first_rows[-1]) + 2 * pieces
        self.chains = Chains(
            at_s=np.empty(steps),
            gpus=np.empty((steps, self._places), np.int64),
            room=np.empty((steps, 2)),
            following=np.empty(steps, np.int64),
            heads=np.empty(hosts, np.int64),
        )
        self.windows = Windows(
            begins_s=np.empty((WINDOWS, sizes, members)),
            ends_s=np.empty((WINDOWS, sizes, members)),
            reach_s=np.empty((self._types, sizes)),
        )
        self.places = Places(
            starts_s=np.empty(members),
            free_until_s=np.empty(members),
            first_s=np.empty(members),
            ready=np.empty(members, np.int64),
            free=np.empty(members, np.int64),
            served=np.empty(members, np.int64),
            found=np.empty((members, 2), np.int64),
            taken=np.empty((members, 2), np.int64),
            mixed=np.empty_like(self._members),
            waited_for=np.empty(self._types, np.bool_),
            waited_at=np.empty(members, np.bool_),
            changed=np.empty(sizes, np.bool_),
        )
        self.ready_s = np.empty((sizes, members))
        self.pieces = np.empty((pieces, 3), np.int64)


class _Kinds:
    """The layouts of jobs, numbered in the order of their coming, as arrays for the kernel."""

    def __init__(self, members: Ints, nodes: int) -> None:
        self._numbers: dict[JobLayout, int] = {}
        self._drawn = -1
        self._names, self._all = members[:, NAME].tolist(), (1 << nodes) - 1

    def number(self, layout: JobLayout) -> int:
        """Return the number of a layout, a new one if it is new."""
        return self._numbers.setdefault(layout, len(self._numbers))

    def draw_up(self) -> None:
        """Bring the arrays up to the layouts that have a number."""
        layouts = list(self._numbers)
        if self._drawn == len(layouts):
            return
        self._drawn = len(layouts)
        sizes = sorted({1, *(least for each in layouts for _, _, least in each.alone)})
        self.sizes = np.array(sizes, np.int64)
        self.counts = np.array([each.count for each in layouts], np.int64)
        self.needs = np.array(
            [(each.cpus_per_gpu, each.memory_mb_per_gpu) for each in layouts], np.float64
        )
        self.nodes = np.array([each.nodes for each in layouts], np.int64)
        self.most_nodes = int(self.nodes.max())
        self.evenly = np.array([each.evenly for each in layouts], np.bool_)
        self.all_nodes = np.array([each.may_use == self._all for each in layouts], np.bool_)
        self.may_use = np.ones((len(layouts), len(self._names)), np.bool_)
        for row, each in zip(self.may_use, layouts, strict=True):
            if each.may_use != self._all:
                row[:] = [each.may_use >> at & 1 for at in self._names]
        # A node of a mix may give a single GPU: that is column 0.
        self.columns = np.zeros_like(self.nodes)
        for kind, each in enumerate(layouts):
            alone = iter(each.alone)
            for at, nodes in enumerate(each.nodes[:-1]):
                if nodes > 0:
                    _, _, least = next(alone)
                    self.columns[kind, at] = sizes.index(least)
