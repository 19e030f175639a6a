"""The comparison as the report shows it: a row for each measure, a cell for each policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from hetsched_core.measures.accounts import AccountMeasures, rivals
from hetsched_core.measures.logged import Closeness, LoggedMeasures
from hetsched_core.measures.metrics import MEASURES, Better, Measure, MeasureKind, Measures
from hetsched_core.measures.widths import WidthMeasures
from hetsched_core.report.estimates import Estimate, estimate, relative_change
from hetsched_core.report.units import (
    ABSENT,
    GPU_HOUR,
    LOGGED,
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
from hetsched_core.types.site import Association

_Value = float | None


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


@dataclass(frozen=True, slots=True)
class TimeBar:
    """How long completed jobs take on average under one policy, or took in the log.

    `waits`, `runs` and `takes` have a unit each, the same for all policies; `wait_share` and
    `run_share` are lengths of a bar, as shares of the longest.
    """

    name: str
    waits: str
    runs: str
    takes: str
    wait_share: float
    run_share: float


def time_bars(
    seeds: Sequence[Mapping[str, Measures]], logged: LoggedMeasures | None = None
) -> tuple[TimeBar, ...]:
    """Return the mean completion times, split into waiting and running, the log's first.

    Policies under which no job completes have none. Means are over the seeds.
    """
    columns: dict[str, list[Measures | LoggedMeasures]] = (
        {} if logged is None else {LOGGED: [logged]}
    )
    columns |= {policy: [measures[policy] for measures in seeds] for policy in seeds[0]}
    means = {
        name: (estimate([m.avg_wait_s for m in column]), estimate([m.avg_jct_s for m in column]))
        for name, column in columns.items()
    }
    known = {name: (w.mean, t.mean) for name, (w, t) in means.items() if w and t and t.mean}
    longest_s = max((takes_s for _, takes_s in known.values()), default=0.0)
    waits_s = [wait_s for wait_s, _ in known.values()]
    takes_s = [take_s for _, take_s in known.values()]
    runs_s = [max(0.0, takes_s[at] - wait_s) for at, wait_s in enumerate(waits_s)]
    # A unit for each: waits may be a thousandth of the rest.
    texts = zip(durations(*waits_s), durations(*runs_s), durations(*takes_s), strict=True)
    return tuple(
        TimeBar(name, *shown, waits_s[at] / longest_s, runs_s[at] / longest_s)
        for at, (name, shown) in enumerate(zip(known, texts, strict=True))
    )


def _rows(seeds: Sequence[Mapping[str, Measures]], logged: LoggedMeasures | None) -> Iterator[Row]:
    for shown in MEASURES:
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


def _logged_cell(kind: MeasureKind, value: _Value, unit: Unit) -> Cell:
    if value is None:
        return Cell(None, ABSENT)
    inside = _shown_value(kind, float(value), unit)
    return Cell(value, number(inside, decimals([inside])))


def _unit(kind: MeasureKind, columns: Sequence[Sequence[_Value]]) -> Unit:
    match kind:
        case MeasureKind.DURATION:
            means = (estimate(column) for column in columns)
            return duration_unit(mean.mean for mean in means if mean)
        case MeasureKind.GPU_TIME:
            return GPU_HOUR
        case MeasureKind.SHARE:
            return PERCENT
        case MeasureKind.COUNT | MeasureKind.NUMBER:
            return NUMBER


def _cells(shown: Measure, columns: Sequence[Sequence[_Value]], unit: Unit) -> tuple[Cell, ...]:
    means = [estimate(column) for column in columns]
    inside = [None if mean is None else _shown_value(shown.kind, mean.mean, unit) for mean in means]
    places = decimals(inside)
    texts = [ABSENT if value is None else number(value, places) for value in inside]
    best = best_text(shown.better, inside, texts)
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


def _shown_value(kind: MeasureKind, mean: float, unit: Unit) -> float:
    """A count that is the same for every seed stays a whole number."""
    return int(mean) if kind is MeasureKind.COUNT and mean.is_integer() else mean / unit.size


def _spread(mean: Estimate | None, unit: Unit, places: int) -> str:
    # Sums of the same values in another order differ, by far less than can be measured.
    if mean is None or not mean.half_width or mean.half_width <= 1e-9 * abs(mean.mean):
        return ""
    return number(mean.half_width / unit.size, places)


def best_text(better: Better, values: Sequence[_Value], texts: Sequence[str]) -> str | None:
    """Return the text of the best value; None where all are shown alike, or none is good."""
    known = [value for value in values if value is not None]
    if (
        better is Better.NEITHER
        or len({texts[at] for at, value in enumerate(values) if value is not None}) < 2
    ):
        return None
    choose: Callable[[Sequence[float]], float] = min if better is Better.LESS else max
    return texts[values.index(choose(known))]


def _change(shown: Measure, first: Sequence[_Value], other: Sequence[_Value]) -> Estimate | None:
    """The change against the first policy, of measures that have a better direction."""
    if shown.better is Better.NEITHER or shown.kind is MeasureKind.SHARE:
        return None
    return relative_change(first, other)


Texts = tuple[str, ...]
"""A row of a table as shown, cell by cell."""


def close_rows(policies: Mapping[str, Closeness]) -> tuple[Texts, ...]:
    """Return the rows that say how close each policy comes to the log.

    Policy, median and 90th percentile of the error, close ones of all and of those that wait, wait
    in the log and here, rank correlation.
    """
    return tuple(
        (
            policy,
            duration(found.p50_error_s),
            duration(found.p90_error_s),
            f"{100.0 * found.close_share:.0f}{SPACE}%",
            f"{found.waited_close:,} of {found.waited:,}",
            *durations(found.avg_logged_wait_s, found.avg_wait_s),
            ABSENT if coefficient is None else f"{coefficient:.2f}",
        )
        for policy, found in policies.items()
        for coefficient in (found.wait_rank_correlation,)
    )


MOST_ACCOUNTS = 12
"""So many accounts, and so many users, the report shows: those that had most."""


@dataclass(frozen=True, slots=True)
class AccountGroup:
    """The accounts, or the users, that had most under the first policy, and how many more are.

    A row has name, shares, jobs, GPU hours had and due, wait and slowdown under one policy.
    """

    title: str
    rows: tuple[Texts, ...]
    more: int


def account_name(account: str, user: str) -> str:
    """Return what an account, or a user of it, is called where both are shown."""
    if user:
        return f"{user} of {account}" if account else user
    return account or "(no account)"


def account_groups(
    policies: Mapping[str, Sequence[AccountMeasures]],
) -> dict[str, tuple[AccountGroup, ...]]:
    """Return what accounts and users had under each policy; nothing where there is but one.

    All policies have the same rows in the same order.
    """
    first: Sequence[AccountMeasures] = next(iter(policies.values()), ())
    if len(rivals(first)) < 2:
        return {}
    kinds: dict[str, list[Association]] = {
        "accounts": [(one.account, one.user) for one in first if not one.user],
        "users": [(one.account, one.user) for one in first if one.user],
    }
    return {
        policy: tuple(
            AccountGroup(
                title,
                _account_rows(measured, names[:MOST_ACCOUNTS]),
                max(0, len(names) - MOST_ACCOUNTS),
            )
            for title, names in kinds.items()
            if len(names) > 1
        )
        for policy, measured in policies.items()
    }


def _account_rows(
    measured: Sequence[AccountMeasures], names: Sequence[Association]
) -> tuple[Texts, ...]:
    by_name = {(one.account, one.user): one for one in measured}
    shown = [by_name[name] for name in names]
    hours = decimals(one.had_gpu_s / GPU_HOUR.size for one in shown)
    unit = duration_unit(one.avg_wait_s for one in shown)
    waits = [None if one.avg_wait_s is None else one.avg_wait_s / unit.size for one in shown]
    slowdowns = [one.avg_slowdown for one in shown]
    return tuple(
        (
            account_name(one.account, one.user),
            ABSENT if one.shares is None else number(one.shares, 0),
            number(one.jobs, 0),
            number(one.had_gpu_s / GPU_HOUR.size, hours),
            number(one.due_gpu_s / GPU_HOUR.size, hours),
            ABSENT if wait is None else f"{number(wait, decimals(waits))}{SPACE}{unit.name}",
            ABSENT if one.avg_slowdown is None else number(one.avg_slowdown, decimals(slowdowns)),
        )
        for one, wait in zip(shown, waits, strict=True)
    )


def width_rows(policies: Mapping[str, Sequence[WidthMeasures]]) -> dict[str, tuple[Texts, ...]]:
    """Return what became of the jobs of each number of GPUs; nothing where all have one."""
    every = [one for rows in policies.values() for one in rows]
    if len({one.gpus for one in every}) < 2:
        return {}
    columns = (_WIDTH_TIMES(one) for one in every)
    units = [duration_unit(column) for column in zip(*columns, strict=True)]

    def cells(one: WidthMeasures) -> Iterator[str]:
        for seconds, unit in zip(_WIDTH_TIMES(one), units, strict=True):
            value = None if seconds is None else seconds / unit.size
            yield (
                ABSENT if value is None else f"{number(value, decimals([value]))}{SPACE}{unit.name}"
            )

    return {
        policy: tuple(
            (number(one.gpus, 0), f"{one.completed:,}/{one.jobs:,}", *cells(one)) for one in rows
        )
        for policy, rows in policies.items()
    }


_WIDTH_TIMES = attrgetter("avg_jct_s", "p99_jct_s", "avg_wait_s", "p99_wait_s")
"""The times of a width, in the order of the table."""
