"""What a store holds, in figures."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched_core.store.database import Transaction
from hetsched_core.store.migrations import MARK
from hetsched_core.store.records import ProfileKey

_FIGURES = {
    "version": f"SELECT version FROM {MARK}",
    "profiles": "SELECT count(*) FROM profile",
    "gpu_types": "SELECT count(*) FROM gpu_type",
    "nodes": "SELECT count(*) FROM node WHERE name <> ''",
    "entity_rows": "SELECT count(*) FROM speed WHERE node <> 0",
    "type_rows": "SELECT count(*) FROM speed_by_type",
    "measurements": "SELECT coalesce(sum(count), 0)::BIGINT FROM speed_by_type",
    "profiled": "SELECT count(*) FROM basic_times",
    "data_times": "SELECT coalesce(sum(count), 0)::BIGINT FROM data_time",
    "bandwidths": "SELECT count(*) FROM bandwidth",
    "gpu_specs": "SELECT count(*) FROM gpu_spec",
    "runs": "SELECT count(*) FROM run",
    "decisions": "SELECT count(*) FROM decision",
    "jobs": "SELECT count(*) FROM job",
    "left": "SELECT count(*) FROM job WHERE ended_s IS NOT NULL",
    "spool_files": "SELECT count(*) FROM spool_file",
}


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

    version: int
    profiles: int
    gpu_types: int
    nodes: int
    entity_rows: int
    type_rows: int
    measurements: int
    profiled: int
    data_times: int
    bandwidths: int
    gpu_specs: int
    runs: int
    decisions: int
    jobs: int
    left: int
    spool_files: int
    rejected: tuple[tuple[str, int], ...]


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


def summary(transaction: Transaction) -> Summary:
    """Return the figures of a store."""
    figures: dict[str, int] = {}
    for name, query in _FIGURES.items():
        ((figures[name],),) = transaction.rows(query)
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
