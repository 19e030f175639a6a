"""The figure of the comparison: who is on the frontier of two measures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.papers.comparison_runs import (
    COPIES,
    JCT,
    MAKESPAN,
    MAX_RATIO,
    MeasureColumn,
    Runs,
    geometric,
    relative,
)
from benchmarks.papers.comparison_tables import OURS, frontier

Label = tuple[float, float, str]
"""Where a name stands beside its point: offset in points, and the side it begins at."""

BESIDE: Label = (6, 3, "left")
LABELS: Mapping[str, Mapping[str, Label]] = {
    MAX_RATIO.head: {
        "hadar replan=incremental": (6, 6, "left"),
        "hadar replan=full": (-2, 8, "left"),
        "hadare": (-6, -3, "right"),
        "fifo": (6, -9, "left"),
        "srtf": (-6, -8, "right"),
        "2d-las": (-6, 3, "right"),
        "las": (6, -9, "left"),
        "tiresias": (6, 5, "left"),
    },
    MAKESPAN.head: {
        "steady": (0, 8, "center"),
        "hops": (0, -13, "center"),
        "sia": (2, -13, "center"),
        "gavel": (0, 7, "center"),
        "las": (-6, 3, "right"),
        "srtf": (0, 8, "center"),
        "tiresias": (6, -5, "left"),
        "2d-las": (-6, -3, "right"),
        "slurm": (-4, -12, "left"),
        "gavel-fifo": (6, -9, "left"),
    },
}


def points_of(runs: Runs, other: MeasureColumn) -> dict[str, tuple[float, float]]:
    """Return mean JCT and another measure, each over the best of its workload, as means."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for of_policy in runs.values():
        jct, ratio = relative(of_policy, JCT), relative(of_policy, other)
        for name in jct.keys() & ratio.keys():
            xs, ys = found.setdefault(name, ([], []))
            xs.append(jct[name])
            ys.append(ratio[name])
    return {name: (geometric(xs), geometric(ys)) for name, (xs, ys) in sorted(found.items())}


def draw(runs: Runs, path: Path) -> None:
    """Draw mean JCT against the greatest latency ratio, and against the makespan."""
    with mpl.rc_context({"svg.hashsalt": "hetsched", "font.size": 8.5}):
        figure = Figure(figsize=(10.4, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        _panel(left, points_of(runs, MAX_RATIO), LABELS[MAX_RATIO.head])
        left.set_ylabel("greatest latency ratio, likewise")
        left.set_yscale("log")
        _panel(right, points_of(runs, MAKESPAN), LABELS[MAKESPAN.head])
        right.set_ylabel("makespan, likewise")
        figure.savefig(path, metadata={"Date": None})


def _panel(
    axes: Axes, points: Mapping[str, tuple[float, float]], labels: Mapping[str, Label]
) -> None:
    axes.set_xscale("log")
    axes.set_xlim(0.95, 7.0)
    axes.set_xticks([1.0, 1.5, 2.0, 3.0, 4.0, 5.0], ["1", "1.5", "2", "3", "4", "5"])
    axes.minorticks_off()
    axes.set_xlabel("mean JCT, times the best of each workload (geometric mean)")
    rigid = {name: point for name, point in points.items() if name != COPIES}
    best = frontier(rigid)
    axes.plot(
        [rigid[name][0] for name in best],
        [rigid[name][1] for name in best],
        color="C7",
        linestyle="--",
        linewidth=1.0,
    )
    for name, (x, y) in points.items():
        marker, colour = ("D", "C3") if name == OURS else ("o", "C0")
        fill = "none" if name == COPIES else colour
        axes.plot(x, y, marker, color=colour, markerfacecolor=fill)
        dx, dy, side = labels.get(name, BESIDE)
        axes.annotate(name, (x, y), xytext=(dx, dy), textcoords="offset points", ha=side)
    axes.grid(alpha=0.3)
