"""Runs and decisions."""

from dataclasses import replace

from hetsched_core.records.runlog import PlanRecord, RunEnd, RunRecord
from hetsched_core.store import Decision, ProfileKey, Store, StoredRun
from hetsched_core.types import Diagnostics, Purpose, Trigger
from tests.hetsched_core.store.measured import RESNET
from tests.hetsched_core.worlds import on

RUN = StoredRun(
    RunRecord(
        job="123_4",
        number=0,
        copy=0,
        purpose=Purpose.RUN,
        configuration=on(n10=2, n2=4),
        since_s=1e9,
        freed_s=1e9 + 700,
        productive_s=650.5,
        samples=1e6,
        ended_by=RunEnd.PREEMPTED,
    ),
    nonce="Qm9vIQ3xk2",
    profile=RESNET,
)
DECISION = Decision(
    "hops",
    PlanRecord(1e9, frozenset({Trigger.ROUND, Trigger.ARRIVAL}), 0.25, 7, 3),
    Diagnostics("milp", 12.5, 12.75, 0.02, ("nodes",), {"a100:8": 1.5}),
    '{"plan": "ü, \'quoted\'"}',
)


def numbered(number: int, **changes: object) -> StoredRun:
    """A run of the same job, of another number."""
    return replace(RUN, run=replace(RUN.run, number=number, **changes))  # type: ignore[arg-type]


def test_runs_come_back_as_they_were_the_latest_first(store: Store) -> None:
    later = numbered(1, since_s=1e9 + 900, freed_s=1e9 + 1000, ended_by=RunEnd.COMPLETED)
    store.record_runs([RUN, later])
    store.record_runs([])
    assert store.runs() == (later, RUN)
    assert store.runs(most=1) == (later,)


def test_recording_a_run_again_replaces_it_but_for_a_job_id_that_is_handed_out_again(
    store: Store,
) -> None:
    # A clock that was set back made it end before it began.
    known_better = numbered(0, samples=2e6, freed_s=1e9 - 60)
    store.record_runs([RUN])
    store.record_runs([known_better])
    assert store.runs() == (known_better,)
    again = replace(RUN, nonce="another-nonce")
    store.record_runs([again])
    assert set(store.runs(job="123_4")) == {known_better, again}


def test_runs_are_found_by_job_and_by_profile(store: Store) -> None:
    bobs = replace(RUN, run=replace(RUN.run, job="8"), profile=ProfileKey("resnet50", "bob"))
    store.record_runs([RUN, bobs])
    assert store.runs(job="8") == (bobs,)
    assert store.runs(profile=RESNET) == (RUN,)
    assert store.runs(job="8", profile=RESNET) == ()


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
