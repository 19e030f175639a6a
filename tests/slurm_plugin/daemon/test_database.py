"""The daemon's database can be taken away, damaged or held by others, and the daemon goes on."""

import sqlite3
from pathlib import Path

import pytest

from hetsched_core.store import (
    Mode,
    NotAStoreError,
    Store,
    StoreDamagedError,
    StoreError,
    StoreHeldError,
    StoreWriteError,
    database,
)
from slurm_plugin.daemon.database import TRY_AGAIN_S, Database

NOW = 1.76e9


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "daemon.duckdb"


def test_a_new_one_and_a_sound_one_are_opened_without_a_word(path: Path) -> None:
    for _ in range(2):
        with Database(path) as one:
            assert one.open(NOW) == ()
            assert one.store is not None
            assert one.check(NOW + 1, None) == ()
            # A full disk is no damage: the store stays, and may be tried again.
            assert one.check(NOW + 2, StoreWriteError("full")) == ()
            assert one.store.summary().decisions == 0


@pytest.mark.parametrize("damage", ["zeros", "cut", "text"])
def test_one_that_is_damaged_at_the_start_is_set_aside_and_said(path: Path, damage: str) -> None:
    with Store.open(path, Mode.WRITE):
        pass
    whole = path.read_bytes()
    broken = {"zeros": bytes(len(whole)), "cut": whole[:5000], "text": b"not a database " * 1000}
    path.write_bytes(broken[damage])
    with Database(path) as one:
        (said,) = one.open(NOW)
        assert "set aside as daemon.duckdb.damaged-1" in said
        assert "speeds are estimated until they are measured again" in said
        assert one.store is not None
        assert one.store.summary().decisions == 0
    assert path.with_name("daemon.duckdb.damaged-1").read_bytes() == broken[damage]


def test_one_that_is_found_damaged_later_is_set_aside_and_said(path: Path) -> None:
    with Database(path) as one:
        one.open(NOW)
        before = one.store
        (said,) = one.check(NOW + 1, StoreDamagedError("a block is wrong"))
        assert said.startswith("a block is wrong: it was set aside as daemon.duckdb.damaged-1")
        assert one.store is not before
        assert one.check(NOW + 2, None) == ()
        one.check(NOW + 3, StoreDamagedError("a block is wrong"))
    assert sorted(each.name for each in path.parent.iterdir()) == [
        "daemon.duckdb",
        "daemon.duckdb.damaged-1",
        "daemon.duckdb.damaged-2",
    ]


def test_one_that_is_deleted_or_replaced_is_begun_anew_and_said(path: Path) -> None:
    with Database(path) as one:
        one.open(NOW)
        path.unlink()
        (said,) = one.check(NOW + 1, None)
        assert "was deleted or replaced: a new one is begun" in said
        assert path.exists()
        assert one.check(NOW + 2, None) == ()
        other = path.with_name("other")
        with Store.open(other, Mode.WRITE):
            pass
        other.replace(path)
        (said,) = one.check(NOW + 3, None)
        assert one.store is not None
        assert one.store.summary().decisions == 0


def test_where_none_can_be_had_it_is_said_once_and_tried_again(path: Path) -> None:
    folder = path.parent / "folder"
    folder.mkdir()
    with Database(folder / path.name) as one:
        one.open(NOW)
        (folder / path.name).unlink()
        folder.rename(path.parent / "gone")
        said = one.check(NOW + 1, None)
        assert said[-1].endswith("nothing is recorded or measured until it can be opened")
        assert one.store is None
        assert one.check(NOW + 2, None) == ()
        assert one.check(NOW + 2 + TRY_AGAIN_S, None) == ()
        folder.mkdir()
        assert one.store is None
        # The clock may have been set back meanwhile.
        assert one.check(NOW - 1000, None) == ()
        assert one.store is not None


def test_one_that_somebody_reads_is_awaited(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def held(*_: object) -> Store:
        raise StoreHeldError(f"{path} is open in process 7")

    with Database(path) as one:
        with monkeypatch.context() as patched:
            patched.setattr(Store, "open", held)
            (said,) = one.open(NOW)
            assert said.startswith(f"{path} is open in process 7: nothing is recorded")
            assert one.store is None
        assert one.check(NOW + 1, None) == ()
        assert one.check(NOW + 1 + TRY_AGAIN_S, None) == ()
        assert one.store is not None


def test_what_an_admin_has_to_decide_ends_the_daemon_at_its_start(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()
    whole = path.read_bytes()
    with Database(path) as one, pytest.raises(NotAStoreError):
        one.open(NOW)
    assert path.read_bytes() == whole
    with Database(path.parent / "missing" / "x") as one, pytest.raises(StoreError):
        one.open(NOW)


def test_a_store_that_could_not_be_opened_again_is_tried_with_each_call(path: Path) -> None:
    with Store.open(path, Mode.WRITE) as store:
        held = store._database
        path.rename(path.with_name("away"))
        path.mkdir()
        with pytest.raises(StoreError):
            held._reopen()
        with pytest.raises(StoreError):
            store.summary()
        path.rmdir()
        path.with_name("away").rename(path)
        assert store.summary().decisions == 0
    assert database._open.get(str(path)) is None
