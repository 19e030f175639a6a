"""Tiers: who makes room for a job of a higher tier, and who does not have to."""

from __future__ import annotations

from dataclasses import replace

from hetsched_core.placement.outrank import outrank
from hetsched_core.types import JobView, Plan, Reason, ReasonCode, Snapshot, Waiting
from hetsched_core.types.site import ShareTree, Site
from tests.hetsched_core.worlds import (
    NO_ROOM,
    cluster_of,
    held,
    on,
    placed,
    plan_of,
    snapshot_of,
    view,
    where,
)

CLUSTER = cluster_of(n0=("a100", 4), n1=("a100", 4))


def runs(
    name: str, *, since_s: float = 0.0, tier: int = 0, preemptible: bool = True, **pieces: int
) -> JobView:
    count = sum(pieces.values())
    run = held(on(**pieces), since_s=since_s)
    return view(name, run, counts=(count,), tier=tier, preemptible=preemptible)


def wants(name: str, gpus: int, *, tier: int = 1, preemptible: bool = True) -> JobView:
    return view(name, counts=(gpus,), tier=tier, preemptible=preemptible)


def asked(*views: JobView, **starts: dict[str, int]) -> tuple[Snapshot, Plan]:
    """A plan that keeps what runs and starts these; everything else waits for room."""
    snapshot = replace(snapshot_of(CLUSTER, views, now=100.0), site=Site(ShareTree()))
    entries = {}
    for each in views:
        where_ = each.configuration
        entries[each.id] = NO_ROOM if where_ is None else placed(**dict(where_.pieces))
        if each.id in starts:
            entries[each.id] = placed(**starts[each.id])
    return snapshot, plan_of(entries)


def test_as_few_go_as_have_to_and_those_that_have_run_for_the_shortest_time() -> None:
    snapshot, plan = asked(
        runs("old", n0=2),
        runs("new", n0=2, since_s=50.0),
        runs("newer", n1=4, since_s=60.0),
        wants("up", 2),
    )
    made = outrank(snapshot, plan)
    assert where(made) == {"new": "n0:2", "old": "n0:2", "up": "n1:2"}
    assert made.entries["newer"] == Waiting(Reason(ReasonCode.AHEAD, behind=("up",)))


def test_a_job_that_would_only_start_goes_before_one_that_runs() -> None:
    snapshot, plan = asked(
        runs("runs", n0=4), wants("low", 4, tier=0), wants("up", 4), low={"n1": 4}
    )
    assert where(outrank(snapshot, plan)) == {"runs": "n0:4", "up": "n1:4"}


def test_what_cannot_be_stopped_stays_and_so_does_an_equal() -> None:
    snapshot, plan = asked(
        runs("fixed", n0=4, preemptible=False), runs("equal", n1=4, tier=1), wants("up", 1)
    )
    assert outrank(snapshot, plan) is plan


def test_what_gives_way_is_stopped_for_a_higher_tier_though_for_nothing_else() -> None:
    fixed = runs("fixed", n0=4, n1=4, preemptible=False)
    gives = replace(fixed, job=replace(fixed.job, gives_way=True))
    snapshot, plan = asked(gives, wants("up", 8))
    assert where(outrank(snapshot, plan)) == {"up": "n0:4+n1:4"}
    snapshot, plan = asked(gives, wants("equal", 8, tier=0))
    assert outrank(snapshot, plan) is plan


def test_a_job_that_could_not_be_stopped_does_not_start_in_the_way_of_a_higher_tier() -> None:
    snapshot, plan = asked(
        runs("fixed", n0=4, preemptible=False),
        wants("low", 2, tier=0, preemptible=False),
        wants("scavenger", 2, tier=0),
        wants("up", 8),
        low={"n1": 2},
        scavenger={"n1": 2},
    )
    # `up` has to wait for `fixed`; what can be stopped then may have the GPUs till then.
    assert where(outrank(snapshot, plan)) == {"fixed": "n0:4", "scavenger": "n1:2"}


def test_where_there_is_room_it_is_the_policy_that_waits() -> None:
    snapshot, plan = asked(runs("low", n0=4), wants("up", 4))
    assert outrank(snapshot, plan) is plan


def test_of_several_the_highest_tier_is_served_first_and_the_lowest_one_goes() -> None:
    snapshot, plan = asked(
        runs("t0", n0=4), runs("t1", n1=4, tier=1), wants("t2", 4, tier=2), wants("t3", 4, tier=3)
    )
    made = outrank(snapshot, plan)
    assert where(made) == {"t2": "n1:4", "t3": "n0:4"}
    assert made.entries["t0"] == Waiting(Reason(ReasonCode.AHEAD, behind=("t3",)))
    assert made.entries["t1"] == Waiting(Reason(ReasonCode.AHEAD, behind=("t2",)))
