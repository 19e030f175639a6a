"""The version of a store's schema, and the way from each version to the next.

`schema/NNNN.sql` leads from version NNNN - 1 to NNNN. A store of an older version is carried
forward when it is opened for writing, in one transaction, and a copy of it is kept; one of a newer
version is refused.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from hetsched_core.store.database import Transaction
from hetsched_core.store.errors import NotAStoreError, StoreVersionError

MARK = "hetsched_store"
"""The table by which a file is known to be ours; its one row holds the version."""

KEPT = "version"
"""The name of a copy of an older store goes on with this, its version and a number."""


def migrations() -> tuple[str, ...]:
    """Return the SQL of every migration, the first one first."""
    folder = files("hetsched_core.store").joinpath("schema")
    scripts = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(folder.joinpath(name).read_text(encoding="utf-8") for name in scripts)


def create(transaction: Transaction) -> None:
    """Mark an empty database as a store of version 0."""
    transaction.run(f"CREATE TABLE {MARK} (version INTEGER NOT NULL)")
    transaction.run(f"INSERT INTO {MARK} VALUES (0)")


def version_of(transaction: Transaction, path: Path) -> int:
    """Return the version of a store.

    Raises:
        NotAStoreError: the database is not one of ours.
    """
    found = transaction.rows("SELECT table_name FROM duckdb_tables() ORDER BY table_name")
    names = [name for (name,) in found]
    if MARK not in names:
        shown = ", ".join(names[:5]) or "no tables"
        raise NotAStoreError(
            f"{path} is a DuckDB database, but no hetsched store (it holds {shown}); "
            "name another file"
        )
    marks = transaction.rows(f"SELECT * FROM {MARK} LIMIT 2")
    match marks:
        case [(int(version),)] if version >= 0:
            return version
    raise NotAStoreError(
        f"{path} is no hetsched store: its table {MARK} is not one row with the version of the "
        "schema; restore a copy, or name another file"
    )


def migrate(transaction: Transaction, path: Path, scripts: Sequence[str]) -> None:
    """Carry a store forward to the newest version.

    Raises:
        NotAStoreError: the database is not one of ours.
        StoreVersionError: it is newer than the last of `scripts`.
    """
    version = known_version(transaction, path, scripts)
    for script in scripts[version:]:
        transaction.run(script)
    if version < len(scripts):
        transaction.run(f"UPDATE {MARK} SET version = ?", len(scripts))


def require_newest(transaction: Transaction, path: Path, scripts: Sequence[str]) -> None:
    """Refuse a store whose version is not the newest.

    Raises:
        NotAStoreError: the database is not one of ours.
        StoreVersionError: it is older or newer.
    """
    version = known_version(transaction, path, scripts)
    if version < len(scripts):
        raise StoreVersionError(
            f"{path} has version {version} of the schema and this hetsched reads {len(scripts)}; "
            "it is carried forward when it is opened for writing, as by hetsched db import"
        )


def known_version(transaction: Transaction, path: Path, scripts: Sequence[str]) -> int:
    """Return the version of a store, which `scripts` lead to or beyond.

    Raises:
        NotAStoreError: the database is not one of ours.
        StoreVersionError: it is newer than the last of `scripts`.
    """
    version = version_of(transaction, path)
    if version > len(scripts):
        copy = _latest_copy(path, len(scripts))
        other = "name another file" if copy is None else f"put back the copy {copy.name}"
        raise StoreVersionError(
            f"{path} has version {version} of the schema and this hetsched knows up to "
            f"{len(scripts)}; update hetsched, or {other}"
        )
    return version


def _latest_copy(path: Path, newest: int) -> Path | None:
    """Return the latest copy of a store that is of a version up to `newest`, None for none."""
    name = re.compile(rf"{re.escape(path.name)}\.{KEPT}-(\d+)-(\d+)")
    kept = [
        (int(found[1]), int(found[2]), each)
        for each in path.parent.glob(f"{glob.escape(path.name)}.*")
        if (found := name.fullmatch(each.name)) and int(found[1]) <= newest
    ]
    return max(kept)[-1] if kept else None
