"""The solver against enumeration, and what it says where there is no solution."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from hetsched_core.optimize import (
    Limits,
    Matrix,
    Point,
    Program,
    ProgramError,
    SolverError,
    SolverStatus,
    solve,
)

INF = np.inf


def program(
    cost: ArrayLike,
    rows: ArrayLike,
    upper: ArrayLike,
    *,
    lower: float = -INF,
    at_most: float = INF,
    maximise: bool = True,
    integer: bool = False,
) -> Program:
    """Build lower <= rows @ x <= upper with 0 <= x <= at_most."""
    costs, dense = np.array(cost, float), np.array(rows, float)
    # Not in the order of the rows.
    column, row = np.nonzero(dense.T)
    return Program(
        cost=costs,
        lower=np.zeros(len(costs)),
        upper=np.full(len(costs), at_most),
        matrix=Matrix.of(len(dense), row, column, dense[row, column]),
        row_lower=np.full(len(dense), lower),
        row_upper=np.array(upper, float),
        maximise=maximise,
        integer=np.ones(len(costs), bool) if integer else None,
    )


@pytest.mark.parametrize("point", Point)
def test_a_linear_programme_has_its_textbook_optimum_and_prices(point: Point) -> None:
    # max 3x + 5y; x <= 4, 2y <= 12, 3x + 2y <= 18: (2, 6), 36, prices 0, 1.5, 1.
    found = solve(program([3, 5], [[1, 0], [0, 2], [3, 2]], [4, 12, 18]), point)
    assert found.status is SolverStatus.OPTIMAL
    assert found.x is not None
    assert found.row_duals is not None
    assert found.x == pytest.approx([2, 6], abs=1e-6)
    assert found.objective == pytest.approx(36)
    assert found.row_duals == pytest.approx([0, 1.5, 1], abs=1e-6)


def test_a_vertex_gives_one_job_all_and_an_interior_point_shares_what_is_open() -> None:
    one_gpu_two_equal_jobs = program([1, 1], [[1, 1]], [1])
    vertex = solve(one_gpu_two_equal_jobs, Point.VERTEX)
    interior = solve(one_gpu_two_equal_jobs, Point.INTERIOR)
    assert vertex.x is not None
    assert interior.x is not None
    assert sorted(vertex.x) == [0, 1]
    assert interior.x == pytest.approx([0.5, 0.5], abs=1e-4)
    assert (vertex.bound, vertex.gap, interior.bound) == (1.0, 0.0, None)


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=7).flatmap(
        lambda values: st.tuples(
            st.just(values),
            st.lists(
                st.lists(st.integers(0, 9), min_size=len(values), max_size=len(values)),
                min_size=1,
                max_size=3,
            ),
            st.integers(0, 25),
        )
    )
)
def test_a_knapsack_equals_enumeration(case: tuple[list[int], list[list[int]], int]) -> None:
    values, weights, room = case
    found = solve(program(values, weights, [room] * len(weights), at_most=1, integer=True))
    best = max(
        np.dot(values, taken)
        for taken in itertools.product((0, 1), repeat=len(values))
        if (np.array(weights) @ taken <= room).all()
    )
    assert found.status is SolverStatus.OPTIMAL
    assert found.objective == pytest.approx(best)
    assert found.bound == pytest.approx(best)
    assert found.x is not None
    assert (np.array(weights) @ np.round(found.x) <= room).all()


@pytest.mark.parametrize("presolve", [False, True])
def test_a_need_of_a_hundred_millionth_is_met(presolve: bool) -> None:
    # max z; x >= z, y >= 1e-8 z, x + y <= 1, written as rows <= 0 and <= 1.
    rows = np.array([[-1.0, 0.0, 1.0], [0.0, -1.0, 1e-8], [1.0, 1.0, 0.0]])
    needs = program([0, 0, 1], rows, [0, 0, 1])
    found = solve(needs, presolve=presolve)
    assert found.x is not None
    assert found.x[1] == pytest.approx(1e-8)


@pytest.mark.parametrize("point", Point)
@pytest.mark.parametrize("integer", [False, True])
def test_what_has_no_solution_says_so(point: Point, integer: bool) -> None:
    impossible = program([1, 1], [[1, 1]], [2], lower=3, integer=integer)
    endless = program([1, 1], [[1, -1]], [0], lower=0, integer=integer)
    assert solve(impossible, point).status is SolverStatus.INFEASIBLE
    assert solve(impossible, point).x is None
    assert solve(endless, point).status in (SolverStatus.UNBOUNDED, SolverStatus.NO_OPTIMUM)
    assert solve(endless, point).x is None


def hard_knapsack() -> Program:
    rng = np.random.default_rng(7)
    weights = rng.integers(1000, 9999, (4, 40))
    values = weights.sum(axis=0) + rng.integers(-50, 50, 40)
    return program(values, weights, weights.sum(axis=1) / 2, at_most=1, integer=True)


def test_a_limit_or_a_wider_gap_gives_a_solution_with_a_proven_bound_and_is_reported() -> None:
    found = solve(hard_knapsack(), limits=Limits(nodes=1))
    assert (found.status, found.limits) == (SolverStatus.FEASIBLE, ("nodes",))
    assert found.objective is not None
    assert found.bound is not None
    assert found.objective < found.bound
    assert found.gap == pytest.approx((found.bound - found.objective) / found.objective)
    beyond = solve(hard_knapsack(), limits=Limits(nodes=1, cutoff=found.objective + 1.0))
    assert (beyond.status, beyond.limits) == (SolverStatus.NOT_FOUND, ("nodes",))
    assert beyond.bound == pytest.approx(found.bound, rel=1e-2)
    wider = solve(hard_knapsack(), limits=Limits(gap=0.05))
    assert wider.status is SolverStatus.OPTIMAL
    assert wider.gap is not None
    assert 0 < wider.gap <= 0.05
    rng = np.random.default_rng(0)
    linear = program(rng.uniform(1, 2, 30), rng.uniform(0, 1, (30, 30)), np.ones(30))
    cut_short = solve(linear, limits=Limits(iterations=1))
    assert (cut_short.status, cut_short.limits) == (SolverStatus.NOT_FOUND, ("iterations",))


def test_a_limit_of_work_ends_a_solve_at_the_same_point_each_time() -> None:
    longer = solve(hard_knapsack(), limits=Limits(work=300_000))
    short = [solve(hard_knapsack(), limits=Limits(work=100_000)) for _ in range(2)]
    assert (short[0].status, short[0].limits) == (SolverStatus.FEASIBLE, ("work",))
    assert 100_000 <= short[0].work < 110_000
    assert short[0].work == short[1].work
    assert short[0].bound == short[1].bound
    assert short[0].objective == short[1].objective
    assert short[0].bound is not None
    assert short[0].objective is not None
    assert longer.objective is not None
    assert longer.bound is not None
    assert short[0].objective <= longer.objective <= longer.bound <= short[0].bound


@pytest.mark.parametrize(
    ("limits", "wrong"),
    [(Limits(nodes=-1), "-1 for mip_max_nodes"), (Limits(gap=-0.5), "-0.5 for mip_rel_gap")],
)
def test_a_limit_that_the_solver_does_not_take_is_told(limits: Limits, wrong: str) -> None:
    with pytest.raises(SolverError, match=wrong):
        solve(hard_knapsack(), limits=limits)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lower": np.zeros(3)}, r"lower has shape \(3,\); expected \(2,\)"),
        ({"row_upper": np.zeros(2)}, r"row_upper has shape \(2,\); expected \(1,\)"),
        ({"integer": np.ones(1, bool)}, "integer has shape"),
        ({"cost": np.array([1.0, np.inf])}, "not a finite number"),
        ({"upper": np.array([1.0, np.nan])}, "a bound is not a number"),
        ({"matrix": Matrix.of(1, [0], [2], [1.0])}, "columns 2 to 2; there are 2"),
        ({"cost": np.zeros(0), "lower": np.zeros(0), "upper": np.zeros(0)}, "has no columns"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(
    change: dict[str, object], message: str
) -> None:
    parts: dict[str, object] = {
        "cost": np.ones(2),
        "lower": np.zeros(2),
        "upper": np.ones(2),
        "matrix": Matrix.of(1, [0, 0], [0, 1], [1.0, 1.0]),
        "row_lower": np.zeros(1),
        "row_upper": np.ones(1),
    }
    with pytest.raises(ProgramError, match=message):
        Program(**{**parts, **change})  # type: ignore[arg-type]


def test_a_cutoff_leaves_what_is_better_and_proves_no_more_than_itself() -> None:
    draw = np.random.default_rng(5)
    for maximise in (True, False):
        sign = 1.0 if maximise else -1.0
        for _ in range(20):
            value, weight = draw.uniform(1, 9, 12), draw.integers(1, 9, (3, 12)).astype(float)
            knapsack = program(value, weight, [12.0, 15.0, 9.0], at_most=1.0, integer=True)
            knapsack = replace(knapsack, cost=sign * value, maximise=maximise)
            best = solve(knapsack).objective
            assert best is not None
            found = solve(knapsack, limits=Limits(cutoff=best - sign * 0.01), presolve=False)
            assert (found.objective, found.bound) == pytest.approx((best, best))
            beyond = Limits(cutoff=best + sign * 0.01)
            assert solve(knapsack, limits=beyond).status is SolverStatus.INFEASIBLE
            near = solve(knapsack, limits=Limits(gap=0.5, cutoff=best - sign * 0.01))
            assert near.bound is not None
            assert sign * near.bound >= sign * best - 1e-9
