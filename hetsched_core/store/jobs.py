"""What became of jobs: as they came and left, what happened to them, what they were told."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hetsched_core.store.database import Transaction, columns_of, types_of
from hetsched_core.store.merge import replace
from hetsched_core.types import EndedJob, Job
from hetsched_core.values.records import from_json, to_json

MOST_DETAIL = 300
"""Characters that are kept of what an event says."""


COMPLETED = "COMPLETED"
"""Slurm's word for a job that ended with its work done."""


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

    def as_ended(self) -> EndedJob | None:
        """Return what it tells of the next jobs; None if it told its size, or did not complete."""
        job, end_s = self.job, self.ended_s
        if job.total_samples is not None or end_s is None or self.ended_as != COMPLETED:
            return None
        run_s = end_s - job.eligible_from_s - self.wait_s
        return EndedJob(job.user, job.profile, max(run_s, 0.0), job.time_limit_s)


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


_OF_JOB = {name: kind for name, kind in types_of(StoredJob).items() if name not in ("nonce", "job")}
"""What the table of jobs has beside the job itself."""


def record_history(
    transaction: Transaction,
    jobs: Sequence[StoredJob] = (),
    events: Sequence[JobEvent] = (),
    ranges: Sequence[StoredRange] = (),
    starts: Sequence[tuple[str, str, float]] = (),
) -> None:
    """Add what became of jobs, as one.

    Args:
        transaction: of the store.
        jobs: that came or left; one that is there already, by nonce and id, is replaced.
        events: what happened.
        ranges: that were given for starts.
        starts: nonce, job and true start (seconds UTC) of jobs that ranges were given for.
    """
    _record_jobs(transaction, jobs)
    if events:
        events = [dataclasses.replace(e, detail=e.detail[:MOST_DETAIL]) for e in events]
        _append(transaction, "job_event", JobEvent, events)
    if ranges:
        _append(transaction, "start_range", StoredRange, ranges)
    for nonce, job, start_s in starts:
        transaction.run(
            "UPDATE start_range SET start_s = ? WHERE nonce = ? AND job = ? AND start_s IS NULL",
            start_s,
            nonce,
            job,
        )


def _append(transaction: Transaction, table: str, kind: type, records: Sequence[object]) -> None:
    types = types_of(kind)
    rows = [[getattr(record, name) for name in types] for record in records]
    transaction.run(f"INSERT INTO {table} BY NAME FROM rows", rows=columns_of(types, rows))


def _record_jobs(transaction: Transaction, jobs: Sequence[StoredJob]) -> None:
    # One that came and left before anything could be written is there twice.
    jobs = tuple({(j.nonce, j.job.id): j for j in jobs}.values())
    if not jobs:
        return
    rows = [
        (
            j.nonce,
            j.job.id,
            j.job.user,
            j.job.submit_s,
            json.dumps(to_json(j.job)),
            *(getattr(j, name) for name in _OF_JOB),
        )
        for j in jobs
    ]
    given = {"nonce": str, "job": str, "owner": str, "submit_s": float, "document": str}
    replace(transaction, "job", columns_of({**given, **_OF_JOB}, rows))


def read_ended(transaction: Transaction, most: int) -> tuple[EndedJob, ...]:
    """Return the latest jobs that told no size and ended with their work done, by their ends.

    They are among the latest `most` that ended with their work done.
    """
    rows = transaction.rows(
        f"""
        SELECT nonce, document, {", ".join(_OF_JOB)} FROM job
        WHERE ended_as = '{COMPLETED}' ORDER BY ended_s DESC, nonce DESC LIMIT $1
        """,
        most,
    )
    ended = (_stored(row).as_ended() for row in reversed(rows))
    return tuple(job for job in ended if job is not None)


def _stored(row: Sequence[Any]) -> StoredJob:
    nonce, document, *rest = row
    return StoredJob(nonce, from_json(json.loads(document), Job), *rest)


def read_jobs(
    transaction: Transaction, job: str | None = None, since_s: float = 0.0, most: int = 10_000
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
        f"""
        SELECT nonce, document, {", ".join(_OF_JOB)} FROM job
        WHERE ($1 IS NULL OR job = $1) AND coalesce(ended_s, 'inf') >= $2
        ORDER BY submit_s DESC, nonce DESC LIMIT $3
        """,
        job,
        since_s,
        most,
    )
    return tuple(map(_stored, reversed(rows)))


def read_events(
    transaction: Transaction, job: str | None, most: int = 1000
) -> tuple[JobEvent, ...]:
    """Return what happened to the jobs of an id, in order: the latest `most`.

    None stands for all jobs that have not left.
    """
    rows = transaction.rows(
        f"""
        SELECT {", ".join(types_of(JobEvent))} FROM (
            SELECT *, rowid AS place FROM job_event
            WHERE job = $1 OR (
                $1 IS NULL AND nonce IN (SELECT nonce FROM job WHERE ended_s IS NULL)
            )
            ORDER BY rowid DESC LIMIT $2
        ) ORDER BY place
        """,
        job,
        most,
    )
    return tuple(JobEvent(*row) for row in rows)


def read_ranges(
    transaction: Transaction, job: str | None = None, most: int = 1000
) -> tuple[StoredRange, ...]:
    """Return ranges in the order in which they were given, the latest `most`: of a job, or all."""
    rows = transaction.rows(
        f"""
        SELECT {", ".join(types_of(StoredRange))} FROM (
            SELECT *, rowid AS place FROM start_range WHERE ($1 IS NULL OR job = $1)
            ORDER BY rowid DESC LIMIT $2
        ) ORDER BY place
        """,
        job,
        most,
    )
    return tuple(StoredRange(*row) for row in rows)


def forget_history(transaction: Transaction, keep: int) -> None:
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
