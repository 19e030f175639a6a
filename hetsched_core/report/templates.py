"""The templates of pages, in which all text is escaped unless it says that it is none."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined


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
