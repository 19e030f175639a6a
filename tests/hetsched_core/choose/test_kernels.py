"""The loops compute what their naive twins compute."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from hetsched_core.choose.offers import HeldNodes, offers_of
from hetsched_core.kernels.fill import fill
from hetsched_core.kernels.prices import (
    Choosers,
    best_offers,
    least_soft_bound,
    number_bundles,
    soft_bound,
)
from tests.hetsched_core.choose.instances import random_problem
from tests.hetsched_core.choose.naive import Floats, bound_at, fill_in_turn, pieces_of, soft_surplus

SEEDS = range(5)
_NONE, _NO_VALUES, _AT = np.zeros(0, np.int64), np.zeros(0), np.zeros(1, np.int64)
NO_CHOOSERS = Choosers(_AT, _NO_VALUES, _NO_VALUES, _NONE, _AT, _NONE, _NO_VALUES)


@pytest.mark.parametrize("seed", SEEDS)
def test_bundles_are_numbered_by_their_pieces(seed: int) -> None:
    draw = np.random.default_rng(seed)
    sizes = draw.integers(1, 4, 3000)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    # Enough kinds that the table of prefixes has to grow.
    slot = draw.integers(0, 30, starts[-1])
    bundle, first = np.empty(len(sizes), np.int64), np.empty(len(sizes), np.int64)
    found = np.empty(1, np.int64)
    number_bundles(starts, slot, 30, bundle, first, found)
    known: dict[tuple[int, ...], int] = {}
    expected = [
        known.setdefault(tuple(slot[starts[q] : starts[q + 1]].tolist()), len(known))
        for q in range(len(sizes))
    ]
    assert bundle.tolist() == expected
    assert found[0] == len(known) > 600
    assert first[: found[0]].tolist() == [expected.index(b) for b in range(len(known))]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_bound_is_that_of_every_job_and_every_cut(seed: int) -> None:
    problem = random_problem(seed, 80, 30)
    offers, draw = offers_of(problem), np.random.default_rng(seed)
    slot = draw.uniform(0, 4, len(offers.slot_gpus)) * offers.slot_gpus
    best, second = np.empty(problem.jobs), np.empty(problem.jobs)
    choice = np.empty(problem.jobs, np.int64)
    cost = offers.cost(slot)
    best_offers(offers.starts, offers.value, offers.bundle, cost, best, second, choice)
    worth = offers.idle_worth(slot)
    names = zip(offers.slot_class.tolist(), offers.slot_gpus.tolist(), strict=True)
    price = dict(zip(names, slot.tolist(), strict=True))
    total = best.sum() + worth[:, -1] @ problem.classes.count
    assert total == pytest.approx(bound_at(problem, price))
    for j in range(problem.jobs):
        mine = range(offers.starts[j], offers.starts[j + 1])
        profits = {q: problem.options.value[q] - cost[offers.bundle[q]] for q in mine}
        ranked = sorted([0.0, *profits.values()], reverse=True)
        if choice[j] >= 0:
            assert [best[j], second[j]] == pytest.approx(ranked[:2])
            assert profits[int(choice[j])] == pytest.approx(best[j])
        else:
            assert best[j] == 0.0 >= max(profits.values()) == pytest.approx(second[j])


@pytest.mark.parametrize("softness", [3.0, 1.0, 0.3])
def test_soft_surplus_and_its_derivatives(softness: float) -> None:
    problem = random_problem(0, 80, 12)
    offers = offers_of(problem)
    x = np.random.default_rng(1).uniform(1, 3, len(offers.slot_gpus)) * offers.slot_gpus
    weight = np.arange(1.0, problem.jobs + 1)
    jobs = Choosers(
        offers.starts,
        weight,
        offers.value,
        offers.bundle,
        offers.bundle_starts,
        offers.bundle_slots,
        offers.bundle_nodes.astype(np.float64),
    )

    def run(at: Floats) -> tuple[float, Floats, Floats]:
        bound, gradient = np.empty(1), np.empty(len(at))
        hessian = np.empty((len(at), len(at)))
        soft_bound(jobs, NO_CHOOSERS, at, softness, bound, gradient, hessian)
        return float(bound[0]), gradient, hessian

    surplus, gradient, hessian = run(x)
    cost = offers.cost(x)
    expected = 0.0
    for j in range(problem.jobs):
        mine = range(offers.starts[j], offers.starts[j + 1])
        each = [(float(offers.value[q]), float(cost[offers.bundle[q]])) for q in mine]
        expected += float(weight[j]) * soft_surplus(each, softness)
    assert surplus == pytest.approx(expected, rel=1e-12)
    step = 1e-3 * softness
    for v in range(len(x)):
        shift = np.where(np.arange(len(x)) == v, step, 0.0)
        more, less = run(x + shift), run(x - shift)
        assert gradient[v] == pytest.approx((more[0] - less[0]) / (2 * step), abs=1e-4)
        curve = (more[1] - less[1]) / (2 * step)
        np.testing.assert_allclose(hessian[v] * softness, curve * softness, atol=1e-4)


@pytest.mark.parametrize("softness", [1.0, 0.1])
@pytest.mark.parametrize("seed", SEEDS)
def test_newton_ends_at_the_least_soft_bound(seed: int, softness: float) -> None:
    problem = random_problem(seed, 80, 12)
    offers, classes = offers_of(problem), problem.classes
    jobs = Choosers(
        offers.starts,
        np.ones(problem.jobs),
        offers.value,
        offers.bundle,
        offers.bundle_starts,
        offers.slot_class[offers.bundle_slots],
        (offers.slot_gpus[offers.bundle_slots] * offers.bundle_nodes).astype(np.float64),
    )
    every = np.arange(len(classes) + 1)
    count, capacity = classes.count.astype(np.float64), classes.capacity.astype(np.float64)
    nodes = Choosers(every, count, np.zeros(len(classes)), every[:-1], every, every[:-1], -capacity)

    def bound(at: Floats) -> float:
        found, gradient = np.empty(1), np.empty(len(at))
        soft_bound(jobs, nodes, at, softness, found, gradient, np.empty((len(at), len(at))))
        return float(found[0])

    x = np.ones(len(classes))
    least = minimize(bound, x, method="Powell", options={"xtol": 1e-8, "ftol": 1e-12}).fun
    # From far away it takes few steps: the softness falls on the way.
    for step in (1.0, 0.3, 0.1):
        least_soft_bound(jobs, nodes, max(step, softness), x)
    assert bound(x) <= least * (1 + 1e-5)


@pytest.mark.parametrize("sweeps", [0, 1, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_jobs_fill_nodes_in_turn(seed: int, sweeps: int) -> None:
    draw = np.random.default_rng(seed)
    problem = random_problem(seed, 120, 60)
    offers = offers_of(problem)
    order = draw.permutation(problem.jobs)
    some = [
        int(draw.integers(a, b)) if draw.random() < 0.7 else -1
        for a, b in zip(offers.starts[:-1], offers.starts[1:], strict=True)
    ]
    cost = draw.uniform(0, 30, len(offers.bundle_starts) - 1)
    of_class = problem.classes.of_node
    free = problem.classes.capacity[of_class]
    choice, held = np.array(some), HeldNodes.room_for(offers)
    fill(
        of_class,
        order,
        offers.starts,
        offers.value,
        offers.bundle,
        cost,
        offers.bundle_starts,
        offers.slot_class[offers.bundle_slots],
        offers.slot_gpus[offers.bundle_slots],
        offers.bundle_nodes,
        sweeps,
        choice,
        free,
        held.starts,
        held.node,
    )
    expected = fill_in_turn(problem, order.tolist(), some, cost[offers.bundle].tolist(), sweeps)
    assert choice.tolist() == expected
    used = sum(g for q in expected if q >= 0 for _, g in pieces_of(problem, q))
    assert free.sum() == 120 - used
