"""docs/reproduction/README.md: each figure of ours stands in a table of the page that is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs/reproduction"
SECTIONS = re.findall(
    r"^\[.*?\]\((\w+\.md)\).*?\n\n(\|.*?)\n\n",
    (FOLDER / "README.md").read_text(),
    re.MULTILINE | re.DOTALL,
)
CLAIMS = [
    pytest.param(page, *(cell.strip() for cell in line.split("|")[1:5]), id=f"{page}-{at}")
    for page, table in SECTIONS
    for at, line in enumerate(table.splitlines()[2:])
]


def numbers(text: str) -> list[str]:
    # Signs aside: a table may say by how much less.
    return re.findall(r"\d+(?:\.\d+)?", text)


@pytest.mark.parametrize(("page", "figure", "paper", "ours", "ratio"), CLAIMS)
def test_what_is_said_to_be_ours_is_on_its_page(
    page: str, figure: str, paper: str, ours: str, ratio: str
) -> None:
    rows = [line for line in (FOLDER / page).read_text().splitlines() if line.startswith("|")]
    cells = {number for row in rows for number in numbers(row)}
    assert figure
    assert numbers(ours)
    assert set(numbers(ours)) <= cells
    if re.fullmatch(r"-?[\d.]+( %)?", paper) and len(numbers(ours)) == 1:
        own, theirs = float(numbers(ours)[0]), float(numbers(paper)[0])
        assert float(ratio) == pytest.approx(own / theirs, abs=0.006)


def test_every_paper_has_its_section_and_so_has_the_simulator() -> None:
    assert {page for page, _ in SECTIONS} == {"hops.md", "hadar.md", "hare.md", "live.md"}
    assert len(CLAIMS) > 20
