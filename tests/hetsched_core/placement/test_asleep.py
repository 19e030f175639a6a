"""Which nodes are woken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.placement.asleep import wake_last
from hetsched_core.policies.fifo import Fifo
from hetsched_core.policy import plan_by
from hetsched_core.types import JobView, Snapshot
from tests.hetsched_core.worlds import (
    cluster_of,
    held,
    on,
    placed,
    plan_of,
    running,
    snapshot_of,
    view,
    where,
)

CLUSTER = cluster_of(c0=("a100", 4), c1=("a100", 4), n0=("a100", 4), n1=("a100", 4), z=("t4", 4))


def sleeping(*views: JobView) -> Snapshot:
    return replace(snapshot_of(CLUSTER, views), asleep=frozenset({"c0", "c1"}))


@pytest.mark.parametrize(
    ("gpus", "was", "becomes"),
    [
        (1, {"c0": 1}, "n0:1"),
        (8, {"c0": 4, "n1": 4}, "n0:4+n1:4"),
        (8, {"c0": 4, "c1": 4}, "n0:4+n1:4"),
        # Awake there are too few, or too few on one node.
        (12, {"c0": 4, "c1": 4, "n0": 4}, "c0:4+c1:4+n0:4"),
        # A faster type is worth waking.
        (5, {"n0": 4, "z": 1}, "n0:4+z:1"),
    ],
)
def test_what_starts_is_put_on_nodes_of_its_type_that_are_awake(
    gpus: int, was: dict[str, int], becomes: str
) -> None:
    snapshot = sleeping(view("a", counts=(gpus,)))
    assert where(wake_last(snapshot, plan_of({"a": placed(**was)}))) == {"a": becomes}


def test_each_has_gpus_of_its_own_and_the_last_wake_a_node() -> None:
    snapshot = sleeping(
        running("x", n0=3), *(view(f"j{at}", counts=(2,), submit_s=float(at)) for at in range(5))
    )
    found = where(plan_by(Fifo(), snapshot))
    assert sorted(found.values()) == ["c0:2", "c0:2", "c1:2", "n0:3", "n1:2", "n1:2"]


def test_who_is_there_stays_and_so_does_who_may_be_nowhere_else() -> None:
    waking = view("waking", held(on(c0=2), begun=False), counts=(2,))
    only = view("only", counts=(1,), nodes=frozenset({"c0", "c1"}))
    plan = plan_of({"waking": placed(c0=2), "only": placed(c1=1)})
    assert wake_last(sleeping(waking, only), plan).entries == plan.entries


def test_with_nobody_asleep_the_plan_is_the_policys_own() -> None:
    snapshot = snapshot_of(CLUSTER, [view("a")])
    plan = plan_of({"a": placed(c0=1)})
    assert wake_last(snapshot, plan) is plan
