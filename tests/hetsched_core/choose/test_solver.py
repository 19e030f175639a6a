"""The choice is the best there is, fits on nodes, and its bound is one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hetsched_core.choose import ChooseProblem, choose, program, solver
from hetsched_core.choose.offers import offers_of
from hetsched_core.choose.program import formulate
from hetsched_core.choose.solver import ALL, BY_NODE, EXCHANGED, OPEN, ROUNDED
from hetsched_core.optimize import solve
from tests.hetsched_core.choose.instances import in_groups, in_id_order, random_problem
from tests.hetsched_core.choose.naive import (
    best_value,
    pieces_of,
    placement_faults,
    pooled_problem,
    problem_of,
    small_problem,
)


def best_of_all_options(problem: ChooseProblem) -> float:
    """What the programme over all options finds, without any limit."""
    every, nothing = np.arange(len(problem.options)), np.zeros(0, np.int64)
    best = solve(formulate(offers_of(problem), every, nothing)).objective
    assert best is not None
    return best


def without_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave to the programme what jobs one after another do not find."""
    monkeypatch.setattr(solver, "improve_by_exchange", lambda _o, _p, _b, option, _t, _e: option)


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("enough", [None, 2000, 0])
def test_the_class_formulation_equals_the_programme_of_every_way_to_use_every_node(
    enough: int | None, exchanges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchanges:
        without_exchanges(monkeypatch)
    if enough is not None:
        # All problems are large then: what the prices cannot exclude is left open, bit by bit if
        # that is more than enough.
        monkeypatch.setattr(solver, "FEW_OPTIONS", 0)
        monkeypatch.setattr(solver, "FIRST_OPEN", 0)
        monkeypatch.setattr(solver, "MORE_OPEN", 2)
        monkeypatch.setattr(solver, "ENOUGH_OPEN", enough)
    draw = np.random.default_rng(7)
    methods = set()
    for _ in range(200):
        problem = small_problem(draw)
        found = choose(problem, gap=0.0)
        best = best_value(problem)
        assert found.objective == pytest.approx(best, abs=1e-9)
        assert best - 1e-9 <= found.bound <= best * (1 + 1e-6)
        assert placement_faults(problem, found.option) == []
        methods.add(found.method)
    assert methods >= {ALL, BY_NODE, ROUNDED}
    assert (OPEN in methods) is (enough is not None)


@pytest.mark.parametrize("seed", range(4))
def test_what_prices_exclude_is_not_part_of_the_best_choice(seed: int) -> None:
    problem = random_problem(seed, 96, 45)
    best = best_of_all_options(problem)
    for gap in (0.0, 1e-3, 1e-2):
        found = choose(problem, gap)
        assert found.gap <= gap + 1e-6
        assert found.objective <= best * (1 + 1e-9)
        assert found.bound >= best * (1 - 1e-9)
        assert placement_faults(problem, found.option) == []


@pytest.mark.parametrize("seed", range(3))
def test_what_a_limit_cut_short_proves_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(seed, 96, 45)
    best = best_of_all_options(problem)
    monkeypatch.setattr(solver, "FEW_OPTIONS", 0)
    without_exchanges(monkeypatch)
    # HiGHS may not look beyond the root.
    monkeypatch.setattr(program, "_FEWEST_NODES", 0)
    monkeypatch.setattr(program, "_MOST_NODES", 0)
    found = choose(problem, gap=0.0)
    assert found.limits == ("nodes",)
    assert found.objective < best <= found.bound
    assert placement_faults(problem, found.option) == []


def test_a_larger_problem_is_solved_over_few_options_to_the_gap_asked_for() -> None:
    problem = random_problem(1, 2048, 2000)
    assert choose(problem, gap=1e-3).method == EXCHANGED
    found = choose(problem, gap=1e-4)
    assert found.method == OPEN
    assert 0 <= found.gap <= 1e-4
    assert found.objective == pytest.approx(
        float(problem.options.value[found.option[found.option >= 0]].sum())
    )
    assert placement_faults(problem, found.option) == []


def test_prices_of_the_last_round_lead_to_the_same_bound_and_equal_input_to_equal_ones() -> None:
    problem = random_problem(1, 2048, 2000)
    cold, again = (choose(random_problem(1, 2048, 2000), gap=1e-3) for _ in range(2))
    for part in ("option", "prices"):
        assert getattr(cold, part).tolist() == getattr(again, part).tolist()
    assert (cold.objective, cold.bound) == (again.objective, again.bound)
    warm = choose(problem, gap=1e-3, prices=cold.prices)
    assert warm.bound == pytest.approx(cold.bound, rel=1e-4)
    wrong = choose(problem, gap=1e-3, prices=np.array([1e6, 0.0, 1e-6, 3.0, 1.0]))
    assert wrong.gap <= 1e-3


@pytest.mark.parametrize("power", [1.0, 30.0])
def test_values_of_any_size_give_a_feasible_choice_near_its_bound(power: float) -> None:
    problem = random_problem(2, 256, 200, power=power)
    larger = replace(problem, options=replace(problem.options, value=problem.options.value * 1e9))
    one, other = choose(problem), choose(larger)
    assert max(one.gap, other.gap) <= 5e-4
    assert placement_faults(problem, one.option) == []
    assert other.objective == pytest.approx(one.objective * 1e9, rel=1e-3)
    if power == 1.0:
        np.testing.assert_allclose(other.prices, one.prices * 1e9, rtol=1e-2)


def test_no_options_and_no_jobs_are_a_problem_like_any_other() -> None:
    for jobs in (0, 2):
        found = choose(problem_of([(8, 2)], [()] * jobs))
        assert found.option.tolist() == [-1] * jobs
        assert (found.objective, found.bound, found.gap) == (0.0, 0.0, 0.0)


def test_nodes_with_many_gpus_are_priced_by_gpu() -> None:
    draw = np.random.default_rng(0)
    problem = problem_of(
        [(72, 3)],
        [
            [(float(draw.uniform(1, 2) * s**0.9), [(0, s)]) for s in range(1, 40, 3)]
            for _ in range(30)
        ],
    )
    found = choose(problem, gap=1e-2)
    assert found.gap <= 1e-2
    assert placement_faults(problem, found.option) == []


@pytest.mark.parametrize("seed", range(3))
def test_neighbours_in_id_order_are_solved_by_node_and_are_never_worth_more(seed: int) -> None:
    problem = random_problem(seed, 80, 40)
    named = in_id_order(problem)
    anywhere, neighbours = choose(problem, gap=1e-4), choose(named, gap=1e-4)
    assert neighbours.gap <= 1e-4
    assert neighbours.objective <= anywhere.bound
    assert placement_faults(named, neighbours.option) == []
    for q in neighbours.option[neighbours.option >= 0].tolist():
        nodes = sorted(node for node, _ in pieces_of(named, q))
        assert nodes == list(range(nodes[0], nodes[0] + len(nodes)))


@pytest.mark.parametrize("few", [5000, 0])
def test_classes_that_differ_only_in_their_pool_are_chosen_for_as_one(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solver, "FEW_BY_CLASS", few)
    draw = np.random.default_rng(11)
    short = 0
    for _ in range(150):
        problem = pooled_problem(draw)
        found, best = choose(problem, gap=0.0), best_value(problem)
        assert placement_faults(problem, found.option) == []
        assert best - 1e-9 <= found.bound
        if few:
            assert found.objective == pytest.approx(best, abs=1e-9)
        short += found.objective < best - 1e-9
    # Where nodes of a pool are few, jobs on two nodes may find no two of them together.
    assert short <= (0 if few else 2)


@pytest.mark.parametrize(("seed", "groups", "gap"), [(1, 4, 1e-3), (2, 4, 1e-3), (3, 8, 6e-3)])
def test_topology_groups_cost_a_choice_little(seed: int, groups: int, gap: float) -> None:
    alone = random_problem(seed, 640, 600)
    pooled = in_groups(alone, groups)
    found, whole = choose(pooled, gap), choose(alone, gap)
    assert placement_faults(pooled, found.option) == []
    assert found.gap <= gap
    assert found.bound <= whole.bound * (1 + gap)
