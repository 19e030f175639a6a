"""Any number of random problems against brute force.

    python -m tests.hetsched_core.choose.brute 100000

Up to 5 jobs on up to 5 nodes, a third of them of equal kinds in several pools; half of the problems
with all their options open at once, the others by what prices leave open, at once or bit by bit;
half of them without exchanges, which would leave the programme little to find.
Each choice must be the best, its bound one, and its nodes must hold it; and when it is put on nodes
again, nobody may move.
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from hetsched_core.choose import JobPieces, choose, solver
from hetsched_core.choose.offers import Offers, improve_by_exchange
from tests.hetsched_core.choose.naive import (
    assigned,
    best_value,
    faults,
    pooled_problem,
    small_problem,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def as_it_is(_o: Offers, _p: Floats, _b: Floats, option: Ints, _t: Bools, _e: float) -> Ints:
    """In place of exchanges: what was chosen so far."""
    return option


def main(problems: int, seed: int = 1) -> None:
    """Print how many problems each method solved; end with an error at the first that is wrong."""
    draw = np.random.default_rng(seed)
    methods: Counter[str] = Counter()
    few, enough = solver.FEW_OPTIONS, solver.ENOUGH_OPEN
    solver.FIRST_OPEN, solver.MORE_OPEN = 0, 2
    for at in range(problems):
        solver.FEW_OPTIONS, solver.ENOUGH_OPEN = ((few, enough), (0, 0), (0, enough))[at % 4 % 3]
        vars(solver)["improve_by_exchange"] = (improve_by_exchange, as_it_is)[at // 12 % 2]
        problem = pooled_problem(draw) if at % 3 == 2 else small_problem(draw)
        found, best = choose(problem, gap=0.0, work=10**9), best_value(problem)
        node_class = problem.classes.of_node
        nothing = JobPieces.none(problem.jobs)
        placed = assigned(problem, found.option, node_class, nothing)
        again = assigned(problem, found.option, node_class, placed)
        wrong = list(faults(problem, found.option, node_class, placed))
        if abs(found.objective - best) > 1e-6 * max(1.0, best):
            wrong.append(f"worth {found.objective}, the best is {best}")
        if not best - 1e-9 <= found.bound <= best * (1 + 1e-6):
            wrong.append(f"bound {found.bound}, the best is {best}")
        if again.node.tolist() != placed.node.tolist():
            wrong.append("somebody moved")
        if wrong:
            sys.exit(f"problem {at} of seed {seed}: {'; '.join(wrong)}")
        methods[found.method] += 1
    for method, times in methods.most_common():
        sys.stdout.write(f"{times:7} {method}\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
