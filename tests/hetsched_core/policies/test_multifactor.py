"""Priorities by hand: age, size, partition, and fair share with decay."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.policies.multifactor import Ranking, Usage, Weights, fair_tree
from hetsched_core.types import Job, JobView, RequirementSet
from tests.hetsched_core.worlds import cluster_of, on, snapshot_of

DAY_S = 86_400.0
ALICE, BOB, CAROL = ("bio", "alice"), ("bio", "bob"), ("phys", "carol")


def job(
    name: str = "j",
    *,
    submit_s: float = 0.0,
    gpus: int = 1,
    who: tuple[str, str] = ALICE,
    partition: str = "",
    eligible_s: float | None = None,
) -> JobView:
    return JobView(
        Job(
            name,
            submit_s,
            RequirementSet.rigid(gpus),
            "m",
            account=who[0],
            user=who[1],
            partition=partition,
            eligible_s=eligible_s,
        ),
        observed_s=submit_s,
    )


def ranking(
    *,
    age: int = 0,
    fairshare: int = 0,
    job_size: int = 0,
    partition: int = 0,
    favor_small: bool = False,
    at_s: float = 0.0,
    shares: dict[tuple[str, str], float] | None = None,
) -> Ranking:
    return Ranking(
        Weights(age, fairshare, job_size, partition),
        max_age_s=7 * DAY_S,
        favor_small=favor_small,
        partitions={"long": 1, "short": 4},
        at_s=at_s,
        shares=shares or {},
    )


# -- factors ---------------------------------------------------------------------------------------


def test_the_priority_is_the_weighted_sum_of_the_factors() -> None:
    everything = ranking(
        age=1000, fairshare=2000, job_size=400, partition=80, at_s=3.5 * DAY_S, shares={BOB: 0.25}
    )
    view = job(gpus=8, who=BOB, partition="long")
    # Half the greatest age, a quarter of the share, 8 of 32 GPUs, 1 of at most 4.
    assert everything.priority(view, gpus=32) == 500 + 500 + 100 + 20


def test_the_age_factor_starts_when_a_job_is_eligible_and_ends_at_one() -> None:
    by_age = ranking(age=1000, at_s=14 * DAY_S)
    assert by_age.priority(job(), 8) == 1000
    assert by_age.priority(job(submit_s=10.5 * DAY_S), 8) == 500
    assert by_age.priority(job(eligible_s=10.5 * DAY_S), 8) == 500
    assert by_age.priority(job(submit_s=15 * DAY_S), 8) == 0


def test_large_jobs_go_first_or_small_ones_where_they_are_favoured() -> None:
    assert ranking(job_size=100).priority(job(gpus=4), 16) == 25
    assert ranking(job_size=100, favor_small=True).priority(job(gpus=4), 16) == 75
    assert ranking(job_size=100).priority(job(gpus=32), 16) == 100


def test_a_partition_counts_against_the_one_with_the_greatest_number() -> None:
    by_partition = ranking(partition=100)
    priorities = [by_partition.priority(job(partition=p), 8) for p in ("short", "long", "other")]
    assert priorities == [100, 25, 0]


def test_partitions_that_all_have_0_count_for_nothing() -> None:
    by_partition = replace(ranking(partition=100), partitions={"gpu": 0})
    assert by_partition.priority(job(partition="gpu"), 8) == 0


def test_who_is_unknown_has_a_whole_share() -> None:
    by_share = ranking(fairshare=100, shares={ALICE: 0.5})
    assert by_share.priority(job(), 8) == 50
    assert by_share.priority(job(who=CAROL), 8) == 100


def test_priorities_are_whole_numbers_and_ties_go_by_submission() -> None:
    snapshot = snapshot_of(cluster_of(n0=("a100", 8)), [])
    by_age = ranking(age=10, at_s=DAY_S)
    first, second = job("b", submit_s=0.0), job("a", submit_s=60.0)
    assert by_age(first, snapshot)[0] == by_age(second, snapshot)[0] == -1
    assert by_age(first, snapshot) < by_age(second, snapshot)


def test_without_weights_the_order_is_that_of_submission() -> None:
    snapshot = snapshot_of(cluster_of(n0=("a100", 8)), [])
    views = [job("c", submit_s=5.0, gpus=8), job("b", submit_s=5.0), job("a", submit_s=9.0)]
    ordered = sorted(views, key=lambda view: ranking()(view, snapshot))
    assert [view.id for view in ordered] == ["b", "c", "a"]


# -- fair share ------------------------------------------------------------------------------------


def test_users_are_ranked_by_their_accounts_first() -> None:
    # phys has used less than bio, and of bio's users bob less than alice.
    assert fair_tree({ALICE: 60.0, BOB: 40.0, CAROL: 70.0}) == {
        CAROL: 1.0,
        BOB: pytest.approx(2 / 3),
        ALICE: pytest.approx(1 / 3),
    }


def test_who_ties_shares_the_higher_rank() -> None:
    dave = ("phys", "dave")
    assert fair_tree({ALICE: 0.0, BOB: 0.0, CAROL: 50.0, dave: 10.0}) == {
        ALICE: 1.0,
        BOB: 1.0,
        dave: 0.5,
        CAROL: 0.25,
    }


def test_users_of_accounts_that_tie_are_ranked_together() -> None:
    dave = ("phys", "dave")
    assert fair_tree({ALICE: 10.0, BOB: 30.0, CAROL: 20.0, dave: 20.0}) == {
        ALICE: 1.0,  # uses half of her half of bio: 2
        CAROL: 0.75,  # uses her half of phys: 1
        dave: 0.75,
        BOB: 0.25,  # uses one and a half times his: 2/3
    }


def test_usage_halves_in_a_half_life_and_what_is_held_counts() -> None:
    used = Usage(0.0, {ALICE: 1000.0, BOB: 0.0}, {BOB: 4})
    later = used.carried_on(100.0, half_life_s=100.0)
    assert later.at_s == 100.0
    assert later.gpu_s[ALICE] == pytest.approx(500.0)
    # The integral of 4 GPUs over 100 s, each second halving by the end as often as it is old.
    assert later.gpu_s[BOB] == pytest.approx(4 * 100.0 / (2 * math.log(2)))


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


def test_with_hardly_any_decay_usage_is_gpu_seconds() -> None:
    held = Usage(0.0).knowing([job().job]).holding([(job(gpus=3).job, on(n0=3))])
    assert held.carried_on(50.0, half_life_s=1e12).gpu_s == {ALICE: pytest.approx(150.0)}


def test_who_is_new_has_used_nothing_and_who_is_known_keeps_what_was_used() -> None:
    usage = Usage(0.0, {ALICE: 5.0}).knowing([job().job, job(who=CAROL).job])
    assert usage.gpu_s == {ALICE: 5.0, CAROL: 0.0}
