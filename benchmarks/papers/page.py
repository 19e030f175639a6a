"""How each script of this folder writes its page: tables and plots between its markers.

A figure named N lies between a line `<!-- figures: N -->` and the next `<!-- end -->`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import click
from matplotlib.figure import Figure

PAGES = Path(__file__).parents[2] / "docs/reproduction"
"""Where the pages are."""

END = "<!-- end -->"

Figures = Mapping[str, Callable[[], str]]
"""The figures of a page by name, each computed when it is asked for."""


def data_folder() -> Path:
    """Return the directory of public logs, traces and measurements."""
    given = os.environ.get("HETSCHED_DATA")
    if not given:
        raise click.UsageError("HETSCHED_DATA is not set: it names the directory of public data")
    return Path(given)


def markdown(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def plot_by_jobs(
    path: Path,
    found: Mapping[str, Sequence[float]],
    sizes: Sequence[int],
    *,
    jobs: str,
    cost: str,
    aim: float,
) -> None:
    """Draw what decisions cost against the number of jobs, on logarithmic axes.

    Args:
        path: of the drawing.
        found: policy -> cost at each size.
        sizes: numbers of jobs.
        jobs, cost: what stands at the axes.
        aim: where a line is drawn.
    """
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot(xlabel=jobs, ylabel=cost)
    for name, took in found.items():
        axes.loglog(sizes, took, marker="o", markersize=3, label=name)
    axes.axhline(aim, color="grey", linewidth=0.8, linestyle=":")
    axes.legend(frameon=False)
    axes.grid(visible=True, which="major", linewidth=0.3)
    figure.savefig(path, metadata={"Date": None})


def filled(page: str, figures: Mapping[str, str]) -> str:
    """Return a page with each of these figures in its place.

    Raises click.ClickException where the page has no place for one.
    """
    for name, text in figures.items():
        begin = f"<!-- figures: {name} -->\n"
        before, marker, rest = page.partition(begin)
        if not marker or END not in rest:
            raise click.ClickException(f"the page has no place marked {begin.strip()} ... {END}")
        page = f"{before}{begin}{text}\n{END}{rest.partition(END)[2]}"
    return page


def rewrite(
    page: Path, figures: Figures, names: Sequence[str] = (), *, check: bool = False
) -> None:
    """Write figures into a page, each as soon as it is there; or compare, and exit with 1.

    Args:
        page: the page.
        figures: what may be computed.
        names: what is; without any, everything.
        check: whether to compare instead.
    """
    before = text = page.read_text()
    for name in names or figures:
        text = filled(text, {name: figures[name]()})
        if not check:
            page.write_text(text)
    if check and text != before:
        sys.exit(1)


def command(page: Path, figures: Figures) -> click.Command:
    """Return the command line that writes a page: `[--check] [FIGURE ...]`."""

    @click.command()
    @click.argument("names", metavar="[FIGURE ...]", nargs=-1, type=click.Choice(tuple(figures)))
    @click.option("--check", is_flag=True, help="Compare with the page; exit 1 where they differ.")
    def main(names: tuple[str, ...], check: bool) -> None:
        """Rewrite the page, or only the figures named."""
        rewrite(page, figures, names, check=check)

    return main
