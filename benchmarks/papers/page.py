"""Figures between the markers of a page: how each script of this folder writes its page.

A figure named N lies between a line `<!-- figures: N -->` and the next `<!-- end -->`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

PAGES = Path(__file__).parents[2] / "docs/reproduction"
"""Where the pages are."""

END = "<!-- end -->"


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
