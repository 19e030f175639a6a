"""What is in force between the rounds of a policy that plans in rounds."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from hetsched_core.placement.entries import AHEAD, NEVER
from hetsched_core.policy import News, make_policy
from hetsched_core.policy.check import check_plan
from hetsched_core.policy.planner import Observation, Planner, plan_by
from hetsched_core.types import (
    JobView,
    Plan,
    Reason,
    ReasonCode,
    Replan,
    Snapshot,
    Trigger,
    Waiting,
)
from hetsched_core.types.site import Limit, ShareTree, Site
from tests.hetsched_core.worlds import (
    NO_ROOM,
    cluster_of,
    held,
    linear_speeds,
    on,
    placed,
    plan_of,
    snapshot_of,
    view,
    where,
)

GAVEL = make_policy("gavel")
TWO_NODES = cluster_of(n0=("a100", 4), n1=("a100", 4))


def between_rounds(before: Plan, *views: JobView, trigger: Trigger = Trigger.ARRIVAL) -> Snapshot:
    """What a policy that plans when a round starts alone is not asked about."""
    return replace(
        snapshot_of(TWO_NODES, views, now=100.0),
        site=Site(ShareTree()),
        previous=replace(before, replan=Replan(on=frozenset({Trigger.ROUND}))),
        triggers=frozenset({trigger}),
    )


@pytest.mark.parametrize("trigger", [Trigger.ARRIVAL, Trigger.END])
def test_what_waits_takes_what_is_idle_and_what_the_round_refused_does_not(
    trigger: Trigger,
) -> None:
    runs = view("runs", held(on(n0=4)))
    refused = Waiting(Reason(ReasonCode.PRICE))
    before = plan_of({"runs": placed(n0=4), "waits": NO_ROOM, "dear": refused})
    new, late = (view(name, counts=(2,), submit_s=at) for name, at in (("new", 50.0), ("late", 60)))
    views = runs, view("waits"), view("dear"), new, late
    made = plan_by(GAVEL, between_rounds(before, *views, trigger=trigger))
    assert where(made) == {"runs": "n0:4", "waits": "n1:1", "new": "n1:2"}
    assert (made.entries["dear"], made.entries["late"]) == (refused, NO_ROOM)


def test_what_waits_is_overtaken_between_rounds_only_where_jobs_take_turns() -> None:
    runs = view("runs", held(on(n0=4)))
    wide, new = view("wide", counts=(8,)), view("new", submit_s=50.0)
    for waits in (NO_ROOM, Waiting(Reason(ReasonCode.PRICE))):
        before = plan_of({"runs": placed(n0=4), "wide": waits})
        snapshot = between_rounds(before, runs, wide, new)
        found = {name: where(plan_by(make_policy(name), snapshot)) for name in ("gavel", "hadar")}
        assert found == {"gavel": {"runs": "n0:4", "new": "n1:1"}, "hadar": {"runs": "n0:4"}}


def test_what_the_round_stops_and_moves_goes_on_stopping_and_moving() -> None:
    stopped, moved = view("stopped", held(on(n0=4))), view("moved", held(on(n1=2)), counts=(2,))
    before = plan_of({"stopped": AHEAD, "moved": placed(n0=2)})
    made = plan_by(GAVEL, between_rounds(before, stopped, moved, view("new", counts=(2,))))
    assert made.entries["stopped"] == AHEAD
    assert where(made) == {"moved": "n0:2", "new": "n0:2"}


def test_what_runs_though_no_plan_placed_it_stays() -> None:
    before = plan_of({"runs": placed(n0=4)})
    views = view("runs", held(on(n0=4))), view("found", held(on(n1=4)), counts=(4,)), view("new")
    made = plan_by(GAVEL, between_rounds(before, *views))
    assert where(made) == {"runs": "n0:4", "found": "n1:4"}


@pytest.mark.parametrize("code", [ReasonCode.HELD, ReasonCode.QUOTA, ReasonCode.NOT_STARTED])
def test_what_may_start_again_is_in_line_again(code: ReasonCode) -> None:
    runs = view("runs", held(on(n0=4, n1=4)), counts=(8,))
    before = plan_of({"runs": placed(n0=4, n1=4), "back": Waiting(Reason(code))})
    snapshot = between_rounds(before, runs, view("back"))
    assert plan_by(GAVEL, snapshot).entries["back"] == NO_ROOM
    room = replace(before, entries=before.entries.delete("runs"))
    assert where(plan_by(GAVEL, between_rounds(room, view("back")))) == {"back": "n0:1"}


@pytest.mark.parametrize("policy", ["gavel", "sia", "hadar"])
def test_idle_gpus_of_one_type_are_given_as_many_as_there_are(policy: str) -> None:
    mixed = cluster_of(n0=("a100", 4), n1=("v100", 4))
    runs = view("runs", held(on(n0=3, n1=3)), counts=(6,))
    before = plan_of({"runs": placed(n0=3, n1=3)})
    elastic, wide = view("elastic", counts=(1, 2, 4)), view("wide", counts=(6,))
    snapshot = replace(
        between_rounds(before, runs, elastic, wide),
        cluster=mixed,
        nodes=snapshot_of(mixed, [runs]).nodes,
        speeds=linear_speeds(mixed, {"m": {"a100": 1.0, "v100": 1.0}}),
    )
    made = plan_by(make_policy(policy), snapshot)
    assert (where(made)["elastic"], isinstance(made.entries["wide"], Waiting)) == ("n0:1", True)


def test_limits_count_what_a_job_is_to_have_and_not_what_it_still_has() -> None:
    under = frozenset({"q"})
    grows = view("grows", held(on(n0=2)), counts=(2, 4), limits=under)
    before = plan_of({"grows": placed(n1=4)})
    snapshot = between_rounds(before, grows, view("new", counts=(2,), limits=under))
    made = plan_by(GAVEL, replace(snapshot, site=Site(ShareTree(), limits={"q": Limit(gpus=4)})))
    assert where(made) == {"grows": "n1:4"}
    waits = made.entries["new"]
    assert isinstance(waits, Waiting)
    assert waits.reason.code is ReasonCode.QUOTA


@pytest.mark.parametrize("trigger", [Trigger.ARRIVAL, Trigger.END])
def test_a_round_is_filled_up_at_a_site_alone(trigger: Trigger) -> None:
    planner = Planner(GAVEL, lambda: 0.0)
    planner.plan = replace(plan_of({}), replan=Replan(on=frozenset({Trigger.ROUND})))
    worlds = (
        cast("Observation", SimpleNamespace(news=News({trigger}), sited=sited))
        for sited in (True, False)
    )
    assert [planner.due(world) for world in worlds] == [True, False]


def test_a_planned_job_that_may_not_start_any_more_waits() -> None:
    gone = Reason(ReasonCode.LICENSES, detail="it asks for 1 of cad, and 0 are free")
    late, early = (replace(view(name), blocked=gone) for name in ("late", "early"))
    views = view("goes"), late, early, view("vast", counts=(64,))
    before = plan_of({"goes": placed(n0=1), "late": placed(n0=1), "early": Waiting(gone)})
    snapshot = between_rounds(before, *views)
    made = plan_by(GAVEL, snapshot)
    waits = {"late": Waiting(gone), "early": Waiting(gone), "vast": NEVER}
    assert dict(made.entries) == {"goes": before.entries["goes"], **waits}
    assert check_plan(snapshot, made, GAVEL.info.model) == ()


def test_a_planned_job_whose_node_has_closed_to_it_goes_to_another() -> None:
    shut = view("shut", counts=(1,), closed=frozenset({"n0"}))
    before = plan_of({"goes": placed(n0=1), "shut": placed(n0=1)})
    made = plan_by(GAVEL, between_rounds(before, view("goes"), shut))
    assert where(made) == {"goes": "n0:1", "shut": "n1:1"}
