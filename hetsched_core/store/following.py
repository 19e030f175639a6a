"""What the live daemon goes on from: the runs whose spool files it reads, and how far jobs are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hetsched_core.records.spool import Checkpoint, End, Progress, SpoolLine
from hetsched_core.store import merge
from hetsched_core.store.database import Transaction, columns_of, types_of
from hetsched_core.store.records import ProfileKey
from hetsched_core.store.spool_files import SpoolRun
from hetsched_core.types import Node


@dataclass(frozen=True, slots=True)
class FollowedRun:
    """A run whose spool files are read: its name, what is known of it, and when it was begun."""

    job: str
    number: int
    run: SpoolRun
    begun_s: float


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job has come, as rank 0 of its latest run says.

    Attributes:
        nonce: names the job for good.
        job: its id.
        run: number of the run that spoke last.
        at_s: when that was taken in, seconds UTC.
        samples: done by the whole job over all its runs.
        samples_per_s: speed of that run; 0 where it has not said.
        checkpoint_samples: in the last checkpoint.
        checkpoint_s: when that was taken in, seconds UTC; 0 for never.
    """

    nonce: str
    job: str
    run: int
    at_s: float
    samples: float = 0.0
    samples_per_s: float = 0.0
    checkpoint_samples: float = 0.0
    checkpoint_s: float = 0.0

    def after(self, run: int, line: SpoolLine, now_s: float) -> JobProgress:
        """Return what is known after one more line; an earlier run has nothing new to say."""
        if run < self.run:
            return self
        since = self if run == self.run else replace(self, run=run, samples_per_s=0.0)
        match line:
            case Progress():
                return replace(
                    since, at_s=now_s, samples=line.samples, samples_per_s=line.samples_per_s
                )
            case Checkpoint():
                return replace(
                    since, at_s=now_s, checkpoint_samples=line.samples, checkpoint_s=now_s
                )
            case End(how="stopped") if 0 < since.checkpoint_samples < line.samples:
                # It could not be saved, and goes on from the checkpoint before.
                return replace(since, at_s=now_s, samples=since.checkpoint_samples)
            case End():
                return replace(since, at_s=now_s, samples=line.samples)
        return since


_PROGRESS = types_of(JobProgress)


def read_progress(
    transaction: Transaction, nonces: Iterable[str] | None = None
) -> dict[str, JobProgress]:
    """Return how far jobs have come, by nonce, as their spool files said: some, or all."""
    query = f"SELECT {', '.join(_PROGRESS)} FROM progress"
    wanted = sorted(set(nonces or ()))
    if nonces is not None:
        # A list of none is no SQL.
        query += f" WHERE nonce IN ({', '.join('?' * len(wanted)) or 'NULL'})"
    return {row[0]: JobProgress(*row) for row in transaction.rows(query, *wanted)}


def follow(transaction: Transaction, runs: Sequence[FollowedRun]) -> None:
    """Note runs whose spool files are to be read, for whatever process goes on after this one.

    Those that are noted already are replaced.
    """
    types = {"nonce": str, "job": str, "run": int, "uid": int, "owner": str, "profile": str}
    rows = [
        (
            f.run.nonce,
            f.job,
            f.number,
            f.run.uid,
            "" if f.run.profile is None else f.run.profile.owner,
            "" if f.run.profile is None else f.run.profile.name,
            json.dumps([[n.name, n.gpu_type, n.host, gpus] for n, gpus in f.run.pieces]),
            f.begun_s,
        )
        for f in runs
    ]
    columns = columns_of({**types, "pieces": str, "begun_s": float}, rows)
    merge.replace(transaction, "followed_run", columns)


def followed(transaction: Transaction) -> tuple[FollowedRun, ...]:
    """Return the runs whose spool files are to be read, the earliest first."""
    rows = transaction.rows(
        """
        SELECT job, run, uid, nonce, owner, profile, pieces, begun_s FROM followed_run
        ORDER BY begun_s, nonce, job, run
        """
    )
    return tuple(
        FollowedRun(
            job,
            int(number),
            SpoolRun(
                int(uid),
                nonce,
                ProfileKey(profile, owner) if profile else None,
                tuple(
                    (Node(name, kind, gpus, host=host), gpus)
                    for name, kind, host, gpus in json.loads(pieces)
                ),
            ),
            begun_s,
        )
        for job, number, uid, nonce, owner, profile, pieces, begun_s in rows
    )


def unfollow(
    transaction: Transaction, runs: Sequence[FollowedRun], left: Iterable[str] = ()
) -> None:
    """Note that nothing more will be read of runs, and forget jobs that have left, by nonce.

    How far the files of those were read is forgotten, too: their nonces do not come again.
    """
    for f in runs:
        transaction.run(
            "DELETE FROM followed_run WHERE nonce = ? AND job = ? AND run = ?",
            f.run.nonce,
            f.job,
            f.number,
        )
    for nonce in left:
        for table in ("progress", "spool_file"):
            transaction.run(f"DELETE FROM {table} WHERE nonce = ?", nonce)


def remember(
    transaction: Transaction, documents: Mapping[str, str], left: Iterable[str] = ()
) -> None:
    """Keep what jobs asked for when they were first seen, for the next daemon.

    Args:
        transaction: of the store.
        documents: job id -> JSON.
        left: jobs that are gone.
    """
    for job in left:
        transaction.run("DELETE FROM submitted_job WHERE job = ?", job)
    rows = columns_of({"job": str, "document": str}, documents.items())
    merge.replace(transaction, "submitted_job", rows)


def remembered(transaction: Transaction) -> dict[str, str]:
    """Return all documents, by job id."""
    return dict(transaction.rows("SELECT job, document FROM submitted_job"))


def heard(
    transaction: Transaction,
    lines: Mapping[tuple[str, str, int], Sequence[SpoolLine]],
    now_s: float,
) -> tuple[JobProgress, ...]:
    """Record what lines of rank 0, by (nonce, job, run), say of how far jobs are, and return it."""
    known = read_progress(transaction, (nonce for nonce, _, _ in lines))
    changed: dict[str, JobProgress] = {}
    for nonce, job, run in sorted(lines):
        before = known.get(nonce) or JobProgress(nonce, job, run, now_s)
        after = before
        for line in lines[nonce, job, run]:
            after = after.after(run, line, now_s)
        if after != before or nonce not in known:
            known[nonce] = changed[nonce] = after
    rows = [[getattr(progress, name) for name in _PROGRESS] for progress in changed.values()]
    merge.replace(transaction, "progress", columns_of(_PROGRESS, rows))
    return tuple(changed.values())
