"""The event heap: one total order."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.simulate.heap import EventHeap, EventPriority

EVENTS = st.tuples(st.sampled_from([0.0, 1.0, 2.0]), st.sampled_from(list(EventPriority)))
Event = tuple[float, EventPriority]


@given(st.lists(EVENTS), st.lists(EVENTS), st.integers(0, 9))
def test_events_come_out_by_time_then_priority_then_the_order_of_scheduling(
    known: list[Event], later: list[Event], sorted_after: int
) -> None:
    # Objects, for events need not be comparable.
    heap: EventHeap[object] = EventHeap()
    waiting: list[tuple[float, EventPriority, object]] = []

    def push(event: Event) -> None:
        one = object()
        heap.push(*event, one)
        waiting.append((*event, one))
        # Sorting is stable: equal keys keep the order of scheduling.
        waiting.sort(key=lambda each: each[:2])

    for at, event in enumerate(known):
        push(event)
        if at == sorted_after:
            heap.sort()
    coming = list(later)
    while heap:
        assert len(heap) == len(waiting)
        now = heap.next_s
        assert now == waiting[0][0]
        for came in heap.due(now):
            assert came is waiting.pop(0)[-1]
            # Each event leads to another of its instant, or of a later one.
            if coming and coming[0][0] >= now:
                push(coming.pop(0))
        assert heap.next_s > now
    assert not waiting
    assert heap.next_s == math.inf
