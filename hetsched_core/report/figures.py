"""The figures of the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from numpy.typing import NDArray

from hetsched_core.measures.accounts import AccountMeasures
from hetsched_core.report.clock import (
    SHADES,
    TIME_AXIS_IN,
    ReportClock,
    axis_times,
    count_axis,
    height_in,
    name_nodes,
    name_rows,
    panels,
    shade_rows,
    time_axis,
    wide_axes,
)
from hetsched_core.report.history import History, LoggedHistory, Pieces, Spans
from hetsched_core.report.svg import (
    GRID,
    LOGGED_COLOUR,
    MUTED,
    SIZE_COLOURS,
    drawing,
    policy_colour,
    size_colour,
)
from hetsched_core.report.units import GPU_HOUR, LOGGED
from hetsched_core.types import Cluster

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_BARS = 5_000
"""More bars than this in one figure are neither legible nor light."""
MAX_LANES = 160
"""More GPUs than this are thinner than a line."""
MAX_ROWS = 64
"""A row of the shades stands for one node, or for several where there are more of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Bars:
    """(B,) columns: job `job` holds the GPUs [first, first + gpus) from `since_s` to `until_s`.

    The GPUs of all nodes are numbered through in the order of the nodes. Which of a node's GPUs a
    job gets is not part of a run log: the first free ones are taken.
    """

    job: Ints
    first: Ints
    gpus: Ints
    since_s: Floats
    until_s: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Shades:
    """(rows, bins) shares of the GPUs of `nodes_each` neighbouring nodes (or fewer) that are held.

    The rows go through the GPU types in the order of the cluster; `types` names them, each with
    its first row.
    """

    share: Floats
    nodes_each: int
    types: tuple[tuple[str, int], ...]


def fits_bars(histories: Sequence[History]) -> bool:
    """Whether every bar of these runs can be drawn and told apart."""
    most = max(len(history.pieces) for history in histories)
    return most <= MAX_BARS and histories[0].cluster.gpus <= MAX_LANES


def bars(pieces: Pieces, cluster: Cluster) -> Bars:
    """Return the bars of a Gantt chart with a lane for each GPU."""
    offsets = np.cumsum([0, *(node.gpus for node in cluster)])
    free_s = np.full(cluster.gpus, -np.inf)
    rows = []
    for at in np.lexsort((pieces.node, pieces.since_s)):
        node, since_s, until_s = pieces.node[at], pieces.since_s[at], pieces.until_s[at]
        lanes = free_s[offsets[node] : offsets[node + 1]]
        # Tasks share a GPU between two plans, so that none may be free: then the first to be.
        wanted = np.argsort(np.where(lanes > since_s, lanes, -np.inf), kind="stable")
        taken = np.sort(wanted[: pieces.gpus[at]])
        lanes[taken] = until_s
        breaks = np.flatnonzero(np.diff(taken) > 1) + 1
        rows += [
            (pieces.job[at], offsets[node] + block[0], len(block), since_s, until_s)
            for block in np.split(taken, breaks)
        ]
    columns = np.array(rows, np.float64).reshape(-1, 5).T
    job, first, gpus = columns[:3].astype(np.int64)
    return Bars(job, first, gpus, columns[3], columns[4])


def shades(pieces: Pieces, cluster: Cluster, edges: Floats) -> Shades:
    """Return the use of each node, or of groups of neighbours of one type, over the bins."""
    nodes_each = nodes_a_row(node.gpu_type for node in cluster if node.gpus)
    gpus = np.array([node.gpus for node in cluster], np.float64)
    by_node = np.argsort(pieces.node, kind="stable")
    starts = np.searchsorted(pieces.node, np.arange(len(cluster) + 1), sorter=by_node)
    share: list[Floats] = []
    types = []
    for gpu_type in cluster.gpu_types:
        of_type = [at for at, node in enumerate(cluster) if node.gpu_type == gpu_type and gpus[at]]
        if of_type:
            types.append((gpu_type, len(share)))
        for start in range(0, len(of_type), nodes_each):
            group = of_type[start : start + nodes_each]
            here = np.concatenate([by_node[starts[at] : starts[at + 1]] for at in group])
            spans = Spans(
                pieces.since_s[here], pieces.until_s[here], pieces.gpus[here].astype(np.float64)
            )
            share.append(spans.mean_over(edges) / gpus[group].sum())
    return Shades(np.array(share), nodes_each, tuple(types))


def nodes_a_row(types: Iterable[str]) -> int:
    """Return how many nodes of one type share a row, so that there are `MAX_ROWS` at most.

    Args:
        types: the GPU type of each node. Of more types than rows, each has one.
    """
    nodes = Counter(types)
    most = max(nodes.values(), default=1)
    fits = (
        each
        for each in range(1, most)
        if sum(-(-count // each) for count in nodes.values()) <= MAX_ROWS
    )
    return next(fits, most)


MAX_POINTS = 400
"""Of a distribution of more jobs, so many evenly spaced ranks are drawn, the last one included."""

LOGGED_DASHES = (1.2, 1.2)
"""Dash pattern of what the log says, in line widths."""

DUE_DASHES = (3, 1.5)
"""Dash pattern of what is due to an account, in line widths."""

DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2), (2, 1.5), (7, 2, 2, 2))
"""Dash patterns of the policies' lines, in line widths."""

RATIO_FLOOR = 0.01
"""Latency ratios below this are drawn here: a logarithmic axis has no 0."""

_DURATION_FLOOR_S = 1.0
_DURATION_TICKS = {
    1.0: "≤ 1 s",
    10.0: "10 s",
    60.0: "1 min",
    600.0: "10 min",
    3_600.0: "1 h",
    21_600.0: "6 h",
    86_400.0: "1 d",
    604_800.0: "7 d",
    2_592_000.0: "30 d",
    31_536_000.0: "365 d",
}

_SHADE = ListedColormap(SHADES)


def jct_distribution(histories: Sequence[History]) -> str:
    """Draw the share of completed jobs that took at most so long, by policy."""
    with drawing(2.2) as (figure, svg):
        axes = wide_axes(figure, bottom_in=0.42)
        _distributions(axes, _curves(histories, lambda one: one.jobs.jct_s), _DURATION_FLOOR_S)
        _duration_axis(axes, "time from submission to end (logarithmic axis)")
        return svg("Distribution of completion times")


def wait_distribution(histories: Sequence[History], logged: LoggedHistory) -> str:
    """Draw the share of jobs that waited at most so long before they started, in log and replay."""
    with drawing(2.2) as (figure, svg):
        axes = wide_axes(figure, bottom_in=0.42)
        site = _Curve(logged.first_wait_s, LOGGED_COLOUR, LOGGED_DASHES)
        replays = _curves(histories, lambda one: one.jobs.first_wait_s)
        _distributions(axes, [*replays, site], _DURATION_FLOOR_S)
        _duration_axis(axes, "wait before the first start (logarithmic axis)")
        return svg("Distribution of waits in the log and in the replays")


def latency_ratio_distribution(histories: Sequence[History]) -> str:
    """Draw the share of completed jobs that waited at most so many times their run time."""
    with drawing(2.2) as (figure, svg):
        axes = wide_axes(figure, bottom_in=0.42)
        _distributions(axes, _curves(histories, lambda one: one.jobs.latency_ratio), RATIO_FLOOR)
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda ratio, _: f"{'≤ ' if ratio <= RATIO_FLOOR else ''}{ratio:,.10g}")
        )
        axes.set_xlabel("wait / expected run time (logarithmic axis)")
        return svg("Distribution of latency ratios")


def gpus_over_time(
    histories: Sequence[History], clock: ReportClock, logged: LoggedHistory | None = None
) -> str:
    """Draw the GPUs in use, a panel for the log if there is one, and for each policy."""
    curves = {history.policy: history.held for history in histories}
    capacity = histories[0].cluster.gpus
    return _over_time(curves, clock, "GPUs", logged.held if logged else None, capacity)


def work_over_time(histories: Sequence[History], clock: ReportClock) -> str:
    """Draw the throughput of the cluster, a panel for each policy."""
    return _over_time({history.policy: history.work for history in histories}, clock, "avg. GPUs")


def queue_over_time(
    histories: Sequence[History], clock: ReportClock, logged: LoggedHistory | None = None
) -> str:
    """Draw the number of waiting jobs, a panel for the log if there is one, and for each policy."""
    curves = {history.policy: history.waiting for history in histories}
    return _over_time(curves, clock, "jobs", logged.waiting if logged else None)


def use_over_time(
    histories: Sequence[History], clock: ReportClock, shown: Sequence[AccountMeasures]
) -> str:
    """Draw the GPU hours that accounts had and were due until each time, a panel for each policy.

    Args:
        histories: what the policies did.
        clock: the time axis.
        shown: the accounts, or users, to draw; each has a line for either, in its colour.
    """
    names = [(one.account, one.user) for one in shown]
    curves = [
        np.array([[use.had_gpu_s[each], use.due_gpu_s[each]] for each in names]) / GPU_HOUR.size
        for use in (history.use for history in histories)
    ]
    alike = _alike((history.policy for history in histories), curves)
    with drawing(TIME_AXIS_IN + 0.06 + 1.3 * len(alike)) as (figure, svg):
        below = panels(figure, clock, [policies for _, policies in alike], 0.2, one_scale=True)
        for axes, (at, _) in zip(below, alike, strict=True):
            x = axis_times(clock, histories[at].use.at_s)
            for colour, (had, due) in enumerate(curves[at]):
                axes.plot(x, had, color=policy_colour(colour), linewidth=1.2)
                axes.plot(
                    x, due, color=policy_colour(colour), linewidth=0.9, linestyle=(0, DUE_DASHES)
                )
            axes.set_ylim(bottom=0)
            axes.set_ylabel(GPU_HOUR.name)
            axes.yaxis.set_major_locator(MaxNLocator(4))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda hours, _: f"{hours:,.10g}"))
        return svg("GPU hours had and due over time")


def nodes_over_time(
    histories: Sequence[History], clock: ReportClock, sizes: Ints
) -> tuple[dict[str, str], Shades | None]:
    """Draw which job held which node when.

    Args:
        histories: what the policies did.
        clock: the time axis.
        sizes: (N,) size class of each job, 0 to 3.

    Returns:
        By policy a figure, policies that did the same together; and the shades of the first if
        there are too many bars to draw.
    """
    drawn: list[Shades] = []
    if fits_bars(histories):
        figures = [_bars(history, clock, sizes) for history in histories]
    else:
        edges = clock.edges()
        drawn = [shades(history.pieces, history.cluster, edges) for history in histories]
        figures = [_shades(one, clock) for one in drawn]
    names: dict[str, list[str]] = {}
    for history, figure in zip(histories, figures, strict=True):
        names.setdefault(figure, []).append(history.policy)
    return {", ".join(same): figure for figure, same in names.items()}, (
        drawn[0] if drawn else None
    )


# Kinds of figure ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Curve:
    """Values to be drawn, and as what line."""

    values: Floats
    colour: str
    dashes: tuple[float, ...] = ()


def _curves(histories: Sequence[History], values: Callable[[History], Floats]) -> Sequence[_Curve]:
    return [
        _Curve(values(history), policy_colour(at), DASHES[at % len(DASHES)])
        for at, history in enumerate(histories)
    ]


def _distributions(axes: Axes, curves: Sequence[_Curve], floor: float) -> None:
    """Draw cumulative shares; what is below `floor` is drawn there."""
    finite = [curve.values[np.isfinite(curve.values)] for curve in curves]
    top = max(float(values.max(initial=floor)) for values in finite)
    axes.set_xscale("log")
    axes.set_xlim(floor, max(100.0 * floor, 1.3 * top))
    axes.set_ylim(0, 101)
    axes.set_ylabel("share of jobs")
    axes.yaxis.set_major_locator(FixedLocator([0, 25, 50, 75, 100]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda percent, _: f"{percent:.0f} %"))
    for curve, values in zip(curves, finite, strict=True):
        if values.size:
            x, percent = _cumulative(np.maximum(values, floor))
            axes.step(
                np.append(x, axes.get_xlim()[1]),
                np.append(percent, 100.0),
                where="post",
                color=curve.colour,
                linewidth=1.4,
                linestyle=(0, curve.dashes or None),
            )
    axes.xaxis.set_minor_locator(NullLocator())


def _duration_axis(axes: Axes, label: str) -> None:
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(FixedLocator([s for s in _DURATION_TICKS if low <= s <= high]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda s, _: _DURATION_TICKS[s]))
    axes.set_xlabel(label)


def _cumulative(values: Floats) -> tuple[Floats, Floats]:
    """Values in order and the per cent of all that are no larger, at no more than MAX_POINTS."""
    count = len(values)
    ordered = np.sort(values)
    ranks = np.unique(np.linspace(0, count - 1, min(count, MAX_POINTS)).round().astype(np.int64))
    # Of equal values the last, whose rank is that of all of them.
    ranks = np.unique(np.searchsorted(ordered, ordered[ranks], side="right")) - 1
    return ordered[ranks], 100.0 * (ranks + 1) / count


def _over_time(
    curves: Mapping[str, Spans],
    clock: ReportClock,
    unit: str,
    logged: Spans | None = None,
    capacity: float = 0.0,
) -> str:
    """Draw bin means as panels of one scale, the log above; the first policy comes again in all."""
    edges = clock.edges()
    means = [spans.mean_over(edges) for spans in curves.values()]
    shown = [(means[at], policy_colour(at), names) for at, names in _alike(curves, means)]
    if logged is not None:
        shown.insert(0, (logged.mean_over(edges), LOGGED_COLOUR, LOGGED))
    top = max(1.0, capacity, *(float(mean.max()) for mean, *_ in shown))
    x = axis_times(clock, edges)
    with drawing(TIME_AXIS_IN + 0.06 + 0.76 * len(shown)) as (figure, svg):
        below = panels(figure, clock, [names for *_, names in shown], 0.42, one_scale=True)
        for axes, (mean, colour, _) in zip(below, shown, strict=True):
            axes.stairs(mean, x, fill=True, color=colour, alpha=0.28, linewidth=0)
            axes.stairs(mean, x, color=colour, linewidth=0.9, baseline=None)
            if mean is not means[0]:
                axes.stairs(
                    means[0],
                    x,
                    color=policy_colour(0),
                    linewidth=0.6,
                    linestyle=(0, (2, 1)),
                    baseline=None,
                )
            if capacity:
                axes.axhline(capacity, color=MUTED, linewidth=0.7)
            count_axis(axes, unit, top)
        return svg(f"{unit} over time")


def _alike(names: Iterable[str], curves: Sequence[Floats]) -> list[tuple[int, str]]:
    """The place of each curve that differs from those before it, and the names of all like it."""
    first: dict[bytes, int] = {}
    alike: dict[int, list[str]] = {}
    for at, (name, curve) in enumerate(zip(names, curves, strict=True)):
        # Rounding apart: what no eye can tell is alike.
        alike.setdefault(first.setdefault(curve.round(6).tobytes(), at), []).append(name)
    return [(at, ", ".join(same)) for at, same in alike.items()]


def _bars(history: History, clock: ReportClock, sizes: Ints) -> str:
    cluster = history.cluster
    drawn = bars(history.pieces, cluster)
    with drawing(height_in(cluster.gpus) + TIME_AXIS_IN + 0.06) as (figure, svg):
        axes = wide_axes(figure, bottom_in=TIME_AXIS_IN)
        axes.grid(visible=False, axis="y")
        ends = np.cumsum([node.gpus for node in cluster])
        for end in ends[:-1]:
            axes.axhline(end, color=GRID, linewidth=0.6)
        for size in range(SIZE_COLOURS):
            here = sizes[drawn.job] == size
            if np.any(here):
                outline = _boxes(drawn, here, clock)
                axes.add_patch(PathPatch(outline, facecolor=size_colour(size), linewidth=0))
        axes.set_ylim(cluster.gpus, 0)
        name_nodes(axes, cluster, ends)
        time_axis(axes, clock)
        return svg("Nodes over time")


def _boxes(drawn: Bars, here: NDArray[np.bool_], clock: ReportClock) -> Outline:
    """All boxes of one colour as one outline, which is a tenth as long as so many single ones."""
    left, right = axis_times(clock, drawn.since_s[here]), axis_times(clock, drawn.until_s[here])
    # A gap between neighbours, which leaves most of the shortest bar: idle time would look alike.
    day = axis_times(clock, np.array([clock.begin_s, clock.end_s]))
    right -= np.minimum(0.001 * (day[1] - day[0]), 0.2 * (right - left))
    top = drawn.first[here] + 0.08
    bottom = drawn.first[here] + drawn.gpus[here] - 0.08
    corners = np.stack([[left, right, right, left, left], [top, top, bottom, bottom, top]], axis=-1)
    codes = [Outline.MOVETO, Outline.LINETO, Outline.LINETO, Outline.LINETO, Outline.CLOSEPOLY]
    return Outline(corners.swapaxes(0, 1).reshape(-1, 2), np.tile(codes, len(left)))


def _shades(drawn: Shades, clock: ReportClock) -> str:
    rows = len(drawn.share)
    with drawing(height_in(rows) + TIME_AXIS_IN + 0.06) as (figure, svg):
        axes = wide_axes(figure, bottom_in=TIME_AXIS_IN)
        starts = [start for _, start in drawn.types]
        shade_rows(axes, clock, drawn.share, starts, _SHADE, 1)
        middles = (np.array(starts) + np.array([*starts[1:], rows])) / 2
        name_rows(axes, middles, [name for name, _ in drawn.types])
        return svg("Nodes over time")
