"""Columns as Parquet files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb

from hetsched_core.errors import InputError

_TYPES = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE"}


def write_columns(columns: Mapping[str, Sequence[str | int | float | None]], path: Path) -> None:
    """Write columns of one length; the file appears once it is complete.

    A column is of text if any value is, else of floats if any is, else of whole numbers.

    Raises:
        InputError: the file cannot be written.
    """
    names = ", ".join(f'"{name}" {_type(values)}' for name, values in columns.items())
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE rows ({names})")
        rows = list(zip(*columns.values(), strict=True))
        if rows:
            marks = ", ".join("?" * len(columns))
            connection.executemany(f"INSERT INTO rows VALUES ({marks})", rows)
        try:
            connection.execute("COPY rows TO $path (FORMAT parquet)", {"path": str(part)})
            part.replace(path)
        except (duckdb.IOException, OSError) as error:
            part.unlink(missing_ok=True)
            raise InputError(f"cannot write {path}: {error}") from None


def read_columns(path: Path) -> dict[str, list[object]]:
    """Return the columns of a file.

    Raises:
        InputError: it cannot be read.
    """
    with duckdb.connect() as connection:
        try:
            found = connection.execute("SELECT * FROM read_parquet($path)", {"path": str(path)})
        except (duckdb.IOException, duckdb.InvalidInputException) as error:
            raise InputError(f"cannot read {path}: {error}") from None
        names = [column[0] for column in found.description or ()]
        rows = found.fetchall()
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def _type(values: Sequence[str | int | float | None]) -> str:
    kinds = {type(value) for value in values if value is not None}
    kind = str if str in kinds else float if float in kinds else int
    return _TYPES[kind]
