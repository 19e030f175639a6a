"""The event heap: one total order."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.simulate.heap import EventHeap, EventPriority

EVENTS = st.tuples(st.sampled_from([0.0, 1.0, 2.0]), st.sampled_from(list(EventPriority)))


@given(st.lists(st.one_of(EVENTS, st.sampled_from(["pop", "sort"])), max_size=40))
def test_events_come_out_by_time_then_priority_then_the_order_of_scheduling(
    steps: list[tuple[float, EventPriority] | str],
) -> None:
    # Objects, for events need not be comparable.
    heap: EventHeap[object] = EventHeap()
    waiting: list[tuple[float, EventPriority, object]] = []
    for step in [*steps, *["pop"] * len(steps)]:
        assert len(heap) == len(waiting)
        assert heap.next_s == (waiting[0][0] if waiting else math.inf)
        if isinstance(step, tuple):
            event = object()
            heap.push(*step, event)
            waiting.append((*step, event))
            # Sorting is stable: equal keys keep the order of scheduling.
            waiting.sort(key=lambda one: one[:2])
        elif step == "sort":
            heap.sort()
        elif waiting:
            assert heap.pop() is waiting.pop(0)[-1]
    assert not heap


@given(st.lists(EVENTS), st.lists(EVENTS), st.booleans())
def test_what_is_due_comes_out_as_it_would_one_by_one(
    known: list[tuple[float, EventPriority]],
    later: list[tuple[float, EventPriority]],
    known_at_first: bool,
) -> None:
    together: EventHeap[int] = EventHeap()
    one_by_one: EventHeap[int] = EventHeap()
    for serial, event in enumerate(known):
        together.push(*event, serial)
        one_by_one.push(*event, serial)
    if known_at_first:
        together.sort()
    coming = list(enumerate(later, len(known)))
    for now in (0.0, 1.0, 2.0):
        left = list(coming)
        came = []
        for serial in together.due(now):
            came.append(serial)
            # Each event leads to another of its instant, or of a later one.
            if left and left[0][1][0] >= now:
                new, event = left.pop(0)
                together.push(*event, new)
        expected = []
        while one_by_one.next_s == now:
            expected.append(one_by_one.pop())
            if coming and coming[0][1][0] >= now:
                new, event = coming.pop(0)
                one_by_one.push(*event, new)
        assert came == expected
    assert len(together) == len(one_by_one)


def test_facts_come_before_the_plans_that_they_lead_to() -> None:
    facts = (
        EventPriority.WORK,
        EventPriority.DRAINED,
        EventPriority.INCIDENT,
        EventPriority.CANCEL,
        EventPriority.ARRIVAL,
    )
    planning = (EventPriority.TIMER, EventPriority.ROUND, EventPriority.PLAN)
    assert max(facts) < min(planning)
