"""Exchanges: what a few nodes hold together, and chains of such steps over a cluster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from hetsched_core.choose import ChooseProblem, JobPieces, assign_nodes, choose
from hetsched_core.choose.exchange import exchanged
from hetsched_core.choose.filling import filled
from hetsched_core.choose.instances import random_problem
from hetsched_core.choose.offers import Offers, offers_of
from hetsched_core.choose.opening import worth
from hetsched_core.choose.prices import Priced, find_prices
from hetsched_core.kernels.exchange import MOST_NODES
from tests.hetsched_core.choose.naive import best_value, faults, small_problem

Ints = NDArray[np.int64]


def better(
    problem: ChooseProblem,
    parts: tuple[Offers, Priced],
    option: Ints,
    tried: NDArray[np.bool_] | None = None,
    enough: float = np.inf,
) -> Ints:
    if tried is None:
        tried = np.ones(len(problem.options), np.bool_)
    return exchanged(problem.classes, *parts, option, tried, enough)


def parts_of(problem: ChooseProblem) -> tuple[Offers, Priced]:
    offers = offers_of(problem)
    return offers, find_prices(problem.classes, offers, None)


def wrong_with(problem: ChooseProblem, option: Ints) -> list[str]:
    node_class = np.repeat(np.arange(len(problem.classes)), problem.classes.count)
    placed = assign_nodes(problem, option, node_class, JobPieces.none(problem.jobs))
    return list(faults(problem, option, node_class, placed))


def test_nodes_that_are_shared_out_together_get_the_best_of_all_ways_to_fill_them() -> None:
    draw = np.random.default_rng(3)
    several = 0
    for _ in range(400):
        problem = small_problem(draw)
        pieces = np.diff(problem.options.starts)
        if problem.classes.count.sum() > MOST_NODES or not 0 < pieces.max(initial=0) <= 2:
            continue
        nothing = np.full(problem.jobs, -1, np.int64)
        parts = parts_of(problem)
        found = better(problem, parts, nothing)
        assert worth(parts[0], found) == pytest.approx(best_value(problem), abs=1e-9)
        assert wrong_with(problem, found) == []
        several += int(problem.classes.count.sum() == MOST_NODES and pieces.max() == 2)
    assert several > 10


@pytest.mark.parametrize("seed", range(3))
def test_chains_of_exchanges_make_a_choice_better_that_still_fits(seed: int) -> None:
    problem = random_problem(seed, 256, 250)
    offers, priced = parts_of(problem)
    before = filled(problem.classes, offers, priced, priced.choice)
    after = better(problem, (offers, priced), before)
    missing = [priced.bound - worth(offers, option) for option in (before, after)]
    assert 0 <= missing[1] < 0.6 * missing[0]
    assert wrong_with(problem, after) == []
    assert better(problem, (offers, priced), before).tolist() == after.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_a_choice_that_is_nearly_the_best_is_not_made_worse(seed: int) -> None:
    problem = random_problem(seed, 128, 125)
    parts = parts_of(problem)
    before = choose(problem, 1e-4).option
    assert worth(parts[0], better(problem, parts, before)) >= worth(parts[0], before) * (1 - 1e-12)


def test_only_options_that_are_to_be_tried_are_new_and_enough_is_enough() -> None:
    problem = random_problem(1, 256, 250)
    offers, priced = parts_of(problem)
    before = filled(problem.classes, offers, priced, priced.choice)
    tried = np.arange(len(problem.options)) % 3 == 0
    found = better(problem, (offers, priced), before, tried)
    assert worth(offers, found) > worth(offers, before)
    new = found[(found != before) & (found >= 0)]
    assert len(new) > 0
    assert tried[new].all()
    enough = worth(offers, before)
    assert better(problem, (offers, priced), before, tried, enough).tolist() == before.tolist()


def test_nodes_with_many_gpus_are_shared_out_one_at_a_time() -> None:
    problem = random_problem(2, 256, 250)
    wide = replace(problem.classes, capacity=np.full(len(problem.classes), 64, np.int64))
    problem = replace(problem, classes=wide)
    offers, priced = parts_of(problem)
    nothing = np.full(problem.jobs, -1, np.int64)
    found = better(problem, (offers, priced), nothing)
    assert worth(offers, found) > 0
    assert wrong_with(problem, found) == []
