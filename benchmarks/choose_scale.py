"""Cost of choosing configurations against the size of the cluster: measures it, and draws it.

    python -m benchmarks.choose_scale --gpus 512,2048

Each size is measured over several random problems of `tests.hetsched_core.choose.instances`;
`benchmarks.scale_lines` says where its line goes. Without `--gpus` it is only drawn.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from time import process_time
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from benchmarks.scale_lines import run
from hetsched_core.choose import JobPieces, assign_nodes, choose
from hetsched_core.choose.offers import offers_of
from hetsched_core.choose.program import formulate
from hetsched_core.optimize import Limits, solve
from tests.hetsched_core.choose.instances import random_problem

OFFERED = {512: 500, 2048: 2000, 16_384: 8000, 100_000: 50_000}
GAP = {512: 5e-4, 2048: 1e-3, 16_384: 1e-3, 100_000: 3e-3}
SEEDS = {512: 9, 2048: 9, 100_000: 3}
PLAIN_UP_TO = 2048


class ChooseLine(NamedTuple):
    """CPU seconds, medians and worst cases; `plain_s` is HiGHS on all options at once."""

    gpus: int
    jobs: int
    options: int
    problems: int
    choose_s: float
    choose_most_s: float
    warm_s: float
    nodes_s: float
    gap: float
    most_gap: float
    plain_s: float | str
    peak_mib: int


def measure(gpus: int) -> ChooseLine:
    """Choose for several problems of a size; compiling is not counted."""
    offered = OFFERED.get(gpus, gpus)
    gap = GAP.get(gpus, 1e-3 if gpus > 512 else 5e-4)
    problems = [random_problem(seed, gpus, offered) for seed in range(SEEDS.get(gpus, 5))]
    chosen = choose(problems[-1], gap)
    rows: list[tuple[float, ...]] = []
    plain: list[float] = []
    for problem in problems:
        begun = process_time()
        warm = choose(problem, gap, chosen.prices)
        warm_s = process_time() - begun
        begun = process_time()
        chosen = choose(problem, gap)
        choose_s = process_time() - begun
        node_class = problem.classes.of_node
        begun = process_time()
        assign_nodes(problem, chosen.option, node_class, JobPieces.none(problem.jobs))
        rows.append((choose_s, warm_s, process_time() - begun, max(chosen.gap, warm.gap)))
        if gpus <= PLAIN_UP_TO and len(plain) < (3 if gpus < PLAIN_UP_TO else 1):
            begun = process_time()
            every, nothing = np.arange(len(problem.options)), np.zeros(0, np.int64)
            offers = offers_of(problem)
            program = formulate(offers, every, nothing)
            solve(program, limits=Limits(gap=gap))
            plain.append(process_time() - begun)
    choose_s, warm_s, nodes_s, gaps = np.median(rows, axis=0).tolist()
    return ChooseLine(
        gpus=gpus,
        jobs=round(float(np.median([problem.jobs for problem in problems]))),
        options=round(float(np.median([len(problem.options) for problem in problems]))),
        problems=len(problems),
        choose_s=round(choose_s, 4),
        choose_most_s=round(max(row[0] for row in rows), 4),
        warm_s=round(warm_s, 4),
        nodes_s=round(nodes_s, 4),
        gap=float(f"{gaps:.2g}"),
        most_gap=float(f"{max(row[3] for row in rows):.2g}"),
        plain_s=round(float(np.median(plain)), 2) if plain else "",
        peak_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    )


def draw(axes: Axes, numbers: Callable[[str], list[float]]) -> None:
    """Draw time against GPUs."""
    gpus = numbers("gpus")
    axes.plot(gpus, numbers("choose_s"), "o-", label="choose (median)")
    axes.plot(gpus, numbers("choose_most_s"), ":", label="choose (slowest)")
    axes.plot(gpus, numbers("nodes_s"), "s-", label="assign nodes (median)")
    axes.plot(gpus, numbers("plain_s"), "^--", label="HiGHS on all options (median)")


if __name__ == "__main__":
    run("benchmarks.choose_scale", str(__doc__), "choose", ChooseLine._fields, measure, draw)
