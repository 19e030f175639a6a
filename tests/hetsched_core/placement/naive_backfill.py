"""Backfilling the slow way: every instant and every node anew for each job in turn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hetsched_core.placement.fewest import JobLayout
from hetsched_core.placement.timeline import OVERDUE_S
from hetsched_core.types import Cluster, Configuration, Job, Reservation, Window

ALL = 1 << 20
"""More GPUs than any node has."""


@dataclass(frozen=True)
class Candidate:
    """A waiting job: where it can be, and for how many seconds it may run."""

    job: str
    layout: JobLayout
    limit_s: float


@dataclass(frozen=True)
class Booking:
    """GPUs of a node, and CPUs and MiB of its host, in use from `begin_s` up to `end_s`."""

    node: str
    gpus: int
    cpus: float
    memory_mb: float
    begin_s: float
    end_s: float


@dataclass
class NaiveTimeline:
    """`Timeline` of a cluster on which the `closed` nodes take no work."""

    cluster: Cluster
    held: Sequence[tuple[Job, Configuration, float]]
    closed: frozenset[str] = frozenset()
    windows: Sequence[Window] = ()

    def earliest_starts(
        self, queue: Sequence[Candidate], now_s: float, *, reserve_all: bool
    ) -> list[Reservation]:
        self.now_s = now_s
        self.bookings = [
            booking
            for job, configuration, until_s in self.held
            for booking in _bookings(
                configuration,
                job.cpus_per_gpu,
                job.memory_mb_per_gpu,
                now_s,
                until_s if until_s > now_s else now_s + OVERDUE_S,
            )
        ]
        self.bookings += [
            Booking(name, ALL, 0.0, 0.0, window.from_s, window.until_s)
            for window in self.windows
            if window.until_s > now_s
            for name in window.nodes
            if name in self.cluster
        ]
        waited_for: set[str] = set()
        waited_at: set[str] = set()
        wanted: set[str] = set()
        followed = 0
        found: list[tuple[int, Reservation]] = []
        for place, candidate in enumerate(queue):
            types = {
                gpu_type
                for gpu_type, nodes in zip(
                    self.cluster.gpu_types, candidate.layout.nodes, strict=False
                )
                if nodes
            }
            if not types <= wanted:
                followed = place
            wanted |= types
            mine = self.nodes_of(candidate, types)
            keeps = reserve_all or not types <= waited_for
            if not reserve_all and candidate.layout.may_use != self.cluster.mask(None):
                keeps = not mine <= waited_at
            start = self.first(candidate, self.instants() if keeps else [now_s])
            if start is None:
                continue
            found.append((place, start))
            if start.start_s > now_s:
                waited_at |= mine
                waited_for |= {t for t in types if self.nodes_of(None, {t}) <= waited_at}
            else:
                followed = place
            layout = candidate.layout
            self.bookings += _bookings(
                start.configuration,
                layout.cpus_per_gpu,
                layout.memory_mb_per_gpu,
                start.start_s,
                start.start_s + candidate.limit_s,
                # A job that is to start later keeps whole nodes.
                gpus_of_each=ALL if start.start_s > now_s else None,
            )
        return [start for place, start in found if place <= followed]

    def nodes_of(self, candidate: Candidate | None, types: set[str]) -> set[str]:
        """The nodes of these types that take work, and that a job may use."""
        may_use = -1 if candidate is None else candidate.layout.may_use
        return {
            node.name
            for at, node in enumerate(self.cluster)
            if node.gpu_type in types and node.name not in self.closed and may_use >> at & 1
        }

    def instants(self) -> list[float]:
        """Now, and whenever something is taken or freed later."""
        times = {t for booking in self.bookings for t in (booking.begin_s, booking.end_s)}
        return sorted({self.now_s, *(t for t in times if t > self.now_s)})

    def first(self, candidate: Candidate, instants: list[float]) -> Reservation | None:
        """The start at the first of these instants at which the job has room for its limit."""
        for at_s in instants:
            for types, nodes in self.choices(candidate):
                pieces = self.pieces(candidate, types, nodes, at_s)
                if pieces:
                    end_s = at_s + candidate.limit_s
                    return Reservation(candidate.job, Configuration.of(pieces), at_s, end_s)
        return None

    def choices(self, candidate: Candidate) -> Iterator[tuple[list[str], int]]:
        """(GPU types together, number of nodes), in the order in which they are tried."""
        *by_type, mix = candidate.layout.nodes
        named = list(zip(self.cluster.gpu_types, by_type, strict=True))
        yield from (([gpu_type], nodes) for gpu_type, nodes in named if nodes > 0)
        if mix:
            yield [gpu_type for gpu_type, nodes in named if nodes < 0], mix

    def pieces(
        self, candidate: Candidate, types: list[str], nodes: int, at_s: float
    ) -> dict[str, int]:
        """GPUs on exactly so many nodes (or fewer) that stay free from `at_s` for the limit."""
        count = candidate.layout.count
        until_s = at_s + candidate.limit_s
        window = [at_s, *(t for t in self.instants() if at_s < t < until_s)]
        # By type and then in order, as the kernel numbers them.
        names = [
            node.name
            for gpu_type in types
            for node in self.cluster
            if node.gpu_type == gpu_type and node.name in self.nodes_of(candidate, {gpu_type})
        ]
        free = {name: min(self.free_gpus(name, t) for t in window) for name in names}
        served = {name: min(self.served(candidate, name, t) for t in window) for name in names}
        if nodes == 1:
            able = [name for name in names if min(free[name], served[name]) >= count]
            return {min(able, key=lambda name: free[name]): count} if able else {}
        # With siblings closed fewer nodes might do; the job still waits for as many as it takes.
        alone = {gpu_type: least for gpu_type, _, least in candidate.layout.alone}
        least = alone.get(types[0], 1)
        if sum(min(free[name], served[name]) >= least for name in names) < nodes:
            return {}
        pieces: dict[str, int] = {}
        for _ in range(nodes):
            rest = count - sum(pieces.values())
            usable: dict[str, float] = {
                name: min(free[name], served[name] - self.on_host(name, pieces))
                for name in names
                if name not in pieces
            }
            best = max(usable, key=lambda name: usable[name], default=None)
            if not rest or best is None or usable[best] < 1:
                break
            even = candidate.layout.evenly
            if even and usable[best] < count // nodes:
                return {}
            pieces[best] = count // nodes if even else int(min(usable[best], rest))
        return pieces if sum(pieces.values()) == count else {}

    def on_host(self, name: str, pieces: dict[str, int]) -> int:
        host = self.cluster[name].host
        return sum(gpus for other, gpus in pieces.items() if self.cluster[other].host == host)

    def active(self, at_s: float) -> Iterator[Booking]:
        return (b for b in self.bookings if b.begin_s <= at_s < b.end_s)

    def free_gpus(self, name: str, at_s: float) -> int:
        return self.cluster[name].gpus - sum(b.gpus for b in self.active(at_s) if b.node == name)

    def served(self, candidate: Candidate, name: str, at_s: float) -> float:
        """For how many GPUs of a job the host of a node has CPUs and memory."""
        host = self.cluster[name].host
        siblings = [self.cluster[sibling] for sibling in self.cluster.on_host(host)]
        here = [b for b in self.active(at_s) if self.cluster[b.node].host == host]
        room = (
            (candidate.layout.cpus_per_gpu, max(n.cpus for n in siblings), [b.cpus for b in here]),
            (
                candidate.layout.memory_mb_per_gpu,
                max(n.memory_mb for n in siblings),
                [b.memory_mb for b in here],
            ),
        )
        return min(
            math.floor((has - sum(used) + 1e-6) / each) if each and has else math.inf
            for each, has, used in room
        )


def _bookings(
    configuration: Configuration,
    cpus: float,
    memory_mb: float,
    begin_s: float,
    end_s: float,
    gpus_of_each: int | None = None,
) -> list[Booking]:
    return [
        Booking(name, gpus_of_each or gpus, gpus * cpus, gpus * memory_mb, begin_s, end_s)
        for name, gpus in configuration
    ]
