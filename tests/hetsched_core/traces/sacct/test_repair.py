"""Rows with more fields than columns: how much is tried."""

from collections.abc import Sequence

from hetsched_core.traces.sacct.fields import FieldError
from hetsched_core.traces.sacct.layout import Layout, repair
from hetsched_core.traces.sacct.report import Flaw

LAYOUT = Layout(("jobname", "jobid", "comment", "workdir"), "|", False)


def has_id(row: Sequence[str]) -> None:
    if row[1] != "7":
        raise FieldError(Flaw.JOB_ID, "not the id")


def test_each_column_gets_the_pieces_that_leave_the_others_in_place() -> None:
    row = repair(["a", "b", "7", "c", "d"], LAYOUT, has_id, frozenset({0, 1}))
    assert row == ["a|b", "7", "c", "d"]


def test_ways_that_differ_only_in_what_is_not_read_are_one_way() -> None:
    cells = ["a", "7", "c", "d", "e"]
    assert repair(cells, LAYOUT, has_id, frozenset({0, 1})) is not None
    assert repair(cells, LAYOUT, has_id, frozenset({0, 1, 2})) is None


def test_a_row_that_could_be_put_together_in_thousands_of_ways_is_not_tried() -> None:
    tried = 0

    def count(row: Sequence[str]) -> None:
        nonlocal tried
        tried += 1
        raise FieldError(Flaw.JOB_ID, "never right")

    assert repair(["x"] * 20, LAYOUT, count, frozenset({1})) is None
    assert 100 < tried < 300
    tried = 0
    assert repair(["x"] * 200, LAYOUT, count, frozenset({1})) is None
    assert tried == 0
