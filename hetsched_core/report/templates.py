"""What both pages are made with: templates, in which all text is escaped, and their figures."""

from __future__ import annotations

from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hetsched_core.report.svg import with_ids


@dataclass(frozen=True, slots=True)
class PageFigure:
    """A figure: its heading, how to read it, its drawings, each with a name or "".

    `legend` says which one it has: "policies", "sizes", "names" (a colour for each of `names`),
    "uses" or "shades"; "" for none. `with_log` adds the log.
    """

    key: str
    heading: str
    reading: str
    drawings: tuple[tuple[str, Markup], ...]
    note: str = ""
    legend: str = ""
    with_log: bool = False
    names: tuple[str, ...] = ()


def drawn(prefix: str, svg: str, name: str = "") -> tuple[str, Markup]:
    """Return a drawing, with its name, whose ids begin with a prefix of its own."""
    return name, Markup(with_ids(svg, prefix))


def environment() -> Environment:
    """Return what finds the templates: HTML is escaped, and a name that is missing is an error."""
    return Environment(
        loader=PackageLoader("hetsched_core.report", "template"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
