"""The file: who holds it, what kills its writer, what it survives."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hetsched_core.store import (
    Measurement,
    Mode,
    Moments,
    NotAStoreError,
    ProfileKey,
    Store,
    StoreDamagedError,
    StoreError,
    StoreHeldError,
    StoreWriteError,
    database,
)

PER_BATCH = 200
NEVER = 1 << 40


def batch(number: int) -> list[Measurement]:
    """Measurements of a profile of their own, each over two nodes."""
    key = ProfileKey(f"profile-{number}", "alice")
    return [
        Measurement(key, "a100", 2, 2, Moments(1, 100.0 + at), 1e9, (f"n{at}", f"m{at}"))
        for at in range(PER_BATCH)
    ]


def batches(path: Path) -> int:
    """How many batches a store holds; it must be sound, each batch whole, and none missing."""
    with Store.open(path) as store:
        assert store.faults() == ()
        known = store.profiles()
    assert all(each.measurements == PER_BATCH for each in known)
    assert all(each.entities == 2 * PER_BATCH for each in known)
    numbers = sorted(int(each.profile.name.removeprefix("profile-")) for each in known)
    assert numbers == list(range(len(known)))
    return len(known)


class Child:
    """Another process that has the store open, and writes batch after batch if it may."""

    SCRIPT = """
import sys
from pathlib import Path
folder, path, mode, checkpoint = sys.argv[1:]
sys.path.insert(0, folder)
from test_database import batch
from hetsched_core.store import Mode, Store, database
database.CHECKPOINT_BYTES = int(checkpoint)
print("ready", flush=True)
with Store.open(Path(path), Mode(mode)) as store:
    print("open", flush=True)
    number = store.summary().profiles
    while mode == "write":
        store.record(batch(number))
        number += 1
        print(number, flush=True)
    sys.stdin.read()
"""

    def __init__(self, path: Path, mode: Mode, checkpoint: int) -> None:
        arguments = [str(Path(__file__).parent), str(path), mode.value, str(checkpoint)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.SCRIPT, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []

    def wait_for(self, word: str) -> None:
        """Wait until it has said this."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())
            if self.lines[-1] == word:
                return
        pytest.fail(f"the process ended before it said {word!r}: {self.lines}")

    def kill(self) -> int:
        """Kill it at once; return how many batches it said were recorded."""
        self.process.send_signal(signal.SIGKILL)
        assert self.process.stdout is not None
        self.lines += self.process.stdout.read().split()
        assert self.process.wait() == -signal.SIGKILL
        return max((int(line) for line in self.lines if line.isdigit()), default=0)


@contextmanager
def child(path: Path, mode: Mode = Mode.WRITE, checkpoint: int = NEVER) -> Iterator[Child]:
    """A process that is gone in the end."""
    child = Child(path, mode, checkpoint)
    try:
        yield child
    finally:
        child.process.kill()
        child.process.communicate()


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
    host, pid = os.uname().nodename, other.process.pid
    assert f"{path} is open in process {pid} on {host} ({sys.executable} -c" in str(refused.value)
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
    with child(path) as writer:
        writer.wait_for("4")
        writer.kill()
    data = path.with_name(f"{path.name}.wal").read_bytes()
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
from test_database import batch
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


# Files that are damaged, or no stores -------------------------------------------------------------


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"x", "one byte"),
        (b"owner,profile\n" * 2000, "text"),
        (b"\0" * 20_000, "zeros"),
    ],
)
def test_what_is_no_database_is_refused_and_not_touched(
    path: Path, mode: Mode, content: bytes, why: str
) -> None:
    path.write_bytes(content)
    with pytest.raises(NotAStoreError, match="is no hetsched store"):
        Store.open(path, mode)
    assert path.read_bytes() == content
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("mode", list(Mode))
def test_a_database_of_another_program_is_refused_without_asking_the_network(
    path: Path, mode: Mode
) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE speed (a)")
    connection.close()
    with pytest.raises(NotAStoreError, match="is no hetsched store") as refused:
        Store.open(path, mode)
    assert "download" not in str(refused.value)


@pytest.mark.parametrize("mode", list(Mode))
def test_a_folder_is_refused(tmp_path: Path, mode: Mode) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        Store.open(tmp_path, mode)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        Store.open(tmp_path / "no" / "store.duckdb", Mode.WRITE)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a store of five batches."""
    path = tmp_path_factory.mktemp("whole") / "store.duckdb"
    with Store.open(path, Mode.WRITE) as store:
        for number in range(5):
            store.record(batch(number))
    return path.read_bytes()


def test_what_the_check_passes_can_be_used_wherever_the_damage_is(path: Path, whole: bytes) -> None:
    messages = []
    positions = range(0, len(whole), len(whole) // 24)
    for position in positions:
        damaged = bytearray(whole)
        for at in range(position, min(position + 64, len(whole))):
            damaged[at] ^= 0xA5
        path.write_bytes(damaged)
        try:
            assert batches(path) == 5
        except (StoreDamagedError, NotAStoreError) as error:
            messages.append(str(error))
        else:
            with Store.open(path, Mode.WRITE) as store:
                store.record(batch(5))
            assert batches(path) == 6
    # The others are parts that are not in use.
    assert 2 <= len(messages) < len(positions)
    assert all(str(path) in message for message in messages)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_file_that_is_cut_off_is_damaged(path: Path, whole: bytes, share: float) -> None:
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(StoreDamagedError, match="restore a copy"):
        batches(path)


def test_a_log_of_another_store_is_not_mixed_in(path: Path, whole: bytes) -> None:
    with child(path) as writer:
        writer.wait_for("2")
        writer.kill()
    path.write_bytes(whole)
    with pytest.raises(StoreDamagedError, match="does not match"):
        Store.open(path, Mode.WRITE)


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


def test_the_command_of_a_holder_cannot_spoil_the_message(path: Path) -> None:
    Store.open(path, Mode.WRITE).close()
    # The script that it was started with has line breaks in it.
    with child(path, Mode.READ) as other:
        other.wait_for("open")
        with pytest.raises(StoreHeldError) as refused:
            Store.open(path, Mode.WRITE)
    assert str(refused.value).isprintable()


def test_a_folder_that_cannot_be_written_is_told(path: Path, new: bytes) -> None:
    path.write_bytes(new)
    with Store.open(path, Mode.WRITE) as store:
        # Stands for a folder without the right to write, which root has everywhere.
        path.with_name(f"{path.name}.wal").mkdir()
        with pytest.raises(StoreWriteError, match=r"nothing was changed: the folder .* may write"):
            store.record(batch(0))


def test_an_sqlite_database_is_refused_as_one(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE speed (value REAL)")
    connection.close()
    with pytest.raises(NotAStoreError, match="but an SQLite database"):
        Store.open(path)


@pytest.mark.parametrize("damage", ["start", "all"])
def test_a_log_of_which_nothing_can_be_read_is_told_and_kept(
    path: Path, new: bytes, damage: str
) -> None:
    path.write_bytes(new)
    with child(path) as writer:
        writer.wait_for("3")
        writer.kill()
    log = path.with_name(f"{path.name}.wal")
    data = log.read_bytes()
    spoilt = b"\xff" * 4 + data[4:] if damage == "start" else random.Random(0).randbytes(300)
    log.write_bytes(spoilt)
    with Store.open(path) as store:
        assert store.unread_log == log
    with Store.open(path, Mode.WRITE) as store:
        aside = store.unread_log
        store.record(batch(0))
    assert aside is not None
    assert aside.read_bytes() == spoilt
    with Store.open(path) as store:
        assert store.unread_log is None
    assert batches(path) == 1


def test_a_log_that_is_taken_in_is_not_told(path: Path, new: bytes) -> None:
    path.write_bytes(new)
    with child(path) as writer:
        writer.wait_for("3")
        writer.kill()
    with Store.open(path) as store:
        assert store.unread_log is None
