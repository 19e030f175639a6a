"""Sia's programme against the worked example and enumeration, and what a round makes of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hetsched_core.optimize import Limits
from hetsched_core.placement.pools import Pools
from hetsched_core.placement.ways import ways_to_fit
from hetsched_core.policies.sia import PricedOptions, Sia, choose, options_of, restart_factor
from hetsched_core.types import JobView, Trigger
from tests.hetsched_core.policies.worlds import planned
from tests.hetsched_core.worlds import cluster_of, held, linear_speeds, on, snapshot_of, view, where

Floats = NDArray[np.float64]

EXACT = Limits(gap=0.0)
FOUR = cluster_of(a=("v100", 4))


def priced(
    uses: Sequence[Sequence[int]], gains: Sequence[float], factor: float = 1.0
) -> PricedOptions:
    return PricedOptions((factor * np.array(gains, float)) ** -0.5, np.array(uses))


# Table 1 of Hops: gains of jobs 1 to 4 under configurations 1 to 4 on nodes 0 and 1.
USE = ((1, 0), (2, 0), (0, 4), (2, 4))
TABLE_1 = [
    priced(USE[:3], (1, 1.8, 2.6)),
    priced(USE, (2, 1, 3, 4.1)),
    priced(USE[:3], (1.2, 1.6, 1)),
    priced(USE[:3], (1, 1.8, 3.2)),
]


def answers(
    jobs: Sequence[PricedOptions], capacity: Floats
) -> Iterator[tuple[float, tuple[int | None, ...]]]:
    """Every feasible choice with its objective, by enumeration."""
    for choice in itertools.product(*([None, *range(len(mine.cost))] for mine in jobs)):
        used, objective = np.zeros(len(capacity)), 0.0
        for mine, k in zip(jobs, choice, strict=True):
            used += 0 if k is None else mine.use[k]
            objective += 1.1 if k is None else mine.cost[k]
        if (used <= capacity).all():
            yield objective, choice


@pytest.mark.parametrize(
    ("idle", "choice", "objective", "second"),
    [
        ((4, 4), (1, 0, 0, 2), 2.924350697, 2.985507376),
        ((2, 4), (None, 0, 0, 2), 3.278994705, None),
    ],
)
def test_w7_table_1_of_hops_under_the_objective_of_sia(
    idle: tuple[int, int], choice: tuple[int | None, ...], objective: float, second: float | None
) -> None:
    capacity = np.array(idle, float)
    found = choose(TABLE_1, capacity, 1.1, EXACT)
    assert found.configurations == choice
    assert found.diagnostics.objective == pytest.approx(objective, abs=1e-9)
    best = sorted(objective for objective, _ in answers(TABLE_1, capacity))
    assert best[0] == pytest.approx(objective, abs=1e-9)
    assert second is None or best[1] == pytest.approx(second, abs=1e-9)


@given(data=st.data())
def test_the_choice_is_as_good_as_the_best_by_enumeration(data: st.DataObject) -> None:
    draw = data.draw
    pools = draw(st.integers(1, 3))
    jobs = []
    for _ in range(draw(st.integers(1, 3))):
        use = st.lists(st.integers(0, 4), min_size=pools, max_size=pools).filter(any)
        uses = draw(st.lists(use, min_size=1, max_size=3))
        gain = st.sampled_from((1.0, 1.5, 2.0, 6.0))
        gains = draw(st.lists(gain, min_size=len(uses), max_size=len(uses)))
        mine = priced(uses, gains, draw(st.sampled_from((1.0, 0.9, 0.3))))
        jobs += [mine] * draw(st.integers(1, 2))
    capacity = np.array(draw(st.lists(st.integers(0, 6), min_size=pools, max_size=pools)), float)
    found = choose(jobs, capacity, 1.1, EXACT)
    objectives = {choice: objective for objective, choice in answers(jobs, capacity)}
    best = min(objectives.values())
    assert found.diagnostics.objective == pytest.approx(best, abs=1e-9)
    assert objectives[found.configurations] == pytest.approx(best, abs=1e-9)


def test_gains_are_relative_to_the_least_and_start_at_the_fewest_gpus() -> None:
    cluster = cluster_of(a=("v100", 4), b=("k80", 2), c=("k80", 2))
    speeds = linear_speeds(cluster, {"m": {"v100": 3.0, "k80": 1.0}}, several_nodes=0.5)
    snapshot = snapshot_of(cluster, [], speeds=speeds)
    job = view("j", counts=(2, 4)).job
    ways = ways_to_fit(job, cluster, speeds, snapshot.shapes)
    options = options_of(snapshot, job, ways, Pools.of(snapshot, {}, [job]))
    by_use = dict(zip(map(tuple, options.use.tolist()), options.gain.tolist(), strict=True))
    # Samples/s: V100 6 and 12; K80 2 on one node, 4 GPUs on two nodes at half speed 2.
    assert by_use == {(2, 0): 6.0, (4, 0): 12.0, (0, 2): 2.0, (0, 4): 2.0}


PLACED = view("j", held(on(a=1), begun=False))


@pytest.mark.parametrize(
    ("job", "first_start_s", "restarts", "cost_s", "factor"),
    [
        (view("never ran"), None, 0, 30.0, 1.0),
        (view("first run"), 0.0, 0, 30.0, 970 / 1000),
        (view("three restarts"), 0.0, 3, 30.0, (970 - 90) / 1000),
        (view("restarts more than it runs"), 960.0, 1, 30.0, 0.0),
        (view("starts now and restarts at no cost"), 970.0, 0, 0.0, 1.0),
        # What is placed is not moved as if it only waited.
        (PLACED, None, 0, 30.0, 0.0),
    ],
)
def test_the_restart_factor_is_the_share_of_time_that_is_not_lost_to_one_more_restart(
    job: JobView, first_start_s: float | None, restarts: int, cost_s: float, factor: float
) -> None:
    job = replace(job, first_start_s=first_start_s, restarts=restarts, restart_cost_s=cost_s)
    assert restart_factor(job, 970.0) == pytest.approx(factor)


def test_elastic_jobs_grow_when_there_is_room_and_shrink_when_others_come() -> None:
    one = view("one", counts=(1, 2, 4))
    assert where(planned(Sia(), FOUR, one)) == {"one": "a:4"}
    more = [one, *(view(f"x{n}", counts=(1, 2, 4), submit_s=1.0) for n in range(3))]
    # Two jobs on two GPUs each: 2 x 2^-0.5 + 2 x 1.1 = 3.61; four jobs on one each: 4.
    assert where(planned(Sia(), FOUR, *more)) == {"one": "a:2", "x0": "a:2"}
    # With a higher price on leaving jobs out, nobody is: 1.414 + 2 x 1.4 = 4.21.
    shared = where(planned(Sia(leave_out=1.4), FOUR, *more))
    assert shared == dict.fromkeys(("one", "x0", "x1", "x2"), "a:1")


@pytest.mark.parametrize(
    ("now", "v100", "place"),
    [
        # r = 50 / 150: a GPU three times as fast is not worth it, one four times as fast is:
        # (4/3)^-0.5 + 0.01 = 0.876 < 1. After 10,000 s r = 0.99, and 1.05^-0.5 / 0.995 + 0.01 < 1.
        (50.0, 3.0, "k:1"),
        (50.0, 4.0, "v:1"),
        (10_000.0, 1.02, "k:1"),
        (10_000.0, 1.05, "v:1"),
    ],
)
def test_a_running_job_is_moved_only_where_the_gain_outweighs_a_restart(
    now: float, v100: float, place: str
) -> None:
    cluster = cluster_of(v=("v100", 1), k=("k80", 1))
    runs = replace(view("j", held(on(k=1))), first_start_s=0.0, restart_cost_s=100.0)
    speeds = linear_speeds(cluster, {"m": {"v100": v100, "k80": 1.0}})
    assert where(planned(Sia(), cluster, runs, now=now, speeds=speeds)) == {"j": place}


def test_jobs_of_equal_claim_are_served_by_submission() -> None:
    views = [view(name, submit_s=float(at)) for at, name in enumerate("cba")]
    assert set(where(planned(Sia(), cluster_of(a=("v100", 2)), *views))) == {"c", "b"}
    elastic = [view(name, counts=(1, 2), submit_s=float(at)) for at, name in enumerate("zy")]
    three = cluster_of(a=("v100", 2), b=("v100", 1))
    assert where(planned(Sia(), three, *elastic)) == {"z": "a:2", "y": "b:1"}


def test_who_finds_no_node_for_its_choice_takes_other_room_that_is_left() -> None:
    # 2 + 2 GPUs are left, but no node has 4 beside the job that may not be moved.
    cluster = cluster_of(a=("v100", 4), b=("v100", 4))
    speeds = linear_speeds(cluster, {"m": {"v100": 1.0}}, several_nodes=0.0)
    jobs = [view(f"on-{n}", held(on(**{n: 2})), counts=(2,), preemptible=False) for n in "ab"]
    jobs.append(view("j", counts=(1, 2, 4)))
    assert where(planned(Sia(), cluster, *jobs, speeds=speeds))["j"] == "a:2"


def test_diagnostics_say_how_good_the_choice_is_proven_to_be() -> None:
    plan = planned(Sia(gap=0.0), FOUR, view("one"), view("two", counts=(4,)))
    # Either: 1 + 1.1 with the job of one GPU, 4^-0.5 + 1.1 with that of four.
    assert where(plan) == {"two": "a:4"}
    assert plan.diagnostics.objective == pytest.approx(1.6)
    assert plan.diagnostics.bound == pytest.approx(1.6)
    assert plan.diagnostics.gap == pytest.approx(0.0)
    assert plan.replan.on == {Trigger.ROUND, Trigger.NODE}
