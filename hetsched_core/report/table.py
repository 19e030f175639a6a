"""The comparison table: for a terminal, or as plain text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched_core.logged import Closeness, LoggedMeasures
from hetsched_core.metrics import Measures
from hetsched_core.report.units import LOGGED, decimals, duration_unit

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
    compared = range(len(names) - len(policies), len(names))

    def values(key: str) -> list[float | None]:
        return [getattr(one, key, None) for one in measures]

    def durations(heading: tuple[str, str], key: str) -> Column:
        return _durations(heading, values(key), compared)

    def numbers(heading: tuple[str, str, str], key: str) -> Column:
        return _column(heading, values(key), compared)

    return Comparison(
        columns=(
            Column(("", "", "policy"), tuple(names)),
            Column(("", "jobs", "done"), tuple(f"{m.completed}/{jobs}" for m in measures)),
            durations(("avg", "JCT"), "avg_jct_s"),
            durations(("p99", "JCT"), "p99_jct_s"),
            durations(("avg", "wait"), "avg_wait_s"),
            numbers(("max", "latency", "ratio"), "max_latency_ratio"),
            numbers(("avg", "frag-", "ments"), "avg_fragments"),
            _shares(("GPUs", "held"), values("gpu_utilisation"), compared),
            durations(("lost", "GPU"), "lost_gpu_s"),
            numbers(("", "re-", "starts"), "restarts"),
            durations(("make-", "span"), "makespan_s"),
        ),
        notes=_notes(policies),
    )


def closeness_table(policies: Mapping[str, Closeness]) -> Comparison:
    """Return the table that says how close each policy's replay comes to the log.

    Nothing in it is marked as the best: a policy that keeps nobody waiting is close to all jobs
    that started on submission, and no better a likeness of the site for it.
    """
    found = list(policies.values())
    compared = range(0)
    waits = [found[0].avg_logged_wait_s, *(one.avg_wait_s for one in found)] if found else []
    unit = duration_unit(waits)
    places = decimals([wait / unit.size for wait in waits])
    return Comparison(
        columns=(
            Column(("starts", "against", "the log"), tuple(policies)),
            Column(("", "", "jobs"), tuple(str(one.jobs) for one in found)),
            _durations(("p50", "error"), [one.p50_error_s for one in found], compared),
            _durations(("p90", "error"), [one.p90_error_s for one in found], compared),
            _shares(("within", "5 min"), [one.close_share for one in found], compared),
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
                compared,
            ),
        ),
        notes=(),
    )


def _durations(
    heading: tuple[str, str], seconds: Sequence[float | None], compared: range
) -> Column:
    """A column of seconds, in the one unit that suits its largest value; less is better."""
    unit = duration_unit(seconds)
    values = [None if s is None else s / unit.size for s in seconds]
    return _column((*heading, unit.name), values, compared)


def _shares(heading: tuple[str, str], shares: Sequence[float | None], compared: range) -> Column:
    """A column of shares in per cent; more is better."""
    values = [None if share is None else 100.0 * share for share in shares]
    return _column((*heading, "%"), values, compared, max)


def _column(
    heading: tuple[str, ...],
    values: Sequence[float | None],
    compared: range,
    best: Callable[[Iterable[float]], float] = min,
) -> Column:
    """Cells with as many decimals as the largest value leaves room for.

    The best is marked of those that are `compared`.
    """
    places = decimals(values)
    cells = tuple(ABSENT if v is None else f"{v:.{places}f}" for v in values)
    rivals = {at: v for at in compared if (v := values[at]) is not None}
    if len({cells[at] for at in rivals}) < 2:
        return Column(heading, cells)
    winner = f"{best(rivals.values()):.{places}f}"
    return Column(heading, cells, frozenset(at for at in rivals if cells[at] == winner))


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
