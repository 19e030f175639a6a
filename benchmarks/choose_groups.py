"""What topology groups cost a choice, in time and in how far it may be from the best.

    python -m benchmarks.choose_groups

prints a line for each problem of `tests.hetsched_core.choose.instances` with its nodes cut into
groups.
"""

from __future__ import annotations

import sys
from time import process_time

from benchmarks.choose_scale import GAP, OFFERED
from hetsched_core.choose import choose
from tests.hetsched_core.choose.instances import in_groups, random_problem

PROBLEMS = (
    (512, 1, 4),
    (512, 2, 4),
    (512, 3, 4),
    (2048, 1, 4),
    (2048, 2, 4),
    (2048, 1, 16),
    (2048, 2, 16),
    (16_384, 1, 16),
)
"""GPUs, seed and groups."""


def main() -> None:
    """Print a line for each problem; the kernels are loaded before."""
    choose(in_groups(random_problem(0, 320, 300), 4))
    sys.stdout.write("GPUs,seed,gap asked for %,groups,options,CPU s,gap proven %,limits\n")
    for gpus, seed, groups in PROBLEMS:
        problem = in_groups(random_problem(seed, gpus, OFFERED[gpus]), groups)
        begun = process_time()
        found = choose(problem, GAP[gpus])
        taken = process_time() - begun
        sys.stdout.write(
            f"{gpus},{seed},{100 * GAP[gpus]:g},{groups},{len(problem.options)},{taken:.2f},"
            f"{100 * found.gap:.3f},{'; '.join(found.limits)}\n"
        )


if __name__ == "__main__":
    main()
