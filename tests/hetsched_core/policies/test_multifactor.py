"""Priorities by hand: age, size, partition and fair share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.policies.multifactor import Ranking, Weights
from hetsched_core.types import JobView
from hetsched_core.types.site import Association, ShareTree, Site
from tests.hetsched_core.policies.worlds import with_job
from tests.hetsched_core.worlds import cluster_of, snapshot_of, view

DAY_S = 86_400.0
ALICE, BOB, CAROL = ("bio", "alice"), ("bio", "bob"), ("phys", "carol")
NO_WEIGHTS = Weights(0, 0, 0, 0)


def job(
    name: str = "j",
    *,
    gpus: int = 1,
    submit_s: float = 0.0,
    who: Association = ALICE,
    **more: object,
) -> JobView:
    bare = view(name, counts=(gpus,), submit_s=submit_s)
    return with_job(bare, account=who[0], user=who[1], **more)


def ranking(weights: Weights = NO_WEIGHTS, **more: object) -> Ranking:
    numbers = {"long": 1, "short": 4}
    made = Ranking(weights, max_age_s=7 * DAY_S, favor_small=False, partitions=numbers)
    return replace(made, **more)  # type: ignore[arg-type]


BY_AGE = ranking(Weights(1000, 0, 0, 0), at_s=14 * DAY_S)
BY_SHARE = ranking(Weights(0, 100, 0, 0), shares={ALICE: 0.5})
BY_SIZE = ranking(Weights(0, 0, 100, 0))
BY_PARTITION = ranking(Weights(0, 0, 0, 100))
EVERYTHING = ranking(Weights(1000, 2000, 400, 80), at_s=3.5 * DAY_S, shares={BOB: 0.25})


@pytest.mark.parametrize(
    ("by", "of", "priority"),
    [
        # Age counts from when a job is eligible, and in full after a week.
        (BY_AGE, job(), 1000),
        (BY_AGE, job(submit_s=10.5 * DAY_S), 500),
        (BY_AGE, job(eligible_s=10.5 * DAY_S), 500),
        (BY_AGE, job(submit_s=15 * DAY_S), 0),
        # Large jobs go first, or small ones where they are favoured.
        (BY_SIZE, job(gpus=8), 25),
        (replace(BY_SIZE, favor_small=True), job(gpus=8), 75),
        (BY_SIZE, job(gpus=64), 100),
        # A partition counts against the one with the greatest number, if that is not 0.
        (BY_PARTITION, job(partition="short"), 100),
        (BY_PARTITION, job(partition="long"), 25),
        (BY_PARTITION, job(partition="other"), 0),
        (replace(BY_PARTITION, partitions={"gpu": 0}), job(partition="gpu"), 0),
        # Who is unknown has a whole share.
        (BY_SHARE, job(), 50),
        (BY_SHARE, job(who=CAROL), 100),
        # Half the greatest age, a quarter of the share, 8 of 32 GPUs, 1 of at most 4.
        (EVERYTHING, job(gpus=8, who=BOB, partition="long"), 500 + 500 + 100 + 20),
    ],
)
def test_the_priority_is_the_weighted_sum_of_the_factors(
    by: Ranking, of: JobView, priority: float
) -> None:
    assert by.priority(of, gpus=32) == priority


def test_priorities_are_whole_numbers_and_ties_go_by_submission() -> None:
    snapshot = snapshot_of(cluster_of(n0=("a100", 8)), [])
    by_age = ranking(Weights(10, 0, 0, 0), at_s=DAY_S)
    first, second = job("b"), job("a", submit_s=60.0)
    assert by_age(first, snapshot)[:2] == by_age(second, snapshot)[:2] == (0, -1)
    assert by_age(first, snapshot) < by_age(second, snapshot)
    # Without weights all tie.
    views = [job("c", submit_s=5.0, gpus=8), job("b", submit_s=5.0), job("a", submit_s=9.0)]
    ordered = sorted(views, key=lambda each: ranking()(each, snapshot))
    assert [each.id for each in ordered] == ["b", "c", "a"]


def test_a_higher_tier_goes_before_any_priority_where_the_site_has_a_word() -> None:
    bare = snapshot_of(cluster_of(n0=("a100", 8)), [])
    low, high = job("low", gpus=8), job("high", tier=2, submit_s=9.0)
    for snapshot, first in ((bare, low), (replace(bare, site=Site(ShareTree())), high)):
        found = min((low, high), key=lambda each: BY_SIZE(each, snapshot))
        assert found is first
