"""What the scheduler decided."""

from __future__ import annotations

import json
from typing import Any

from hetsched_core.records.runlog import PlanRecord
from hetsched_core.store.database import Transaction
from hetsched_core.store.records import Decision
from hetsched_core.types import Diagnostics, Trigger

_DECISION = """
    id, at_s, policy, triggers, plan_s, placed, waiting, method, objective, bound, gap, limits,
    prices, document
"""


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
