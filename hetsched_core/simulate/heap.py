"""The event heap: a total order by time, then priority, then the order of scheduling."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from enum import IntEnum
from typing import Generic, TypeVar

E = TypeVar("E")


class EventPriority(IntEnum):
    """What comes first among events of one instant: facts before the plans that they lead to."""

    WORK = 0
    DRAINED = 1
    INCIDENT = 2
    CANCEL = 3
    ARRIVAL = 4
    TIMER = 5
    ROUND = 6
    PLAN = 7


class EventHeap(Generic[E]):
    """Events in the order (time, priority, serial); equal inputs leave it in equal order."""

    def __init__(self) -> None:
        """Start empty."""
        self._heap: list[tuple[float, int, int, E]] = []
        # What was known at first, the next one last: sorted once, and never sifted again.
        self._known: list[tuple[float, int, int, E]] = []
        self._serial = 0

    def push(self, at_s: float, priority: EventPriority, event: E) -> None:
        """Schedule an event."""
        heapq.heappush(self._heap, (at_s, priority, self._serial, event))
        self._serial += 1

    def sort(self) -> None:
        """Sort what is scheduled so far, so that a heap of what is still to be stays small."""
        self._known = sorted((*self._known, *self._heap), reverse=True)
        self._heap = []

    def due(self, now: float) -> Iterator[E]:
        """Take out the events of an instant in order, with those scheduled for it meanwhile.

        Nothing may be sorted meanwhile.
        """
        # Every event of a replay passes here.
        heap, known = self._heap, self._known
        while True:
            if known and known[-1][0] == now and not (heap and heap[0] < known[-1]):
                yield known.pop()[3]
            elif heap and heap[0][0] == now:
                yield heapq.heappop(heap)[3]
            else:
                return

    @property
    def next_s(self) -> float:
        """The time of the next event; infinity if there is none."""
        known_s = self._known[-1][0] if self._known else math.inf
        return min(known_s, self._heap[0][0]) if self._heap else known_s

    def __len__(self) -> int:
        """Return the number of scheduled events."""
        return len(self._heap) + len(self._known)
