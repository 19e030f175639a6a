"""The kernels of Hadar against their naive twins, and what prices must be like."""

from __future__ import annotations

from dataclasses import fields
from random import Random

import numpy as np
import pytest

from hetsched_core.kernels.payoff import Market, unit_price
from hetsched_core.policies.hadar.queue import Nodes, QueueOutcome, SearchLimits, plan_queue
from tests.hetsched_core.kernels.naive_payoff import (
    best_vector,
    find,
    naive_nodes,
    serve_naively,
    value,
)
from tests.hetsched_core.policies.hadar.markets import market_of, nodes_of, random_market


def price_of(lowest: float, highest: float, capacity: int) -> list[float]:
    return [unit_price(lowest, highest, used, capacity) for used in range(capacity + 1)]


def test_h1_prices() -> None:
    assert price_of(1.0, 16.0, 4) == pytest.approx([1, 2, 4, 8, 16], abs=1e-9)
    assert price_of(0.5, 10.0, 2) == pytest.approx([0.5, 2.2360679775, 10.0], abs=1e-9)


@pytest.mark.parametrize(
    ("highest", "payoff", "taken"), [(10.0, 0.7639320225, True), (30.0, -0.8729833462, False)]
)
def test_h1_a_job_is_taken_where_its_utility_is_above_the_price(
    highest: float, payoff: float, taken: bool
) -> None:
    market = market_of([1], [[3.0]], lowest=[0.5], highest=[highest])
    outcome = plan_queue(nodes_of([0], [2], [1]), market, [0])
    assert (0 in outcome.placed) is taken
    found = outcome.payoff if taken else outcome.left[0]
    assert found == pytest.approx(payoff, abs=1e-9)


def replay(nodes: Nodes, market: Market, queue: list[int], outcome: QueueOutcome) -> float:
    """Hold everybody against the naive best at its turn; return the payoffs of those chosen."""
    now, total = naive_nodes(nodes), 0.0
    rest = [job for job in queue if job not in outcome.chosen]
    for job in (*outcome.chosen, *rest):
        best = find(now, market, job)
        if job not in outcome.placed:
            expected = -np.inf if best is None else best.payoff
            assert outcome.left[job] == pytest.approx(expected, rel=1e-9, abs=1e-9)
            assert expected <= 0
            continue
        pieces = outcome.placed[job]
        mine = value(now, market, job, pieces)
        assert best is not None
        assert sum(gpus for _, gpus in pieces) == market.demand[job, 0]
        assert len({node for node, _ in pieces}) == len(pieces)
        assert mine.payoff == pytest.approx(best.payoff, rel=1e-9, abs=1e-9)
        assert mine.payoff > 0
        for at, gpus in pieces:
            assert gpus <= now[at].usable(market, job)
            now[at] = now[at].loaded(market, job, gpus)
        total += mine.payoff if job in outcome.chosen else 0.0
    return total


@pytest.mark.parametrize("options", [{}, {"mixed": False}, {"mixed": False, "even": True}])
@pytest.mark.parametrize(
    "limits", [SearchLimits(), SearchLimits(states=1, beam=1), SearchLimits(states=1, beam=4)]
)
def test_every_job_gets_the_placement_that_pays_it_most_when_its_turn_comes(
    options: dict[str, bool], limits: SearchLimits
) -> None:
    methods = set()
    for seed in range(150):
        rng = Random(seed)
        nodes, market = random_market(rng, rng.randint(1, 12), rng.randint(1, 7), **options)
        queue = rng.sample(range(len(market.demand)), len(market.demand))
        outcome = plan_queue(nodes, market, queue, limits)
        assert replay(nodes, market, queue, outcome) == pytest.approx(outcome.payoff)
        methods.add(outcome.method)
        apart = plan_queue(nodes, market, queue, limits, apart=True)
        assert replay(nodes, market, queue, apart) == pytest.approx(apart.payoff)
    assert ("lazy greedy" in methods) is (limits.states == 1)


def test_the_dynamic_programme_equals_the_enumeration_of_all_vectors_of_take_and_leave() -> None:
    gained = 0
    for seed in range(400):
        rng = Random(seed)
        nodes, market = random_market(rng, rng.randint(1, 6), rng.randint(1, 4))
        market.needs[:, :2] = 0.0
        queue = rng.sample(range(len(market.demand)), len(market.demand))
        outcome = plan_queue(nodes, market, queue)
        assert outcome.exact
        assert outcome.method == "dynamic programme"
        naive = naive_nodes(nodes)
        payoff, cost = best_vector(naive, market, queue)
        assert outcome.payoff == pytest.approx(payoff, abs=1e-9)
        costs = 0.0
        for job in outcome.chosen:
            pieces = outcome.placed[job]
            costs += value(naive, market, job, pieces).cost
            for at, gpus in pieces:
                naive[at] = naive[at].loaded(market, job, gpus)
        assert costs == pytest.approx(cost, abs=1e-9)
        in_turn = serve_naively(naive_nodes(nodes), market, queue)
        gained += payoff > sum(p.payoff for p in in_turn if p and p.payoff > 0) + 1e-9
    # To leave somebody pays often enough for the programme to matter.
    assert gained > 40


def test_the_dynamic_programme_counts_what_each_job_needs_beside_gpus() -> None:
    bound = 0
    for seed in range(200):
        rng = Random(seed)
        nodes, market = random_market(rng, rng.randint(2, 6), 8)
        # A node of each sort: none is like another, whatever is left of it.
        first = [nodes.sort.tolist().index(sort) for sort in sorted(set(nodes.sort.tolist()))]
        nodes = Nodes(*(getattr(nodes, f.name)[first] for f in fields(Nodes)))
        market.needs[:, 0] = [rng.choice((0.0, 1.0, 2.0)) for _ in market.demand]
        market.needs[:, 1] = [rng.choice((0.0, 5.0, 9.0)) for _ in market.demand]
        queue = rng.sample(range(len(market.demand)), len(market.demand))
        outcome = plan_queue(nodes, market, queue)
        assert outcome.exact
        payoff, _ = best_vector(naive_nodes(nodes), market, queue)
        assert outcome.payoff == pytest.approx(payoff, abs=1e-9)
        market.needs[:, :2] = 0.0
        bound += plan_queue(nodes, market, queue).payoff > payoff + 1e-9
    assert bound > 40


def test_the_greedy_serves_whoever_has_most_payoff_per_gpu_each_time() -> None:
    seen = 0
    for seed in range(300):
        rng = Random(seed)
        nodes, market = random_market(rng, 10, rng.randint(2, 4))
        market.needs[:, :2] = 0.0
        outcome = plan_queue(nodes, market, range(10), SearchLimits(states=1, beam=1))
        if outcome.method != "lazy greedy":
            continue
        seen += 1
        now, rest = naive_nodes(nodes), set(range(10))
        for job, pieces in outcome.placed.items():
            found = {j: find(now, market, j) for j in rest}
            rest.remove(job)
            density = {j: p.payoff / market.demand[j, 0] for j, p in found.items() if p}
            assert density[job] == pytest.approx(max(density.values()))
            for at, gpus in pieces:
                now[at] = now[at].loaded(market, job, gpus)
    assert seen > 50
