"""The daemon's database can be taken away, damaged or held by others, and the daemon goes on."""

import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hetsched_core.records.runlog import PlanRecord
from hetsched_core.store import (
    Decision,
    Mode,
    NotAStoreError,
    Store,
    StoreDamagedError,
    StoreError,
    StoreHeldError,
    StoreWriteError,
    database,
)
from slurm_plugin.daemon.process.database import TRY_AGAIN_S, DaemonDatabase

NOW = 1.76e9

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "daemon.duckdb"


@pytest.fixture
def one(path: Path) -> Iterator[DaemonDatabase]:
    """A database that is open."""
    with DaemonDatabase(path) as one:
        assert one.open(NOW) == ()
        yield one


def store_of(one: DaemonDatabase) -> Store:
    assert one.store is not None
    return one.store


def kept(one: DaemonDatabase) -> int:
    """How many decisions it has."""
    return store_of(one).summary().decisions


def record(one: DaemonDatabase, decisions: int) -> None:
    """Have it hold so many more decisions."""
    for number in range(decisions):
        document = random.Random(number).randbytes(2000).hex()
        store_of(one).record_decision(
            Decision("las", PlanRecord(NOW, frozenset(), 0.1, 1, 1), document=document)
        )


def aside(path: Path, number: int = 1) -> Path:
    """Where a damaged one is set aside."""
    return path.with_name(f"daemon.duckdb.damaged-{number}")


def said_once(one: DaemonDatabase, error: StoreError | None = None) -> tuple[str, ...]:
    """What a look finds, of which the next one says no more."""
    said = one.check(NOW + 1, error)
    assert one.check(NOW + 2, None) == ()
    return said


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_one_and_a_sound_one_are_opened_without_a_word(path: Path) -> None:
    for _ in range(2):
        with DaemonDatabase(path) as one:
            assert one.open(NOW) == ()
            # A full disk is no damage: the store stays, and may be tried again.
            assert said_once(one, StoreWriteError("full")) == ()
            assert kept(one) == 0


@pytest.mark.parametrize("damage", ["zeros", "cut", "text"])
def test_one_that_is_damaged_at_the_start_is_set_aside_and_said(path: Path, damage: str) -> None:
    with Store.open(path, Mode.WRITE):
        pass
    whole = path.read_bytes()
    broken = {"zeros": bytes(len(whole)), "cut": whole[:5000], "text": b"not a database " * 1000}
    path.write_bytes(broken[damage])
    with DaemonDatabase(path) as one:
        (said,) = one.open(NOW)
        assert "set aside as daemon.duckdb.damaged-1" in said
        assert "speeds are estimated until they are measured again" in said
        assert kept(one) == 0
    assert aside(path).read_bytes() == broken[damage]


def test_one_that_is_found_damaged_later_is_set_aside_and_said(
    path: Path, one: DaemonDatabase
) -> None:
    before = one.store
    (said,) = said_once(one, StoreDamagedError("a block is wrong"))
    assert said.startswith("a block is wrong: it was set aside as daemon.duckdb.damaged-1")
    assert one.store is not before
    one.check(NOW + 3, StoreDamagedError("a block is wrong"))
    assert aside(path, 2).exists()


def cut(path: Path) -> None:
    os.truncate(path, 0)


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def write_over(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(20_000))


def write_over_the_middle(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 3)
        file.write(os.urandom(path.stat().st_size // 2))


def spoilt_by(spoil: Callable[[Path], None], path: Path, one: DaemonDatabase) -> bytes:
    """Fill a database, and spoil it; return what is in its file then."""
    record(one, 100)
    store_of(one).checkpoint()
    record(one, 3)
    spoil(path)
    return path.read_bytes()


@pytest.mark.parametrize("spoil", [cut, cut_off, write_over, write_over_the_middle])
def test_one_that_another_process_spoils_is_set_aside_at_once_and_said_once(
    path: Path, spoil: Callable[[Path], None]
) -> None:
    with DaemonDatabase(path) as one:
        one.open(NOW)
        spoilt = spoilt_by(spoil, path, one)
        said = said_once(one)
        assert "was written to by another process" in said[0]
        assert "set aside as daemon.duckdb.damaged-1" in said[-1]
        # Nothing more has gone into it.
        assert aside(path).read_bytes() == spoilt
        record(one, 2)
        assert kept(one) == 2
        assert one.check(NOW + 3, None) == ()
    with Store.open(path) as store:
        assert (store.faults(), store.summary().decisions) == ((), 2)


def test_one_that_is_spoilt_in_the_daemon_s_last_moment_is_not_written_into(path: Path) -> None:
    with DaemonDatabase(path) as one:
        one.open(NOW)
        spoilt = spoilt_by(write_over_the_middle, path, one)
    assert path.read_bytes() == spoilt


@pytest.mark.parametrize("which", ["daemon.duckdb", "daemon.duckdb.wal"])
def test_what_is_spoilt_while_something_is_written_is_seen_as_well(
    path: Path, one: DaemonDatabase, which: str
) -> None:
    record(one, 2)
    with store_of(one).transaction() as transaction:
        transaction.run("DELETE FROM decision WHERE id = 1")
        os.truncate(path.with_name(which), 100)
    assert f"{which} was written to" in one.check(NOW + 1, None)[0]


def test_nothing_that_the_daemon_writes_itself_is_taken_for_another_s(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Often enough that the log is merged many times.
    monkeypatch.setattr("hetsched_core.store.database.CHECKPOINT_BYTES", 1 << 18)
    with DaemonDatabase(path) as one:
        one.open(NOW)
        for number in range(10):
            record(one, 30)
            store_of(one).forget_decisions(keep=100, most_bytes=1 << 20)
            assert one.check(NOW + number, None) == ()
            kept(one)
    with DaemonDatabase(path) as one:
        assert one.open(NOW) == ()
        assert one.check(NOW + 1, None) == ()


def test_one_that_was_only_touched_is_gone_on_with_and_nothing_is_lost(
    path: Path, one: DaemonDatabase
) -> None:
    record(one, 5)
    os.utime(path)
    words = f"{path} was written to by another process; it is whole, and is gone on with"
    assert said_once(one) == (words,)
    assert kept(one) == 5


@pytest.mark.parametrize(
    "spoil",
    [
        Path.unlink,
        lambda log: os.truncate(log, 100),
        lambda log: log.write_bytes(os.urandom(log.stat().st_size)),
    ],
    ids=["deleted", "cut", "overwritten"],
)
def test_a_log_that_another_process_spoils_is_written_anew_and_nothing_is_lost(
    path: Path, one: DaemonDatabase, spoil: Callable[[Path], object]
) -> None:
    log = path.with_name("daemon.duckdb.wal")
    record(one, 5)
    spoil(log)
    (said,) = one.check(NOW + 1, None)
    assert f"{log} was written to or deleted by another process" in said
    record(one, 2)
    assert one.check(NOW + 2, None) == ()
    shutil.copytree(path.parent, path.parent / "killed")
    with Store.open(path.parent / "killed" / path.name) as store:
        assert (store.faults(), store.summary().decisions) == ((), 7)


def test_one_whose_mode_is_changed_gets_back_its_own(path: Path) -> None:
    another = path.with_name("passwd")
    for there in (aside(path, 7), another):
        there.write_text("names")
        there.chmod(0o644)
    path.with_name("daemon.duckdb.link").symlink_to(another)
    with DaemonDatabase(path) as one:
        assert one.open(NOW) == one.check(NOW, None) == ()
        # A link is not followed.
        assert [mode_of(each) for each in (path, aside(path, 7), another)] == [0o600, 0o600, 0o644]
        for mode in (0, 0o644):
            path.chmod(mode)
            words = f"{path} had mode {mode:04o}; it is the daemon's alone again, 0600"
            assert said_once(one) == (words,)
            assert mode_of(path) == 0o600


GIVEN_AWAY = """
import os, sys
from pathlib import Path
from slurm_plugin.daemon.process.database import DaemonDatabase
path = Path(sys.argv[1])
os.setuid(65532)
with DaemonDatabase(path) as one:
    print(one.open(0.0), flush=True)
    for _ in range(2):
        sys.stdin.readline()
        print(one.check(1.0, None), flush=True)
"""


@as_root
def test_one_that_is_given_to_another_user_is_said_once_and_gone_on_with(
    short_folder: Path,
) -> None:
    path = short_folder / "daemon.duckdb"
    os.chown(short_folder, 65_532, 65_532)
    words = [sys.executable, "-c", GIVEN_AWAY, str(path)]
    with subprocess.Popen(words, stdin=-1, stdout=-1, text=True, bufsize=1) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "()\n"
        os.chown(path, 0, 0)
        print(file=process.stdin)
        said = process.stdout.readline()
        assert "belongs to root by now, with mode 0600: the daemon could not open" in said
        assert f"give it back: chown 65532 {path}" in said
        print(file=process.stdin)
        assert process.stdout.readline() == "()\n"


SHUT_OUT = """
import os, sys
from contextlib import suppress
from pathlib import Path
from hetsched_core.store import Decision, StoreError
from hetsched_core.records.runlog import PlanRecord
from slurm_plugin.daemon.process.database import DaemonDatabase
path = Path(sys.argv[1])
os.setuid(65532)
record = PlanRecord(0.0, frozenset(), 0.1, 1, 1)
with DaemonDatabase(path) as one:
    print(one.open(0.0), flush=True)
    for at in range(1, 4):
        sys.stdin.readline()
        if one.store is not None:
            with suppress(StoreError):
                one.store.record_decision(Decision("las", record, document="{}"))
        print(one.check(at * 1000.0, None), one.store is not None, flush=True)
"""


@as_root
def test_where_its_folder_may_not_be_entered_any_more_that_is_said_and_it_is_tried_again(
    short_folder: Path,
) -> None:
    path = short_folder / "daemon.duckdb"
    os.chown(short_folder, 65_532, 65_532)
    words = [sys.executable, "-c", SHUT_OUT, str(path)]
    with subprocess.Popen(words, stdin=-1, stdout=-1, text=True, bufsize=1) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "()\n"
        short_folder.chmod(0)
        for said in (
            "nothing is recorded or measured until it can be opened') False",
            "() False",
        ):
            print(file=process.stdin)
            assert process.stdout.readline().endswith(f"{said}\n")
        short_folder.chmod(0o700)
        print(file=process.stdin)
        assert process.stdout.readline() == f"('{path} is in use from now on',) True\n"


@as_root
def test_of_one_that_root_s_daemon_finds_given_away_the_owner_is_named(
    path: Path, one: DaemonDatabase
) -> None:
    os.chown(path, 65_534, -1)
    path.chmod(0o644)
    (said,) = said_once(one)
    assert said == (
        f"{path} belongs to nobody by now, who may read all of it; it has mode 0600; "
        f"give it back: chown root {path}"
    )
    assert mode_of(path) == 0o600
    os.chown(path, 0, -1)
    back = f"{path} was another user's; it is the daemon's alone again, 0600"
    assert one.check(NOW + 3, None) == (back,)


def test_one_that_is_deleted_or_replaced_is_begun_anew_and_said(
    path: Path, one: DaemonDatabase
) -> None:
    path.unlink()
    (said,) = said_once(one)
    assert "was deleted or replaced: a new one is begun" in said
    assert path.exists()
    record(one, 1)
    other = path.with_name("other")
    with Store.open(other, Mode.WRITE):
        pass
    other.replace(path)
    assert len(one.check(NOW + 3, None)) == 1
    assert kept(one) == 0


def test_where_none_can_be_had_it_is_said_once_and_tried_again(path: Path) -> None:
    folder = path.parent / "folder"
    folder.mkdir()
    with DaemonDatabase(folder / path.name) as one:
        one.open(NOW)
        (folder / path.name).unlink()
        folder.rename(path.parent / "gone")
        assert said_once(one)[-1].endswith("is recorded or measured until it can be opened")
        assert one.check(NOW + 2 + TRY_AGAIN_S, None) == ()
        folder.mkdir()
        assert one.store is None
        # The clock may have been set back meanwhile.
        assert one.check(NOW - 1000, None) == (f"{folder / path.name} is in use from now on",)
        assert one.store is not None


def test_one_that_somebody_reads_is_awaited(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def held(*_: object) -> Store:
        raise StoreHeldError(f"{path} is open in process 7")

    with DaemonDatabase(path) as one:
        with monkeypatch.context() as patched:
            patched.setattr(Store, "open", held)
            (said,) = one.open(NOW)
            assert said.startswith(f"{path} is open in process 7: nothing is recorded")
            assert one.store is None
        assert one.check(NOW + 1, None) == ()
        assert one.check(NOW + 1 + TRY_AGAIN_S, None) == (f"{path} is in use from now on",)
        assert one.store is not None


def test_what_an_admin_has_to_decide_ends_the_daemon_at_its_start(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()
    whole = path.read_bytes()
    with DaemonDatabase(path) as one, pytest.raises(NotAStoreError):
        one.open(NOW)
    assert path.read_bytes() == whole
    with DaemonDatabase(path.parent / "missing" / "x") as one, pytest.raises(StoreError):
        one.open(NOW)


def test_a_store_that_could_not_be_opened_again_is_tried_with_each_call(path: Path) -> None:
    with Store.open(path, Mode.WRITE) as store:
        path.rename(path.with_name("away"))
        path.mkdir()
        for call in (store._reopen, store.summary):
            with pytest.raises(StoreError):
                call()
        path.rmdir()
        path.with_name("away").rename(path)
        assert store.summary().decisions == 0
    assert database._open.get(str(path)) is None
