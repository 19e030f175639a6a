"""The comparison table: for a terminal, or as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched_core.measures.accounts import AccountMeasures, rivals
from hetsched_core.measures.logged import Closeness, LoggedMeasures
from hetsched_core.measures.metrics import MEASURES, Better, MeasureKind, Measures
from hetsched_core.report.rows import account_name, best_text
from hetsched_core.report.units import GPU_HOUR, LOGGED, decimals, duration_unit

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

ABSENT = "-"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading over several lines, its cells, and the rows of the best value."""

    heading: tuple[str, ...]
    cells: tuple[str, ...]
    best: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Comparison:
    """A table of policies against measures, and notes on jobs that are not in the averages."""

    columns: tuple[Column, ...]
    notes: tuple[str, ...]

    def text(self) -> str:
        """Return the table as aligned plain text."""
        return "\n".join(
            ["  ".join(cell for cell, _ in row).rstrip() for row in self._rows()] + [*self.notes]
        )

    def renderable(self) -> Text:
        """Return the same text for a terminal: headings bold, the best of each column green."""
        from rich.text import Text

        text = Text()
        for row in self._rows():
            for cell, style in row:
                text.append(cell, style).append("  ")
            text.append("\n")
        return text.append("\n".join(self.notes), "dim")

    def _rows(self) -> list[list[tuple[str, str]]]:
        """Each line of the table: its cells, padded to their columns, with their styles."""
        columns = []
        for at, column in enumerate(self.columns):
            cells = [(cell, "bold") for cell in column.heading]
            cells += [
                (cell, "green" if row in column.best else "")
                for row, cell in enumerate(column.cells)
            ]
            width = max(len(cell) for cell, _ in cells)
            pad = str.rjust if at else str.ljust
            columns.append([(pad(cell, width), style) for cell, style in cells])
        return [list(row) for row in zip(*columns, strict=True)]


def show(table: Comparison, console: Console) -> None:
    """Print a table: with its best values marked on a terminal, else as plain text."""
    if console.is_terminal:
        # A window that is too narrow folds the lines; nothing is cut off.
        console.print(table.renderable(), soft_wrap=True)
    else:
        console.file.write(table.text() + "\n")


def comparison(
    policies: Mapping[str, Measures], logged: LoggedMeasures | None = None
) -> Comparison:
    """Return the table that compares policies, a row for each in the given order.

    What a log says that the site did stands above them. It is never marked as the best: nobody
    chose between it and the policies.
    """
    measures: list[Measures | LoggedMeasures] = [*policies.values()]
    names = [*policies]
    if logged is not None:
        measures.insert(0, logged)
        names.insert(0, LOGGED)
    jobs = max((m.jobs for m in policies.values()), default=0)
    compared = len(policies)
    known = {measure.key: measure for measure in MEASURES}
    return Comparison(
        columns=(
            Column(("", "", "policy"), tuple(names)),
            Column(("", "jobs", "done"), tuple(f"{m.completed}/{jobs}" for m in measures)),
            *(
                _column(
                    heading,
                    [getattr(one, key, None) for one in measures],
                    known[key].kind,
                    known[key].better,
                    compared,
                )
                for key, heading in _HEADINGS.items()
            ),
        ),
        notes=_notes(policies),
    )


_HEADINGS = {
    "avg_jct_s": ("avg", "JCT"),
    "p99_jct_s": ("p99", "JCT"),
    "avg_wait_s": ("avg", "wait"),
    "max_latency_ratio": ("max", "latency", "ratio"),
    "avg_fragments": ("avg", "frag-", "ments"),
    "gpu_utilisation": ("GPUs", "held"),
    "lost_gpu_s": ("lost", "GPU"),
    "restarts": ("", "re-", "starts"),
    "makespan_s": ("make-", "span"),
}
"""The measures for which a terminal has room, and their headings above the unit."""


def closeness_table(policies: Mapping[str, Closeness]) -> Comparison:
    """Return the table that says how close each policy's replay comes to the log.

    Nothing in it is marked as the best: a policy that keeps no job waiting is close to all jobs
    that started on submission, and no better a likeness of the site for it.
    """
    found = list(policies.values())
    waits = [found[0].avg_logged_wait_s, *(one.avg_wait_s for one in found)] if found else []
    unit = duration_unit(waits)
    places = decimals([wait / unit.size for wait in waits])
    return Comparison(
        columns=(
            Column(("starts", "against", "the log"), tuple(policies)),
            Column(("", "", "jobs"), tuple(str(one.jobs) for one in found)),
            _column(("p50", "error"), [one.p50_error_s for one in found], MeasureKind.DURATION),
            _column(("p90", "error"), [one.p90_error_s for one in found], MeasureKind.DURATION),
            _column(("within", "5 min"), [one.close_share for one in found], MeasureKind.SHARE),
            Column(
                ("waited:", "within", "5 min"),
                tuple(f"{one.waited_close}/{one.waited}" for one in found),
            ),
            Column(
                ("wait", "in log", unit.name),
                tuple(f"{one.avg_logged_wait_s / unit.size:.{places}f}" for one in found),
            ),
            Column(
                ("wait", "here", unit.name),
                tuple(f"{one.avg_wait_s / unit.size:.{places}f}" for one in found),
            ),
            _column(
                ("waits'", "rank", "corr."),
                [one.wait_rank_correlation for one in found],
                MeasureKind.NUMBER,
            ),
        ),
        notes=(),
    )


MOST_ACCOUNTS = 10
"""For so many accounts a terminal has room: those that had most under the first policy."""


def account_table(
    policies: Mapping[str, Sequence[AccountMeasures]], measures: Mapping[str, Measures]
) -> Comparison | None:
    """Return the table of what accounts had and were due; of users, where there is one account.

    Args:
        policies: the accounts and users under each policy, those that had most first.
        measures: the measures of each policy.

    Returns:
        None where nobody shares with anybody.
    """
    first = rivals(next(iter(policies.values()), ()))
    if len(first) < 2:
        return None
    shown = first[:MOST_ACCOUNTS]
    by_name = [{(one.account, one.user): one for one in measured} for measured in policies.values()]
    # The policies of one account stand below each other.
    lines = [of_policy[one.account, one.user] for one in shown for of_policy in by_name]
    begins = [at % len(policies) == 0 for at in range(len(lines))]

    def once(texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(text if begin else "" for text, begin in zip(texts, begins, strict=True))

    notes = []
    if len(first) > len(shown):
        kind = "users" if first[0].user else "accounts"
        notes.append(f"and {len(first) - len(shown)} {kind} more: --json FILE has them all")
    even = {n: f"{m.jain_slowdown:.2f}" for n, m in measures.items() if m.jain_slowdown is not None}
    off = {
        name: f"{100.0 * m.worst_share_error:.0f} %"
        for name, m in measures.items()
        if m.worst_share_error is not None
    }
    for what, told in (
        ("evenness of users' slowdowns (Jain's index)", even),
        ("worst account is off its due by", off),
    ):
        if told:
            notes.append(f"{what}: {', '.join(f'{name} {value}' for name, value in told.items())}")
    return Comparison(
        columns=(
            Column(
                ("", "user" if first[0].user else "account"),
                once([account_name(one.account, one.user) for one in lines]),
            ),
            Column(
                ("", "shares"),
                once([ABSENT if one.shares is None else str(one.shares) for one in lines]),
            ),
            Column(("", "jobs"), once([str(one.jobs) for one in lines])),
            Column(("", "policy"), tuple(policies) * len(shown)),
            _column(
                ("had", GPU_HOUR.name),
                [one.had_gpu_s / GPU_HOUR.size for one in lines],
                MeasureKind.NUMBER,
            ),
            _column(
                ("due", GPU_HOUR.name),
                [one.due_gpu_s / GPU_HOUR.size for one in lines],
                MeasureKind.NUMBER,
            ),
            _column(("wait",), [one.avg_wait_s for one in lines], MeasureKind.DURATION),
            _column(("slow-", "down"), [one.avg_slowdown for one in lines], MeasureKind.NUMBER),
        ),
        notes=tuple(notes),
    )


def _column(
    heading: tuple[str, ...],
    values: Sequence[float | None],
    kind: MeasureKind,
    better: Better = Better.NEITHER,
    compared: int = 0,
) -> Column:
    """A column in the unit that suits its kind, with as many decimals as its largest value bears.

    The best is marked of the last `compared` rows.
    """
    if kind in (MeasureKind.DURATION, MeasureKind.GPU_TIME):
        unit = duration_unit(values)
        heading = (*heading, unit.name)
        values = [None if value is None else value / unit.size for value in values]
    elif kind is MeasureKind.SHARE:
        heading = (*heading, "%")
        values = [None if value is None else 100.0 * value for value in values]
    places = decimals(values)
    cells = tuple(ABSENT if value is None else f"{value:.{places}f}" for value in values)
    first = len(cells) - compared
    best = best_text(better, values[first:], cells[first:])
    return Column(
        heading, cells, frozenset(at for at in range(first, len(cells)) if cells[at] == best)
    )


def _notes(policies: Mapping[str, Measures]) -> tuple[str, ...]:
    """Say what became of the jobs that did not complete, once for policies that agree."""
    alike: dict[str, list[str]] = {}
    for name, m in policies.items():
        parts = (
            (m.failed, "failed"),
            (m.cancelled, "cancelled"),
            (m.never, "can never run here"),
            (m.unfinished, "unfinished"),
        )
        told = ", ".join(f"{count} {what}" for count, what in parts if count)
        if told:
            alike.setdefault(told, []).append(name)
    return tuple(
        f"{'all policies' if len(names) == len(policies) > 1 else ', '.join(names)}: {told}"
        for told, names in alike.items()
    )
