"""Matplotlib's drawings as SVG to stand inside a page.

Colours are variables of the page's style sheet, so that one figure serves a light page, a dark one
and paper. Nothing here or in `figures` touches matplotlib's global state.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib
from matplotlib.figure import Figure

WIDTH_IN = 7.2

POLICY_COLOURS = 7
"""So many colours the style sheet has for policies; then they come again with other dashes."""

SIZE_COLOURS = 4
"""So many shades the style sheet has for size classes."""

# Stand-ins that become variables of the style sheet.
INK, MUTED, GRID, LOGGED_COLOUR = "#010101", "#010102", "#010103", "#010104"
_POLICY, _SIZE = "#0102", "#0103"
_VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    LOGGED_COLOUR: "logged",
    **{f"{_POLICY}{at:02x}": f"policy-{at}" for at in range(POLICY_COLOURS)},
    **{f"{_SIZE}{at:02x}": f"size-{at}" for at in range(SIZE_COLOURS)},
}

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "hetsched",
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
}

_REFERENCE = re.compile(r"(?<=[(\"]#)[^\")]+")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")


def policy_colour(at: int) -> str:
    """Return the stand-in for the colour of the policy at this place."""
    return f"{_POLICY}{at % POLICY_COLOURS:02x}"


def size_colour(at: int) -> str:
    """Return the stand-in for the shade of the size class at this place."""
    return f"{_SIZE}{at:02x}"


@contextmanager
def drawing(height_in: float) -> Iterator[tuple[Figure, Callable[[str], str]]]:
    """Give an empty figure of the page's width, and what returns it as SVG.

    The latter takes what a screen reader is to say.
    """
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # A browser has glyphs for any script; here they are only measured.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(WIDTH_IN, height_in))

        def svg(label: str) -> str:
            file = io.StringIO()
            figure.savefig(file, format="svg", metadata={"Date": None})
            return _inline(file.getvalue(), label)

        yield figure, svg


def _inline(file: str, label: str) -> str:
    """Return an SVG file as an element of a page: no ids but what is used, no style that leaks."""
    head, _, rest = file[file.index("<svg") :].partition(">")
    body = re.sub(r"<metadata>.*?</metadata>", "", rest, flags=re.DOTALL)
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
    used = set(_REFERENCE.findall(body))
    body = re.sub(r' id="([^"]*)"', lambda own: own[0] if own[1] in used else "", body)
    # A hundredth of a point is far below what a screen or a printer shows.
    body = re.sub(r'\bd="[^"]*"', lambda outline: _LONG_NUMBER.sub(_rounded, outline[0]), body)
    for stand_in, name in _VARIABLES.items():
        body = body.replace(stand_in, f"var(--{name})")
    body = re.sub(r"\s*\n\s*", "\n", body).strip()
    view = re.findall(r'viewBox="[^"]*"', head)
    return f'<svg {"".join(view)} role="img" aria-label="{escape(label)}">{body}'


def with_ids(svg: str, prefix: str) -> str:
    """Return a drawing whose ids begin with a prefix, so that no other on the page has them."""
    ids = set(re.findall(r' id="([^"]*)"', svg))
    svg = re.sub(r' id="([^"]*)"', rf' id="{prefix}-\1"', svg)
    return _REFERENCE.sub(lambda to: f"{prefix}-{to[0]}" if to[0] in ids else to[0], svg)


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}"
