"""The time that all figures of a report share, and its axes: their room and names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from hetsched_core.report.history import History, LoggedHistory
from hetsched_core.report.svg import INK, WIDTH_IN
from hetsched_core.report.units import DAY, HOUR, MINUTE, Unit, duration_unit
from hetsched_core.types import Cluster

Floats = NDArray[np.float64]

BINS = 300
"""Into so many equal bins the time of a report is divided, whatever the number of jobs."""

SHADES = tuple((0.15, 0.45, 0.75, level / 15) for level in range(16))
"""One blue on whatever the page's colour is, in as many steps as an eye can tell apart."""

_FIRST_REAL_S = datetime(1990, 1, 1, tzinfo=UTC).timestamp()


@dataclass(frozen=True, slots=True)
class ReportClock:
    """From when to when a report shows, seconds UTC, and in which zone an admin reads it.

    `zone` is None for a trace that counts seconds from its own start, and has no calendar.
    """

    begin_s: float
    end_s: float
    zone: tzinfo | None

    @classmethod
    def of(cls, histories: Sequence[History | LoggedHistory], zone: tzinfo) -> ReportClock:
        """Return the time from the first submission to the last end under any of the histories."""
        begin_s = min(history.span_s[0] for history in histories)
        end_s = max(history.span_s[1] for history in histories)
        return cls(begin_s, max(end_s, begin_s + 1.0), zone if begin_s > _FIRST_REAL_S else None)

    def edges(self, bins: int = BINS) -> Floats:
        """Return the (bins + 1,) edges of equal bins."""
        return np.linspace(self.begin_s, self.end_s, bins + 1)

    @property
    def bin_s(self) -> float:
        """Seconds of one of the `BINS` bins."""
        return (self.end_s - self.begin_s) / BINS

    @property
    def unit(self) -> Unit:
        """The unit of an axis without a calendar."""
        span_s = self.end_s - self.begin_s
        return DAY if span_s > 5 * DAY.size else duration_unit([min(span_s, 47 * HOUR.size)])

    def date(self, time_s: float) -> str:
        """Return a time of the calendar, such as `Fri 2025-09-26 08:01`; seconds without one."""
        if self.zone is None:
            return f"{time_s:,.0f} s"
        days = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
        local = (datetime.fromtimestamp(0, UTC) + timedelta(seconds=time_s)).astimezone(self.zone)
        return f"{days[local.weekday()]} {local:%Y-%m-%d %H:%M}"


Ints = NDArray[np.int64]

_LEFT_IN = 1.12
"""Room for names and numbers left of every time axis, so that all figures have the same one."""
TIME_AXIS_IN = 0.42
"""Room for a time axis with its label below."""
_MAX_NAME = 18


def height_in(rows: int) -> float:
    """Inches for so many rows: a single one is legible, and all of them fit on half a page."""
    return float(np.clip(0.062 * rows, 0.6, 4.0))


def wide_axes(figure: Figure, bottom_in: float) -> Axes:
    """Give a figure its only axes, with so many inches below."""
    margins(figure, top_in=0.06, bottom_in=bottom_in)
    axes: Axes = figure.subplots()
    return axes


def margins(figure: Figure, top_in: float, bottom_in: float, between: float = 0.0) -> None:
    """Set the room around a figure's axes, and between them in units of their height."""
    height = figure.get_figheight()
    figure.subplots_adjust(
        left=_LEFT_IN / WIDTH_IN,
        # Half a label of a time axis hangs over its end.
        right=0.97,
        bottom=bottom_in / height,
        top=1.0 - top_in / height,
        hspace=between,
    )


def panels(
    figure: Figure, clock: ReportClock, names: Sequence[str], between: float, *, one_scale: bool
) -> Sequence[Axes]:
    """Give a figure panels of these names, from the top, above one time axis."""
    grid = figure.subplots(len(names), 1, sharex=True, sharey=one_scale, squeeze=False)
    columns: Sequence[Axes] = list(grid[:, 0])
    margins(figure, top_in=0.16, bottom_in=TIME_AXIS_IN, between=between)
    for axes, name in zip(columns, names, strict=True):
        axes.set_title(name, loc="left", fontsize=8, pad=2)
    time_axis(columns[-1], clock)
    return columns


def count_axis(axes: Axes, unit: str, most: float) -> None:
    """Make the vertical axis one of counts, from 0 to a little above the most."""
    axes.set_ylim(0, 1.06 * most)
    axes.set_ylabel(unit)
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))


def shade_rows(
    axes: Axes,
    clock: ReportClock,
    rows: Floats,
    starts: Sequence[int],
    colours: Colormap,
    most: int,
) -> None:
    """Draw rows of values from 0 to `most` as shades over time; a line where each type starts."""
    axes.grid(visible=False)
    left, right = axis_times(clock, np.array([clock.begin_s, clock.end_s]))
    axes.imshow(
        rows,
        cmap=colours,
        vmin=0.0,
        vmax=most,
        aspect="auto",
        interpolation="none",
        extent=(left, right, len(rows), 0),
    )
    for start in starts[1:]:
        axes.axhline(start, color=INK, linewidth=0.6)
    time_axis(axes, clock)


def name_nodes(axes: Axes, cluster: Cluster, ends: Ints) -> None:
    """Name the nodes and their types where there is room for it, else the types alone."""
    starts = np.append([0], ends[:-1])
    names = [f"{node.name}  {node.gpu_type}" for node in cluster]
    if height_in(cluster.gpus) / len(cluster) < 0.09:
        types = [node.gpu_type for node in cluster]
        changes = [at for at in range(len(types)) if at == 0 or types[at] != types[at - 1]]
        names = [types[at] for at in changes]
        starts = starts[changes]
        ends = np.append(starts[1:], cluster.gpus)
    name_rows(axes, (starts + ends) / 2, names)


def name_rows(axes: Axes, at: Floats, names: Sequence[str]) -> None:
    """Name rows at these heights; long names are cut."""
    short = [n if len(n) <= _MAX_NAME else f"{n[: _MAX_NAME - 1]}…" for n in names]
    axes.set_yticks(at, short, fontsize=7)
    axes.tick_params(axis="y", length=0)


def axis_times(clock: ReportClock, times_s: Floats) -> Floats:
    """Times as the axis counts them: days since 1970, or a unit since the first submission."""
    if clock.zone is not None:
        return times_s / DAY.size
    return (times_s - clock.begin_s) / clock.unit.size


def time_axis(axes: Axes, clock: ReportClock) -> None:
    """Make the horizontal axis that of the clock."""
    axes.set_xlim(*axis_times(clock, np.array([clock.begin_s, clock.end_s])))
    if clock.zone is not None:
        _calendar(axes, clock.zone)
    else:
        names = {DAY: "days", HOUR: "hours", MINUTE: "minutes"}
        axes.set_xlabel(f"{names.get(clock.unit, 'seconds')} since the first submission")


def _calendar(axes: Axes, zone: tzinfo) -> None:
    locator = AutoDateLocator(tz=zone, minticks=4, maxticks=9)  # type: ignore[no-untyped-call]
    formatter = ConciseDateFormatter(locator, tz=zone)  # type: ignore[no-untyped-call]
    formatter.formats = ["%Y", "%b", "%a %d", "%H:%M", "%H:%M", "%S.%f"]
    formatter.zero_formats = ["", "%Y", "%a %d %b", "%a %d", "%H:%M", "%H:%M"]
    formatter.offset_formats = ["", "%Y", "%b %Y", "%d %b %Y", "%d %b %Y", "%d %b %Y %H:%M"]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(formatter)
