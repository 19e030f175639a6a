"""Cost of a whole decision of Hops against the size of the cluster: measures it, and draws it.

    python -m benchmarks.hops_scale --gpus 512,2048

Each size is measured over several rounds of `benchmarks.hops_rounds`; `benchmarks.scale_lines` says
where its line goes. Without `--gpus` it is only drawn.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from time import process_time
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from benchmarks.hops_rounds import SIZES, held_gpus, rounds
from benchmarks.scale_lines import run

SEEDS = {16_384: 5, 100_000: 3}


class HopsLine(NamedTuple):
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


def measure(gpus: int) -> HopsLine:
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
    return HopsLine(
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


def draw(axes: Axes, numbers: Callable[[str], list[float]]) -> None:
    """Draw time against GPUs."""
    gpus = numbers("gpus")
    axes.plot(gpus, numbers("decision_s"), "o-", label="decision (median)")
    axes.plot(gpus, numbers("decision_most_s"), ":", label="decision (slowest)")


if __name__ == "__main__":
    run("benchmarks.hops_scale", str(__doc__), "hops", HopsLine._fields, measure, draw)
