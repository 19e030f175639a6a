"""Tables in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import click


def print_table(names: Iterable[str], rows: Iterable[Sequence[str | int | float]]) -> None:
    """Print rows under their names; texts to the left, numbers to the right.

    A number under a name that ends in _s is a time, seconds UTC.
    """
    names = tuple(names)
    rows = list(rows)
    cells = [[name.upper().removesuffix("_S") for name in names]]
    cells += [[_cell(n, value) for n, value in zip(names, row, strict=True)] for row in rows]
    right = [all(not isinstance(row[at], str) for row in rows) for at in range(len(names))]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        padded = [
            cell.rjust(width) if numeric else cell.ljust(width)
            for cell, width, numeric in zip(line, widths, right, strict=True)
        ]
        click.echo("  ".join(padded).rstrip())


def _cell(name: str, value: str | int | float) -> str:
    if isinstance(value, float):
        if name.endswith("_s"):
            return moment(value)
        return f"{value:.6g}"
    return printable(str(value)) or "-"


def moment(at_s: float) -> str:
    """Return a time, seconds UTC, as it is told to users."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def printable(text: str) -> str:
    """Return a text of somebody else's, such as a job's name, without what a terminal obeys."""
    return "".join(c if c.isprintable() else "?" for c in text)
