"""The database of an older daemon, and of a newer one: what an upgrade meets, and a downgrade.

`daemon-N.duckdb.gz` was made by a daemon of the time when N was the version of the schema, with
DuckDB 1.4: it had placed and moved jobs on a testbed, measured some of them, and was stopped while
others ran and waited.
"""

from __future__ import annotations

import gzip
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from hetsched_core.records.decision_record import read_decision
from hetsched_core.store import Store, StoreVersionError
from hetsched_core.store.database import meaning
from hetsched_core.store.migrations import MARK, migrations
from slurm_plugin.daemon.jobs.remembered_requests import Requests
from slurm_plugin.daemon.process.database import DaemonDatabase

NOW = 1.8e9
NEWEST = len(migrations())
HERE = Path(__file__).parent
OLDER = range(4, 6)
"""The versions of which a daemon has left us a database."""

Rows = dict[str, Counter[tuple[object, ...]]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "daemon.duckdb"


def left_by(version: int, path: Path) -> None:
    """Put the database there that the daemon of a version has left."""
    path.write_bytes(gzip.decompress((HERE / f"daemon-{version}.duckdb.gz").read_bytes()))


def rows_of(path: Path, tables: Rows | None = None) -> Rows:
    """Return all rows by table; of the columns alone that they have in `tables`, where given."""
    with duckdb.connect(path, read_only=True) as connection:
        asked = "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal"
        columns: dict[str, list[str]] = {}
        for table, column in connection.execute(f"{asked} ORDER BY column_index").fetchall():
            columns.setdefault(table, []).append(column)
        found: Rows = {}
        for table in tables or columns:
            width = len(next(iter(tables[table]), ())) if tables else len(columns[table])
            shown = ", ".join(columns[table][:width]) or "NULL"
            rows = connection.execute(f"SELECT {shown} FROM {table}").fetchall()
            found[table] = Counter(tuple(map(str, row)) for row in rows)
    found.pop(MARK, None)
    return found


def store_of(one: DaemonDatabase) -> Store:
    assert one.store is not None
    return one.store


@pytest.mark.parametrize("version", OLDER)
def test_a_daemon_goes_on_with_all_that_an_older_one_has_left(path: Path, version: int) -> None:
    left_by(version, path)
    before = rows_of(path)
    with DaemonDatabase(path) as one:
        said = one.open(NOW)
        store = store_of(one)
        assert store.faults() == ()
        summary = store.summary()
        assert min(summary.decisions, summary.jobs, summary.left, summary.measurements) > 0
        assert len(store.followed()) > 0
        assert len(store.progress()) > 0
        for _, decision in store.decisions(0, most=summary.decisions):
            assert read_decision(decision.document).plan is not None
        remembered = store.remembered()
        assert bool(remembered) == (version >= 5)
    assert {table: rows for table, rows in rows_of(path).items() if table in before} == before
    copy = path.with_name(f"{path.name}.version-{version}-1")
    if version < NEWEST:
        (words,) = said
        assert words.endswith(f"it is kept as {copy.name}, for the way back")
        assert rows_of(copy) == before
    else:
        assert said == ()
        assert not copy.exists()


def test_what_jobs_asked_for_is_understood_whichever_daemon_wrote_it_down(path: Path) -> None:
    left_by(5, path)
    with DaemonDatabase(path) as one:
        one.open(NOW)
        store, requests = store_of(one), Requests()
        jobs = store.remembered().keys()
        requests.keep_in(store)
        # What it has not understood it does not know, and so does not forget.
        requests.forget_all_but(())
        requests.write()
        assert jobs
        assert store.remembered() == {}


def raise_schema(path: Path) -> None:
    with duckdb.connect(path) as connection:
        connection.execute(f"UPDATE {MARK} SET version = {NEWEST + 1}")


def raise_duckdb(path: Path) -> None:
    """Let the file be one of a later DuckDB, by its header: checksum, magic, number of its form."""
    content = bytearray(path.read_bytes())
    assert content[:4096] == header(content[8:4096]) + content[8:4096]
    content[12:20] = struct.pack("<Q", 60_000)
    content[:8] = header(content[8:4096])
    path.write_bytes(content)


def header(block: bytes | bytearray) -> bytes:
    """Return DuckDB's checksum of a block."""
    checksum = 5381
    for (word,) in struct.iter_unpack("<Q", block):
        checksum ^= word * 0xBF58476D1CE4E5B9 % 2**64
    return struct.pack("<Q", checksum)


@pytest.mark.parametrize(
    ("newer", "words"),
    [
        (
            raise_schema,
            rf"version {NEWEST + 1} of the schema .* up to {NEWEST}; .* copy daemon\S+version-4-1$",
        ),
        (
            raise_duckdb,
            rf"another DuckDB than {duckdb.__version__}: .* 60000.*; update hetsched's environment",
        ),
    ],
)
def test_a_daemon_touches_nothing_that_a_newer_one_has_left(
    path: Path, newer: Callable[[Path], None], words: str
) -> None:
    left_by(4, path)
    with DaemonDatabase(path) as one:
        one.open(NOW)
    newer(path)
    before = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    with DaemonDatabase(path) as one, pytest.raises(StoreVersionError, match=words):
        one.open(NOW)
    assert {each.name: each.read_bytes() for each in path.parent.iterdir()} == before


@pytest.mark.parametrize(
    "said",
    [
        # DuckDB 1.4.5, 1.5.6 and 2.0.0, of a file that a later one has begun.
        "database file with version number 999, but we can only read versions between 64 and 67.",
        "database file with version number 69, but we can only read versions between 64 and 68.",
        "database file with storage version number 70, but we can only read storage versions ...",
    ],
)
def test_a_file_of_a_later_duckdb_is_not_taken_for_a_damaged_one(path: Path, said: str) -> None:
    """What is damaged is set aside, and another one is begun."""
    error = duckdb.IOException(f"IO Error: Trying to read a {said}\nThe database file was ...")
    assert isinstance(meaning(error, path), StoreVersionError)
