"""The event heap: one total order."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.simulate.heap import EventHeap, Priority


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 1.0, 1.5, 7.25]), st.sampled_from(list(Priority)))),
    st.sets(st.integers(0, 20)),
)
def test_events_come_out_by_time_then_priority_then_the_order_of_scheduling(
    events: list[tuple[float, Priority]], sorted_before: set[int]
) -> None:
    heap: EventHeap[int] = EventHeap()
    for serial, (at_s, priority) in enumerate(events):
        if serial in sorted_before:
            heap.sort()
        heap.push(at_s, priority, serial)
    assert len(heap) == len(events)
    times = []
    order = []
    while heap:
        times.append(heap.next_s)
        order.append(heap.pop())
    # Sorting is stable: equal keys keep the order of scheduling.
    assert order == sorted(range(len(events)), key=lambda n: events[n])
    assert times == sorted(at_s for at_s, _ in events)


@given(st.lists(st.one_of(st.none(), st.floats(0.0, 9.0)), max_size=30))
def test_events_scheduled_while_others_come_out_take_their_place(steps: list[float | None]) -> None:
    heap: EventHeap[tuple[float, int]] = EventHeap()
    waiting: list[tuple[float, int]] = []
    for serial, at_s in enumerate(steps):
        if at_s is not None:
            heap.push(at_s, Priority.WORK, (at_s, serial))
            waiting.append((at_s, serial))
        elif waiting:
            waiting.sort()
            assert heap.pop() == waiting.pop(0)
    assert len(heap) == len(waiting)


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 1.0, 2.0]), st.sampled_from(list(Priority)))),
    st.lists(st.tuples(st.sampled_from([0.0, 1.0, 2.0]), st.sampled_from(list(Priority)))),
    st.booleans(),
)
def test_what_is_due_comes_out_as_it_would_one_by_one(
    known: list[tuple[float, Priority]], later: list[tuple[float, Priority]], known_at_first: bool
) -> None:
    together: EventHeap[int] = EventHeap()
    for serial, (at_s, priority) in enumerate(known):
        together.push(at_s, priority, serial)
    if known_at_first:
        together.sort()
    one_by_one: EventHeap[int] = EventHeap()
    for serial, (at_s, priority) in enumerate(known):
        one_by_one.push(at_s, priority, serial)
    coming = list(enumerate(later, len(known)))
    for now in (0.0, 1.0, 2.0):
        left = list(coming)
        came = []
        for event in together.due(now):
            came.append(event)
            # Each event leads to another of its instant, or of a later one.
            if left and left[0][1][0] >= now:
                serial, (at_s, priority) = left.pop(0)
                together.push(at_s, priority, serial)
        expected = []
        while one_by_one.next_s == now:
            expected.append(one_by_one.pop())
            if coming and coming[0][1][0] >= now:
                serial, (at_s, priority) = coming.pop(0)
                one_by_one.push(at_s, priority, serial)
        assert came == expected
    assert len(together) == len(one_by_one)


def test_events_need_not_be_comparable() -> None:
    heap: EventHeap[object] = EventHeap()
    one, two = object(), object()
    heap.push(1.0, Priority.ROUND, one)
    heap.push(1.0, Priority.ROUND, two)
    assert [heap.pop(), heap.pop()] == [one, two]


def test_an_empty_heap_has_its_next_event_never() -> None:
    heap: EventHeap[object] = EventHeap()
    assert heap.next_s == math.inf
    assert not heap


def test_facts_come_before_the_plans_that_they_lead_to() -> None:
    facts = (Priority.WORK, Priority.DRAINED, Priority.INCIDENT, Priority.CANCEL, Priority.ARRIVAL)
    planning = (Priority.TIMER, Priority.ROUND, Priority.PLAN)
    assert max(facts) < min(planning)
