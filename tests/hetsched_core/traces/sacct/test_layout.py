"""What the columns of a log are, and when that is not certain."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.traces.sacct.fields import FieldError
from hetsched_core.traces.sacct.layout import (
    EXPORT,
    FREE_TEXT,
    KNOWN,
    SacctLayout,
    find_layout,
    parse_fields,
    repair,
)
from hetsched_core.traces.sacct.report import Flaw

HEADER = "JobID|State|Submit|Start|End|AllocTRES|JobName"
ROW = "1|FAILED|2025-09-12T14:00:00|2025-09-12T14:10:00|Unknown|gres/gpu=1|train"
FIELDS = tuple(HEADER.split("|"))


def layout_of(
    lines: list[str], fields: tuple[str, ...] | None = None, delimiter: str | None = None
) -> SacctLayout:
    return find_layout("log: line 1", lines, fields, delimiter)


def test_a_header_tells_everything_even_columns_that_nobody_knew() -> None:
    layout = layout_of([HEADER, ROW])
    assert layout.names == tuple(name.casefold() for name in FIELDS)
    assert (layout.delimiter, layout.trailing, layout.delimiters) == ("|", False, 6)
    assert layout.column("AllocNodes", "End") == 4
    assert layout.column("QOS") == 7
    trailing = layout_of([HEADER + "|", ROW + "|"])
    assert (trailing.names, trailing.trailing, trailing.delimiters) == (layout.names, True, 7)
    assert layout_of([HEADER + "|NewIn2030", ROW + "|x"]).names[-1] == "newin2030"


def test_fields_are_named_for_a_log_without_header_all_of_them_or_some() -> None:
    assert layout_of([ROW] * 3, FIELDS).names == tuple(name.casefold() for name in FIELDS)
    wide = ROW + "|x|y|"
    layout = layout_of([wide], (*FIELDS, "..."))
    assert (len(layout.names), layout.delimiters) == (10, 9)
    layout = layout_of([wide], (*FIELDS, "-", "Comment"))
    assert (layout.column("Comment"), layout.trailing) == (8, True)
    # One odd first line does not hide what the others are.
    assert layout_of(["1|FAI", ROW, ROW], FIELDS).delimiters == 6


def test_fields_may_be_named_though_the_header_is_there() -> None:
    named = layout_of([HEADER, ROW], FIELDS)
    assert named == layout_of([HEADER, ROW], ("jobid", "-", "..."))
    assert named == layout_of([HEADER, ROW])


FIXED_WIDTH = r"columns of fixed width.*--parsable2"
NO_HEADER = r"not a header such as JobID\|User\|State"


@pytest.mark.parametrize(
    ("lines", "fields", "why"),
    [
        (["JobID           JobName  Partition", "------------ -----"], None, FIXED_WIDTH),
        (["JobID|JobName|Partition", "------------ ---------- ------"], None, FIXED_WIDTH),
        (["16261988.ba+      batch      lab          8  COMPLETED  "], None, FIXED_WIDTH),
        ([ROW], None, r"log: line 1 is '1\|FAILED.*--sacct-fields"),
        (["NOTE: Runaway jobs are jobs that"], None, NO_HEADER),
        ([HEADER, ROW], (*FIELDS[:-1], "User"), "names other columns than --sacct-fields"),
        ([ROW], FIELDS[:-1], r"has 7 with '\|', but --sacct-fields names 6;"),
        ([ROW], (*FIELDS, "User", "..."), r"has 7 with '\|', but .* names 8 or more;"),
        (["abc"], FIELDS, "has one field"),
        (["JobID|State|Start|End"], None, r"no column Submit, AllocTRES or AllocGRES .*4.*sacct"),
        ([HEADER.replace("|", ",")], None, "separated by ',', which values hold"),
    ],
)
def test_what_has_no_such_columns_is_refused_with_what_to_do(
    lines: list[str], fields: tuple[str, ...] | None, why: str
) -> None:
    with pytest.raises(InputError, match=why):
        layout_of(lines, fields)


@pytest.mark.parametrize("delimiter", [",", " ", "", ":", "a", "=", "\n", '"', "||_"])
def test_a_delimiter_that_values_hold_is_refused(delimiter: str) -> None:
    with pytest.raises(InputError, match=r"--sacct-delimiter is .*values hold"):
        layout_of([ROW], FIELDS, delimiter)


def test_names_of_fields_are_those_of_sacct() -> None:
    named = ("JobID", "jobname", "State", "-", "...")
    assert parse_fields("JobID,jobname%30, State ,-,...") == named
    for wrong, why in (
        ("JobbID", "'JobbID': did you mean 'JobID'"),
        ("JobID,...,State", r"'\.\.\.'"),
        ("JobID,,State", "''"),
    ):
        with pytest.raises(InputError, match=f"unknown sacct field {why}"):
            parse_fields(wrong)
    assert set(KNOWN) >= FREE_TEXT


def test_the_columns_that_errors_and_the_documentation_tell_to_export_can_be_read() -> None:
    page = (Path(__file__).parents[4] / "docs/formats/sacct.md").read_text()
    shown = re.findall(r"--(?:format|sacct-fields) ([A-Z][\w,.-]+,[\w,.-]+)", page)
    assert EXPORT.split("--format ")[1] in shown
    assert len(shown) == 2
    for names in shown:
        fields = parse_fields(names)
        row = "|".join("1" for _ in fields)
        assert layout_of([row], fields).column("AllocTRES") < len(fields)


def test_a_row_that_could_be_put_together_in_thousands_of_ways_is_not_tried() -> None:
    tried = 0
    layout = SacctLayout(("jobname", "jobid", "comment", "workdir"), "|", False)

    def count(row: Sequence[str]) -> None:
        nonlocal tried
        tried += 1
        raise FieldError(Flaw.JOB_ID, "never right")

    assert repair(["x"] * 20, layout, count, frozenset({1})) is None
    assert 100 < tried < 300
    tried = 0
    assert repair(["x"] * 200, layout, count, frozenset({1})) is None
    assert tried == 0
