"""What the scheduler did: runs that ended, and decisions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hetsched_core.records.runlog import PlanRecord, RunEnd, RunRecord
from hetsched_core.store.database import Transaction, columns_of
from hetsched_core.store.merge import replace
from hetsched_core.store.names import profile_ids
from hetsched_core.store.records import Decision, ProfileKey, StoredRun
from hetsched_core.types import Configuration, Diagnostics, Purpose, Trigger

_RUN = {
    "nonce": str,
    "job": str,
    "number": int,
    "copy": int,
    "purpose": str,
    "pieces": str,
    "since_s": float,
    "freed_s": float,
    "productive_s": float,
    "samples": float,
    "ended_by": str,
    "profile": int,
}
_DECISION = """
    id, at_s, policy, triggers, plan_s, placed, waiting, method, objective, bound, gap, limits,
    prices, document
"""


def record_runs(transaction: Transaction, runs: Sequence[StoredRun]) -> None:
    """Add runs; one that is there already is replaced, so that a repeated call changes nothing."""
    if not runs:
        return
    last = {(r.nonce, r.run.job, r.run.number, r.run.copy): r for r in runs}
    runs = list(last.values())
    profiles = profile_ids(transaction, (r.profile for r in runs))
    replace(
        transaction,
        "run",
        columns_of(
            _RUN,
            [
                (
                    one.nonce,
                    run.job,
                    run.number,
                    run.copy,
                    run.purpose.value,
                    # As text, since a column of lists cannot be handed over.
                    json.dumps([list(piece) for piece in run.configuration]),
                    run.since_s,
                    run.freed_s,
                    run.productive_s,
                    run.samples,
                    run.ended_by.value,
                    profiles[one.profile],
                )
                for one in runs
                for run in (one.run,)
            ],
        ),
    )


def read_runs(
    transaction: Transaction,
    job: str | None = None,
    profile: ProfileKey | None = None,
    most: int = 1000,
) -> tuple[StoredRun, ...]:
    """Return the runs that ended last, the latest first: of a job, of a profile, or of all."""
    rows = transaction.rows(
        f"""
        SELECT {", ".join(name for name in _RUN if name != "profile")}, owner, name
        FROM run JOIN profile ON profile.id = run.profile
        WHERE ($1 IS NULL OR job = $1) AND ($2 IS NULL OR (name = $2 AND owner = $3))
        ORDER BY freed_s DESC, nonce, job, number DESC, copy LIMIT $4
        """,
        job,
        None if profile is None else profile.name,
        None if profile is None else profile.owner,
        most,
    )
    return tuple(_run(*row) for row in rows)


def _run(
    nonce: str, job: str, number: int, copy: int, purpose: str, pieces: str, *rest: Any
) -> StoredRun:
    since_s, freed_s, productive_s, samples, ended_by, owner, name = rest
    record = RunRecord(
        job,
        number,
        copy,
        Purpose(purpose),
        Configuration.of((node, gpus) for node, gpus in json.loads(pieces)),
        since_s,
        freed_s,
        productive_s,
        samples,
        RunEnd(ended_by),
    )
    return StoredRun(record, nonce, ProfileKey(name, owner))


def record_decision(transaction: Transaction, decision: Decision) -> int:
    """Add a decision and return its number; numbers grow, whatever the clock does."""
    plan, found = decision.plan, decision.diagnostics
    ((number,),) = transaction.rows(
        """
        INSERT INTO decision (at_s, policy, triggers, plan_s, placed, waiting, method, objective,
                              bound, gap, limits, prices, document, bytes)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id
        """,
        plan.at_s,
        decision.policy,
        sorted(trigger.value for trigger in plan.triggers),
        plan.plan_s,
        plan.placed,
        plan.waiting,
        found.method,
        found.objective,
        found.bound,
        found.gap,
        list(found.limits),
        json.dumps(dict(found.prices)),
        decision.document,
        len(decision.document.encode()),
    )
    return int(number)


def forget_decisions(transaction: Transaction, keep: int, most_bytes: int) -> None:
    """Forget the oldest decisions.

    Args:
        transaction: of the store.
        keep: how many of the latest may stay.
        most_bytes: how long the documents of those that stay may be, together.
    """
    transaction.run(
        """
        DELETE FROM decision WHERE id <= (
            SELECT coalesce(max(id), 0) FROM (
                SELECT id, row_number() OVER (ORDER BY id DESC) AS place,
                       sum(bytes) OVER (ORDER BY id DESC) AS total
                FROM decision
            ) WHERE place > ? OR total > ?
        )
        """,
        keep,
        most_bytes,
    )


def read_decisions(
    transaction: Transaction, after: int = 0, most: int = 1000
) -> tuple[tuple[int, Decision], ...]:
    """Return decisions with a number above `after`, each with its number, in their order."""
    rows = transaction.rows(
        f"""
        SELECT {_DECISION}
        FROM decision WHERE id > ? ORDER BY id LIMIT ?
        """,
        after,
        most,
    )
    return tuple((int(row[0]), _decision(*row[1:])) for row in rows)


def sampled_decisions(
    transaction: Transaction, since_s: float, most: int = 50
) -> tuple[tuple[int, Decision], ...]:
    """Return some of the decisions made since a time, evenly spread, the latest among them."""
    rows = transaction.rows(
        f"""
        SELECT {_DECISION}
        FROM (SELECT *, row_number() OVER (ORDER BY id DESC) - 1 AS place,
                     count(*) OVER () AS number
              FROM decision WHERE at_s >= $1)
        WHERE place % greatest(1, ceil(number / $2)) = 0 ORDER BY id
        """,
        since_s,
        most,
    )
    return tuple((int(row[0]), _decision(*row[1:])) for row in rows)


def _decision(at_s: float, policy: str, triggers: list[str], *rest: Any) -> Decision:
    plan_s, placed, waiting, method, objective, bound, gap, limits, prices, document = rest
    return Decision(
        policy,
        PlanRecord(at_s, frozenset(map(Trigger, triggers)), plan_s, placed, waiting),
        Diagnostics(method, objective, bound, gap, tuple(limits), json.loads(prices)),
        document,
    )
