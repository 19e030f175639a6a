"""The report: one HTML file that needs no other file and no network (docs/formats/report.md).

The same input gives the same bytes: nothing measured with a clock, and no date, is in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path

import numpy as np
from markupsafe import Markup, escape

from hetsched_core import __version__
from hetsched_core.costs import Costs
from hetsched_core.measures.accounts import rivals
from hetsched_core.measures.metrics import Measures
from hetsched_core.policy import PolicyInfo
from hetsched_core.records.files import replacing
from hetsched_core.report import figures
from hetsched_core.report.clock import BINS, ReportClock
from hetsched_core.report.estimates import CONFIDENCE
from hetsched_core.report.figures import Shades
from hetsched_core.report.findings import against_log, cautions, findings
from hetsched_core.report.gains import SIZES, gains, size_classes, together
from hetsched_core.report.history import History, LoggedHistory
from hetsched_core.report.result import Result
from hetsched_core.report.rows import (
    account_groups,
    account_name,
    close_rows,
    rows,
    time_bars,
    width_rows,
)
from hetsched_core.report.svg import POLICY_COLOURS
from hetsched_core.report.templates import PageFigure, drawn, environment
from hetsched_core.report.units import LOGGED, SPACE, change, duration, durations, exact
from hetsched_core.report.verdict import seldom_known, verdict
from hetsched_core.values.settings import settings_declared


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was read: its path as given, its bytes, its SHA-256; "" for what is no file."""

    path: str
    size: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> SourceFile:
        """Read a file once more; of a pipe, which can be read only once, the path must do."""
        if not path.is_file():
            return cls(str(path), 0, "")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(str(path), path.stat().st_size, digest)


NAME = "report.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a report is made from.

    Attributes:
        result: the measures, under one or several seeds.
        policies: what each policy says of itself, by its name in the result.
        histories: what each policy did under the first seed, in the order of the result.
        logged: what the site's own scheduler did, where the input is a log.
        files: the files of the input.
        command: the command line that makes this report.
        zone: in which zone times of the calendar are shown.
    """

    result: Result
    policies: Mapping[str, PolicyInfo]
    histories: tuple[History, ...]
    files: tuple[SourceFile, ...]
    command: str
    zone: tzinfo
    logged: LoggedHistory | None = None


def write_report(report: Report, folder: Path) -> Path:
    """Write the report into a folder and return its path.

    Raises:
        InputError: the file cannot be written.
    """
    text = to_html(report)
    with replacing(folder / NAME) as file:
        file.write(text)
    return folder / NAME


def to_html(report: Report) -> str:
    """Return the text of the report."""
    templates = environment()
    templates.filters |= {"change": change, "typed": _typed}
    templates.globals |= {"durations": durations, "logged_dashes": _dashes(figures.LOGGED_DASHES)}
    return templates.get_template("report.html").render(page=_page(report))


def _typed(text: str) -> Markup:
    """A text in which what stands in backquotes is to be typed."""
    parts = (
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part)
        for at, part in enumerate(text.split("`"))
    )
    return Markup("").join(parts)


# What the template gets ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Line:
    """How a policy's line is drawn: which colour of the style sheet, which dashes."""

    policy: str
    colour: int
    dashes: str


@dataclass(frozen=True, slots=True)
class _Policy:
    """What a reader must know of a policy, and the parameters it ran with."""

    name: str
    summary: str
    paper: str
    told: str
    parameters: tuple[tuple[str, str], ...]


def _page(report: Report) -> dict[str, object]:
    """Everything that the template shows."""
    result, histories = report.result, report.histories
    logged = report.logged if result.closeness else None
    clock = ReportClock.of([*histories, logged] if logged else histories, report.zone)
    gained = [gains(histories[0], other) for other in histories[1:]]
    known = tuple(one for one in gained if one is not None)
    settings = result.input.settings
    compared = rows(result.by_seed, result.logged)
    return {
        "version": __version__,
        "report": report,
        "period": _period(histories[0], clock),
        "seeds": (int(str(settings.get("seed", 0))), *result.other_seeds),
        "confidence": f"{100 * CONFIDENCE:.0f}{SPACE}%",
        "unmoved": _unmoved(result, [row.key for row in compared]),
        "rows": compared,
        "verdict": verdict(result, report.policies),
        "bars": time_bars(result.by_seed, result.logged),
        "glosses": {
            LOGGED: "what the site did with the same jobs",
            **{name: info.summary for name, info in report.policies.items()},
        },
        "findings": findings(result.by_seed, histories, known),
        "against_log": (
            against_log(result.closeness, logged, histories[0].cluster.gpus) if logged else ()
        ),
        "closeness": close_rows(result.closeness),
        "cautions": cautions(result.by_seed, histories[0], settings, result.input.assumptions),
        "lines": tuple(
            _Line(
                history.policy,
                at % POLICY_COLOURS,
                _dashes(figures.DASHES[at % len(figures.DASHES)]),
            )
            for at, history in enumerate(histories)
        ),
        "sizes": tuple(label for _, label in SIZES),
        "figures": _figures(histories, clock, logged),
        "gains": together(known),
        "accounts": account_groups(result.accounts),
        "widths": width_rows(result.widths),
        "policies": tuple(
            _policy(name, info, result.input.parameters.get(name, {}), settings)
            for name, info in report.policies.items()
        ),
        "costs": _costs(settings),
        "speeds": tuple(_speeds(settings)),
    }


def _dashes(pattern: Sequence[float]) -> str:
    """A dash pattern in the units of the legend's swatches."""
    return " ".join(f"{2 * dash:g}" for dash in pattern)


def _unmoved(result: Result, keys: Sequence[str]) -> tuple[str, ...]:
    """The policies for which every seed gives the same."""

    def shown(measures: Measures) -> list[object]:
        return [getattr(measures, key) for key in keys]

    return tuple(
        policy
        for policy, measures in result.policies.items()
        if all(shown(seed[policy]) == shown(measures) for seed in result.other_seeds.values())
    )


def _period(history: History, clock: ReportClock) -> str:
    """When the jobs came."""
    begin_s, end_s = history.jobs.submit_s[0], history.jobs.submit_s[-1]
    if clock.zone is None:
        return f"over {duration(end_s - begin_s)}"
    return f"from {clock.date(begin_s)} to {clock.date(end_s)} ({clock.zone})"


def _policy(
    name: str,
    info: PolicyInfo,
    parameters: Mapping[str, object],
    settings: Mapping[str, object],
) -> _Policy:
    return _Policy(
        name,
        info.summary,
        info.paper,
        seldom_known(info, settings),
        tuple((key, str(value)) for key, value in parameters.items()),
    )


def _costs(settings: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """The settings of the simulation in words."""
    return tuple(
        (exact(float(str(settings[each.name]))), each.doc)
        for each in settings_declared(Costs)
        if each.name.endswith("_s") and settings.get(each.name) is not None
    )


def _speeds(settings: Mapping[str, object]) -> Iterator[str]:
    """What the settings say of the true speeds and of those that policies are shown."""
    if (spread := settings.get("node_spread")) is not None:
        yield f"Nodes of one GPU type differ in speed (`--node-spread {spread}`)."
    if (source := settings.get("estimates")) is not None:
        speeds = {"truth": "the true speeds", "learned": "speeds learned from what has run"}
        yield f"Policies plan with {speeds[str(source)]} (`--estimates {source}`)."


def _figures(
    histories: Sequence[History], clock: ReportClock, logged: LoggedHistory | None
) -> tuple[PageFigure, ...]:
    jobs = len(histories[0].jobs.ids)
    sampled = (
        f"Each line goes through {figures.MAX_POINTS} of up to {jobs:,} jobs, evenly spaced by "
        "rank, the last one included."
        if jobs > figures.MAX_POINTS
        else ""
    )
    step = f"Each step is the mean over {duration(clock.bin_s)}, 1/{BINS} of the time shown."
    first = histories[0].policy
    if len(histories) > 1:
        step += f" Thin and dashed: {first} again. Policies that do the same share a panel."
    nodes, shades = figures.nodes_over_time(histories, clock, size_classes(histories[0]))
    ratios = (np.nanmax(history.jobs.latency_ratio, initial=0.0) for history in histories)
    waits = any(ratio > figures.RATIO_FLOOR for ratio in ratios)
    return (
        *(() if logged is None else (_waits(histories, logged, sampled),)),
        PageFigure(
            "jct",
            "How long jobs take",
            "The height of a line is the share of completed jobs that took no longer than the time "
            "below: further left and higher is better.",
            (drawn("jct", figures.jct_distribution(histories)),),
            sampled,
            "policies",
        ),
        PageFigure(
            "latency-ratio",
            "How long jobs wait for their size",
            "The same for the latency ratio, wait / expected run time: at 1, a job waited for as "
            "long as it needs to run; higher is better.",
            (drawn("latency-ratio", figures.latency_ratio_distribution(histories)),)
            if waits
            else (),
            f"A line begins at the share of jobs with a ratio of {figures.RATIO_FLOOR} or less, "
            f"which hardly waited. {sampled}"
            if waits
            else "No completed job waits for a hundredth of its run time: nothing to draw.",
            "policies",
        ),
        PageFigure(
            "gpus",
            "GPUs in use",
            "GPUs held by jobs, out of the cluster’s, which is the line across; room below it "
            "while jobs wait was left unused.",
            (drawn("gpus", figures.gpus_over_time(histories, clock, logged)),),
            f"{step} {_OF_THE_LOG}" if logged else step,
        ),
        PageFigure(
            "throughput",
            "Cluster throughput",
            "Work done at each time, in GPUs of average speed: on a GPU that is twice as fast for "
            "it as the average one, a job counts twice.",
            (drawn("work", figures.work_over_time(histories, clock)),),
            "The average GPU takes the mean of the times that the job would take on each GPU it "
            "can use; slow GPUs make that long, so that the total can exceed the number of GPUs. "
            f"{step} A run counts with its mean speed, restart included; jobs of unknown speed are "
            "left out.",
        ),
        PageFigure(
            "queue",
            "Queue length",
            "Jobs that were ready to run and held no GPU: lower is better.",
            (drawn("queue", figures.queue_over_time(histories, clock, logged)),),
            f"{step} {_OF_THE_LOG}" if logged else step,
        ),
        *_use(histories, clock),
        _nodes(nodes, shades, first, clock),
    )


_OF_THE_LOG = "“logged” is what the log says of the same jobs; what else the site ran is not in it."


def _waits(histories: Sequence[History], logged: LoggedHistory, sampled: str) -> PageFigure:
    return PageFigure(
        "waits",
        "Waits in the log and in the replays",
        "The share of jobs that started no later than so long after they could have: where a "
        "replay’s line lies above that of the log, jobs start sooner than they did.",
        (drawn("waits", figures.wait_distribution(histories, logged)),),
        sampled,
        "policies",
        with_log=True,
    )


def _use(histories: Sequence[History], clock: ReportClock) -> tuple[PageFigure, ...]:
    """GPU hours had and due; nothing where nobody shares with anybody."""
    those = rivals(histories[0].use.rows)
    if len(those) < 2:
        return ()
    kind = "users" if those[0].user else "accounts"
    shown = those[:POLICY_COLOURS]
    notes = []
    if len(histories) > 1:
        notes.append("Policies that do the same share a panel.")
    if len(those) > len(shown):
        notes.append(f"Drawn are the {len(shown)} of {len(those):,} {kind} that had most.")
    figure = PageFigure(
        "use",
        "GPU hours had and due",
        f"What the {kind} have had until each time, and dashed what was due to them by their "
        "shares: a line above the dashed one of its colour has had more than its due.",
        (drawn("use", figures.use_over_time(histories, clock, shown)),),
        " ".join(notes),
        "names",
        names=tuple(account_name(one.account, one.user) for one in shown),
    )
    return (figure,)


def _nodes(
    drawings: Mapping[str, str], shades: Shades | None, first: str, clock: ReportClock
) -> PageFigure:
    named = tuple(drawn(f"n{at}", svg, names) for at, (names, svg) in enumerate(drawings.items()))
    heading = "What ran where"
    if shades is None:
        return PageFigure(
            "nodes",
            heading,
            "A bar is a job on GPUs of a node, one row for each GPU, shaded by the job’s size; "
            "gaps are idle GPUs.",
            named,
            f"Size: GPU hours under {first}. Which of a node’s GPUs a job gets is not simulated: "
            "the first free ones are drawn.",
            "sizes",
        )
    rows_are = "node" if shades.nodes_each == 1 else f"{shades.nodes_each} nodes of one type"
    return PageFigure(
        "nodes",
        heading,
        f"One row for each {rows_are}: the stronger the shade, the more GPUs are held.",
        named,
        "Too many jobs or GPUs for a bar each: shades are means over "
        f"{duration(clock.bin_s)}, 1/{BINS} of the time shown.",
        "shades",
    )
