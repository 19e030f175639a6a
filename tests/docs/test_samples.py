"""What `make check-pages` compares: a sample of every page of docs/reproduction."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.papers.check import SAMPLES
from benchmarks.papers.page import PAGES, PageSample, difference, filled, same

PAGE = """Text.

<!-- figures: sizes -->
| a | 1 | 0.4 |
| b | 2 | 0.5 |
| c | 3 | 0.6 |
<!-- end -->

| d | 4 | not of the figure |
"""


def test_every_page_with_figures_has_a_sample() -> None:
    pages = {page.stem for page in PAGES.glob("*.md") if "<!-- figures: " in page.read_text()}
    assert set(SAMPLES) == pages


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_of_figures_that_its_page_has(name: str) -> None:
    sample = SAMPLES[name]
    names = [*sample.figures, *sample.lines]
    assert names
    assert len(set(names)) == len(names)
    page = sample.page.read_text()
    assert filled(page, dict.fromkeys(names, "another")) != page


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("| a | 1 | 0.4 |\n| b | 2 | 0.5 |\n| c | 3 | 0.6 |", None),
        ("| a | 1 | 0.4 |\n| b | 7 | 0.5 |", ("| b | 2 | 0.5 |", "| b | 7 | 0.5 |")),
        ("| a | 1 | 0.4 |\n| b | 2 | 0.5 |", ("| c | 3 | 0.6 |", "")),
        (
            "| a | 1 | 0.4 |\n| b | 2 | 0.5 |\n| c | 3 | 0.6 |\n| d |",
            ("", "| d |"),
        ),
    ],
    ids=["the same", "another line", "a line less", "a line more"],
)
def test_a_whole_figure_is_compared_line_by_line(text: str, found: tuple[str, str] | None) -> None:
    assert difference(PAGE, "sizes", text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("| a | 1 |\n| c | 3 | 0.6 |", None),
        ("| c | 4 |", ("| c | 3 | 0.6 |", "| c | 4 |")),
        ("| c | 3 |\n| a | 1 |", ("| a | 1 | 0.4 |", "| a | 1 |")),
        ("| d | 4 |", ("| a | 1 | 0.4 |", "| d | 4 |")),
    ],
    ids=["beginnings in order", "another number", "another order", "outside of the figure"],
)
def test_lines_are_looked_for_in_their_order(text: str, found: tuple[str, str] | None) -> None:
    assert difference(PAGE, "sizes", text, whole=False) == found


def test_a_figure_that_differs_is_told_with_both_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    right, wrong = {"sizes": lambda: "| b | 2 |"}, {"sizes": lambda: "| b | 3 |"}
    assert same(PageSample(page, lines=right))
    assert "page.md sizes (some lines): same (" in capsys.readouterr().out
    assert not same(PageSample(page, lines=wrong))
    told = capsys.readouterr().out
    assert "page.md sizes (some lines): differs (" in told
    assert "  the page: | b | 2 | 0.5 |\n  computed: | b | 3 |\n" in told
    assert not same(PageSample(page, right))
    assert page.read_text() == PAGE
