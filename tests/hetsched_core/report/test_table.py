"""The comparison table: what it says, in which units, and what is marked as best."""

import dataclasses
import io
import re

import pytest
from rich.console import Console

from hetsched_core.logged import Closeness, LoggedMeasures
from hetsched_core.metrics import Measures
from hetsched_core.report.table import Comparison, closeness_table, comparison, show

FIFO = Measures(
    jobs=120,
    completed=118,
    failed=2,
    cancelled=0,
    never=0,
    unfinished=0,
    makespan_s=400_000.0,
    avg_jct_s=9_000.0,
    p50_jct_s=8_000.0,
    p99_jct_s=50_000.0,
    avg_wait_s=1_200.0,
    max_latency_ratio=78.5,
    avg_fragments=3.36,
    avg_queue_length=1.0,
    ftf_max=1.0,
    ftf_unfair_share=0.0,
    gpu_utilisation=0.873,
    gpu_s=1e6,
    lost_gpu_s=0.0,
    profiling_gpu_s=0.0,
    restarts=0,
    preemptions=0,
    rounds=1,
    plans=1,
    plan_s=None,
    wall_s=1.0,
)
LAS = dataclasses.replace(
    FIFO,
    avg_jct_s=5_000.0,
    avg_wait_s=340.0,
    max_latency_ratio=9.25,
    gpu_utilisation=0.9,
    lost_gpu_s=44_444.0,
    restarts=1043,
    never=1,
)
SITE = LoggedMeasures(
    completed=118,
    avg_jct_s=4_000.0,
    p50_jct_s=3_000.0,
    p99_jct_s=50_000.0,
    avg_wait_s=300.0,
    max_latency_ratio=5.0,
    makespan_s=390_000.0,
    gpu_s=1e6,
)
CLOSE = Closeness(
    jobs=120,
    close_share=0.475,
    waited=80,
    waited_close=17,
    p50_error_s=612.0,
    p90_error_s=28_268.0,
    avg_logged_wait_s=11_833.0,
    avg_wait_s=9_904.0,
    wait_rank_correlation=0.688,
)
EMPTY = Measures(
    **{  # type: ignore[arg-type]
        field.name: 0 if field.type in ("int", "float") else None
        for field in dataclasses.fields(Measures)
    }
)


def cells(table: Comparison, *heading: str) -> dict[str, str]:
    """The cells of the column with this heading, by policy."""
    (column,) = (c for c in table.columns if tuple(line for line in c.heading if line) == heading)
    return dict(zip(table.columns[0].cells, column.cells, strict=True))


def test_the_table_is_aligned_and_reads_like_this() -> None:
    assert comparison({"fifo": FIFO, "las": LAS}).text().splitlines() == [
        "                  avg   p99   avg      max    avg  GPUs  lost          make-",
        "           jobs   JCT   JCT  wait  latency  frag-  held   GPU     re-   span",
        "policy     done     h     h   min    ratio  ments     %     h  starts      d",
        "fifo    118/120  2.50  13.9  20.0     78.5   3.36  87.3   0.0       0   4.63",
        "las     118/120  1.39  13.9   5.7      9.2   3.36  90.0  12.3    1043   4.63",
        "fifo: 2 failed",
        "las: 2 failed, 1 can never run here",
    ]


def test_what_the_site_did_stands_above_the_policies_and_is_never_the_best() -> None:
    table = comparison({"fifo": FIFO, "las": LAS}, SITE)
    assert table.text().splitlines()[3:5] == [
        "logged  118/120  1.11  13.9   5.0      5.0      -     -     -       -   4.51",
        "fifo    118/120  2.50  13.9  20.0     78.5   3.36  87.3   0.0       0   4.63",
    ]
    assert [column.best for column in table.columns if column.heading[:2] == ("avg", "JCT")] == [
        {2}
    ]
    assert all(0 not in column.best for column in table.columns)


def test_the_table_against_the_log_reads_like_this() -> None:
    fifo = dataclasses.replace(
        CLOSE, close_share=0.429, waited_close=9, avg_wait_s=21_300.0, wait_rank_correlation=None
    )
    assert closeness_table({"slurm": CLOSE, "fifo": fifo}).text().splitlines() == [
        "starts           p50    p90  within  waited:    wait  wait  waits'",
        "against        error  error   5 min   within  in log  here    rank",
        "the log  jobs    min      h       %    5 min       h     h   corr.",
        "slurm     120   10.2   7.85    47.5    17/80    3.29  2.75    0.69",
        "fifo      120   10.2   7.85    42.9     9/80    3.29  5.92       -",
    ]
    assert closeness_table({}).text().splitlines()[3:] == []


@pytest.mark.parametrize(
    ("seconds", "unit", "cell"),
    [
        (0.5, "s", "0.50"),
        (119.0, "s", "119.0"),
        (120.0, "min", "2.00"),
        (600.0, "min", "10.0"),
        (7_199.0, "min", "120.0"),
        (7_200.0, "h", "2.00"),
        (172_799.0, "h", "48.0"),
        (172_800.0, "d", "2.00"),
        (86_400_000.0, "d", "1000"),
    ],
)
def test_a_column_of_times_has_the_unit_that_suits_its_largest_value(
    seconds: float, unit: str, cell: str
) -> None:
    small = dataclasses.replace(FIFO, avg_jct_s=0.0)
    table = comparison({"small": small, "large": dataclasses.replace(FIFO, avg_jct_s=seconds)})
    assert cells(table, "avg", "JCT", unit)["large"] == cell


def test_what_has_no_value_is_a_dash_and_never_the_best() -> None:
    table = comparison({"none": EMPTY, "fifo": FIFO, "las": LAS})
    assert cells(table, "avg", "JCT", "h") == {"none": "-", "fifo": "2.50", "las": "1.39"}
    jct = table.columns[2]
    assert jct.best == {2}


def test_all_jobs_lost_and_no_policy_at_all_still_make_a_table() -> None:
    assert len(comparison({"none": EMPTY}).text().splitlines()) == 4
    assert len(comparison({}).text().splitlines()) == 3


def marked(text: str, cell: str) -> bool:
    return f"\x1b[32m{cell}\x1b[0m" in text


def shown(table: Comparison, *, terminal: bool) -> str:
    stream = io.StringIO()
    console = Console(
        file=stream,
        force_terminal=terminal,
        color_system="standard" if terminal else None,
        width=40,
    )
    show(table, console)
    return stream.getvalue()


def test_only_a_terminal_marks_the_best_of_each_column() -> None:
    table = comparison({"fifo": FIFO, "las": LAS})
    text = shown(table, terminal=True)
    assert marked(text, "1.39")
    assert marked(text, " 5.7")
    assert not marked(text, "90.0"), "a held GPU need not be busy"
    assert marked(text, "     0"), "fewer restarts are better"
    assert not marked(text, "2.50")
    assert not marked(text, "13.9"), "all the same: none is the best"
    assert shown(table, terminal=False) == table.text() + "\n"
    assert "\x1b" not in table.text()


def test_a_narrow_window_cuts_nothing_off() -> None:
    table = comparison({"fifo": FIFO, "las": LAS})
    bare = re.sub(r"\x1b\[[0-9;]*m", "", shown(table, terminal=True))
    assert [line.rstrip() for line in bare.splitlines()] == table.text().splitlines()


def test_equal_best_values_are_all_marked() -> None:
    table = comparison({"fifo": FIFO, "las": LAS, "las again": LAS})
    assert table.columns[2].best == {1, 2}


def test_one_policy_alone_is_not_the_best() -> None:
    assert all(not column.best for column in comparison({"fifo": FIFO}).columns)


def test_policies_that_agree_share_a_note() -> None:
    assert comparison({"a": LAS, "b": LAS}).notes == (
        "all policies: 2 failed, 1 can never run here",
    )
    other = dataclasses.replace(FIFO, failed=0, cancelled=3, unfinished=4)
    assert comparison({"a": FIFO, "b": other, "c": FIFO}).notes == (
        "a, c: 2 failed",
        "b: 3 cancelled, 4 unfinished",
    )
    assert comparison({"a": FIFO}).notes == ("a: 2 failed",)
    assert comparison({"a": EMPTY}).notes == ()


def test_counts_have_no_decimals() -> None:
    few = dataclasses.replace(FIFO, restarts=3)
    assert cells(comparison({"fifo": FIFO, "few": few}), "re-", "starts") == {
        "fifo": "0",
        "few": "3",
    }
