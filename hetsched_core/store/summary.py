"""What a store holds, in figures, and whether it can be read back whole and holds together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from hetsched_core.store.database import Transaction
from hetsched_core.store.merge import IDENTITIES
from hetsched_core.store.migrations import MARK
from hetsched_core.store.records import (
    MAX_PART_S,
    MAX_SPEED,
    MAX_TIME_S,
    MIN_SPEED,
    BandwidthTerm,
    ProfileKey,
)
from hetsched_core.throughput.builtin import bandwidths as published
from hetsched_core.throughput.gpus import match_gpu


def _figure(query: str) -> Any:
    """Return a field whose value this query finds."""
    return field(metadata={"query": query})


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of a whole store.

    Attributes:
        version: of the schema.
        profiles, gpu_types, nodes: how many are named.
        entity_rows: rows of the entity layer.
        type_rows: rows of the type layer.
        measurements: measured speeds behind both.
        profiled: (profile, GPU type) pairs in the theoretical layer.
        data_times: times of loading behind it.
        bandwidths: measured terms of bandwidths, over all GPU types.
        gpu_specs: GPU types with published rates.
        runs, decisions: how many are recorded.
        jobs, left: jobs on record, and how many of them have left.
        spool_files: how many were taken in.
        rejected: (reason, lines or files) of the spool, the most frequent first.
    """

    version: int = _figure(f"SELECT version FROM {MARK}")
    profiles: int = _figure("SELECT count(*) FROM profile")
    gpu_types: int = _figure("SELECT count(*) FROM gpu_type")
    nodes: int = _figure("SELECT count(*) FROM node WHERE name <> ''")
    entity_rows: int = _figure("SELECT count(*) FROM speed WHERE node <> 0")
    type_rows: int = _figure("SELECT count(*) FROM speed_by_type")
    measurements: int = _figure("SELECT coalesce(sum(count), 0)::BIGINT FROM speed_by_type")
    profiled: int = _figure("SELECT count(*) FROM basic_times")
    data_times: int = _figure("SELECT coalesce(sum(count), 0)::BIGINT FROM data_time")
    bandwidths: int = _figure("SELECT count(*) FROM bandwidth")
    gpu_specs: int = _figure("SELECT count(*) FROM gpu_spec")
    runs: int = _figure("SELECT count(*) FROM run")
    decisions: int = _figure("SELECT count(*) FROM decision")
    jobs: int = _figure("SELECT count(*) FROM job")
    left: int = _figure("SELECT count(*) FROM job WHERE ended_s IS NOT NULL")
    spool_files: int = _figure("SELECT count(*) FROM spool_file")
    rejected: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ProfileSummary:
    """What is known of one profile on one GPU type.

    `last_s` is when a speed was measured last (seconds UTC); None if none was.
    """

    profile: ProfileKey
    published: bool
    gpu_type: str
    entities: int
    measurements: int
    profiled: bool
    last_s: float | None


@dataclass(frozen=True, slots=True)
class BandwidthSummary:
    """With which bandwidth the gradients on one GPU type are reckoned.

    Attributes:
        gpu_type: the type.
        term: inside a node or between nodes.
        parameters_per_s: that are averaged.
        source: `measured`; else `published` for the type, or `assumed` where nothing is.
        runs: that measured it.
        last_s: when one did last (seconds UTC); None if none did.
    """

    gpu_type: str
    term: BandwidthTerm
    parameters_per_s: float
    source: str
    runs: int
    last_s: float | None


def bandwidth_sources(transaction: Transaction) -> tuple[BandwidthSummary, ...]:
    """Return the bandwidths of each GPU type of the store, by name."""
    rows = transaction.rows(
        """
        SELECT name, term, mean, count, last_s
        FROM gpu_type LEFT JOIN bandwidth ON gpu_type.id = bandwidth.gpu_type ORDER BY name
        """
    )
    measured = {(name, term): rest for name, term, *rest in rows}
    found = []
    for name in dict.fromkeys(str(row[0]) for row in rows):
        match = match_gpu(name)
        otherwise = published(match.spec)
        source = "assumed" if match.assumed else "published"
        for term, value in (
            (BandwidthTerm.LINK, otherwise.link),
            (BandwidthTerm.NETWORK, otherwise.network),
        ):
            if (name, term) in measured:
                mean, count, last_s = measured[name, term]
                found.append(BandwidthSummary(name, term, mean, "measured", int(count), last_s))
            else:
                found.append(BandwidthSummary(name, term, value, source, 0, None))
    return tuple(found)


def summary(transaction: Transaction) -> Summary:
    """Return the figures of a store."""
    figures: dict[str, int] = {}
    for each in fields(Summary):
        if query := each.metadata.get("query"):
            ((figures[each.name],),) = transaction.rows(query)
    rejected = transaction.rows(
        """
        SELECT reason, sum(lines)::BIGINT AS lines FROM rejected
        GROUP BY reason ORDER BY lines DESC, reason
        """
    )
    reasons = tuple((str(reason), int(lines)) for reason, lines in rejected)
    return Summary(**figures, rejected=reasons)


def profiles(transaction: Transaction) -> tuple[ProfileSummary, ...]:
    """Return what is known of each profile on each GPU type, by name, owner and type."""
    rows = transaction.rows(
        """
        WITH known AS (
            SELECT profile, gpu_type FROM speed UNION SELECT profile, gpu_type FROM basic_times
        )
        SELECT p.name, p.owner, p.published, g.name,
               (SELECT count(DISTINCT node) FROM speed s
                WHERE s.profile = k.profile AND s.gpu_type = k.gpu_type AND s.node <> 0),
               (SELECT coalesce(sum(count), 0)::BIGINT FROM speed_by_type t
                WHERE t.profile = p.name AND t.owner = p.owner AND t.gpu_type = g.name),
               EXISTS (SELECT 1 FROM basic_times b
                       WHERE b.profile = k.profile AND b.gpu_type = k.gpu_type),
               (SELECT max(last_s) FROM speed s
                WHERE s.profile = k.profile AND s.gpu_type = k.gpu_type)
        FROM known k JOIN profile p ON p.id = k.profile JOIN gpu_type g ON g.id = k.gpu_type
        ORDER BY p.name, p.owner, g.name
        """
    )
    return tuple(ProfileSummary(ProfileKey(name, owner), *rest) for name, owner, *rest in rows)


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
