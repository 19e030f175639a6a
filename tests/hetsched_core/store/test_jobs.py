"""What became of jobs: kept, read back, and forgotten in time."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.store import (
    JobEvent,
    Mode,
    Store,
    StoredJob,
    StoredRange,
    StoreError,
)
from hetsched_core.types import Job, RequirementSet

JOB = Job(
    "7",
    100.0,
    RequirementSet.parse("2,4"),
    "bert of ada",
    time_limit_s=600.0,
    gpu_types=frozenset({"a100"}),
    user="ada",
    assumed=frozenset({"profile"}),
)
THERE = StoredJob("n1", JOB)
LEFT = StoredJob("n1", JOB, 900.0, 300.0, "completed", 0.4, 12.5, 200.0, 1, 240.0)
RANGE = StoredRange("n1", "7", "ada", 100.0, "fifo", 150.0, 250.0, 140.0, 310.0)


def test_a_job_is_replaced_by_itself_as_it_left(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Store.open(path, Mode.WRITE) as store:
        store.record_history([THERE])
        assert store.jobs() == (THERE,)
        store.record_history([LEFT])
        store.record_history([replace(THERE, nonce="n2", job=replace(JOB, id="8", submit_s=99.0))])
    with Store.open(path) as store:
        assert [one.nonce for one in store.jobs()] == ["n2", "n1"]
        assert store.jobs("7") == (LEFT,)
        assert [one.nonce for one in store.jobs(since_s=901.0)] == ["n2"]
        assert [one.nonce for one in store.jobs(most=1)] == ["n1"]
        assert store.faults() == ()


def test_events_come_back_in_the_order_in_which_they_were_told(store: Store) -> None:
    events = [JobEvent("n1", "7", "ada", 5.0 - k, k, "waits", f"{k}") for k in range(5)]
    store.record_history(events=events[:2])
    store.record_history(events=[*events[2:], replace(events[0], job="8")])
    assert store.events("7") == tuple(events)
    assert store.events("7", most=2) == tuple(events[-2:])


def test_a_true_start_is_noted_with_every_range_that_was_given_before(store: Store) -> None:
    store.record_history(ranges=[RANGE, replace(RANGE, at_s=120.0)])
    store.record_history(starts=[("n1", "7", 260.0), ("other", "7", 1.0)])
    store.record_history(ranges=[replace(RANGE, at_s=400.0)])
    assert [one.start_s for one in store.ranges()] == [260.0, 260.0, None]
    assert store.ranges("8") == ()


def test_what_is_old_is_forgotten(store: Store) -> None:
    for number in range(9):
        job = replace(JOB, id=str(number), submit_s=float(number))
        event = JobEvent(f"n{number}", str(number), "ada", 1.0, 1, "came")
        given = replace(RANGE, job=str(number))
        store.record_history([StoredJob(f"n{number}", job)], [event] * 20, [given] * 2)
        store.forget_history(keep=3)
    assert [one.job.id for one in store.jobs()] == ["6", "7", "8"]
    assert [len(store.events(job)) for job in "5678"] == [0, 20, 20, 20]
    assert {one.job for one in store.ranges()} == {"6", "7", "8"}


def test_another_thread_reads_while_the_first_one_writes(store: Store) -> None:
    store.record_history([LEFT])

    def read() -> list[int]:
        return [len(store.history_of("7")[1]) for _ in range(50)]

    with ThreadPoolExecutor(3) as readers:
        reading = [readers.submit(read) for _ in range(3)]
        for number in range(60):
            store.record_history(events=[JobEvent("n1", "7", "ada", 1.0, number, "waits")])
        for one in reading:
            seen = one.result(60)
            assert seen == sorted(seen)
    assert len(store.events("7")) == 60


def test_a_copy_of_what_is_lent_is_a_store_as_of_then(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every write would merge the log into the file.
    monkeypatch.setattr("hetsched_core.store.database.CHECKPOINT_BYTES", 1)
    copy, merging = tmp_path / "copy", path.with_name(f"{path.name}.wal")
    with Store.open(path, Mode.WRITE) as store:
        for number in range(20):
            store.record_history([replace(THERE, nonce=f"n{number}")])
        size, log_size = store.freeze()
        assert log_size > 0
        first = path.read_bytes()[: size // 2]
        store.record_history([replace(THERE, nonce="later")])
        copy.write_bytes(first + path.read_bytes()[size // 2 : size])
        log = merging.read_bytes()
        assert len(log) > log_size
        copy.with_name("copy.wal").write_bytes(log[:log_size])
        store.unfreeze()
        with Store.open(copy) as other:
            assert len(other.jobs()) == 20
            assert other.faults() == ()
        store.record_history([replace(THERE, nonce="last")])
        assert merging.stat().st_size < len(log)


def test_a_question_that_finds_the_file_closed_is_refused_and_keeps_no_log_from_being_merged(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetsched_core.store.database.CHECKPOINT_BYTES", 1)
    store.record_history([LEFT])
    # As after a fatal error of DuckDB's, until the next transaction opens the file again.
    store._disconnect()
    store._lost = True
    with pytest.raises(StoreError, match="closed just now"):
        store.history_of("7")
    sizes = []
    for number in range(20):
        store.record_history([replace(THERE, nonce=f"m{number}")])
        sizes.append(store.freeze()[1])
        store.unfreeze()
    # It holds what was written last, and not all of it.
    assert max(sizes) < 2 * min(sizes)
    assert LEFT in store.history_of("7")[0]
    store.close()
    with pytest.raises(StoreError, match="closed just now"):
        store.history_of("7")


def test_a_file_that_somebody_reads_is_closed_once_they_are_done(store: Store, path: Path) -> None:
    store.record_history([LEFT])
    with store.aside() as transaction:
        closing = threading.Thread(target=store.close)
        closing.start()
        closing.join(0.3)
        assert closing.is_alive()
        assert transaction.rows("SELECT count(*) FROM job") == [(1,)]
    closing.join(60)
    assert not closing.is_alive()
    # What is at that path now is another store, and no part of the old one.
    path.rename(path.with_name("old"))
    with Store.open(path, Mode.WRITE) as anew:
        assert anew.jobs() == ()


def test_those_that_have_not_left_are_told_apart(store: Store) -> None:
    # It came and left before anything was written.
    store.record_history([THERE, LEFT])
    assert store.jobs() == (LEFT,)
    assert store.faults() == ()
    assert store.jobs(since_s=math.inf) == ()
    store.record_history([replace(THERE, nonce="n2")])
    assert [one.nonce for one in store.jobs(since_s=math.inf)] == ["n2"]
