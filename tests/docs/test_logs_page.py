"""The figures of docs/reproduction/logs.md are those that its command computes."""

from __future__ import annotations

from pathlib import Path

from benchmarks.papers import logs
from benchmarks.papers.workloads import bundled, fox, habrok


def line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def test_the_bundled_log_is_as_close_as_the_page_says() -> None:
    page = logs.PAGE.read_text()
    assert line(logs.row("bundled", bundled())) in page
    first = next(logs.seeds())
    assert line(first) in page


def test_the_logs_of_two_sites_are_as_close_as_the_page_says(data_dir: Path) -> None:
    page, folder = logs.PAGE.read_text(), data_dir
    assert line(logs.row("Fox (University of Oslo)", fox(folder))) in page
    assert line(logs.row("Hábrók (University of Groningen)", habrok(folder))) in page
