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
    Layout,
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
) -> Layout:
    return find_layout("log: line 1", lines, fields, delimiter)


def test_a_header_tells_everything() -> None:
    layout = layout_of([HEADER, ROW])
    assert layout.names == tuple(name.casefold() for name in FIELDS)
    assert (layout.delimiter, layout.trailing, layout.delimiters) == ("|", False, 6)
    assert layout.column("AllocNodes", "End") == 4
    assert layout.column("QOS") == 7
    trailing = layout_of([HEADER + "|", ROW + "|"])
    assert (trailing.names, trailing.trailing, trailing.delimiters) == (layout.names, True, 7)


def test_a_header_may_have_columns_that_nobody_knew() -> None:
    layout = layout_of([HEADER + "|NewIn2030", ROW + "|x"])
    assert layout.names[-1] == "newin2030"


def test_fields_that_are_named_are_taken_for_a_log_without_header() -> None:
    layout = layout_of([ROW] * 3, FIELDS)
    assert layout.names == tuple(name.casefold() for name in FIELDS)


def test_fields_may_be_left_out_at_the_end_and_one_by_one() -> None:
    wide = ROW + "|x|y|"
    layout = layout_of([wide], (*FIELDS, "..."))
    assert (len(layout.names), layout.delimiters) == (10, 9)
    layout = layout_of([wide], (*FIELDS, "-", "Comment"))
    assert (layout.column("Comment"), layout.trailing) == (8, True)


def test_one_odd_first_line_does_not_hide_what_the_others_are() -> None:
    assert layout_of(["1|FAI", ROW, ROW], FIELDS).delimiters == 6


def test_fields_may_be_named_though_the_header_is_there() -> None:
    named = layout_of([HEADER, ROW], FIELDS)
    assert named == layout_of([HEADER, ROW], ("jobid", "-", "..."))
    assert named == layout_of([HEADER, ROW])
    with pytest.raises(InputError, match="names other columns than --sacct-fields"):
        layout_of([HEADER, ROW], (*FIELDS[:-1], "User"))


@pytest.mark.parametrize(
    "lines",
    [
        ["JobID           JobName  Partition", "------------ ---------- ----------"],
        ["       JobID    JobName      State", "------------ ---------- ----------"],
        ["JobID|JobName|Partition", "------------ ---------- ----------"],
        ["16261988.ba+      batch            lab          8  COMPLETED      0:0 "],
        ["16261988         train        gpu        lab          8 CANCELLED+      0:0 "],
    ],
)
def test_columns_of_fixed_width_are_refused_with_the_option_to_use(lines: list[str]) -> None:
    with pytest.raises(InputError, match=r"columns of fixed width.*--parsable2"):
        layout_of(lines)


def test_a_log_without_header_needs_the_names_of_its_columns() -> None:
    with pytest.raises(InputError, match=r"log: line 1 is '1\|FAILED.*--sacct-fields"):
        layout_of([ROW])


@pytest.mark.parametrize(
    "line", ["NOTE: Runaway jobs are jobs that", "NodeName=n1 CPUs=4", "<html>", "n[1-2]|mixed|"]
)
def test_other_files_are_told_what_was_expected(line: str) -> None:
    with pytest.raises(InputError, match=r"not a header such as JobID\|User\|State"):
        layout_of([line])


def test_too_few_names_say_how_many_fields_there_are() -> None:
    with pytest.raises(InputError, match=r"has 7 with '\|', but --sacct-fields names 6;"):
        layout_of([ROW], FIELDS[:-1])
    with pytest.raises(InputError, match=r"has 7 with '\|', but --sacct-fields names 8 or more;"):
        layout_of([ROW], (*FIELDS, "User", "..."))
    with pytest.raises(InputError, match="has one field"):
        layout_of(["abc"], FIELDS)


def test_missing_columns_are_named_with_the_command_that_has_them() -> None:
    with pytest.raises(
        InputError, match=r"no column Submit, AllocTRES or AllocGRES among 4.*sacct"
    ):
        layout_of(["JobID|State|Start|End"])


@pytest.mark.parametrize("delimiter", [",", " ", "", ":", "a", "=", "\n", '"', "||_"])
def test_a_delimiter_that_values_hold_is_refused(delimiter: str) -> None:
    with pytest.raises(InputError, match=r"--sacct-delimiter is .*values hold"):
        layout_of([ROW], FIELDS, delimiter)


def test_a_header_with_such_a_delimiter_is_refused() -> None:
    with pytest.raises(InputError, match="separated by ',', which values hold"):
        layout_of([HEADER.replace("|", ",")])


def test_names_of_fields_are_those_of_sacct() -> None:
    assert parse_fields("JobID,jobname%30, State ,-,...") == (
        "JobID",
        "jobname",
        "State",
        "-",
        "...",
    )
    with pytest.raises(InputError, match="unknown sacct field 'JobbID': did you mean 'JobID'"):
        parse_fields("JobbID")
    with pytest.raises(InputError, match=r"unknown sacct field '...'"):
        parse_fields("JobID,...,State")
    with pytest.raises(InputError, match="unknown sacct field ''"):
        parse_fields("JobID,,State")
    assert set(KNOWN) >= FREE_TEXT


def test_the_columns_that_errors_and_the_documentation_tell_to_export_can_be_read() -> None:
    page = (Path(__file__).parents[4] / "docs/formats/sacct.md").read_text()
    shown = re.findall(r"--(?:format|sacct-fields) ([A-Z][\w,.-]+,[\w,.-]+)", page)
    advised = EXPORT.split("--format ")[1]
    assert advised in shown
    assert len(shown) == 2
    for names in shown:
        fields = parse_fields(names)
        row = "|".join("1" for _ in fields)
        assert layout_of([row], fields).column("AllocTRES") < len(fields)


def test_a_row_that_could_be_put_together_in_thousands_of_ways_is_not_tried() -> None:
    tried = 0
    layout = Layout(("jobname", "jobid", "comment", "workdir"), "|", False)

    def count(row: Sequence[str]) -> None:
        nonlocal tried
        tried += 1
        raise FieldError(Flaw.JOB_ID, "never right")

    assert repair(["x"] * 20, layout, count, frozenset({1})) is None
    assert 100 < tried < 300
    tried = 0
    assert repair(["x"] * 200, layout, count, frozenset({1})) is None
    assert tried == 0
