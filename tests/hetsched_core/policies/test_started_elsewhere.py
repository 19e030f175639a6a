"""A job that was started elsewhere than planned keeps nothing where it does not run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.policy import make_policy, policy_names
from hetsched_core.policy.planner import plan_by
from hetsched_core.types import ExecutionModel, Trigger
from tests.hetsched_core.worlds import (
    cluster_of,
    held,
    on,
    placed,
    plan_of,
    snapshot_of,
    view,
    where,
)

LIVE = [
    name
    for name in policy_names()
    if (info := make_policy(name).info).live and info.model is ExecutionModel.GANG
]


@pytest.mark.parametrize("policy", LIVE)
@pytest.mark.parametrize("stops", [True, False])
def test_a_run_elsewhere_keeps_no_gpus_where_it_was_planned(policy: str, stops: bool) -> None:
    runs = view("1", held(on(n0=4)), counts=(4,), preemptible=stops)
    waits = view("2", counts=(4,), submit_s=2.0)
    snapshot = snapshot_of(
        cluster_of(n0=("a100", 4), n1=("a100", 4)),
        [replace(runs, job=replace(runs.job, total_samples=1e5)), waits],
        now=100.0,
        triggers=frozenset({Trigger.ARRIVAL, Trigger.ROUND, Trigger.NODE}),
        previous=plan_of({"1": placed(n1=4)}),
    )
    found = where(plan_by(make_policy(policy), snapshot))
    assert found.keys() == {"1", "2"}
    if not stops:
        assert found == {"1": "n0:4", "2": "n1:4"}


@pytest.mark.parametrize("policy", LIVE)
@pytest.mark.parametrize("stops", [True, False])
def test_a_place_that_a_new_job_has_taken_is_given_up(policy: str, stops: bool) -> None:
    planned = view("1", counts=(4,))
    planned = replace(planned, job=replace(planned.job, total_samples=1e5))
    new = view("2", held(on(n0=4)), counts=(4,), submit_s=2.0, preemptible=stops)
    snapshot = snapshot_of(
        cluster_of(n0=("a100", 4), n1=("a100", 4)),
        [planned, new],
        now=100.0,
        triggers=frozenset({Trigger.ARRIVAL, Trigger.ROUND}),
        previous=plan_of({"1": placed(n0=4)}),
        changed=frozenset({"2"}),
        nodes_changed=False,
    )
    found = where(plan_by(make_policy(policy), snapshot))
    assert found == {"1": "n1:4", "2": "n0:4"} or (stops and found == {"1": "n0:4", "2": "n1:4"})
