"""What every policy decides of jobs on limited nodes, and beside runs where nothing may start."""

from __future__ import annotations

import pytest

from hetsched_core.policy import make_policy, policy_names
from hetsched_core.types import (
    Cluster,
    ExecutionModel,
    JobView,
    Node,
    NodeCondition,
    Placed,
    Plan,
    Trigger,
)
from tests.hetsched_core.policies.worlds import planned, with_job
from tests.hetsched_core.worlds import cluster_of, held, on, placed, view, where
from tests.hetsched_core.worlds import plan_of as entries

MODELS = {name: make_policy(name).info.model for name in policy_names()}
GANGS = [name for name, model in MODELS.items() if model is ExecutionModel.GANG]
WHOLE = [name for name, model in MODELS.items() if model is not ExecutionModel.TASKS]
CLUSTER = cluster_of(a=("v100", 8), b=("v100", 8), c=("k80", 8))


def plan_of(name: str, cluster: Cluster, *views: JobView, **more: object) -> Plan:
    begins = frozenset({Trigger.ROUND, Trigger.ARRIVAL, Trigger.NODE})
    return planned(make_policy(name), cluster, *views, now=9.0, **{"triggers": begins, **more})


def job(counts: int, **limits: object) -> JobView:
    return with_job(
        view("j", counts=(counts,), submit_s=1.0), total_samples=8.0, time_limit_s=60.0, **limits
    )


@pytest.mark.parametrize("name", GANGS)
@pytest.mark.parametrize(
    ("limited", "place"),
    [
        # Equal parts of two nodes where one would do.
        (job(8, min_nodes=2, max_nodes=2), "a:4+b:4"),
        # Whatever is faster or emptier.
        (job(2, nodes=frozenset("c")), "c:2"),
        (job(2, nodes=frozenset("bc"), closed=frozenset("c")), "b:2"),
    ],
)
def test_who_may_use_some_nodes_only_is_put_there(name: str, limited: JobView, place: str) -> None:
    assert where(plan_of(name, CLUSTER, limited)) == {"j": place}


@pytest.mark.parametrize("name", GANGS)
def test_who_may_not_leave_a_node_waits_for_one(name: str) -> None:
    busy = [
        view(f"r{node}", held(on(**{node: 6})), counts=(6,), preemptible=False) for node in "abc"
    ]
    assert "j" not in where(plan_of(name, CLUSTER, *busy, job(4, max_nodes=1)))
    # But for Slurm, which never spreads a job that one node could hold.
    assert ("j" in where(plan_of(name, CLUSTER, *busy, job(4)))) is (name != "slurm")


ODD: dict[str, dict[str, object]] = {
    "down": {"condition": NodeCondition.DOWN},
    "drained": {"condition": NodeCondition.DRAINED},
    "taken by others": {"foreign_gpus": 4},
    "without CPUs": {"foreign_cpus": 1e6},
}


@pytest.mark.parametrize("preemptible", [True, False])
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", WHOLE)
def test_all_room_on_other_nodes_is_given_to_jobs_whatever_runs_on_an_odd_one(
    name: str, odd: str, preemptible: bool
) -> None:
    cluster = Cluster(tuple(Node(node, "v100", 4, cpus=8) for node in "abc"))
    runs = view("r", held(on(a=4)), counts=(4,), cpus_per_gpu=1.0, preemptible=preemptible)
    waiting = [view(each, counts=(4,), cpus_per_gpu=1.0, submit_s=1.0) for each in "vw"]
    plan = plan_of(name, cluster, runs, *waiting, nodes={"a": ODD[odd]})
    given = {
        node
        for entry in plan.entries.values()
        if isinstance(entry, Placed)
        for placement in entry.placements
        for node, _ in placement.configuration
    }
    assert {"b", "c"} <= given
    if not preemptible and not odd.startswith(("taken", "without")):
        assert where(plan)["r"] == "a:4"


@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.parametrize("first", ["submitted first", "submitted last"])
@pytest.mark.parametrize("trigger", [Trigger.ROUND, Trigger.ARRIVAL])
@pytest.mark.parametrize("name", GANGS)
def test_a_place_that_was_planned_and_that_others_have_taken_since_is_given_up(
    name: str, trigger: Trigger, first: str, elsewhere: bool
) -> None:
    """As in shadow mode, where Slurm starts others there; `planned` checks the plan."""
    submit_s = 0.0 if first == "submitted first" else 5.0
    waits = view("w", counts=(1,), submit_s=submit_s, preemptible=False)
    runs = [
        view(each, held(on(a=4)), counts=(4,), submit_s=1.0, preemptible=False) for each in "rs"
    ]
    before = entries({"w": placed(a=1), **({"r": placed(b=4)} if elsewhere else {})})
    found = plan_of(name, CLUSTER, waits, *runs, previous=before, triggers=frozenset({trigger}))
    assert {"r", "s", "w"} == where(found).keys()
