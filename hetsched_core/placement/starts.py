"""A queue for backfill, and when its jobs start: as arrays, from which few jobs are ever read.

Of the hundreds of promises made at each pass hardly any is looked at before the next pass, so they
become objects only then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import overload

from hetsched_core.kernels import Floats, Ints
from hetsched_core.placement.free import on_one_node
from hetsched_core.types import Cluster, Configuration, Reservation
from hetsched_core.types.making import cheaply_made


@cheaply_made
@dataclass(frozen=True, slots=True, eq=False)
class Queue:
    """J waiting jobs, the first in line first.

    Attributes:
        jobs: their ids.
        kinds: (J,) number of the layout of each.
        limits_s: (J,) for how many seconds each may run.
    """

    jobs: Sequence[str]
    kinds: Ints
    limits_s: Floats

    def __len__(self) -> int:
        """Number of jobs."""
        return len(self.jobs)


@cheaply_made
@dataclass(frozen=True, slots=True, eq=False)
class Starts:
    """The earliest starts of those jobs of a queue that start or keep something.

    Each as the reservation that it is, or would be.

    Attributes:
        queue: the queue.
        start_s: (J,) when each job starts (UTC), infinity for the others.
        pieces: (P, 3) place in the queue, number of the node and GPUs, job by job.
        cluster: the nodes.
    """

    queue: Queue
    start_s: Floats
    pieces: Ints
    cluster: Cluster

    def __iter__(self) -> Iterator[Reservation]:
        """Yield all starts, in the order of the queue."""
        return self._of(self.pieces)

    def by(self, when_s: float) -> Iterator[Reservation]:
        """Return those that are no later than this, in the order of the queue."""
        starting = (self.start_s <= when_s)[self.pieces[:, 0]]
        return self._of(self.pieces[starting])

    def promised_after(self, when_s: float) -> Promises:
        """Return what the jobs keep that start later than this."""
        return Promises(self, when_s)

    def _of(self, pieces: Ints) -> Iterator[Reservation]:
        nodes = self.cluster.nodes
        for at, group in groupby(pieces.tolist(), key=itemgetter(0)):
            (_, node, gpus), *more = group
            if more:
                parts = ((node, gpus), *((node, gpus) for _, node, gpus in more))
                configuration = Configuration.of((nodes[node].name, gpus) for node, gpus in parts)
            else:
                configuration = on_one_node(nodes[node].name, gpus)
            start_s = float(self.start_s[at])
            until_s = start_s + float(self.queue.limits_s[at])
            yield Reservation(self.queue.jobs[at], configuration, start_s, until_s)


@cheaply_made
@dataclass(frozen=True, slots=True)
class Promises(Sequence[Reservation]):
    """The reservations of the jobs that start after `after_s`, but for those `left_out`."""

    starts: Starts
    after_s: float
    left_out: frozenset[str] = frozenset()

    def without(self, jobs: Collection[str]) -> Promises:
        """Return the promises but for those made to these jobs."""
        return Promises(self.starts, self.after_s, self.left_out.union(jobs))

    def __iter__(self) -> Iterator[Reservation]:
        """Yield the reservations, in the order of the queue."""
        for start in self.starts:
            if start.start_s > self.after_s and start.job not in self.left_out:
                yield start

    def __len__(self) -> int:
        """Number of reservations."""
        return sum(1 for _ in self)

    @overload
    def __getitem__(self, at: int) -> Reservation: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Reservation]: ...

    def __getitem__(self, at: int | slice) -> Reservation | Sequence[Reservation]:
        """Return the reservations at these places."""
        return tuple(self)[at]
