"""The figures of docs/reproduction/throughput.md are those that its command computes."""

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers import throughput as page
from hetsched_core.throughput.fit import USUAL

TEXT = page.PAGE.read_text()


def printed(line: str) -> list[float]:
    """The percentages of a line of the page's first table, by its name."""
    (found,) = re.findall(rf"^\| {re.escape(line)} \|(.*)\|$", TEXT, re.MULTILINE)[:1]
    return [float(value) / 100 for value in re.findall(r"([\d.]+)% \(", found)]


@pytest.fixture(scope="module")
def sane(data_dir: Path) -> list[page.GavelRow]:
    return [row for row in page.gavel_rows(data_dir) if not row.fault()]


@pytest.fixture(scope="module")
def lookup(data_dir: Path) -> page.Predict:
    return page.by_lookup(page.gavel_rows(data_dir), USUAL)


def medians(rows: list[page.GavelRow], predict: page.Predict) -> list[float]:
    return [float(np.median(page.errors(rows, *case, predict))) for case in page.CASES]


def test_the_medians_are_those_on_the_page(sane: list[page.GavelRow], lookup: page.Predict) -> None:
    for line, predict in (
        ("ring through two points", page.two_points),
        ("… looked up through the layers", lookup),
    ):
        assert medians(sane, predict) == pytest.approx(printed(line), abs=0.003)


def test_no_fit_sees_the_speeds_that_it_is_judged_on(data_dir: Path) -> None:
    rows = page.gavel_rows(data_dir)
    blinded = [
        page.GavelRow(r.model, r.batch, r.gpu_type, r.nodes, (*r.speeds[:2], 1.0, 1.0))
        for r in rows
    ]
    some = [row for row in rows if (row.model, row.gpu_type) == ("Transformer", "p100")]
    members = [row for row in blinded if (row.model, row.gpu_type) == ("Transformer", "p100")]
    seen, unseen = page.by_lookup(some, USUAL), page.by_lookup(members, USUAL)
    assert [seen(row, 8) for row in some] == [unseen(row, 8) for row in some]


def test_knowing_nodes_helps_where_they_differ_and_never_costs_much(data_dir: Path) -> None:
    folder = data_dir / "variability"
    spread = page.read_spread(folder / page.SPREADS["Frontera, RTX 5000, ResNet"])
    plain, own, drawn = page.node_errors(spread, 100)
    assert drawn < 0.7 * plain
    assert drawn <= own
    few = page.read_spread(folder / page.SPREADS["Longhorn, V100, ResNet"])
    plain, own, drawn = page.node_errors(few, 100)
    assert own > 1.1 * plain
    assert drawn < 1.02 * plain
