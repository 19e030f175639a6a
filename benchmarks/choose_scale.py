"""Cost of choosing configurations against the size of the cluster: measures it, and draws it.

    python benchmarks/choose_scale.py --gpus 512,2048

Each size is a process of its own, over several random problems of
`hetsched_core.choose.instances`. Its line is put into `docs/benchmarks/choose.csv`, in the place of
an older one of the same size, and `docs/benchmarks/choose.svg` is drawn from all lines; without
`--gpus` it is only drawn.
"""

from __future__ import annotations

import argparse
import csv
import resource
import subprocess
import sys
from pathlib import Path
from time import process_time
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from hetsched_core.choose import JobPieces, assign_nodes, choose
from hetsched_core.choose.instances import random_problem
from hetsched_core.choose.offers import offers_of
from hetsched_core.choose.program import formulate
from hetsched_core.optimize import Limits, solve

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"
OFFERED = {512: 500, 2048: 2000, 16_384: 8000, 100_000: 50_000}
GAP = {512: 5e-4, 2048: 1e-3, 16_384: 1e-3, 100_000: 3e-3}
SEEDS = {512: 9, 2048: 9, 100_000: 3}
PLAIN_UP_TO = 2048


class Line(NamedTuple):
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


def measure(gpus: int) -> Line:
    """Choose for several problems of a size; compiling is not counted."""
    offered = OFFERED.get(gpus, gpus)
    gap = GAP.get(gpus, 1e-3 if gpus > 512 else 5e-4)
    problems = [random_problem(seed, gpus, offered) for seed in range(SEEDS.get(gpus, 5))]
    chosen = choose(problems[-1], gap)
    rows, plain = [], []
    for problem in problems:
        begun = process_time()
        warm = choose(problem, gap, chosen.prices)
        warm_s = process_time() - begun
        begun = process_time()
        chosen = choose(problem, gap)
        choose_s = process_time() - begun
        node_class = np.repeat(np.arange(len(problem.classes)), problem.classes.count)
        begun = process_time()
        assign_nodes(problem, chosen.option, node_class, JobPieces.none(problem.jobs))
        rows.append((choose_s, warm_s, process_time() - begun, max(chosen.gap, warm.gap)))
        if gpus <= PLAIN_UP_TO and len(plain) < (3 if gpus < PLAIN_UP_TO else 1):
            begun = process_time()
            every, nothing = np.arange(len(problem.options)), np.zeros(0, np.int64)
            offers = offers_of(problem)
            program = formulate(problem.classes, offers, every, nothing)
            solve(program, limits=Limits(gap=gap))
            plain.append(process_time() - begun)
    choose_s, warm_s, nodes_s, gaps = np.median(rows, axis=0).tolist()
    return Line(
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


def draw(lines: list[Line]) -> None:
    """Draw time against GPUs."""
    with mpl.rc_context({"svg.hashsalt": "hetsched", "font.size": 9}):
        figure = Figure(figsize=(6.0, 3.6), layout="constrained")
        axes = figure.add_subplot()
        gpus = [line.gpus for line in lines]
        axes.plot(gpus, [line.choose_s for line in lines], "o-", label="choose (median)")
        axes.plot(gpus, [line.choose_most_s for line in lines], ":", label="choose (slowest)")
        axes.plot(gpus, [line.nodes_s for line in lines], "s-", label="assign nodes (median)")
        plain = [(line.gpus, float(line.plain_s)) for line in lines if line.plain_s != ""]
        axes.plot(*zip(*plain, strict=True), "^--", label="HiGHS on all options (median)")
        axes.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="CPU seconds")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        figure.savefig(FOLDER / "choose.svg", metadata={"Date": None})


def main() -> None:
    """Measure what is asked for and draw everything."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--gpus", default="", help="sizes to measure, separated by commas")
    options.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.one:
        csv.writer(sys.stdout).writerow(measure(given.one))
        return
    path = FOLDER / "choose.csv"
    table = {}
    if path.exists():
        with path.open(newline="") as file:
            table = {int(row["gpus"]): list(row.values()) for row in csv.DictReader(file)}
    for gpus in map(int, filter(None, given.gpus.split(","))):
        command = [sys.executable, __file__, "--one", str(gpus)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        table[gpus] = next(csv.reader([done.stdout]))
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Line._fields)
        writer.writerows(table[gpus] for gpus in sorted(table))
    draw([Line(*map(_number, table[gpus])) for gpus in sorted(table)])


def _number(text: str) -> float | str:
    return float(text) if text else ""


if __name__ == "__main__":
    main()
