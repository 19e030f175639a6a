"""Decisions."""

from dataclasses import replace

from hetsched_core.records.runlog import PlanRecord
from hetsched_core.store import Decision, Store
from hetsched_core.types import Diagnostics, Trigger

DECISION = Decision(
    "hops",
    PlanRecord(1e9, frozenset({Trigger.ROUND, Trigger.ARRIVAL}), 0.25, 7, 3),
    Diagnostics("milp", 12.5, 12.75, 0.02, ("nodes",), {"a100:8": 1.5}),
    '{"plan": "ü, \'quoted\'"}',
)


def test_decisions_come_back_as_they_were_in_the_order_in_which_they_were_made(
    store: Store,
) -> None:
    # The clock was set back.
    plain = Decision("fifo", PlanRecord(1e9 - 1, frozenset(), 0.0, 0, 0))
    numbers = [store.record_decision(DECISION), store.record_decision(plain)]
    assert store.decisions() == ((numbers[0], DECISION), (numbers[1], plain))
    assert store.decisions(after=numbers[0]) == ((numbers[1], plain),)
    assert store.decisions(most=1) == ((numbers[0], DECISION),)


def test_old_decisions_are_forgotten_by_number_and_by_length(store: Store) -> None:
    long = [replace(DECISION, document="é" * 500) for _ in range(20)]
    numbers = [store.record_decision(decision) for decision in long]

    def left() -> list[int]:
        return [number for number, _ in store.decisions()]

    store.forget_decisions(100, 1 << 20)
    assert left() == numbers
    store.forget_decisions(15, 1 << 20)
    assert left() == numbers[-15:]
    # A letter of two bytes counts as two.
    store.forget_decisions(15, 4_999)
    assert left() == numbers[-4:]
    store.forget_decisions(0, 1 << 20)
    assert left() == []
    assert store.record_decision(DECISION) > numbers[-1]
