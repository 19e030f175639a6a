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

from hetsched_core.optimize import Limits, Solution, SolverStatus
from hetsched_core.placement.pools import Pools
from hetsched_core.placement.ways import ways_to_fit
from hetsched_core.policies.sia import PricedOptions, Sia, choose, options_of, restart_factor
from hetsched_core.types import JobView
from tests.hetsched_core.policies.worlds import planned
from tests.hetsched_core.worlds import cluster_of, held, linear_speeds, on, snapshot_of, view, where

Floats = NDArray[np.float64]

EXACT = Limits(gap=0.0)


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
    found, told = choose(TABLE_1, capacity, 1.1, EXACT)
    assert tuple(found) == choice
    assert told.objective == pytest.approx(objective, abs=1e-9)
    best = sorted(objective for objective, _ in answers(TABLE_1, capacity))
    assert best[0] == pytest.approx(objective, abs=1e-9)
    assert second is None or best[1] == pytest.approx(second, abs=1e-9)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[PricedOptions], Floats]:
    """A few jobs, some of which have one of their configurations, and the GPUs of each pool."""
    pools = draw(st.integers(1, 3))
    jobs: list[PricedOptions] = []
    for _ in range(draw(st.integers(1, 3))):
        use = st.lists(st.integers(0, 4), min_size=pools, max_size=pools).filter(any)
        uses = draw(st.lists(use, min_size=1, max_size=3))
        gain = st.sampled_from((1.0, 1.5, 2.0, 6.0))
        gains = draw(st.lists(gain, min_size=len(uses), max_size=len(uses)))
        mine = priced(uses, gains, draw(st.sampled_from((1.0, 0.9, 0.3))))
        for _ in range(draw(st.integers(1, 2))):
            stays = draw(st.one_of(st.none(), st.integers(0, len(uses) - 1)))
            cost = mine.cost - 0.01 * (np.arange(len(uses)) == stays)
            jobs.append(PricedOptions(cost, mine.use, stays))
    capacity = np.array(draw(st.lists(st.integers(0, 6), min_size=pools, max_size=pools)), float)
    return jobs, capacity


@given(problems())
def test_the_choice_is_as_good_as_the_best_by_enumeration(
    problem: tuple[list[PricedOptions], Floats],
) -> None:
    jobs, capacity = problem
    found, told = choose(jobs, capacity, 1.1, EXACT)
    objectives = {choice: objective for objective, choice in answers(jobs, capacity)}
    best = min(objectives.values())
    assert told.objective == pytest.approx(best, abs=1e-9)
    assert objectives[tuple(found)] == pytest.approx(best, abs=1e-9)


@given(problems())
def test_where_the_solver_finds_nothing_what_runs_stays_and_others_come_in_turn(
    problem: tuple[list[PricedOptions], Floats],
) -> None:
    jobs, capacity = problem
    with pytest.MonkeyPatch.context() as patch:
        nothing = Solution(status=SolverStatus.NOT_FOUND, bound=-9.0, limits=("work",))
        patch.setattr("hetsched_core.policies.sia.solve", lambda *_, **__: nothing)
        found, told = choose(jobs, capacity, 1.1, EXACT)
    objectives = {choice: objective for objective, choice in answers(jobs, capacity)}
    assert told.objective is None or objectives[tuple(found)] == pytest.approx(told.objective)
    running = [at for at, mine in enumerate(jobs) if mine.stays is not None]
    together = sum((jobs[at].use[jobs[at].stays] for at in running), np.zeros(len(capacity)))
    if (together <= capacity).all():
        # None of those is stopped that is worth its GPUs.
        assert all(found[at] is not None for at in running if jobs[at].cost[jobs[at].stays] < 1.1)


def test_a_plan_whose_work_is_used_up_is_valid_and_the_same_again() -> None:
    cluster = cluster_of(a=("v100", 4), b=("k80", 4))
    speeds = linear_speeds(cluster, {"m": {"v100": 3.0, "k80": 1.0}}, several_nodes=0.5)
    jobs = [view(f"on-{n}", held(on(**{n: 2})), counts=(1, 2, 4)) for n in "ab"]
    jobs += [view(f"j{n}", counts=(1, 2, 3), submit_s=float(n)) for n in range(5)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hetsched_core.policies.sia.MOST_WORK", 1)
        plans = [planned(Sia(), cluster, *jobs, speeds=speeds) for _ in range(2)]
    assert plans[0].entries == plans[1].entries
    assert plans[0].diagnostics.limits == ("work",)
    assert {"on-a", "on-b"} <= where(plans[0]).keys()


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


def test_who_finds_no_node_for_its_choice_takes_other_room_that_is_left() -> None:
    # 2 + 2 GPUs are left, but no node has 4 beside the job that may not be moved.
    cluster = cluster_of(a=("v100", 4), b=("v100", 4))
    speeds = linear_speeds(cluster, {"m": {"v100": 1.0}}, several_nodes=0.0)
    jobs = [view(f"on-{n}", held(on(**{n: 2})), counts=(2,), preemptible=False) for n in "ab"]
    jobs.append(view("j", counts=(1, 2, 4)))
    assert where(planned(Sia(), cluster, *jobs, speeds=speeds))["j"] == "a:2"
