"""The figures of the page of a running system: what its readings say, over time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from numpy.typing import NDArray

from hetsched_core.report.clock import (
    BINS,
    SHADES,
    TIME_AXIS_IN,
    ReportClock,
    axis_times,
    count_axis,
    name_rows,
    panels,
    shade_rows,
    time_axis,
    wide_axes,
)
from hetsched_core.report.figures import nodes_a_row
from hetsched_core.report.live_state import CLOSED, LEVELS, GpusOverTime, LiveNode, Past
from hetsched_core.report.svg import LOGGED_COLOUR, MUTED, drawing, policy_colour

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_PANELS = 10
"""So many GPU types get a panel of their own, those with most GPUs."""

_CLOSED_LEVEL = len(LEVELS)
_SHADES = ListedColormap([*SHADES, (0.75, 0.2, 0.15, 0.55)])
"""The shades of the report, then that of closed nodes; where nothing is known, nothing is drawn."""

_LEVEL_OF = {character: float(at) for at, character in enumerate(LEVELS)} | {
    CLOSED: float(_CLOSED_LEVEL)
}

_SECONDS = {0.001: "1 ms", 0.01: "10 ms", 0.1: "0.1 s", 1.0: "1 s", 10.0: "10 s", 100.0: "100 s"}


@dataclass(frozen=True, slots=True, eq=False)
class Bins:
    """Equal bins over the time of some readings, a whole number of steps wide.

    `clock` is the time shown, and `of` the bin of each reading, (R,).
    """

    clock: ReportClock
    edges: Floats
    of: Ints

    def means(self, values: Sequence[float]) -> Floats:
        """Return the mean over each bin's readings; NaN for a bin without any."""
        count = len(self.edges) - 1
        sums = np.bincount(self.of, weights=np.asarray(values, dtype=np.float64), minlength=count)
        with np.errstate(invalid="ignore"):
            return sums / np.bincount(self.of, minlength=count)

    def most(self, values: Sequence[float | None]) -> Floats:
        """Return the largest of each bin's values; NaN for a bin without any."""
        largest = np.full(len(self.edges) - 1, np.nan)
        for at, value in zip(self.of, values, strict=True):
            if value is not None:
                largest[at] = np.fmax(largest[at], value)
        return largest


def bins_of(past: Past, zone: tzinfo) -> Bins:
    """Divide the time of some readings into at most `BINS` bins of whole steps.

    The edges lie on the grid of the steps, so that a bin is empty only if a reading is missing, and
    the last bin ends with the step of the last reading.
    """
    steps = np.floor(np.asarray(past.at_s) / past.step_s).astype(np.int64)
    end = int(steps[-1]) + 1
    each = math.ceil((end - int(steps[0])) / BINS)
    count = math.ceil((end - int(steps[0])) / each)
    edges: Floats = past.step_s * (end - each * np.arange(count, -1, -1, dtype=np.float64))
    clock = ReportClock(float(edges[0]), float(edges[-1]), zone)
    return Bins(clock, edges, (steps - (end - each * count)) // each)


def gpus_over_time(past: Past, bins: Bins) -> str:
    """Draw, for each GPU type, the GPUs in use and closed, stacked below what there is."""
    most = sorted(past.gpus.items(), key=lambda one: -max(map(sum, _columns(one[1]))))
    shown = dict(most[:MAX_PANELS])
    with drawing(TIME_AXIS_IN + 0.06 + 0.8 * len(shown)) as (figure, svg):
        types = {kind: use for kind, use in past.gpus.items() if kind in shown}
        below = panels(figure, bins.clock, list(types), 0.42, one_scale=False)
        for axes, use in zip(below, types.values(), strict=True):
            layers = [bins.means(part) for part in (use.held, use.foreign, use.closed)]
            whole = bins.means([sum(each) for each in _columns(use)])
            _stack(axes, bins, layers, whole)
            count_axis(axes, "GPUs", max(1.0, float(np.nanmax(whole))))
        return svg("GPUs in use over time, by type")


def jobs_over_time(past: Past, bins: Bins) -> str:
    """Draw the jobs that wait and those that hold GPUs, each on a scale of its own."""
    with drawing(TIME_AXIS_IN + 0.06 + 0.8 * 2) as (figure, svg):
        below = panels(figure, bins.clock, ("waiting", "running"), 0.42, one_scale=False)
        for axes, values, colour in zip(below, (past.waiting, past.running), (2, 1), strict=True):
            means = bins.means(values)
            _area(axes, bins, np.zeros_like(means), means, policy_colour(colour), 0.28)
            _line(axes, bins, means, policy_colour(colour))
            count_axis(axes, "jobs", max(1.0, float(np.nanmax(means))))
        return svg("Waiting and running jobs over time")


def plan_time_over_time(past: Past, bins: Bins) -> str:
    """Draw how long the slowest plan of each bin took; "" where none was made."""
    slowest = bins.most(past.plan_s)
    known = np.isfinite(slowest)
    if not np.any(known):
        return ""
    with drawing(TIME_AXIS_IN + 1.0) as (figure, svg):
        axes = wide_axes(figure, bottom_in=TIME_AXIS_IN)
        middles = axis_times(bins.clock, (bins.edges[:-1] + bins.edges[1:]) / 2)
        shown_s = np.maximum(slowest[known], 0.001)
        axes.set_yscale("log")
        axes.scatter(middles[known], shown_s, s=5, color=policy_colour(3), linewidths=0)
        axes.set_ylim(0.0007, 10.0 ** math.ceil(math.log10(max(0.1, float(shown_s.max())) * 1.01)))
        axes.yaxis.set_major_locator(LogLocator(base=10.0))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda s, _: _SECONDS.get(s, f"{s:g} s")))
        axes.set_ylabel("plan time")
        time_axis(axes, bins.clock)
        return svg("Time that plans took")


def nodes_over_time(past: Past, bins: Bins, nodes: Sequence[LiveNode]) -> tuple[str, int]:
    """Draw the share of GPUs in use on each node, GPU type by GPU type.

    Returns:
        The drawing, and how many nodes share a row.
    """
    types = list(dict.fromkeys(node.gpu_type for node in nodes))
    each = nodes_a_row(node.gpu_type for node in nodes)
    rows: list[Floats] = []
    names: list[str] = []
    starts: list[int] = []
    for kind in types:
        of_type = [node.name for node in nodes if node.gpu_type == kind]
        starts.append(len(rows))
        for at in range(0, len(of_type), each):
            group = of_type[at : at + each]
            names.append(f"{group[0]}  {kind}")
            rows.append(_shares([past.nodes.get(name, "") for name in group], bins))
    legible = len(rows) <= _MOST_NAMED and each == 1
    height = len(rows) * (0.14 if legible else 0.062)
    with drawing(float(np.clip(height, 0.6, 4.4)) + TIME_AXIS_IN + 0.06) as (figure, svg):
        axes = wide_axes(figure, bottom_in=TIME_AXIS_IN)
        shade_rows(axes, bins.clock, np.array(rows), starts, _SHADES, _CLOSED_LEVEL)
        if legible:
            name_rows(axes, np.arange(len(rows), dtype=np.float64) + 0.5, names)
        else:
            ends = [*starts[1:], len(rows)]
            name_rows(axes, (np.array(starts) + np.array(ends)) / 2, types)
        return svg("Share of GPUs in use on each node over time"), each


_MOST_NAMED = 32
"""So many rows leave room for the name of each."""


def _columns(use: GpusOverTime) -> Iterator[tuple[int, int, int, int]]:
    return zip(use.held, use.foreign, use.closed, use.idle, strict=True)


def _shares(levels: Sequence[str], bins: Bins) -> Floats:
    """The mean level of some nodes in each bin; closed where more than half of it is."""
    shape = (len(bins.edges) - 1,)
    sums, counts, closed = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for line in levels:
        values = np.array([_LEVEL_OF.get(character, math.nan) for character in line])
        shut = values == _CLOSED_LEVEL
        known = np.isfinite(values) & ~shut
        of = bins.of[: len(values)]
        np.add.at(sums, of[known], values[known])
        np.add.at(counts, of[known], 1.0)
        np.add.at(closed, of[shut], 1.0)
    with np.errstate(invalid="ignore"):
        mean = np.minimum(sums / counts, _CLOSED_LEVEL - 1)
    return np.where(closed > counts, float(_CLOSED_LEVEL), mean)


def _stack(axes: Axes, bins: Bins, layers: Sequence[Floats], whole: Floats) -> None:
    colours = (policy_colour(1), MUTED, LOGGED_COLOUR)
    below = np.zeros_like(whole)
    for layer, colour in zip(layers, colours, strict=True):
        if np.nanmax(layer, initial=0.0) > 0.0:
            _area(axes, bins, below, below + layer, colour, 0.45)
        below = below + layer
    _line(axes, bins, whole, MUTED)


def _area(axes: Axes, bins: Bins, low: Floats, high: Floats, colour: str, alpha: float) -> None:
    """Fill between two step lines, with gaps where there are no readings."""
    x = axis_times(bins.clock, bins.edges)
    axes.stairs(high, x, baseline=low, fill=True, color=colour, alpha=alpha, linewidth=0)


def _line(axes: Axes, bins: Bins, values: Floats, colour: str) -> None:
    x = axis_times(bins.clock, bins.edges)
    axes.stairs(values, x, baseline=None, color=colour, linewidth=0.9)
