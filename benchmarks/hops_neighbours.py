"""What it costs a plan of Hops to look for neighbours in id order only, as the paper does.

    python -m benchmarks.hops_neighbours

prints, for the first round of `benchmarks.hops_rounds`, when all jobs wait, what is chosen with any
nodes and with neighbours in id order. The kernels are loaded before.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from time import process_time

from benchmarks.hops_rounds import SIZES, rounds
from hetsched_core.policies.hops.configurations import Neighbours

DRAWS = {64: 3, 128: 3, 512: 1}


def main() -> None:
    """Print a line for each round and each way."""
    sys.stdout.write("GPUs,seed,neighbours,objective,proven gap %,CPU s,limits\n")
    for gpus, draws in DRAWS.items():
        offered, gap = SIZES.get(gpus, (gpus, 5e-4))
        for seed in range(draws):
            given = rounds(gpus, offered, gap, seed)
            for neighbours in Neighbours:
                policy = replace(given.policy, neighbours=neighbours)
                begun = process_time()
                found = policy.plan(given.first).diagnostics
                taken = process_time() - begun
                sys.stdout.write(
                    f"{gpus},{seed},{neighbours},{found.objective:.3f},"
                    f"{100 * (found.gap or 0.0):.3f},{taken:.2f},{'; '.join(found.limits)}\n"
                )


if __name__ == "__main__":
    main()
