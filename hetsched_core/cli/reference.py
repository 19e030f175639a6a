"""The page of what policies are shown, from the docstrings of the types: `make man`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from hetsched_core.types import Configuration, Job, JobView, NodeView, Run, Snapshot

PAGE = Path(__file__).parents[2] / "docs/policies/what-policies-see.md"

_TYPES: tuple[type[Any], ...] = (Snapshot, JobView, Job, Run, Configuration, NodeView)

_ENTRY = re.compile(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)


def page() -> str:
    """Return the page."""
    head = (
        "# What policies see\n\n"
        "`plan(snapshot)` gets everything that a policy may know ([how to write one]"
        "(writing-one.md)). Times are seconds UTC, durations seconds, memory MiB. Made from the "
        "docstrings by `make man`.\n"
    )
    return "\n".join([head, *("\n".join(_section(cls)) for cls in _TYPES)])


def _section(cls: type[Any]) -> Iterator[str]:
    about, _, listed = inspect.cleandoc(cls.__doc__ or "").partition("\nAttributes:\n")
    meanings = {name: " ".join(text.split()) for name, text in _ENTRY.findall(listed)}
    yield f"## {cls.__name__}\n\n{about.strip()}\n"
    yield "| field | type |" + (" what it is |" if meanings else "")
    yield "| --- | --- |" + (" --- |" if meanings else "")
    for field in fields(cls):
        cells = [f"`{field.name}`", f"`{field.type}`"]
        cells += [meanings[field.name]] if meanings else []
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""
    for name, member in vars(cls).items():
        if not name.startswith("_") and (call := _call(name, member)):
            yield f"- `{call}`: {(inspect.getdoc(member) or '').partition(chr(10))[0]}"
    yield ""


def _call(name: str, member: object) -> str:
    """Return how a property or method is written, "" for what is neither."""
    if isinstance(member, property):
        return name
    if isinstance(member, classmethod):
        member = member.__func__
    if not inspect.isfunction(member):
        return ""
    _, *given = inspect.signature(member).parameters
    return f"{name}({', '.join(given)})"
