"""What became of jobs: as they came and left, what happened to them, what they were told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hetsched_core.store.database import Transaction, texts
from hetsched_core.store.merge import replace
from hetsched_core.types import Job
from hetsched_core.values.records import from_json, to_json

MOST_DETAIL = 300
"""Characters that are kept of what an event says."""


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job that has come, and what is known of it once it has left.

    Attributes:
        nonce: names the job for good.
        job: as it was submitted; its `id` and `user` are those of Slurm.
        ended_s: when it left; None while it is there.
        first_start_s: None if it never ran.
        ended_as: Slurm's word for how it ended, "" where that is not known.
        share: its work by its claim (`hetsched_core.forecast`); None where that is not known.
        samples: its work, told or by its GPU time.
        wait_s: how long it waited in all.
        restarts: how often it started anew.
        expected_s: its run time without waiting (Hops formula 9), None where no speed is known.
    """

    nonce: str
    job: Job
    ended_s: float | None = None
    first_start_s: float | None = None
    ended_as: str = ""
    share: float | None = None
    samples: float = 0.0
    wait_s: float = 0.0
    restarts: int = 0
    expected_s: float | None = None


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something that happened to a job, after so many decisions."""

    nonce: str
    job: str
    owner: str
    at_s: float
    decision: int
    event: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StoredRange:
    """A range that was given for a job's start, as drawn and as told; `start_s` is the true one."""

    nonce: str
    job: str
    owner: str
    at_s: float
    policy: str
    drawn_low_s: float
    drawn_high_s: float
    low_s: float
    high_s: float
    start_s: float | None = None


def record_jobs(transaction: Transaction, jobs: Sequence[StoredJob]) -> None:
    """Add jobs; those that are there already, by nonce and id, are replaced."""
    # One that came and left before anything could be written is there twice.
    jobs = tuple({(j.nonce, j.job.id): j for j in jobs}.values())
    if not jobs:
        return
    numbers = ("ended_s", "first_start_s", "share", "expected_s")
    replace(
        transaction,
        "job",
        {
            "nonce": texts([j.nonce for j in jobs]),
            "job": texts([j.job.id for j in jobs]),
            "owner": texts([j.job.user for j in jobs]),
            "submit_s": np.array([j.job.submit_s for j in jobs], dtype=np.float64),
            **{name: _numbers([getattr(j, name) for j in jobs]) for name in numbers},
            "ended_as": texts([j.ended_as for j in jobs]),
            "samples": np.array([j.samples for j in jobs], dtype=np.float64),
            "wait_s": np.array([j.wait_s for j in jobs], dtype=np.float64),
            "restarts": np.array([j.restarts for j in jobs], dtype=np.int32),
            "document": texts([json.dumps(to_json(j.job)) for j in jobs]),
        },
    )


def read_jobs(
    transaction: Transaction, job: str | None, since_s: float, most: int
) -> tuple[StoredJob, ...]:
    """Return jobs in the order of their submission, the latest `most` of them.

    Args:
        transaction: of the store.
        job: only those that had this id; None for all.
        since_s: only those that were still there at this time, seconds UTC; infinity for those
            that have not left.
        most: how many.
    """
    rows = transaction.rows(
        """
        SELECT nonce, document, ended_s, first_start_s, ended_as, share, samples, wait_s, restarts,
               expected_s
        FROM job WHERE ($1 IS NULL OR job = $1) AND coalesce(ended_s, 'inf') >= $2
        ORDER BY submit_s DESC, nonce DESC LIMIT $3
        """,
        job,
        since_s,
        most,
    )
    return tuple(
        StoredJob(nonce, from_json(json.loads(document), Job), *rest)
        for nonce, document, *rest in reversed(rows)
    )


def record_events(transaction: Transaction, events: Sequence[JobEvent]) -> None:
    """Add what happened."""
    if not events:
        return
    transaction.run(
        "INSERT INTO job_event BY NAME FROM rows",
        rows={
            "nonce": texts([e.nonce for e in events]),
            "job": texts([e.job for e in events]),
            "owner": texts([e.owner for e in events]),
            "at_s": np.array([e.at_s for e in events], dtype=np.float64),
            "decision": np.array([e.decision for e in events], dtype=np.int64),
            "event": texts([e.event for e in events]),
            "detail": texts([e.detail[:MOST_DETAIL] for e in events]),
        },
    )


def read_events(transaction: Transaction, job: str, most: int) -> tuple[JobEvent, ...]:
    """Return what happened to the jobs of an id, in order: the latest `most`."""
    rows = transaction.rows(
        """
        SELECT nonce, job, owner, at_s, decision, event, detail FROM (
            SELECT *, rowid AS place FROM job_event WHERE job = ? ORDER BY rowid DESC LIMIT ?
        ) ORDER BY place
        """,
        job,
        most,
    )
    return tuple(JobEvent(*row) for row in rows)


def record_ranges(transaction: Transaction, ranges: Sequence[StoredRange]) -> None:
    """Add ranges that were given."""
    if not ranges:
        return
    numbers = ("at_s", "drawn_low_s", "drawn_high_s", "low_s", "high_s", "start_s")
    transaction.run(
        "INSERT INTO start_range BY NAME FROM rows",
        rows={
            "nonce": texts([r.nonce for r in ranges]),
            "job": texts([r.job for r in ranges]),
            "owner": texts([r.owner for r in ranges]),
            "policy": texts([r.policy for r in ranges]),
            **{name: _numbers([getattr(r, name) for r in ranges]) for name in numbers},
        },
    )


def record_starts(transaction: Transaction, starts: Sequence[tuple[str, str, float]]) -> None:
    """Note true starts, (nonce, job, seconds UTC), with the ranges that were given before."""
    for nonce, job, start_s in starts:
        transaction.run(
            "UPDATE start_range SET start_s = ? WHERE nonce = ? AND job = ? AND start_s IS NULL",
            start_s,
            nonce,
            job,
        )


def read_ranges(transaction: Transaction, job: str | None, most: int) -> tuple[StoredRange, ...]:
    """Return ranges in the order in which they were given, the latest `most`: of a job, or all."""
    rows = transaction.rows(
        """
        SELECT nonce, job, owner, at_s, policy, drawn_low_s, drawn_high_s, low_s, high_s, start_s
        FROM (
            SELECT *, rowid AS place FROM start_range WHERE ($1 IS NULL OR job = $1)
            ORDER BY rowid DESC LIMIT $2
        ) ORDER BY place
        """,
        job,
        most,
    )
    return tuple(StoredRange(*row) for row in rows)


def forget(transaction: Transaction, keep: int) -> None:
    """Forget the oldest jobs, events and ranges, all but `keep`, `20 keep` and `2 keep` of them."""
    transaction.run(
        """
        DELETE FROM job WHERE submit_s <= (
            SELECT submit_s FROM job ORDER BY submit_s DESC LIMIT 1 OFFSET ?
        )
        """,
        keep,
    )
    for table, many in (("job_event", 20 * keep), ("start_range", 2 * keep)):
        transaction.run(
            f"DELETE FROM {table} WHERE rowid <= (SELECT max(rowid) FROM {table}) - ?", many
        )


def _numbers(values: Sequence[float | None]) -> np.ma.MaskedArray[tuple[int], np.dtype[np.float64]]:
    known = np.array([0.0 if value is None else value for value in values], dtype=np.float64)
    return np.ma.MaskedArray(known, mask=[value is None for value in values])
