"""Tables of moments, into which more measurements are merged.

Rows of a batch that fall together are merged with each other, then with what is there, by the
formulas of Chan, Golub and LeVeque (see `moments`).
"""

from __future__ import annotations

from dataclasses import dataclass

from hetsched_core.store.database import Columns, Transaction


@dataclass(frozen=True, slots=True)
class MomentsTable:
    """A table whose rows hold the moments of something for each key.

    Its columns are, in this order: `keys`, `fixed`, `count`, `<part>mean` and `<part>m2` of each of
    `parts`, and `first_s` and `last_s` if `timed`.

    Attributes:
        name: the table.
        keys: its primary key.
        parts: prefixes of the moments that share one count.
        fixed: columns that are equal wherever the key is.
        timed: whether it is known when the measurements were made.
    """

    name: str
    keys: tuple[str, ...]
    parts: tuple[str, ...] = ("",)
    fixed: tuple[str, ...] = ()
    timed: bool = True

    def merge(self, transaction: Transaction, batch: Columns) -> None:
        """Merge rows with the columns of the table, any number of them for each key."""
        if len(batch["count"]):
            transaction.run(self._sql(), batch=batch)

    def _sql(self) -> str:
        keys = ", ".join(self.keys)
        old, both = f"{self.name}.count", f"({self.name}.count + excluded.count)"
        centres, groups, changes = [], [], []
        for part in self.parts:
            mean, m2, centre = f"{part}mean", f"{part}m2", f"{part}centre"
            apart = f"(excluded.{mean} - {self.name}.{mean})"
            # The quotient first: products of counts would leave the range of integers.
            share = f"(excluded.count / {both})"
            centres.append(f"sum(count * {mean}) / sum(count) AS {centre}")
            groups.append(f"any_value({centre}) AS {mean}")
            groups.append(f"sum({m2} + count * ({mean} - {centre}) ** 2) AS {m2}")
            changes.append(f"{mean} = {self.name}.{mean} + {apart} * {share}")
            changes.append(
                f"{m2} = {self.name}.{m2} + excluded.{m2} + {apart} ** 2 * {old} * {share}"
            )
        changes.append(f"count = {both}")
        if self.timed:
            groups += ["min(first_s) AS first_s", "max(last_s) AS last_s"]
            changes += [
                f"first_s = least({self.name}.first_s, excluded.first_s)",
                f"last_s = greatest({self.name}.last_s, excluded.last_s)",
            ]
        fixed = [f"any_value({column}) AS {column}" for column in self.fixed]
        return f"""
            INSERT INTO {self.name} BY NAME
            WITH centre AS (SELECT {keys}, {", ".join(centres)} FROM batch GROUP BY {keys})
            SELECT {", ".join([keys, *fixed, "sum(count) AS count", *groups])}
            FROM batch JOIN centre USING ({keys}) GROUP BY {keys}
            ON CONFLICT DO UPDATE SET {", ".join(changes)}
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
