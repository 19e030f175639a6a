"""The page of a running system: one HTML file that needs no other file, no network and no script.

It has the style and the drawings of the report of a replay (docs/live/page.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from hetsched_core import __version__
from hetsched_core.report import live_figures
from hetsched_core.report.clock import ReportClock
from hetsched_core.report.live_state import LiveNode, LiveState
from hetsched_core.report.templates import PageFigure, drawn, environment
from hetsched_core.report.units import duration, exact
from hetsched_core.types import ReasonCode

MOST_NODES = 600
"""So many nodes are drawn one by one, the first ones."""

_LONGEST = 60
"""Characters that are shown of a job's name."""


_SENTENCES = {code.word: code.sentence for code in ReasonCode}


def to_html(state: LiveState | None, trouble: str, zone: tzinfo, refresh_s: int) -> str:
    """Return the text of the page.

    Args:
        state: what the daemon told last; None if it has told nothing.
        trouble: why it tells nothing now; "" if it does.
        zone: in which zone times are shown.
        refresh_s: after how long a browser looks for a newer page; 0 for never.
    """
    templates = environment()
    templates.filters |= {
        "duration": duration,
        "exact": exact,
        "moment": ReportClock(0.0, 1.0, zone).date,
        "shown": _shown,
        "count": "{:,}".format,
        "sentence": _SENTENCES.get,
    }
    return templates.get_template("live.html").render(
        state=state,
        trouble=trouble,
        zone=zone,
        refresh_s=refresh_s,
        version=__version__,
        types=() if state is None else tuple(_by_type(state.nodes)),
        figures=() if state is None else tuple(_figures(state, zone)),
        drawn_nodes=() if state is None else state.nodes[:MOST_NODES],
    )


@dataclass(frozen=True, slots=True)
class _Type:
    """GPUs of one type now."""

    name: str
    held: int
    foreign: int
    closed: int
    idle: int

    @property
    def all(self) -> int:
        """All of them."""
        return self.held + self.foreign + self.closed + self.idle


def _by_type(nodes: Sequence[LiveNode]) -> Iterator[_Type]:
    for kind in dict.fromkeys(node.gpu_type for node in nodes):
        of_type = [node for node in nodes if node.gpu_type == kind]
        yield _Type(
            kind,
            sum(node.held for node in of_type),
            sum(node.foreign for node in of_type),
            sum(node.closed for node in of_type),
            sum(node.idle for node in of_type),
        )


def _figures(state: LiveState, zone: tzinfo) -> Iterator[PageFigure]:
    past = state.past
    if len(past.at_s) < 2:
        return
    bins = live_figures.bins_of(past, zone)
    width = exact(float(bins.edges[1] - bins.edges[0]))
    each = f" Each step is the mean over {width}." if width != exact(past.step_s) else ""
    yield PageFigure(
        "gpus",
        "GPUs in use",
        f"The line is what there is of a type; what is empty below it is idle.{each}",
        (drawn("gpus", live_figures.gpus_over_time(past, bins)),),
        legend="uses",
    )
    yield PageFigure(
        "jobs",
        "Jobs",
        "Managed jobs that wait and that run, each on a scale of its own.",
        (drawn("jobs", live_figures.jobs_over_time(past, bins)),),
    )
    if plans := live_figures.plan_time_over_time(past, bins):
        yield PageFigure(
            "plans",
            "Plan time",
            f"How long the policy took for a plan: the slowest in {width}, on a logarithmic axis.",
            (drawn("plans", plans),),
        )
    nodes, nodes_each = live_figures.nodes_over_time(past, bins, state.nodes)
    rows = "node" if nodes_each == 1 else f"{nodes_each} nodes of one type"
    yield PageFigure(
        "nodes",
        "Nodes over time",
        f"One row for each {rows}: the stronger the shade, the more of its GPUs are in use.",
        (drawn("nodes", nodes),),
        legend="shades",
    )


def _shown(text: str) -> str:
    """What somebody else has typed: no control characters, no change of direction, not too long."""
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
