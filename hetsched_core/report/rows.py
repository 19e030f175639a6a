"""The comparison as the report shows it: a row for each measure, a cell for each policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from hetsched_core.logged import Closeness, LoggedMeasures
from hetsched_core.metrics import Measures
from hetsched_core.report.estimates import Estimate, estimate, relative_change
from hetsched_core.report.units import (
    ABSENT,
    GPU_HOUR,
    NUMBER,
    PERCENT,
    SPACE,
    Unit,
    change,
    decimals,
    duration,
    duration_unit,
    durations,
    number,
)

_Value = float | None


class Better(Enum):
    """Which values of a measure are good; of some neither is."""

    LESS = "less"
    MORE = "more"
    NEITHER = "neither"


class _Kind(Enum):
    """What sort of number a measure is, and so in which unit it is shown."""

    COUNT = "count"
    DURATION = "duration"
    GPU_TIME = "GPU time"
    SHARE = "share"
    NUMBER = "number"


@dataclass(frozen=True, slots=True)
class _Shown:
    """A measure as shown: its key in the result file, its name and its meaning in plain words."""

    key: str
    label: str
    meaning: str
    kind: _Kind = _Kind.DURATION
    better: Better = Better.LESS
    only_if_any: bool = False


_MEASURES = (
    _Shown(
        "completed",
        "Jobs completed",
        "Jobs that ended with all their work done. Means, medians and extremes over jobs are over "
        "these only.",
        _Kind.COUNT,
        Better.NEITHER,
    ),
    _Shown(
        "failed",
        "Jobs failed",
        "Jobs that failed in the input: they fail here after the same work, and are counted apart.",
        _Kind.COUNT,
        Better.NEITHER,
        only_if_any=True,
    ),
    _Shown(
        "cancelled",
        "Jobs cancelled",
        "Jobs that their users withdrew.",
        _Kind.COUNT,
        Better.NEITHER,
        only_if_any=True,
    ),
    _Shown(
        "never",
        "Jobs that can never run",
        "Jobs whose GPU count, GPU type, CPUs or memory no part of this cluster can give.",
        _Kind.COUNT,
        Better.NEITHER,
        only_if_any=True,
    ),
    _Shown(
        "unfinished",
        "Jobs unfinished",
        "Jobs that had not ended when the run was stopped.",
        _Kind.COUNT,
        Better.LESS,
        only_if_any=True,
    ),
    _Shown(
        "avg_jct_s",
        "Completion time, mean",
        "Time from a job's submission to its end, waiting included (JCT).",
    ),
    _Shown(
        "p50_jct_s", "Completion time, median", "Half of the jobs take less than this, half more."
    ),
    _Shown(
        "p99_jct_s",
        "Completion time, 99th percentile",
        "One job in a hundred takes longer than this.",
    ),
    _Shown(
        "avg_wait_s",
        "Wait, mean",
        "Time in which a job was ready to run and held no GPU; later waits, after it was "
        "interrupted, included.",
    ),
    _Shown(
        "max_latency_ratio",
        "Latency ratio, worst job",
        "Wait / the job's expected run time without waiting: 2 means that it waited twice as long "
        "as it needed to run.",
        _Kind.NUMBER,
    ),
    _Shown(
        "avg_queue_length",
        "Jobs waiting, mean",
        "Mean number of jobs that are ready to run and hold no GPU.",
        _Kind.NUMBER,
    ),
    _Shown(
        "ftf_unfair_share",
        "Jobs worse off than on a fair share",
        "Jobs that take longer than they would on a part of the cluster of their own, of all GPUs "
        "/ mean number of jobs in the system (finish-time fairness above 1).",
        _Kind.SHARE,
    ),
    _Shown(
        "ftf_max",
        "Finish-time fairness, worst job",
        "Completion time / time on such a part of the cluster. Above 1, the job lost by sharing.",
        _Kind.NUMBER,
    ),
    _Shown(
        "gpu_utilisation",
        "GPUs held",
        "GPUs held by jobs / GPUs of the nodes that are up. A held GPU need not be busy, and the "
        "same work on slower GPUs holds more of them.",
        _Kind.SHARE,
        Better.NEITHER,
    ),
    _Shown(
        "avg_fragments",
        "GPUs idle while jobs wait, mean",
        "GPUs that no waiting job was given (fragments); 0 at times when no job waits.",
        _Kind.NUMBER,
    ),
    _Shown(
        "gpu_s",
        "GPU time held",
        "GPUs × hours, over all runs. The same work takes less of it on faster GPUs.",
        _Kind.GPU_TIME,
        Better.NEITHER,
    ),
    _Shown(
        "lost_gpu_s",
        "GPU time lost",
        "GPU time held without progress that was kept: restarts, saving state, lost work.",
        _Kind.GPU_TIME,
    ),
    _Shown(
        "profiling_gpu_s",
        "GPU time for profiling",
        "GPU time spent on measuring the speed of jobs.",
        _Kind.GPU_TIME,
        only_if_any=True,
    ),
    _Shown(
        "restarts",
        "Restarts",
        "Starts of a job after its first one, over all jobs.",
        _Kind.COUNT,
    ),
    _Shown(
        "preemptions",
        "Interruptions",
        "Times that a running job was stopped and had to wait again (preemptions).",
        _Kind.COUNT,
    ),
    _Shown("makespan_s", "Makespan", "Time from the first submission to the last end."),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One measure of one policy.

    Attributes:
        value: the mean over the seeds, in the unit of the result file; None if there is none.
        text: the same in the row's unit.
        spread: half width of its confidence interval in the row's unit; "" where there is none:
            for a single seed, or where all seeds agree.
        change: against the first policy, in per cent; "" where there is nothing to compare.
        in_doubt: whether the change may come from the seeds alone.
        best: whether the text is the best of its row.
    """

    value: float | None
    text: str
    spread: str = ""
    change: str = ""
    in_doubt: bool = False
    best: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One measure: its key in the result file, its name, unit and meaning, and its cells.

    `logged` is the same of what the site's own scheduler did; None where there is no log.
    """

    key: str
    label: str
    unit: str
    meaning: str
    cells: tuple[Cell, ...]
    logged: Cell | None = None


def rows(
    seeds: Sequence[Mapping[str, Measures]], logged: LoggedMeasures | None = None
) -> tuple[Row, ...]:
    """Return the rows that compare policies.

    Args:
        seeds: for each seed the measures of the same policies in the same order, the first of
            which the others are compared with.
        logged: the measures of what the site's own scheduler did, where a log tells.
    """
    return tuple(_rows(seeds, logged))


def _rows(seeds: Sequence[Mapping[str, Measures]], logged: LoggedMeasures | None) -> Iterator[Row]:
    for shown in _MEASURES:
        columns = [
            [_value(measures[policy], shown.key) for measures in seeds] for policy in seeds[0]
        ]
        if not shown.only_if_any or any(value for column in columns for value in column):
            there = None if logged is None else _value(logged, shown.key)
            unit = _unit(shown.kind, [*columns, [there]])
            yield Row(
                shown.key,
                shown.label,
                unit.name,
                shown.meaning,
                _cells(shown, columns, unit),
                None if logged is None else _logged_cell(shown.kind, there, unit),
            )


def _value(measures: Measures | LoggedMeasures, key: str) -> _Value:
    """The value of a measure; None where it is none that a log has."""
    value: _Value = getattr(measures, key, None)
    return value


def _logged_cell(kind: _Kind, value: _Value, unit: Unit) -> Cell:
    if value is None:
        return Cell(None, ABSENT)
    inside = _shown_value(kind, float(value), unit)
    return Cell(value, number(inside, decimals([inside])))


def _unit(kind: _Kind, columns: Sequence[Sequence[_Value]]) -> Unit:
    match kind:
        case _Kind.DURATION:
            means = (estimate(column) for column in columns)
            return duration_unit(mean.mean for mean in means if mean)
        case _Kind.GPU_TIME:
            return GPU_HOUR
        case _Kind.SHARE:
            return PERCENT
        case _Kind.COUNT | _Kind.NUMBER:
            return NUMBER


def _cells(shown: _Shown, columns: Sequence[Sequence[_Value]], unit: Unit) -> tuple[Cell, ...]:
    means = [estimate(column) for column in columns]
    inside = [None if mean is None else _shown_value(shown.kind, mean.mean, unit) for mean in means]
    places = decimals(inside)
    texts = [ABSENT if value is None else number(value, places) for value in inside]
    best = _best(shown.better, inside, texts)
    changes = [None, *(_change(shown, columns[0], column) for column in columns[1:])]
    return tuple(
        Cell(
            value=None if mean is None else mean.mean,
            text=text,
            spread=_spread(mean, unit, places),
            change=change(by.mean) if by and text != texts[0] else "",
            in_doubt=by is not None and by.in_doubt,
            best=text == best,
        )
        for mean, text, by in zip(means, texts, changes, strict=True)
    )


def _shown_value(kind: _Kind, mean: float, unit: Unit) -> float:
    """A count that is the same for every seed stays a whole number."""
    return int(mean) if kind is _Kind.COUNT and mean.is_integer() else mean / unit.size


def _spread(mean: Estimate | None, unit: Unit, places: int) -> str:
    if mean is None or not mean.half_width:
        return ""
    return number(mean.half_width / unit.size, places)


def _best(better: Better, values: Sequence[_Value], texts: Sequence[str]) -> str | None:
    """The text of the best value; None where all are shown alike, or none is good."""
    known = [value for value in values if value is not None]
    if better is Better.NEITHER or len(set(texts) - {ABSENT}) < 2:
        return None
    choose: Callable[[Sequence[float]], float] = min if better is Better.LESS else max
    return texts[values.index(choose(known))]


def _change(shown: _Shown, first: Sequence[_Value], other: Sequence[_Value]) -> Estimate | None:
    """The change against the first policy, of measures that have a better direction."""
    if shown.better is Better.NEITHER or shown.kind is _Kind.SHARE:
        return None
    return relative_change(first, other)


@dataclass(frozen=True, slots=True)
class CloseRow:
    """How close the replay of one policy comes to the log, as shown."""

    policy: str
    p50_error: str
    p90_error: str
    close: str
    waited_close: str
    logged_wait: str
    wait: str
    rank_correlation: str


def close_rows(policies: Mapping[str, Closeness]) -> tuple[CloseRow, ...]:
    """Return the rows that say how close each policy comes to the log."""
    return tuple(_close_row(policy, found) for policy, found in policies.items())


def _close_row(policy: str, found: Closeness) -> CloseRow:
    logged_wait, wait = durations(found.avg_logged_wait_s, found.avg_wait_s)
    coefficient = found.wait_rank_correlation
    return CloseRow(
        policy,
        duration(found.p50_error_s),
        duration(found.p90_error_s),
        f"{100.0 * found.close_share:.0f}{SPACE}%",
        f"{found.waited_close:,} of {found.waited:,}",
        logged_wait,
        wait,
        ABSENT if coefficient is None else f"{coefficient:.2f}",
    )
