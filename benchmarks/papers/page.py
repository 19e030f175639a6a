"""How each script of this folder writes its page: tables and plots between its markers.

A figure named N lies between a line `<!-- figures: N -->` and the next `<!-- end -->`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from itertools import takewhile, zip_longest
from pathlib import Path

import click
from matplotlib.figure import Figure

PAGES = Path(__file__).parents[2] / "docs/reproduction"
"""Where the pages are."""

END = "<!-- end -->"

Figures = Mapping[str, Callable[[], str]]
"""The figures of a page by name, each computed when it is asked for."""


@dataclass(frozen=True)
class PageSample:
    """What of a page is computed within a minute each, and comes out the same on every machine.

    Attributes:
        page: the page.
        figures: those that are compared whole.
        lines: of a figure that takes longer, or whose last columns are times of the clock, some
            lines, in their order; each may be the beginning of one.
    """

    page: Path
    figures: Figures = field(default_factory=dict)
    lines: Figures = field(default_factory=dict)


def data_folder() -> Path:
    """Return the directory of public logs, traces and measurements."""
    given = os.environ.get("HETSCHED_DATA")
    if not given:
        raise click.UsageError("HETSCHED_DATA is not set: it names the directory of public data")
    return Path(given)


def markdown(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    return "\n".join(table_line(row) for row in (heads, ["---"] * len(heads), *lines))


def table_line(cells: Sequence[str]) -> str:
    """Return a line of a table."""
    return "| " + " | ".join(cells) + " |"


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
        before, _, after = _parts(page, name)
        page = f"{before}{text}\n{after}"
    return page


def _parts(page: str, name: str) -> tuple[str, str, str]:
    """Return what comes before a figure, the figure, and what comes after it."""
    begin = f"<!-- figures: {name} -->\n"
    before, marker, rest = page.partition(begin)
    figure, end, after = rest.partition(END)
    if not marker or not end:
        raise click.ClickException(f"the page has no place marked {begin.strip()} ... {END}")
    return before + begin, figure, end + after


def difference(page: str, name: str, text: str, *, whole: bool = True) -> tuple[str, str] | None:
    """Return the first line of a figure on the page that is another, and what it is computed to be.

    Args:
        page: the page.
        name: of the figure.
        text: the figure, or lines of it.
        whole: whether it is the figure.
    """
    shown = _parts(page, name)[1].splitlines()
    if whole:
        pairs = zip_longest(shown, text.splitlines(), fillvalue="")
        return next(((old, new) for old, new in pairs if old != new), None)
    rest = iter(shown)
    for line in text.splitlines():
        if not any(each.startswith(line) for each in rest):
            return max(shown, key=lambda each: _agree(each, line), default=""), line
    return None


def _agree(one: str, other: str) -> int:
    """Return how many characters two lines have in common before they differ."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def same(sample: PageSample) -> bool:
    """Tell of each figure of a sample whether the page has it; return whether it has all."""
    page, all_same = sample.page.read_text(), True
    for figures, whole in ((sample.figures, True), (sample.lines, False)):
        for name, compute in figures.items():
            begun_s = _cpu_s()
            # What is said of the work is no part of what is told.
            with redirect_stdout(sys.stderr):
                text = compute()
            found = difference(page, name, text, whole=whole)
            said = f"{sample.page.name} {name}{'' if whole else ' (some lines)'}"
            took = f"{_cpu_s() - begun_s:.1f} CPU s"
            click.echo(f"{said}: {'differs' if found else 'same'} ({took})")
            if found:
                click.echo(f"  the page: {found[0]}\n  computed: {found[1]}")
                all_same = False
    return all_same


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of those that it has waited for."""
    return sum(os.times()[:4])


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
    chosen = {name: figures[name] for name in names or figures}
    if check:
        if not same(PageSample(page, chosen)):
            sys.exit(1)
        return
    text = page.read_text()
    for name, compute in chosen.items():
        text = filled(text, {name: compute()})
        page.write_text(text)


def command(page: Path, figures: Figures) -> click.Command:
    """Return the command line that writes a page: `[--check] [FIGURE ...]`."""

    @click.command()
    @click.argument("names", metavar="[FIGURE ...]", nargs=-1, type=click.Choice(tuple(figures)))
    @click.option("--check", is_flag=True, help="Compare with the page; exit 1 where they differ.")
    def main(names: tuple[str, ...], check: bool) -> None:
        """Rewrite the page, or only the figures named."""
        rewrite(page, figures, names, check=check)

    return main
