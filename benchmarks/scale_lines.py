"""What the benchmarks of scale share: a process for each size, a table of their lines, a drawing.

Each size is measured in a process of its own, so that memory and what is compiled do not add up.
Its line is put into a table in `docs/benchmarks`, in the place of an older one of the same size,
and the drawing is made from all lines.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Line = TypeVar("Line")

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"


def run(
    module: str,
    about: str,
    name: str,
    columns: Sequence[str],
    measure: Callable[[int], Sequence[object]],
    draw: Callable[[Axes, Callable[[str], list[float]]], None],
) -> None:
    """Measure the sizes that the command line asks for, and draw everything.

    Args:
        module: the benchmark, for `python -m`.
        about: what it says of itself.
        name: of the table and the drawing.
        columns: of the table; the first is the size, `gpus`.
        measure: returns the line of a size.
        draw: draws on axes, given the numbers of any column (not a number where it is empty).
    """
    options = argparse.ArgumentParser(description=about)
    options.add_argument("--gpus", default="", help="sizes to measure, separated by commas")
    options.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.one:
        csv.writer(sys.stdout).writerow(measure(given.one))
        return
    path = FOLDER / f"{name}.csv"
    table: dict[int, list[str]] = {}
    if path.exists():
        with path.open(newline="") as file:
            table = {int(row["gpus"]): list(row.values()) for row in csv.DictReader(file)}
    for gpus in map(int, filter(None, given.gpus.split(","))):
        command = [sys.executable, "-m", module, "--one", str(gpus)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        table[gpus] = next(csv.reader([done.stdout]))
    lines = [table[gpus] for gpus in sorted(table)]
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(lines)
    _draw(
        name, lambda column: [float(line[columns.index(column)] or "nan") for line in lines], draw
    )


def _draw(
    name: str,
    numbers: Callable[[str], list[float]],
    draw: Callable[[Axes, Callable[[str], list[float]]], None],
) -> None:
    with drawing(name) as axes:
        draw(axes, numbers)
        axes.legend(frameon=False)


def read(kind: Callable[..., Line], file: Path) -> dict[tuple[str, int], Line]:
    """Return the lines that a file holds, by policy and GPUs; none where there is no file."""
    lines = json.loads(file.read_text()) if file.exists() else []
    return {(each["policy"], each["gpus"]): kind(**each) for each in lines}


def write(file: Path, lines: Mapping[tuple[str, int], Any]) -> None:
    """Write what was measured, a line each."""
    text = ",\n".join(json.dumps(asdict(lines[key])) for key in sorted(lines))
    file.write_text(f"[\n{text}\n]\n")


def digits(value: float) -> str:
    """Return two digits of a number, all before the point."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.2g}"


@contextmanager
def drawing(name: str, height: float = 3.6) -> Iterator[Axes]:
    """Yield logarithmic axes of CPU seconds against GPUs, and write what was drawn on them.

    Args:
        name: of the drawing.
        height: of it, inches.
    """
    with mpl.rc_context({"svg.hashsalt": "hetsched", "font.size": 9}):
        figure = Figure(figsize=(6.0, height), layout="constrained")
        axes = figure.add_subplot()
        yield axes
        axes.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="CPU seconds")
        axes.grid(alpha=0.3)
        figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})
