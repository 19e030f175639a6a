"""The relaxation against the best schedules that an enumeration finds."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from hetsched_core.optimize import Matrix, Program, Solution, SolverStatus, solve
from hetsched_core.policies.hare.bound import certified, relax
from hetsched_core.policies.hare.offline import Hare
from hetsched_core.policies.hare.order import by_fluid_wspt
from hetsched_core.policies.hare.schedule import GpuChoice, schedule
from tests.hetsched_core.policies.hare.brute import (
    R1,
    R2,
    alpha_of,
    case_of,
    cases,
    instance_of,
    optimum,
    random_instance,
)


def test_the_enumeration_finds_the_optima_of_r1_and_r2() -> None:
    assert optimum(R1) == 16.5
    assert optimum(R2) + 3.0 == 17.5
    assert alpha_of(R2) == 2.0


def test_r10_the_bound_is_never_above_the_optimum_nor_a_schedule_below_it() -> None:
    found = list(cases(250, seed=1))
    for case in found:
        assert case.bound <= case.best + 1e-6
        assert min(case.schedules.values()) >= case.best - 1e-6
        assert max(case.schedules.values()) <= case.factor * case.best
    # And worth something: on average within a fifth of the optimum.
    assert np.mean([case.bound / case.best for case in found]) > 0.8


def test_r10_on_its_own_instances_and_in_its_direction() -> None:
    """At most 5 tasks on 2 GPUs: 0.873, 1.242 and 1.041 by the programme of the example."""
    rng = Random(6)
    drawn = [random_instance(rng, 5, 2) for _ in range(400)]
    found = [case_of(one) for one in drawn if len(one.free_s) == 2]
    assert len(found) > 150
    bound = np.mean([c.bound / c.best for c in found])
    available, finish = (
        np.mean([c.schedules[choice] / c.best for c in found])
        for choice in (GpuChoice.EARLIEST_AVAILABLE, GpuChoice.EARLIEST_FINISH)
    )
    # Tighter, and nearer to the optimum: three orders are tried.
    assert 0.873 < bound < 1.0
    assert 1.0 < finish < 1.041
    assert finish < available < 1.242


def test_what_has_begun_gets_no_bound() -> None:
    begun = replace(R1, first=np.array([1, 2], np.int64))
    assert relax(begun, 1.2).bound_s is None
    assert relax(R1, 1.2).bound_s is not None


def test_a_programme_that_would_be_too_large_gets_a_coarser_grid_or_is_left_out() -> None:
    """The bound is one all the same, and the schedules are valid without any."""
    rng = Random(3)
    coarser = 0
    for one in (random_instance(rng, 6, 3) for _ in range(40)):
        fine = relax(one, 1.2)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hetsched_core.policies.hare.bound.MOST_COLUMNS", 30)
            coarse, again = relax(one, 1.2), relax(one, 1.2)
            patch.setattr("hetsched_core.policies.hare.bound.MOST_COLUMNS", 0)
            none = relax(one, 1.2)
            found, diagnostics = Hare().best(one)
        assert fine.bound_s is not None
        assert coarse.bound_s is not None
        assert coarse.bound_s <= optimum(one) + 1e-6
        coarser += coarse.bound_s != fine.bound_s
        assert (coarse.bound_s, coarse.middle_s.tolist()) == (
            again.bound_s,
            again.middle_s.tolist(),
        )
        assert (none.bound_s, diagnostics.bound) == (None, None)
        assert np.bincount(found.job, minlength=len(one.rounds)).tolist() == one.tasks.tolist()
        best = schedule(one, by_fluid_wspt(one), GpuChoice.EARLIEST_FINISH)
        assert found.weighted_jct_s <= best.weighted_jct_s
    assert coarser > 20


def test_a_job_alone_is_bounded_by_its_own_length() -> None:
    """3 rounds of 4 tasks on two GPUs of 2 s and one of 5 s: two and two, 4 + 1 s each."""
    alone = instance_of([7], [2], [3], [4], [[2, 2, 5]], [[1, 1, 1]])
    assert alone.shortest_round_s.tolist() == [5.0]
    assert alone.times.kind.tolist() == [0, 0, 1]
    assert relax(alone, 1.2).bound_s == pytest.approx(2 * 15.0)


def test_any_duals_prove_a_bound_and_the_right_ones_the_optimum() -> None:
    """Minimise x + 2 y, x + y >= 3, x <= 2: 4."""
    program = Program(
        cost=np.array([1.0, 2.0]),
        lower=np.zeros(2),
        upper=np.array([2.0, 9.0]),
        matrix=Matrix.of(1, [0, 0], [0, 1], [1.0, 1.0]),
        row_lower=np.array([3.0]),
        row_upper=np.array([np.inf]),
    )
    assert certified(program, solve(program)) == pytest.approx(4.0)
    for dual in (-5.0, 0.0, 1.0, 1.5, 3.0):
        proven = certified(
            program, Solution(status=SolverStatus.OPTIMAL, row_duals=np.array([dual]))
        )
        assert proven <= 4.0
    with pytest.raises(ValueError, match="without row duals"):
        certified(program, Solution(status=SolverStatus.OPTIMAL))


def test_the_shortest_round_is_the_best_schedule_of_one_round() -> None:
    rng = Random(5)
    for _ in range(60):
        gpus = rng.randint(1, 3)
        train = [[float(rng.randint(1, 6)) for _ in range(gpus)]]
        sync = [[float(rng.randint(0, 3)) for _ in range(gpus)]]
        one = instance_of([0], [1], [1], [rng.randint(1, 4)], train, sync)
        assert one.shortest_round_s[0] == optimum(one)
