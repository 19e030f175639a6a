"""Tables out of a store, and measured speeds into it."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hetsched_core.errors import InputError
from hetsched_core.store.database import Transaction
from hetsched_core.store.errors import StoreWriteError
from hetsched_core.store.measurements import merge_speeds
from hetsched_core.store.records import Measurement, ProfileKey, check_name, check_time
from hetsched_core.store.summary import incomplete
from hetsched_core.throughput.moments import Moments
from hetsched_core.types import SpeedTable

SPEED_TABLE = "speed"
"""The exported table that can be imported again."""

SPEED_COLUMNS = (
    "owner",
    "profile",
    "gpu_type",
    "node",
    "nodes",
    "gpus",
    "count",
    "mean",
    "m2",
    "first_s",
    "last_s",
)

_TABLES: Mapping[str, str] = {
    SPEED_TABLE: "FROM speed_by_node ORDER BY ALL",
    "type_aggregated": "FROM type_aggregated ORDER BY ALL",
    "type_distributed": "FROM type_distributed ORDER BY ALL",
    "theory": "FROM theory ORDER BY ALL",
    "data_time": """
        SELECT p.owner, p.name AS profile, g.name AS gpu_type, d.* EXCLUDE (profile, gpu_type)
        FROM data_time d JOIN profile p ON p.id = d.profile JOIN gpu_type g ON g.id = d.gpu_type
        ORDER BY ALL
    """,
    "bandwidth": """
        SELECT g.name AS gpu_type, b.* EXCLUDE (gpu_type)
        FROM bandwidth b JOIN gpu_type g ON g.id = b.gpu_type ORDER BY ALL
    """,
    "gpu_spec": "FROM gpu_spec ORDER BY ALL",
    "profile": "SELECT owner, name AS profile, published FROM profile ORDER BY ALL",
    "run": """
        SELECT r.* EXCLUDE (profile), p.owner, p.name AS profile
        FROM run r JOIN profile p ON p.id = r.profile ORDER BY since_s, nonce, job, number, copy
    """,
    "decision": "FROM decision ORDER BY id",
    "rejected": "FROM rejected ORDER BY ALL",
    "job": "FROM job ORDER BY submit_s, nonce",
    "job_event": "FROM job_event ORDER BY rowid",
    "start_range": "FROM start_range ORDER BY rowid",
}


class Format(StrEnum):
    """Formats that tables are written in."""

    PARQUET = "parquet"
    CSV = "csv"


def export(transaction: Transaction, folder: Path, form: Format, mode: int) -> tuple[Path, ...]:
    """Write every table to a file of its own; each appears once it is complete.

    Args:
        transaction: of the store.
        folder: which exists.
        form: of the files.
        mode: of the files, of which the umask takes away.

    Raises:
        StoreWriteError: the folder cannot be written; the message names the file.
    """
    options = "FORMAT parquet, COMPRESSION zstd" if form is Format.PARQUET else "FORMAT csv, HEADER"
    written = []
    for table, query in _TABLES.items():
        path = folder / f"{table}.{form}"
        part = folder / f".{table}.{form}.part"
        try:
            part.unlink(missing_ok=True)
            part.touch(mode)
            transaction.copy(query, part, options)
            part.replace(path)
        except OSError as error:
            raise StoreWriteError(f"{path} cannot be written: {error.strerror}") from None
        finally:
            part.unlink(missing_ok=True)
        written.append(path)
    return tuple(written)


@dataclass(frozen=True, slots=True)
class StoredSpeed:
    """A row of the exported table `speed`: what one node, or an unnamed one, contributes.

    `measurement` has the profile, type, counts and moments of the row, and the time it was first
    seen; `node` is empty where it is not known.
    """

    measurement: Measurement
    node: str
    last_s: float


def read_speed_csv(lines: Iterable[str], source: str) -> Iterator[StoredSpeed]:
    """Read the exported table `speed` in CSV.

    Raises:
        InputError: it is no such table; the message names the line.
    """
    rows = csv.reader(lines, strict=True)
    try:
        header = next(rows, [])
        if sorted(header) != sorted(SPEED_COLUMNS):
            raise InputError(
                f"{source}: the columns are {', '.join(header)[:200]!r}; expected "
                f"{', '.join(SPEED_COLUMNS)}, as hetsched db export writes them"
            )
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise InputError(
                    f"{source}: line {rows.line_num} has {len(row)} cells; expected {len(header)}"
                )
            try:
                yield _speed(dict(zip(header, row, strict=True)))
            except InputError as error:
                raise InputError(f"{source}: line {rows.line_num}: {error}") from None
    except csv.Error as error:
        raise InputError(f"{source}: line {rows.line_num}: not valid CSV ({error})") from None


def _speed(cells: Mapping[str, str]) -> StoredSpeed:
    node, last_s = cells["node"], _number(cells, "last_s")
    measurement = Measurement(
        ProfileKey(cells["profile"], cells["owner"]),
        cells["gpu_type"],
        _whole(cells, "gpus"),
        _whole(cells, "nodes"),
        Moments(_whole(cells, "count"), _number(cells, "mean"), _number(cells, "m2")),
        _number(cells, "first_s"),
    )
    if node:
        check_name("node", node)
    check_time(last_s)
    if last_s < measurement.at_s:
        raise InputError(f"last_s {cells['last_s']} is before first_s {cells['first_s']}")
    return StoredSpeed(measurement, node, last_s)


def _whole(cells: Mapping[str, str], key: str) -> int:
    text = cells[key]
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InputError(f"{key} is {text!r:.60}; expected a whole number")
    return int(text)


def _number(cells: Mapping[str, str], key: str) -> float:
    try:
        return float(cells[key])
    except ValueError:
        raise InputError(f"{key} is {cells[key]!r:.60}; expected a number") from None


def import_speeds(transaction: Transaction, rows: Sequence[StoredSpeed]) -> None:
    """Merge rows of the table `speed` into those that are there.

    Raises:
        InputError: rows of a distributed configuration are missing.
    """
    merge_speeds(transaction, [(row.measurement, row.node, row.last_s) for row in rows])
    if missing := incomplete(transaction):
        raise InputError(
            f"{missing} distributed speeds have rows for some of their nodes only; import all rows "
            "of the exported table"
        )


def read_speed_tables(
    tables: Mapping[str, SpeedTable], owner: str, at_s: float
) -> Iterator[StoredSpeed]:
    """Yield every speed of some tables as one measurement each; a speed of 0 is none.

    A table says of GPUs on several nodes not on how many: they count as two.
    """
    for name, table in tables.items():
        for gpu_type, one_node, several in zip(
            table.gpu_types, table.one_node, table.several_nodes, strict=True
        ):
            for node_count, speeds in ((1, one_node), (2, several)):
                for gpus, speed in zip(table.counts.tolist(), speeds.tolist(), strict=True):
                    if speed > 0 and gpus >= node_count:
                        profile, moments = ProfileKey(name, owner), Moments(1, speed)
                        measurement = Measurement(
                            profile, gpu_type, gpus, node_count, moments, at_s
                        )
                        yield StoredSpeed(measurement, "", at_s)
