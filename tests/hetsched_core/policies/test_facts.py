"""What runs where nothing may start costs nobody else its place, under every policy."""

from __future__ import annotations

import pytest

from hetsched_core.policy import check_plan, make_policy, policy_names
from hetsched_core.types import (
    Cluster,
    ExecutionModel,
    Node,
    NodeCondition,
    Placed,
    Snapshot,
    Trigger,
)
from tests.hetsched_core.worlds import held, on, snapshot_of, view

WHOLE = [
    name for name in policy_names() if make_policy(name).info.model is not ExecutionModel.TASKS
]
CLUSTER = Cluster(tuple(Node(name, "v100", 4, cpus=8) for name in "abc"))
ODD: dict[str, dict[str, object]] = {
    "down": {"condition": NodeCondition.DOWN},
    "drained": {"condition": NodeCondition.DRAINED},
    "taken by others": {"foreign_gpus": 4},
    "without CPUs": {"foreign_cpus": 1e6},
}


def shown(odd: str, preemptible: bool) -> Snapshot:
    """One job runs on the odd node, and two wait, each as large as a node."""
    runs = view("r", held(on(a=4)), counts=(4,), cpus_per_gpu=1.0, preemptible=preemptible)
    waiting = [view(name, counts=(4,), cpus_per_gpu=1.0, submit_s=1.0) for name in "vw"]
    triggers = frozenset({Trigger.ROUND, Trigger.ARRIVAL, Trigger.NODE})
    return snapshot_of(CLUSTER, [runs, *waiting], now=9.0, triggers=triggers, nodes={"a": ODD[odd]})


@pytest.mark.parametrize("preemptible", [True, False])
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", WHOLE)
def test_all_room_on_other_nodes_is_given_to_jobs_whatever_runs_on_an_odd_one(
    name: str, odd: str, preemptible: bool
) -> None:
    policy, snapshot = make_policy(name), shown(odd, preemptible)
    plan = policy.plan(snapshot)
    assert check_plan(snapshot, plan, policy.info.model) == ()
    given = {
        node
        for entry in plan.entries.values()
        if isinstance(entry, Placed)
        for placement in entry.placements
        for node, _ in placement.configuration
    }
    assert {"b", "c"} <= given
    if not preemptible and not odd.startswith(("taken", "without")):
        kept = plan.entries["r"]
        assert isinstance(kept, Placed)
        assert kept.placements[0].configuration == on(a=4)
