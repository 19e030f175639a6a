"""Whether a store can be read back whole, and holds together."""

from __future__ import annotations

from collections.abc import Mapping

from hetsched_core.store.database import Transaction
from hetsched_core.store.merge import IDENTITIES
from hetsched_core.store.records import MAX_PART_S, MAX_SPEED, MAX_TIME_S, MIN_SPEED

# Each measurement over k nodes adds to the rows of all k.
_INCOMPLETE = """
    FROM (SELECT sum(count) AS total, any_value(nodes) AS nodes FROM speed WHERE node <> 0
          GROUP BY profile, gpu_type, speed.nodes, gpus)
    WHERE total % nodes <> 0
"""

_BROKEN: Mapping[str, str] = {
    "measured speeds of no profile, GPU type or node": """
        FROM speed WHERE profile NOT IN (SELECT id FROM profile)
            OR gpu_type NOT IN (SELECT id FROM gpu_type) OR node NOT IN (SELECT id FROM node)
    """,
    "measured speeds that cannot have been measured": f"""
        FROM speed WHERE NOT (mean BETWEEN {MIN_SPEED} AND {MAX_SPEED}) OR NOT (m2 >= 0)
            OR NOT isfinite(m2) OR count < 1 OR nodes < 1 OR gpus < nodes
            OR NOT (0 <= first_s AND first_s <= last_s AND last_s <= {MAX_TIME_S})
    """,
    "distributed speeds of which the row of a node is missing": _INCOMPLETE,
    "basic times of no profile or GPU type": """
        FROM basic_times WHERE profile NOT IN (SELECT id FROM profile)
            OR gpu_type NOT IN (SELECT id FROM gpu_type)
    """,
    "basic times that cannot have been measured": f"""
        FROM basic_times WHERE count < 1 OR pattern NOT IN (1, 2)
            OR NOT (forward_mean BETWEEN 0 AND {MAX_PART_S})
            OR NOT (backward_mean BETWEEN 0 AND {MAX_PART_S})
            OR NOT (update_mean BETWEEN 0 AND {MAX_PART_S})
    """,
    "pairs whose data times have no modes, or modes that do not add up to 1": """
        FROM (SELECT DISTINCT profile, gpu_type FROM data_time)
        LEFT JOIN (SELECT profile, gpu_type, sum(share) AS whole FROM data_mode
                   GROUP BY profile, gpu_type) USING (profile, gpu_type)
        WHERE whole IS NULL OR abs(whole - 1) > 1e-9
    """,
    "names of which several profiles are published": """
        FROM (SELECT name FROM profile WHERE published GROUP BY name HAVING count(*) > 1)
    """,
}


def faults(transaction: Transaction) -> tuple[str, ...]:
    """Read every value of a store and return in words what does not hold together.

    Raises:
        StoreDamagedError: something cannot be read back.
    """
    for (table,) in transaction.rows("SELECT table_name FROM duckdb_tables() ORDER BY table_name"):
        # Every block has a checksum, which is compared as it is read.
        transaction.rows(f'SELECT bit_xor(hash(t)) FROM "{table}" t')
    found: list[str] = []
    for table, keys in IDENTITIES.items():
        ((number,),) = transaction.rows(
            f"SELECT count(*) - count(DISTINCT row({', '.join(keys)})) FROM {table}"
        )
        if number:
            found.append(f"{number} rows of the table {table} stand twice")
    for what, query in _BROKEN.items():
        ((number,),) = transaction.rows(f"SELECT count(*) {query}")
        if number:
            found.append(f"{number} {what}")
    return tuple(found)


def incomplete(transaction: Transaction) -> int:
    """Return the number of distributed speeds of which the row of a node is missing."""
    ((number,),) = transaction.rows(f"SELECT count(*) {_INCOMPLETE}")
    return int(number)
