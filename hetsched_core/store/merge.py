"""Rows that are merged with those that are there, or take their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hetsched_core.store.database import Columns, Transaction


@dataclass(frozen=True, slots=True)
class MomentsTable:
    """A table whose rows hold the moments of something for each key.

    More measurements are merged in by the formulas of Chan, Golub and LeVeque (see `moments`):
    first those of a batch that fall together, then these with what is there.

    Attributes:
        name: the table.
        keys: the columns that identify a row.
        parts: prefixes of the moments that share one count: `<part>mean` and `<part>m2`.
        fixed: columns that are equal wherever the key is.
        timed: whether there are `first_s` and `last_s`.
    """

    name: str
    keys: tuple[str, ...]
    parts: tuple[str, ...] = ("",)
    fixed: tuple[str, ...] = ()
    timed: bool = True

    @property
    def types(self) -> Mapping[str, type]:
        """The columns and their types, in the order of `keys`, `fixed`, count, moments, times."""
        texts = ("term",)
        return {
            **{name: str if name in texts else int for name in (*self.keys, *self.fixed)},
            "count": int,
            **{f"{part}{name}": float for part in self.parts for name in ("mean", "m2")},
            **({"first_s": float, "last_s": float} if self.timed else {}),
        }

    def merge(self, transaction: Transaction, batch: Columns) -> None:
        """Merge rows with the columns of the table, any number of them for each key."""
        if len(batch["count"]):
            merged = transaction.columns(self._within_batch(), batch=batch)
            transaction.run(self._with_table(), batch=merged)

    def _within_batch(self) -> str:
        keys = ", ".join(self.keys)
        centres = [f"sum(count * {p}mean) / sum(count) AS {p}centre" for p in self.parts]
        values = [f"any_value({column}) AS {column}" for column in self.fixed]
        values.append("sum(count)::BIGINT AS count")
        for p in self.parts:
            values.append(f"any_value({p}centre) AS {p}mean")
            values.append(f"sum({p}m2 + count * ({p}mean - {p}centre) ** 2) AS {p}m2")
        if self.timed:
            values += ["min(first_s) AS first_s", "max(last_s) AS last_s"]
        return f"""
            WITH centre AS (SELECT {keys}, {", ".join(centres)} FROM batch GROUP BY {keys})
            SELECT {keys}, {", ".join(values)}
            FROM batch JOIN centre USING ({keys}) GROUP BY {keys}
        """

    def _with_table(self) -> str:
        both = "(t.count + batch.count)"
        changes = [f"count = {both}"]
        for p in self.parts:
            apart = f"(batch.{p}mean - t.{p}mean)"
            # The quotient first: a product of counts would leave the range of integers.
            share = f"(batch.count / {both})"
            changes.append(f"{p}mean = t.{p}mean + {apart} * {share}")
            changes.append(f"{p}m2 = t.{p}m2 + batch.{p}m2 + {apart} ** 2 * t.count * {share}")
        if self.timed:
            changes.append("first_s = least(t.first_s, batch.first_s)")
            changes.append("last_s = greatest(t.last_s, batch.last_s)")
        return f"""
            MERGE INTO {self.name} AS t USING batch USING ({", ".join(self.keys)})
            WHEN MATCHED THEN UPDATE SET {", ".join(changes)}
            WHEN NOT MATCHED THEN INSERT BY NAME
        """


SPEED = MomentsTable("speed", ("profile", "gpu_type", "node", "nodes", "gpus"))
BASIC_TIMES = MomentsTable(
    "basic_times",
    ("profile", "gpu_type"),
    ("forward_", "backward_", "update_"),
    ("batch_size", "parameters", "pattern"),
)
DATA_TIME = MomentsTable(
    "data_time", ("profile", "gpu_type", "bin"), ("data_", "wait_"), timed=False
)
BANDWIDTH = MomentsTable("bandwidth", ("gpu_type", "term"))

IDENTITIES: dict[str, tuple[str, ...]] = {
    "profile": ("owner", "name"),
    "gpu_type": ("name",),
    "node": ("name",),
    "data_mode": ("profile", "gpu_type", "mode"),
    "gpu_spec": ("name",),
    "run": ("nonce", "job", "number", "copy"),
    "decision": ("id",),
    "spool_file": ("uid", "nonce", "job", "run", "rank"),
    "rejected": ("uid", "reason"),
    "followed_run": ("nonce", "job", "run"),
    "progress": ("nonce",),
    "submitted_job": ("job",),
    "job": ("nonce", "job"),
    **{table.name: table.keys for table in (SPEED, BASIC_TIMES, DATA_TIME, BANDWIDTH)},
}
"""The columns that identify a row of each table."""


def replace(
    transaction: Transaction, table: str, rows: Columns, keys: tuple[str, ...] = ()
) -> None:
    """Put rows in the place of those with the same `keys`, by default what identifies a row."""
    if not len(next(iter(rows.values()))):
        return
    same = " AND ".join(f"t.{key} = rows.{key}" for key in keys or IDENTITIES[table])
    transaction.run(f"DELETE FROM {table} AS t USING rows WHERE {same}", rows=rows)
    transaction.run(f"INSERT INTO {table} BY NAME FROM rows", rows=rows)
