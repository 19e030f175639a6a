"""Runs and decisions."""

from dataclasses import replace

from hetsched_core.runlog import PlanRecord, RunEnd, RunRecord
from hetsched_core.store import Decision, ProfileKey, Store, StoredRun
from hetsched_core.types import Configuration, Diagnostics, Purpose, Trigger

RESNET = ProfileKey("resnet50", "alice")
RUN = StoredRun(
    RunRecord(
        "123_4",
        0,
        0,
        Purpose.RUN,
        Configuration.of({"n10": 2, "n2": 4}),
        1e9,
        1e9 + 700,
        650.5,
        1e6,
        RunEnd.PREEMPTED,
    ),
    "Qm9vIQ3xk2",
    RESNET,
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


def test_recording_a_run_again_replaces_it(store: Store) -> None:
    known_better = numbered(0, samples=2e6)
    store.record_runs([RUN])
    store.record_runs([known_better])
    assert store.runs() == (known_better,)


def test_a_job_id_that_is_handed_out_again_is_another_job(store: Store) -> None:
    again = replace(RUN, nonce="another-nonce")
    store.record_runs([RUN, again])
    assert set(store.runs(job="123_4")) == {RUN, again}


def test_runs_are_found_by_job_and_by_profile(store: Store) -> None:
    bobs = replace(RUN, run=replace(RUN.run, job="8"), profile=ProfileKey("resnet50", "bob"))
    store.record_runs([RUN, bobs])
    assert store.runs(job="8") == (bobs,)
    assert store.runs(profile=RESNET) == (RUN,)
    assert store.runs(job="8", profile=RESNET) == ()


def test_a_run_that_a_clock_set_back_made_end_before_it_began_is_kept(store: Store) -> None:
    backwards = numbered(0, freed_s=1e9 - 60)
    store.record_runs([backwards])
    assert store.runs() == (backwards,)


def test_decisions_come_back_as_they_were(store: Store) -> None:
    plain = Decision("fifo", PlanRecord(1e9 + 1, frozenset(), 0.0, 0, 0))
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


def test_decisions_keep_the_order_in_which_they_were_made_when_the_clock_goes_back(
    store: Store,
) -> None:
    times = (3e9, 1e9, 2e9)
    for at_s in times:
        store.record_decision(replace(DECISION, plan=replace(DECISION.plan, at_s=at_s)))
    assert [decision.plan.at_s for _, decision in store.decisions()] == list(times)
