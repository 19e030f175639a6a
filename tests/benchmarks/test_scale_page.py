"""The table of a million jobs in docs/benchmarks.md holds what benchmarks/scale.py measured."""

from benchmarks.papers.page import filled
from benchmarks.scale import PAGE, measured, table_of


def test_the_table_of_whole_replays_is_the_measured_one() -> None:
    page = PAGE.read_text()
    assert filled(page, {"scale": table_of(measured())}) == page
