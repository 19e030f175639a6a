"""The comparison table: for a terminal, or as plain text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched_core.metrics import Measures
from hetsched_core.report.units import decimals, duration_unit

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


def comparison(policies: Mapping[str, Measures]) -> Comparison:
    """Return the table that compares policies, a row for each in the given order."""
    measures = list(policies.values())
    return Comparison(
        columns=(
            Column(("", "", "policy"), tuple(policies)),
            Column(("", "jobs", "done"), tuple(f"{m.completed}/{m.jobs}" for m in measures)),
            _durations(("avg", "JCT"), measures, lambda m: m.avg_jct_s),
            _durations(("p99", "JCT"), measures, lambda m: m.p99_jct_s),
            _durations(("avg", "wait"), measures, lambda m: m.avg_wait_s),
            _numbers(("max", "latency", "ratio"), measures, lambda m: m.max_latency_ratio),
            _numbers(("avg", "frag-", "ments"), measures, lambda m: m.avg_fragments),
            _numbers(("GPUs", "held", "%"), measures, lambda m: _percent(m.gpu_utilisation), max),
            _durations(("lost", "GPU"), measures, lambda m: m.lost_gpu_s),
            _numbers(("", "re-", "starts"), measures, lambda m: m.restarts),
            _durations(("make-", "span"), measures, lambda m: m.makespan_s),
        ),
        notes=_notes(policies),
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def _durations(
    heading: tuple[str, str],
    measures: Sequence[Measures],
    value: Callable[[Measures], float | None],
) -> Column:
    """A column of seconds, in the one unit that suits its largest value; less is better."""
    seconds = [value(m) for m in measures]
    unit = duration_unit(seconds)
    return _column((*heading, unit.name), [None if s is None else s / unit.size for s in seconds])


def _numbers(
    heading: tuple[str, str, str],
    measures: Sequence[Measures],
    value: Callable[[Measures], float | None],
    best: Callable[[Iterable[float]], float] = min,
) -> Column:
    return _column(heading, [value(m) for m in measures], best)


def _column(
    heading: tuple[str, ...],
    values: Sequence[float | None],
    best: Callable[[Iterable[float]], float] = min,
) -> Column:
    """Cells with as many decimals as the largest value leaves room for."""
    known = [value for value in values if value is not None]
    places = decimals(known)
    cells = tuple(ABSENT if v is None else f"{v:.{places}f}" for v in values)
    if len(set(cells) - {ABSENT}) < 2:
        return Column(heading, cells)
    winner = f"{best(known):.{places}f}"
    return Column(heading, cells, frozenset(at for at, cell in enumerate(cells) if cell == winner))


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
