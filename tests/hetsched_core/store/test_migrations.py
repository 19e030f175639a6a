"""Versions of the schema: forward only, in one step or not at all."""

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import duckdb
import pytest

from hetsched_core.store import (
    JobEvent,
    Mode,
    NotAStoreError,
    Store,
    StoreError,
    StoreVersionError,
    StoreWriteError,
)
from hetsched_core.store import store as store_module
from hetsched_core.store.migrations import MARK, migrations
from tests.hetsched_core.store.measured import RESNET, measured

NO_VERSION = "not one row with the version"
NEXT = "ALTER TABLE profile ADD COLUMN note VARCHAR; UPDATE profile SET note = 'carried over'"


def sql(path: Path, statement: str) -> list[tuple[object, ...]]:
    """Run a statement on the file as any program might."""
    with duckdb.connect(path) as connection:
        return connection.execute(statement).fetchall()


def copy_of(path: Path, version: int, number: int = 1) -> Path:
    """The copy of a store that is kept as it was at a version."""
    return path.with_name(f"{path.name}.version-{version}-{number}")


def make(path: Path) -> None:
    with Store.open(path, Mode.WRITE) as store:
        store.record([measured(100.0)])


def test_the_migrations_are_numbered_without_a_gap_and_those_released_are_as_they_were() -> None:
    """Stores made by one of these are out there: a change belongs into a script of its own."""
    folder = Path(store_module.__file__).parent / "schema"
    names = sorted(path.name for path in folder.glob("*.sql"))
    assert names == [f"{number:04}.sql" for number in range(1, len(names) + 1)]
    made = [sha256(script.encode()).hexdigest()[:16] for script in migrations()]
    assert len(made) == len(names)
    assert made[:5] == [
        "180cd793b15ab4fa",
        "1c38e9a574904ca7",
        "62a919cf40285be1",
        "bafe17a72d2174e4",
        "80aa379e71036324",
    ]


def test_an_older_store_is_carried_forward_when_it_is_opened_for_writing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(path)
    now = migrations()
    monkeypatch.setattr(store_module, "migrations", lambda: (*now, NEXT))
    with pytest.raises(StoreVersionError, match=rf"version {len(now)} .* reads {len(now) + 1}"):
        Store.open(path)
    with Store.open(path, Mode.WRITE) as store:
        assert store.kept == copy_of(path, len(now))
        assert store.summary().version == len(now) + 1
        with store.transaction() as transaction:
            assert transaction.rows("SELECT name, note FROM profile") == [
                ("resnet50", "carried over")
            ]


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_store_of_each_older_version_is_carried_forward_with_what_it_holds(
    path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = migrations()
    # Scripts are never changed once they are released: these made the stores of that version.
    monkeypatch.setattr(store_module, "migrations", lambda: now[:version])
    make(path)
    if version >= 2:
        sql(path, "INSERT INTO progress VALUES ('a1', '1', 0, 990.0, 40.0, 2.5, 20.0, 980.0)")
    monkeypatch.undo()
    with pytest.raises(StoreVersionError, match=f"has version {version} of the schema"):
        Store.open(path)
    with Store.open(path, Mode.WRITE) as store:
        assert store.summary().version == len(now)
        assert store.layers([RESNET], ["a100"]).by_type.mean.tolist() == [100.0]
        assert set(store.progress()) == ({"a1"} if version >= 2 else set())
        assert (store.jobs(), store.ranges(), store.events("1")) == ((), (), ())
        store.record_history([], [JobEvent("a1", "1", "ann", 1.0, 1, "came")])
        assert store.faults() == ()
    with Store.open(path) as store:
        assert len(store.events("1")) == 1


def test_what_is_kept_of_an_older_store_is_the_way_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = migrations()
    make(path)
    path.chmod(0o640)
    newer = (*now, NEXT)
    monkeypatch.setattr(store_module, "migrations", lambda: newer)
    for number in (1, 2):
        # The second time, since somebody has gone back meanwhile.
        with Store.open(path, Mode.WRITE) as store:
            assert store.kept == copy_of(path, len(now), number)
            store.record([measured(200.0)])
        with Store.open(path, Mode.WRITE) as store:
            assert store.kept is None
        monkeypatch.setattr(store_module, "migrations", lambda: now)
        copy = copy_of(path, len(now), number)
        before = path.read_bytes()
        with pytest.raises(StoreVersionError, match=rf"version {len(newer)} .* {copy.name}$"):
            Store.open(path, Mode.WRITE)
        assert path.read_bytes() == before
        assert copy.stat().st_mode & 0o777 == 0o640
        path.write_bytes(copy.read_bytes())
        with Store.open(path, Mode.WRITE) as store:
            assert store.layers([RESNET], ["a100"]).by_type.mean.tolist() == [100.0]
        monkeypatch.setattr(store_module, "migrations", lambda: newer)


def test_a_store_of_which_no_copy_can_be_kept_is_not_carried_forward_and_others_may_have_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(path)
    now = migrations()
    monkeypatch.setattr(store_module, "migrations", lambda: (*now, NEXT))
    in_the_way = path.with_name(f"{copy_of(path, len(now)).name}.part")
    in_the_way.mkdir()
    with pytest.raises(StoreWriteError, match=r"version-\d+-1 cannot be written: .*make room"):
        Store.open(path, Mode.WRITE)
    in_the_way.rmdir()
    monkeypatch.undo()
    with Store.open(path) as store:
        assert store.summary().version == len(now)
        assert store.summary().measurements == 1


def test_a_store_that_was_copied_as_it_was_opened_is_held_against_others(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that closes a file anew gives up its locks on it, DuckDB's too."""
    make(path)
    now = migrations()
    monkeypatch.setattr(store_module, "migrations", lambda: (*now, NEXT))
    with Store.open(path, Mode.WRITE) as store:
        assert store.kept is not None
        other = f"import duckdb; duckdb.connect({str(path)!r})"
        done = subprocess.run([sys.executable, "-c", other], capture_output=True, check=False)
        assert b"Conflicting lock is held" in done.stderr


def test_a_migration_that_fails_leaves_the_store_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(path)
    now = migrations()
    monkeypatch.setattr(store_module, "migrations", lambda: (*now, f"{NEXT}; SELECT nonsense"))
    with pytest.raises(duckdb.BinderException):
        Store.open(path, Mode.WRITE)
    monkeypatch.undo()
    with Store.open(path) as store:
        assert store.summary().version == len(now)
        assert store.summary().measurements == 1
        assert store.faults() == ()


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    ("statement", "error", "named"),
    [
        ("UPDATE {} SET version = 999", StoreVersionError, r"999 .* update hetsched, or name an"),
        ("CREATE TABLE speed (a INTEGER)", NotAStoreError, "holds speed"),
        ("SELECT 1", NotAStoreError, "holds no tables"),
        ("DELETE FROM {}", NotAStoreError, NO_VERSION),
        ("INSERT INTO {} VALUES (1)", NotAStoreError, NO_VERSION),
        ("UPDATE {} SET version = -1", NotAStoreError, NO_VERSION),
        ("CREATE OR REPLACE TABLE {} AS SELECT 'one' AS version", NotAStoreError, NO_VERSION),
        ("CREATE OR REPLACE TABLE {} AS SELECT 1 AS version, 2 AS b", NotAStoreError, NO_VERSION),
        ("CREATE OR REPLACE TABLE {} AS SELECT NULL::INT AS version", NotAStoreError, NO_VERSION),
    ],
)
def test_a_database_of_no_version_that_is_known_is_refused_and_not_touched(
    path: Path, mode: Mode, statement: str, error: type[StoreError], named: str
) -> None:
    if "{}" in statement:
        make(path)
    sql(path, statement.format(MARK))
    before = path.read_bytes()
    with pytest.raises(error, match=named):
        Store.open(path, mode)
    assert path.read_bytes() == before


def test_reading_makes_no_store_and_making_one_leaves_nothing_else_behind(path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        Store.open(path)
    assert not path.exists()
    make(path)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_log_without_its_store_is_not_taken_for_that_of_a_new_one(path: Path) -> None:
    log = path.with_name(f"{path.name}.wal")
    log.write_bytes(b"what was not yet merged")
    with pytest.raises(StoreError, match="still there"):
        Store.open(path, Mode.WRITE)
    assert log.read_bytes() == b"what was not yet merged"
