"""What it costs to look for neighbours in id order only, as the paper's Hops does.

    python benchmarks/choose_neighbours.py

prints, for small clusters, the optimum with any nodes of a class and with neighbours in id order.
"""

from __future__ import annotations

import sys
from time import process_time

from hetsched_core.choose import choose
from tests.hetsched_core.choose.instances import in_id_order, random_problem

GAP = 1e-4
SIZES = ((80, 40), (160, 80))


def main() -> None:
    """Print a line for each problem."""
    sys.stdout.write("GPUs,jobs,seed,any nodes,CPU s,in id order,CPU s,loss %\n")
    for gpus, offered in SIZES:
        for seed in range(3):
            problem = random_problem(seed, gpus, offered)
            begun = process_time()
            anywhere = choose(problem, GAP)
            between = process_time()
            neighbours = choose(in_id_order(problem), GAP)
            ended = process_time()
            loss = 100 * (1 - neighbours.objective / anywhere.objective)
            sys.stdout.write(
                f"{gpus},{problem.jobs},{seed},{anywhere.objective:.3f},{between - begun:.2f},"
                f"{neighbours.objective:.3f},{ended - between:.2f},{loss:.3f}\n"
            )


if __name__ == "__main__":
    main()
