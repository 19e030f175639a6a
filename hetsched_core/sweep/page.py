"""The page of a sweep: one HTML file, a table for each workload and choice of options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from hetsched_core.files import replacing
from hetsched_core.report.estimates import CONFIDENCE
from hetsched_core.report.rows import Row, rows
from hetsched_core.sweep.results import Group


@dataclass(frozen=True, slots=True)
class _Part:
    title: str
    seeds: int
    labels: tuple[str, ...]
    rows: tuple[Row, ...]


def write_page(name: str, groups: Sequence[Group], runs: int, done: int, path: Path) -> None:
    """Write the page; it appears once it is complete.

    Args:
        name: the sweep's.
        groups: what there is to compare.
        runs: how many runs the sweep has.
        done: how many of them are done.
        path: the file.

    Raises:
        InputError: the file cannot be written.
    """
    environment = Environment(
        loader=ChoiceLoader(
            [
                PackageLoader("hetsched_core.sweep", "template"),
                PackageLoader("hetsched_core.report", "template"),
            ]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    parts = [_part(group) for group in groups]
    text = environment.get_template("sweep.html").render(
        name=name,
        parts=parts,
        labels=list(dict.fromkeys(label for part in parts for label in part.labels)),
        runs=runs,
        done=done,
        confidence=f"{CONFIDENCE:.0%}",
    )
    with replacing(path) as file:
        file.write(text)


def _part(group: Group) -> _Part:
    title = ", ".join(
        (group.workload, *(f"{name} = {value}" for name, value in group.options.items()))
    )
    return _Part(title, len(group.seeds), tuple(group.seeds[0]), rows(group.seeds))
