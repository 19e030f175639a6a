"""Cost of a whole decision of Hops against the size of the cluster: measures it, and draws it.

    python -m benchmarks.hops_scale --gpus 512,2048

Each size is a process of its own, over several rounds of `benchmarks.hops_rounds`. Its line is put
into `docs/benchmarks/hops.csv`, in the place of an older one of the same size, and
`docs/benchmarks/hops.svg` is drawn from all lines; without `--gpus` it is only drawn.
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

from benchmarks.hops_rounds import SIZES, held_gpus, rounds

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"
SEEDS = {16_384: 5, 100_000: 3}


class Line(NamedTuple):
    """CPU seconds of a decision: median and most over rounds; gaps that it proved; GPUs in use."""

    gpus: int
    jobs: int
    rounds: int
    decision_s: float
    decision_most_s: float
    gap: float
    most_gap: float
    held: float
    peak_mib: int


def measure(gpus: int) -> Line:
    """Decide in several rounds of a size; what is compiled and kept at the first is not counted."""
    offered, gap = SIZES.get(gpus, (gpus, 5e-4))
    seconds, gaps, held = [], [], []
    for seed in range(SEEDS.get(gpus, 12)):
        given = rounds(gpus, offered, gap, seed)
        begun = process_time()
        plan = given.policy.plan(given.second)
        seconds.append(process_time() - begun)
        gaps.append(plan.diagnostics.gap or 0.0)
        held.append(held_gpus(plan) / gpus)
    return Line(
        gpus=gpus,
        jobs=offered,
        rounds=len(seconds),
        decision_s=round(float(np.median(seconds)), 4),
        decision_most_s=round(max(seconds), 4),
        gap=float(f"{np.median(gaps):.2g}"),
        most_gap=float(f"{max(gaps):.2g}"),
        held=round(min(held), 4),
        peak_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    )


def draw(lines: list[Line]) -> None:
    """Draw time against GPUs."""
    with mpl.rc_context({"svg.hashsalt": "hetsched", "font.size": 9}):
        figure = Figure(figsize=(6.0, 3.6), layout="constrained")
        axes = figure.add_subplot()
        gpus = [line.gpus for line in lines]
        axes.plot(gpus, [line.decision_s for line in lines], "o-", label="decision (median)")
        axes.plot(gpus, [line.decision_most_s for line in lines], ":", label="decision (slowest)")
        axes.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="CPU seconds")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        figure.savefig(FOLDER / "hops.svg", metadata={"Date": None})


def main() -> None:
    """Measure what is asked for and draw everything."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--gpus", default="", help="sizes to measure, separated by commas")
    options.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.one:
        csv.writer(sys.stdout).writerow(measure(given.one))
        return
    path = FOLDER / "hops.csv"
    table: dict[int, list[str]] = {}
    if path.exists():
        with path.open(newline="") as file:
            table = {int(row["gpus"]): list(row.values()) for row in csv.DictReader(file)}
    for gpus in map(int, filter(None, given.gpus.split(","))):
        command = [sys.executable, "-m", "benchmarks.hops_scale", "--one", str(gpus)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        table[gpus] = next(csv.reader([done.stdout]))
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Line._fields)
        writer.writerows(table[gpus] for gpus in sorted(table))
    draw([Line(*map(float, table[gpus])) for gpus in sorted(table)])  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
