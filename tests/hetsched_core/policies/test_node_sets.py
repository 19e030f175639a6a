"""Every policy of gangs keeps to node sets and node counts, and shares out what is in them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.policies.gavel import Gavel
from hetsched_core.policy import check_plan, make_policy, policy_names
from hetsched_core.types import (
    Configuration,
    ExecutionModel,
    JobView,
    Placed,
    Plan,
    ReasonCode,
    Trigger,
    Waiting,
)
from tests.hetsched_core.worlds import cluster_of, held, on, snapshot_of, view

CLUSTER = cluster_of(a=("v100", 8), b=("v100", 8), c=("k80", 8))
GANGS = [name for name in policy_names() if make_policy(name).info.model is ExecutionModel.GANG]


def limited(found: JobView, **limits: object) -> JobView:
    """The job, limited so, and a second long."""
    job = replace(found.job, total_samples=8.0, time_limit_s=60.0, **limits)  # type: ignore[arg-type]
    return replace(found, job=job)


def planned(name: str, *views: JobView) -> Plan:
    begins = frozenset({Trigger.ROUND, Trigger.ARRIVAL})
    snapshot = snapshot_of(CLUSTER, views, triggers=begins)
    plan = make_policy(name).plan(snapshot)
    assert check_plan(snapshot, plan, ExecutionModel.GANG) == ()
    return plan


def where(plan: Plan, job: str = "j") -> Configuration | None:
    entry = plan.entries[job]
    return entry.placements[0].configuration if isinstance(entry, Placed) else None


@pytest.mark.parametrize("name", GANGS)
def test_who_asks_for_two_nodes_gets_equal_parts_of_two_where_one_would_do(name: str) -> None:
    found = where(planned(name, limited(view("j", counts=(8,)), min_nodes=2, max_nodes=2)))
    assert found == on(a=4, b=4)


@pytest.mark.parametrize("name", GANGS)
def test_who_may_not_leave_a_node_waits_for_one(name: str) -> None:
    busy = [
        limited(view(f"r{node}", held(on(**{node: 6})), counts=(6,)), preemptible=False)
        for node in "abc"
    ]
    one = limited(view("j", counts=(4,), submit_s=1.0), max_nodes=1)
    assert where(planned(name, *busy, one)) is None
    if name != "slurm":
        # Which never spreads a job that one node could hold.
        several = limited(view("j", counts=(4,), submit_s=1.0))
        assert where(planned(name, *busy, several)) is not None


@pytest.mark.parametrize("name", GANGS)
def test_who_may_use_one_node_only_is_put_there_whatever_is_faster_or_emptier(name: str) -> None:
    assert where(planned(name, limited(view("j", counts=(2,)), nodes=frozenset("c")))) == on(c=2)
    fast = limited(view("j", counts=(2,)), nodes=frozenset("bc"), closed=frozenset("c"))
    assert where(planned(name, fast)) == on(b=2)


@pytest.mark.parametrize("name", GANGS)
def test_who_fits_on_none_of_its_nodes_is_told_never(name: str) -> None:
    entry = planned(name, limited(view("j", counts=(16,)), nodes=frozenset("ac"))).entries["j"]
    if isinstance(entry, Waiting):
        assert entry.reason.code is ReasonCode.NEVER_FITS
    else:
        # On a mix of types, by a policy that has these.
        assert where(planned(name, limited(view("j", counts=(16,)), nodes=frozenset("a")))) is None


def test_gavel_shares_no_more_of_a_node_than_there_is() -> None:
    jobs = [
        limited(view(name, counts=(8,)), nodes=nodes, gpu_types=frozenset({"v100"}))
        for name, nodes in (("x", frozenset("a")), ("y", frozenset("a")), ("z", None))
    ]
    begins = frozenset({Trigger.ROUND, Trigger.ARRIVAL})
    plan = Gavel().plan(snapshot_of(CLUSTER, jobs, triggers=begins))
    shares = plan.memory["shares"]
    assert isinstance(shares, dict)
    mine = {job: sum(of_type) for job, of_type in shares.items()}
    assert mine["x"] == pytest.approx(0.5)
    assert mine["y"] == pytest.approx(0.5)
    assert mine["z"] > 0.3
    assert sum(plan.diagnostics.prices.values()) > 0
    assert "v100 in a" in plan.diagnostics.prices
