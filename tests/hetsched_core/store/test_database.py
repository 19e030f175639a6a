"""The file: who holds it, what kills its writer, what it survives."""

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from hetsched_core.store import (
    Mode,
    Store,
    StoreHeldError,
    StoreWriteError,
    database,
)
from tests.hetsched_core.store.batches import NEVER, PER_BATCH, batch, batches, child, killed

# Who holds it -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held_for", "wanted_for"),
    [(Mode.WRITE, Mode.WRITE), (Mode.WRITE, Mode.READ), (Mode.READ, Mode.WRITE)],
)
def test_a_second_process_is_told_who_holds_the_file(
    path: Path, held_for: Mode, wanted_for: Mode
) -> None:
    Store.open(path, Mode.WRITE).close()
    with child(path, held_for) as other:
        other.wait_for("open")
        with pytest.raises(StoreHeldError) as refused:
            Store.open(path, wanted_for)
        other.kill()
    told, host, pid = str(refused.value), os.uname().nodename, other.process.pid
    assert f"{path} is open in process {pid} on {host} ({sys.executable} -c" in told
    # The script that it was started with has line breaks in it.
    assert told.isprintable()
    Store.open(path, wanted_for).close()


def test_several_processes_may_read(path: Path) -> None:
    Store.open(path, Mode.WRITE).close()
    with child(path, Mode.READ) as other:
        other.wait_for("open")
        assert batches(path) == 0


@pytest.mark.parametrize("mode", list(Mode))
def test_one_process_opens_a_store_once(path: Path, mode: Mode) -> None:
    other_name = path.parent / "link" / path.name
    other_name.parent.symlink_to(path.parent)
    with Store.open(path, Mode.WRITE), pytest.raises(StoreHeldError, match="this very process"):
        Store.open(other_name, mode)
    Store.open(path, mode).close()


# A killed writer ----------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpoint", [NEVER, 50_000], ids=["log only", "merging the log"])
def test_a_writer_killed_at_any_moment_leaves_every_batch_that_it_said_was_recorded(
    path: Path, checkpoint: int
) -> None:
    moments = random.Random(4)
    recorded = 0
    for _ in range(3):
        with child(path, Mode.WRITE, checkpoint) as writer:
            writer.wait_for(str(recorded + 2))
            time.sleep(moments.uniform(0.0, 0.1))
            said = writer.kill()
        with Store.open(path) as store:
            assert store.unread_log is None
        found = batches(path)
        # The last one may have been recorded and not said.
        assert said <= found <= said + 1
        recorded = found
    assert recorded >= 6


def test_a_maker_killed_at_any_moment_leaves_no_half_store(tmp_path: Path) -> None:
    moments = random.Random(5)
    killed = made = 0
    longest_s = 0.06
    # A quick machine has the store at once: some must be killed before it is there.
    while killed < 4 or (made == killed and killed < 40):
        path = tmp_path / f"{killed}.duckdb"
        with child(path) as maker:
            maker.wait_for("ready")
            time.sleep(moments.uniform(0.0, longest_s))
            maker.kill()
        killed += 1
        made += path.exists()
        longest_s *= 0.8
        Store.open(path, Mode.WRITE).close()
        batches(path)
    assert made < killed, "no process was killed before the store was there"


def test_a_log_cut_off_anywhere_loses_only_what_was_not_yet_recorded(
    path: Path, tmp_path: Path
) -> None:
    data = killed(path, 4).read_bytes()
    found = []
    for size in range(0, len(data) + 1, max(1, len(data) // 15)):
        copy = tmp_path / f"{size}.duckdb"
        shutil.copy(path, copy)
        copy.with_name(f"{copy.name}.wal").write_bytes(data[:size])
        found.append(batches(copy))
    assert found == sorted(found)
    assert found[0] == 0
    assert len(set(found)) >= 4


# A full disk --------------------------------------------------------------------------------------


def fill(store: Store) -> int:
    """Record batches until the disk is full; return how many were recorded."""
    recorded = 0
    with suppress(StoreWriteError):
        while True:
            store.record(batch(recorded))
            recorded += 1
    return recorded


@pytest.mark.parametrize("checkpoint", [NEVER, 200_000], ids=["log only", "merging the log"])
def test_what_did_not_fit_on_a_full_disk_can_be_recorded_when_there_is_room(
    small_disk: Callable[[str], Path], checkpoint: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "CHECKPOINT_BYTES", checkpoint)
    path = small_disk("2m") / "store.duckdb"
    with Store.open(path, Mode.WRITE) as store:
        recorded = fill(store)
        assert recorded > 3
        for _ in range(2):
            with pytest.raises(StoreWriteError, match=rf"{path} cannot be written .*make room"):
                store.record(batch(recorded))
        # What is there can still be read, by this process and by the next.
        assert store.summary().profiles == recorded
    assert batches(path) == recorded
    with Store.open(path, Mode.WRITE) as store:
        small_disk("60m")
        for number in range(recorded, recorded + 3):
            store.record(batch(number))
    assert batches(path) == recorded + 3


def test_an_error_after_which_duckdb_answers_no_more_ends_one_call_only(
    small_disk: Callable[[str], Path],
) -> None:
    path = small_disk("2m") / "store.duckdb"
    with Store.open(path, Mode.WRITE) as store:
        recorded = fill(store)
        with pytest.raises(StoreWriteError, match="FATAL"), store.transaction() as transaction:
            transaction.run("CHECKPOINT")
        assert store.summary().profiles == recorded
        small_disk("60m")
        store.record(batch(recorded))
    assert batches(path) == recorded + 1


def test_a_limit_on_the_size_of_files_is_a_full_disk(path: Path) -> None:
    script = f"""
import resource, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from batches import batch
from hetsched_core.store import Mode, Store, StoreWriteError
store = Store.open(Path({str(path)!r}), Mode.WRITE)
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))
recorded = 0
try:
    while True:
        store.record(batch(recorded))
        recorded += 1
except StoreWriteError as error:
    assert "cannot be written" in str(error), error
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    store.record(batch(recorded))
    print(recorded + 1)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert batches(path) == int(done.stdout) > 2


@pytest.mark.parametrize("size", ["8k", "300k"])
def test_a_store_that_cannot_be_made_leaves_nothing(
    small_disk: Callable[[str], Path], size: str
) -> None:
    path = small_disk(size) / "store.duckdb"
    with pytest.raises(StoreWriteError, match=f"{path} cannot be written"):
        Store.open(path, Mode.WRITE)
    assert list(path.parent.iterdir()) == []


def delete_all_but_for_an_interrupt(store: Store) -> None:
    with store.transaction() as transaction:
        transaction.run("DELETE FROM speed")
        raise KeyboardInterrupt


def test_what_raises_inside_a_transaction_undoes_all_of_it(store: Store) -> None:
    store.record(batch(0))
    with pytest.raises(KeyboardInterrupt):
        delete_all_but_for_an_interrupt(store)
    assert store.summary().measurements == PER_BATCH
    store.record(batch(1))
    assert store.summary().measurements == 2 * PER_BATCH


def test_a_folder_that_cannot_be_written_is_told(path: Path, new: bytes) -> None:
    path.write_bytes(new)
    with Store.open(path, Mode.WRITE) as store:
        # Stands for a folder without the right to write, which root has everywhere.
        path.with_name(f"{path.name}.wal").mkdir()
        with pytest.raises(StoreWriteError, match=r"nothing was changed: the folder .* may write"):
            store.record(batch(0))
