"""What is in force between the rounds of a policy that plans in rounds."""

from __future__ import annotations

from dataclasses import replace

from hetsched_core.placement.entries import AHEAD
from hetsched_core.policy import make_policy
from hetsched_core.policy.check import check_plan
from hetsched_core.policy.planner import plan_by
from hetsched_core.types import Reason, ReasonCode, Replan, Trigger, Waiting
from hetsched_core.types.site import ShareTree, Site
from tests.hetsched_core.worlds import cluster_of, placed, plan_of, snapshot_of, view


def test_a_planned_job_that_may_not_start_any_more_waits_and_so_does_what_has_come() -> None:
    gone = Reason(ReasonCode.LICENSES, detail="it asks for 1 of cad, and 0 are free")
    late, early = (replace(view(name), blocked=gone) for name in ("late", "early"))
    views = view("goes"), late, early, view("new")
    before = plan_of({"goes": placed(n0=1), "late": placed(n0=1), "early": Waiting(gone)})
    snapshot = replace(
        snapshot_of(cluster_of(n0=("a100", 4)), views, now=100.0),
        site=Site(ShareTree()),
        previous=replace(before, replan=Replan(on=frozenset({Trigger.ROUND}))),
        triggers=frozenset({Trigger.ARRIVAL}),
    )
    gavel = make_policy("gavel")
    made = plan_by(gavel, snapshot)
    waits = {"late": Waiting(gone), "early": Waiting(gone), "new": AHEAD}
    assert dict(made.entries) == {"goes": before.entries["goes"], **waits}
    assert check_plan(snapshot, made, gavel.info.model) == ()
