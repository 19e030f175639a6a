"""Rows with more fields than columns: a name holds the delimiter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement
from math import comb

from hetsched_core.traces.sacct.fields import FieldError
from hetsched_core.traces.sacct.layout import FREE_TEXT, Layout

_MOST_WAYS = 256


def repair(
    cells: Sequence[str],
    layout: Layout,
    check: Callable[[Sequence[str]], None],
    read_columns: frozenset[int],
) -> list[str] | None:
    """Put the pieces of names together again where only one way of doing so makes sense.

    Args:
        cells: The fields as split at every delimiter, more than the layout has columns.
        layout: The layout of the log.
        check: Raises FieldError for a row whose values do not fit their columns.
        read_columns: Columns that are read; ways that differ only in others are the same.

    Returns:
        The row, of one field for each column; None where no way or more than one makes sense.
    """
    free = [at for at, name in enumerate(layout.names) if name in FREE_TEXT]
    surplus = len(cells) - len(layout.names)
    if not free or comb(surplus + len(free) - 1, surplus) > _MOST_WAYS:
        return None
    found: dict[tuple[str, ...], list[str]] = {}
    for widened in combinations_with_replacement(free, surplus):
        row = _join(cells, layout, widened)
        try:
            check(row)
        except FieldError:
            continue
        found[tuple(row[at] for at in sorted(read_columns))] = row
    return next(iter(found.values())) if len(found) == 1 else None


def _join(cells: Sequence[str], layout: Layout, widened: tuple[int, ...]) -> list[str]:
    """Return the row in which each column takes one field, and one more each time it is widened."""
    row = []
    at = 0
    for column in range(len(layout.names)):
        width = 1 + widened.count(column)
        row.append(layout.delimiter.join(cells[at : at + width]))
        at += width
    return row
