"""Priorities by hand: age, size, partition, and fair share with decay."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.policies.multifactor import Association, Ranking, Usage, Weights, fair_tree
from hetsched_core.types import JobView
from tests.hetsched_core.policies.worlds import with_job
from tests.hetsched_core.worlds import cluster_of, on, snapshot_of, view

DAY_S = 86_400.0
ALICE, BOB, CAROL, DAVE = ("bio", "alice"), ("bio", "bob"), ("phys", "carol"), ("phys", "dave")
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
    assert by_age(first, snapshot)[0] == by_age(second, snapshot)[0] == -1
    assert by_age(first, snapshot) < by_age(second, snapshot)
    # Without weights all tie.
    views = [job("c", submit_s=5.0, gpus=8), job("b", submit_s=5.0), job("a", submit_s=9.0)]
    ordered = sorted(views, key=lambda each: ranking()(each, snapshot))
    assert [each.id for each in ordered] == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("used", "shares"),
    [
        # phys has used less than bio, and of bio's users bob less than alice.
        ({ALICE: 60.0, BOB: 40.0, CAROL: 70.0}, {CAROL: 1.0, BOB: 2 / 3, ALICE: 1 / 3}),
        # Who ties shares the higher rank.
        (
            {ALICE: 0.0, BOB: 0.0, CAROL: 50.0, DAVE: 10.0},
            {ALICE: 1.0, BOB: 1.0, DAVE: 0.5, CAROL: 0.25},
        ),
        # Users of accounts that tie are ranked together, by their use of their parts of these.
        (
            {ALICE: 10.0, BOB: 30.0, CAROL: 20.0, DAVE: 20.0},
            {ALICE: 1.0, CAROL: 0.75, DAVE: 0.75, BOB: 0.25},
        ),
    ],
)
def test_users_are_ranked_by_their_accounts_first(
    used: dict[Association, float], shares: dict[Association, float]
) -> None:
    assert fair_tree(used) == pytest.approx(shares)


def test_usage_halves_in_a_half_life_and_what_is_held_counts() -> None:
    used = Usage(0.0, {ALICE: 1000.0, BOB: 0.0}, {BOB: 4})
    later = used.carried_on(100.0, half_life_s=100.0)
    assert later.at_s == 100.0
    assert later.gpu_s[ALICE] == pytest.approx(500.0)
    # The integral of 4 GPUs over 100 s, each second halving by the end as often as it is old.
    assert later.gpu_s[BOB] == pytest.approx(4 * 100.0 / (2 * math.log(2)))
    # With hardly any decay it is GPU seconds.
    held = Usage(0.0).knowing([job().job]).holding([(job(gpus=3).job, on(n0=3))])
    assert held.carried_on(50.0, half_life_s=1e12).gpu_s == {ALICE: pytest.approx(150.0)}


@given(
    st.floats(1.0, 1e6),
    st.floats(0.0, 1e5),
    st.floats(0.0, 1e5),
    st.integers(0, 64),
    st.floats(0, 1e8),
)
def test_usage_is_the_same_however_often_it_is_carried_on(
    half_life_s: float, first_s: float, second_s: float, gpus: int, used: float
) -> None:
    usage = Usage(0.0, {ALICE: used}, {ALICE: gpus})
    in_steps = usage.carried_on(first_s, half_life_s).carried_on(first_s + second_s, half_life_s)
    at_once = usage.carried_on(first_s + second_s, half_life_s)
    assert in_steps.gpu_s[ALICE] == pytest.approx(at_once.gpu_s[ALICE], rel=1e-9, abs=1e-6)


def test_who_is_new_has_used_nothing_and_who_is_known_keeps_what_was_used() -> None:
    usage = Usage(0.0, {ALICE: 5.0}).knowing([job().job, job(who=CAROL).job])
    assert usage.gpu_s == {ALICE: 5.0, CAROL: 0.0}
