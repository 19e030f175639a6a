"""Exchanges: what a few nodes hold together, and chains of such steps over a cluster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from hetsched_core.choose import ChooseProblem
from hetsched_core.choose.offers import SWEEPS, Offers, improve_by_exchange, offers_of, serve_idle
from hetsched_core.choose.prices import PriceLoopResult, find_prices
from hetsched_core.kernels.exchange import MOST_NODES
from tests.hetsched_core.choose.instances import random_problem
from tests.hetsched_core.choose.naive import (
    Pieces,
    best_value,
    placement_faults,
    problem_of,
    small_problem,
)

Ints = NDArray[np.int64]


def parts_of(problem: ChooseProblem) -> tuple[Offers, PriceLoopResult]:
    offers = offers_of(problem)
    return offers, find_prices(offers)


def better(
    parts: tuple[Offers, PriceLoopResult],
    option: Ints,
    tried: NDArray[np.bool_] | None = None,
    enough: float = np.inf,
) -> Ints:
    offers, priced = parts
    if tried is None:
        tried = np.ones(len(offers.value), np.bool_)
    return improve_by_exchange(offers, priced.slot, priced.best, option, tried, enough)


def in_turn(parts: tuple[Offers, PriceLoopResult]) -> Ints:
    """What jobs take at the prices, one after another."""
    offers, priced = parts
    order = offers.widest_first(priced.choice, priced.best)
    return serve_idle(offers, order, priced.choice, offers.cost(priced.slot), SWEEPS)


def test_nodes_that_are_shared_out_together_get_the_best_of_all_ways_to_fill_them() -> None:
    draw = np.random.default_rng(3)
    several = 0
    for _ in range(400):
        problem = small_problem(draw)
        pieces = problem.options.nodes
        if problem.classes.count.sum() > MOST_NODES or not 0 < pieces.max(initial=0) <= 2:
            continue
        nothing = np.full(problem.jobs, -1, np.int64)
        parts = parts_of(problem)
        found = better(parts, nothing)
        assert parts[0].worth(found) == pytest.approx(best_value(problem), abs=1e-9)
        assert placement_faults(problem, found) == []
        several += int(problem.classes.count.sum() == MOST_NODES and pieces.max() == 2)
    assert several > 10


@pytest.mark.parametrize("seed", range(3))
def test_chains_of_exchanges_make_a_choice_better_that_still_fits(seed: int) -> None:
    problem = random_problem(seed, 256, 250)
    parts = offers, priced = parts_of(problem)
    before = in_turn(parts)
    after = better(parts, before)
    missing = [priced.bound - offers.worth(option) for option in (before, after)]
    assert 0 <= missing[1] < 0.6 * missing[0]
    assert placement_faults(problem, after) == []
    assert better(parts, before).tolist() == after.tolist()


def test_only_options_that_are_to_be_tried_are_new_and_enough_is_enough() -> None:
    problem = random_problem(1, 256, 250)
    parts = offers, _ = parts_of(problem)
    before = in_turn(parts)
    tried = np.arange(len(problem.options)) % 3 == 0
    found = better(parts, before, tried)
    assert offers.worth(found) > offers.worth(before)
    new = found[(found != before) & (found >= 0)]
    assert len(new) > 0
    assert tried[new].all()
    enough = offers.worth(before)
    assert better(parts, before, tried, enough).tolist() == before.tolist()


def test_nodes_with_many_gpus_are_shared_out_one_at_a_time() -> None:
    problem = random_problem(2, 256, 250)
    wide = replace(problem.classes, capacity=np.full(len(problem.classes), 64, np.int64))
    problem = replace(problem, classes=wide)
    parts = parts_of(problem)
    nothing = np.full(problem.jobs, -1, np.int64)
    found = better(parts, nothing)
    assert parts[0].worth(found) > 0
    assert placement_faults(problem, found) == []


def test_jobs_on_many_nodes_are_taken_off_all_of_them_and_put_on_none() -> None:
    # Nodes of two GPUs, so that jobs of up to 16 are on up to eight.
    draw = np.random.default_rng(4)
    jobs: list[list[tuple[float, Pieces]]] = []
    for _ in range(40):
        value, nodes = float(draw.exponential()), int(draw.integers(1, 9))
        jobs.append([(value * nodes**0.5, [(0, 2)] * nodes), (value / 2, [(0, 1)])])
    problem = problem_of([(2, 30)], jobs)
    parts = offers, priced = parts_of(problem)
    first = offers.starts[:-1]
    # The job that is worth the least holds nodes.
    order = np.argsort(offers.value[first])
    before = serve_idle(offers, order, first, offers.free_of_charge, 0)
    after = better(parts, before)
    # Of what they leave others make use.
    assert offers.worth(before) < 0.1 * priced.bound < 0.5 * priced.bound < offers.worth(after)
    assert placement_faults(problem, after) == []
    was, goes = (np.append(offers.wide[offers.bundle], 0)[each] for each in (before, after))
    assert ((was > 2) & (goes < was)).any()
    assert (goes[goes > 2] == was[goes > 2]).all()
