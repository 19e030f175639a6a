"""A cluster on which plans are checked, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetsched_core.policy import check_plan
from hetsched_core.types import (
    Cluster,
    Entry,
    ExecutionModel,
    JobView,
    Node,
    NodeCondition,
    Plan,
    Reason,
    ReasonCode,
    Run,
    Snapshot,
)
from tests.hetsched_core.worlds import (
    snapshot_of,
    view,
)

# Two types, one host with GPUs of both, CPUs and memory that are counted on some nodes only.
CLUSTER = Cluster(
    (
        Node("a", "v100", 4, cpus=16, memory_mb=1000),
        Node("b", "v100", 4),
        Node("c", "k80", 4, cpus=8, memory_mb=400, host="h"),
        Node("d", "t4", 2, cpus=8, memory_mb=400, host="h"),
    )
)
CLOSED = {"b": {"condition": NodeCondition.DRAINED}}
BLOCKED = Reason(ReasonCode.HELD)
DRAINED = {"nodes": CLOSED}
K80 = frozenset({"k80"})
A, B = frozenset({"a"}), frozenset({"b"})


def rules(snapshot: Snapshot, plan: Plan, model: ExecutionModel = ExecutionModel.GANG) -> list[str]:
    return [violation.rule for violation in check_plan(snapshot, plan, model)]


def gang(*views: JobView, **more: Any) -> Snapshot:
    return snapshot_of(CLUSTER, views, **more)


Case = tuple[Snapshot, dict[str, Entry], str]


def one(
    rule: str, entry: Entry, *runs: Run, world: Mapping[str, Any] | None = None, **job: Any
) -> Case:
    """The rule that an entry of the only job breaks."""
    return gang(view("j", *runs, **job), **world or {}), {"j": entry}, rule


def two(rule: str, *views: JobView, **entries: Entry) -> Case:
    return gang(*views), entries, rule
