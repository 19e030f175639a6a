"""Whether the pages of docs/reproduction say what is computed today: a sample of each.

    HETSCHED_DATA=... python -m benchmarks.papers.check [PAGE ...]

computes the sample that each page's script states (`SAMPLE`), tells figure by figure whether the
page has the same, and exits with 1 where one differs. Figures that take longer are compared by
`--check` of the script.
"""

from __future__ import annotations

import sys

import click

from benchmarks import profile_ranks
from benchmarks.papers import (
    comparison,
    fidelity,
    hadar,
    hare,
    hops,
    learning,
    logs,
    shapes,
    throughput,
    when,
)
from benchmarks.papers.page import same

SCRIPTS = (fidelity, hadar, hare, hops, learning, logs, profile_ranks, shapes, throughput, when)
SAMPLES = {
    sample.page.stem: sample
    for sample in (
        comparison.SAMPLE,
        comparison.SAMPLE_OF_ALL,
        *(script.SAMPLE for script in SCRIPTS),
    )
}
"""The sample of each page by the page's name."""


@click.command()
@click.argument("names", metavar="[PAGE ...]", nargs=-1, type=click.Choice(tuple(SAMPLES)))
def main(names: tuple[str, ...]) -> None:
    """Compare a sample of all pages, or of those named, with what is computed."""
    # A page that differs keeps none of the others from being told.
    found = [same(SAMPLES[name]) for name in names or SAMPLES]
    if not all(found):
        sys.exit(1)


if __name__ == "__main__":
    main()
