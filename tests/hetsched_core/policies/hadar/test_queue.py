"""Hadar's queue: worked examples, and how near its admission comes to the optimum."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from hetsched_core.kernels.payoff import Market
from hetsched_core.policies.hadar.prices import Bounds, PricedJobs, price_bounds
from hetsched_core.policies.hadar.queue import SearchLimits, plan_queue
from tests.hetsched_core.kernels.naive_payoff import naive_nodes, serve_naively
from tests.hetsched_core.policies.hadar.markets import market_of, nodes_of

Floats = NDArray[np.float64]

H3_NODES = nodes_of([0, 1], [2, 2])
H3 = market_of(
    [2, 2, 1], [[20.0, 4.0], [12.0, 6.0], [3.0, 2.0]], lowest=[0.5] * 2, highest=[10.0] * 2
)


def test_h3_two_jobs_that_pay_most_are_taken_and_the_third_waits() -> None:
    outcome = plan_queue(H3_NODES, H3, [0, 1, 2])
    assert outcome.chosen == (0, 1)
    assert outcome.placed == {0: ((0, 2),), 1: ((1, 2),)}
    assert outcome.payoff == pytest.approx(24.0, abs=1e-9)
    assert outcome.left == {2: -np.inf}
    assert outcome.exact


def test_h3_in_the_other_order_only_one_is_taken_since_each_takes_its_own_best() -> None:
    outcome = plan_queue(H3_NODES, H3, [2, 1, 0])
    assert outcome.chosen == (0,)
    assert outcome.payoff == pytest.approx(19.0, abs=1e-9)
    # The third job is first in the queue again, and then leaves no room for the second.
    assert outcome.placed == {0: ((0, 2),), 2: ((1, 1),)}
    assert outcome.left == {1: -np.inf}


def one_slot(utility: Floats, cluster_gpus: int) -> tuple[Market, float]:
    """The market of jobs of one GPU that run for one slot of 1 s, and 2 alpha."""
    one = np.ones(len(utility))
    jobs = PricedJobs(one, one, np.ones_like(utility))
    best = jobs.shortest_s

    def worth(_: PricedJobs, seconds: Floats) -> Floats:
        # At best for U_max, at worst for U_min.
        of_job: Floats = utility.max(axis=1) if seconds is best else utility.min(axis=1)
        return of_job

    least = price_bounds(jobs, worth, gpus=cluster_gpus, horizon_s=1.0, until_horizon_s=one)
    highest = np.maximum(utility.max(axis=0), least.lowest)
    market = market_of(
        [1] * len(utility),
        utility.tolist(),
        lowest=least.lowest.tolist(),
        highest=highest.tolist(),
    )
    return market, 2 * Bounds(least.lowest, highest, least.eta).alpha


def test_h4_one_small_node_breaks_the_bound() -> None:
    market, twice_alpha = one_slot(np.array([[1.0], [100.0]]), 1)
    assert twice_alpha == pytest.approx(11.98, abs=5e-3)
    # One after another, irrevocably: the first is taken, and the second finds no room.
    assert plan_queue(nodes_of([0], [1]), market, [0]).placed == {0: ((0, 1),)}
    assert plan_queue(nodes_of([0], [1], [1]), market, [1]).placed == {}
    assert twice_alpha < 100.0 / 1.0


def test_the_bound_holds_for_small_jobs_on_large_nodes() -> None:
    worst = 0.0
    for seed in range(500):
        rng = Random(seed)
        types, jobs = rng.randint(1, 3), rng.randint(2, 24)
        size = [rng.randint(4, 8) for _ in range(types)]
        sort = [rng.randrange(types) for _ in range(rng.randint(1, 3))]
        utility = np.array(
            [[10 ** rng.uniform(-1.5, 1.5) for _ in range(types)] for _ in range(jobs)]
        )
        columns = utility[:, np.repeat(sort, [size[s] for s in sort])]
        market, twice_alpha = one_slot(utility, columns.shape[1])
        now = naive_nodes(nodes_of(sort, [size[s] for s in sort]))
        served = serve_naively(now, market, range(jobs))
        got = sum(each.payoff + each.cost for each in served if each and each.payoff > 0)
        optimum = float(columns[linear_sum_assignment(columns, maximize=True)].sum())
        assert 0 < optimum <= twice_alpha * got
        worst = max(worst, optimum / got)
    assert worst > 1.2


@pytest.mark.parametrize("queue", [[0, 1], [1, 0]])
def test_of_equal_sums_of_payoffs_the_cheaper_is_taken(queue: list[int]) -> None:
    # Either pays 4, and there is no room for both: two GPUs for 6, or one for 5.
    market = market_of([2, 1], [[6.0], [5.0]], lowest=[1.0], highest=[1.0])
    outcome = plan_queue(nodes_of([0], [2]), market, queue)
    assert outcome.chosen == (1,)
    assert outcome.payoff == 4.0


def test_states_with_as_much_left_are_one_however_they_came_about() -> None:
    # One or two GPUs each, in turn, on a node of 8: nine states whatever the path.
    market = market_of([1, 2] * 5, [[5.0 + n] for n in range(10)], lowest=[1e-3], highest=[1e-3])
    assert plan_queue(nodes_of([0], [8]), market, range(10), SearchLimits(states=1, beam=9)).exact
    assert not plan_queue(
        nodes_of([0], [8]), market, range(10), SearchLimits(states=1, beam=8)
    ).exact


def staying(market: Market, stays: list[tuple[int, int, int, float]]) -> Market:
    """Let jobs keep what they have: (job, node, GPUs, utility), a piece for each job."""
    demand, worth = market.demand.copy(), market.stay_utility.copy()
    for at, (job, _, _, utility) in enumerate(stays):
        demand[job, 1:3], worth[job] = (at, at + 1), utility
    pieces = np.array([(node, gpus) for _, node, gpus, _ in stays], np.int64)
    return market._replace(demand=demand, stay_utility=worth, stays=pieces)


def test_who_stays_pays_for_all_of_its_gpus() -> None:
    # 10 less 2 x 3 where it is, 7 less 2 x 1 elsewhere.
    market = market_of([2], [[9.0, 7.0]], lowest=[3.0, 1.0], highest=[3.0, 1.0])
    market = staying(market, [(0, 0, 2, 10.0)])
    outcome = plan_queue(nodes_of([0, 1], [2, 2]), market, [0], apart=True)
    assert outcome.placed == {0: ((1, 2),)}
    assert outcome.payoff == pytest.approx(5.0)


def test_who_is_alike_is_one_class_and_takes_the_first_node() -> None:
    market = market_of([2] * 3, [[5.0]] * 3, lowest=[1e-3], highest=[1.0])
    outcome = plan_queue(nodes_of([0] * 4, [4] * 4), market, range(3))
    # The emptiest node is the cheapest, so they spread.
    assert outcome.placed == {0: ((0, 2),), 1: ((1, 2),), 2: ((2, 2),)}
    assert outcome.prices.keys() == {(0, 4, 0), (0, 4, 2)}


def test_of_equal_payoffs_the_cheaper_placement_is_taken() -> None:
    # 10 less 2 x 2 on one node, 8 less 2 x 1 on two of another type.
    market = market_of([2], [[10.0, 8.0]], lowest=[2.0, 1.0], highest=[2.0, 1.0], extra=0.0)
    assert plan_queue(nodes_of([0, 1, 1], [2, 1, 1]), market, [0]).placed == {0: ((1, 1), (2, 1))}


def test_nobody_stays_where_another_has_been_placed() -> None:
    market = market_of([2, 2], [[9.0, 1.0], [5.0, 4.0]], lowest=[0.1] * 2, highest=[0.1] * 2)
    market = staying(market, [(1, 0, 2, 6.0)])
    outcome = plan_queue(nodes_of([0, 1], [2, 2]), market, [0, 1], apart=True)
    assert outcome.placed == {0: ((0, 2),), 1: ((1, 2),)}


@pytest.mark.parametrize(
    ("jobs", "width"), [(0, 1), (1, 2), (3, 8), (8, 256), (16, 256), (100, 40), (2048, 8)]
)
def test_states_are_shared_out_over_the_queue(jobs: int, width: int) -> None:
    assert SearchLimits().width(jobs) == width
