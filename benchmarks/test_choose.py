"""How long choosing configurations takes: prices, programme, and nodes, from ready options.

The baseline is the same programme over node classes with every option in it, given to HiGHS at
once with the same gap (`test_plain`); beyond 2,048 GPUs it does not end within minutes. Instances:
`tests.hetsched_core.choose.instances`.
"""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from hetsched_core.choose import Choice, ChooseProblem, JobPieces, assign_nodes, choose
from hetsched_core.choose.offers import offers_of
from hetsched_core.choose.program import formulate
from hetsched_core.optimize import Limits, Solution, solve
from tests.hetsched_core.choose.instances import random_problem

SIZES = {512: (500, 5e-4), 2048: (2000, 1e-3), 16_384: (8000, 1e-3), 100_000: (50_000, 3e-3)}
"""Jobs offered and the gap asked for, by GPUs."""

SEED = 1


def decide(problem: ChooseProblem, gap: float, prices: np.ndarray | None) -> Choice:
    chosen = choose(problem, gap, prices)
    assign_nodes(problem, chosen.option, problem.classes.of_node, JobPieces.none(problem.jobs))
    return chosen


def report(benchmark: BenchmarkFixture, problem: ChooseProblem, gap: float | None) -> None:
    benchmark.extra_info.update(
        jobs=problem.jobs,
        options=len(problem.options),
        gap_percent=None if gap is None else round(100 * gap, 4),
    )


@pytest.mark.parametrize("start", ["cold", "warm"])
@pytest.mark.parametrize("gpus", SIZES)
def test_choose(benchmark: BenchmarkFixture, gpus: int, start: str) -> None:
    offered, gap = SIZES[gpus]
    problem = random_problem(SEED, gpus, offered)
    # Of another round: the same cluster, other jobs.
    earlier = choose(random_problem(SEED + 1, gpus, offered), 1.0).prices
    prices = earlier if start == "warm" else None
    found = benchmark.pedantic(
        decide, args=(problem, gap, prices), rounds=3, iterations=1, warmup_rounds=1
    )
    report(benchmark, problem, found.gap)
    assert found.gap <= gap


@pytest.mark.parametrize("gpus", [512, 2048])
def test_plain(benchmark: BenchmarkFixture, gpus: int) -> None:
    offered, gap = SIZES[gpus]
    problem = random_problem(SEED, gpus, offered)

    def plain() -> Solution:
        offers = offers_of(problem)
        everything, nothing = np.arange(len(problem.options)), np.zeros(0, np.int64)
        program = formulate(offers, everything, nothing)
        return solve(program, limits=Limits(gap=gap))

    found = benchmark.pedantic(plain, rounds=1, iterations=1)
    report(benchmark, problem, found.gap)
    assert found.gap is not None
    assert found.gap <= gap
