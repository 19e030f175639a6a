"""The comparison table: what it says, in which units, and what is marked as best."""

import dataclasses
import io
import re

from rich.console import Console

from hetsched_core.measures.accounts import AccountMeasures
from hetsched_core.measures.logged import Closeness, LoggedMeasures
from hetsched_core.measures.metrics import Measures
from hetsched_core.report.table import (
    Comparison,
    account_table,
    closeness_table,
    comparison,
    show,
)

EMPTY = Measures(
    **{  # type: ignore[arg-type]
        field.name: 0 if field.type in ("int", "float") else None
        for field in dataclasses.fields(Measures)
    }
)
FIFO = dataclasses.replace(
    EMPTY,
    jobs=120,
    completed=118,
    failed=2,
    makespan_s=400_000.0,
    avg_jct_s=9_000.0,
    p99_jct_s=50_000.0,
    avg_wait_s=1_200.0,
    max_latency_ratio=78.5,
    avg_fragments=3.36,
    gpu_utilisation=0.873,
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


def an_account(account: str, had_gpu_h: float, user: str = "") -> AccountMeasures:
    return AccountMeasures(
        account, user, 3, 9, 9, 3600.0 * had_gpu_h, 3600.0 * 20.0, 10.0 * had_gpu_h, None
    )


def test_the_table_of_accounts_reads_like_this() -> None:
    rows = [an_account("physics", 1024.0), an_account("", 9.5), an_account("physics", 5.0, "ann")]
    # Under the second policy the other account had most; the order is that of the first.
    other = [
        dataclasses.replace(rows[1], had_gpu_s=9e6, avg_wait_s=None),
        dataclasses.replace(rows[0], shares=None, avg_slowdown=7.25),
    ]
    measures = {
        "slurm": dataclasses.replace(EMPTY, jain_slowdown=0.391, worst_share_error=0.44),
        "las": dataclasses.replace(EMPTY, jain_slowdown=1.0),
    }
    table = account_table({"slurm": rows, "las": other}, measures)
    assert table is not None
    assert table.text().splitlines() == [
        "                                      had    due  wait  slow-",
        "account       shares  jobs  policy  GPU h  GPU h     h   down",
        "physics            3     9   slurm   1024   20.0  2.84      -",
        "                               las   1024   20.0  2.84   7.25",
        "(no account)       3     9   slurm     10   20.0  0.03      -",
        "                               las   2500   20.0     -      -",
        "evenness of users' slowdowns (Jain's index): slurm 0.39, las 1.00",
        "worst account is off its due by: slurm 44 %",
    ]


def test_ten_accounts_are_shown_and_the_others_counted() -> None:
    accounts = [an_account(f"a{at}", 100.0 - at) for at in range(13)]
    table = account_table({"las": accounts}, {"las": EMPTY})
    assert table is not None
    assert table.columns[0].cells == tuple(f"a{at}" for at in range(10))
    assert table.notes == ("and 3 accounts more: --json FILE has them all",)


def test_users_are_shown_where_there_is_one_account_and_nothing_where_there_is_one_user() -> None:
    users = [an_account("physics", 9.0, "ann"), an_account("physics", 8.0, "bob")]
    table = account_table({"las": [an_account("physics", 17.0), *users]}, {"las": EMPTY})
    assert table is not None
    assert table.columns[0].heading == ("", "user")
    assert table.columns[0].cells == ("ann of physics", "bob of physics")
    assert account_table({"las": [an_account("physics", 9.0), users[0]]}, {"las": EMPTY}) is None
    assert account_table({}, {}) is None


def test_what_has_no_value_is_a_dash_and_never_the_best() -> None:
    table = comparison({"none": EMPTY, "fifo": FIFO, "las": LAS, "las again": LAS})
    found = {"none": "-", "fifo": "2.50", "las": "1.39", "las again": "1.39"}
    assert cells(table, "avg", "JCT", "h") == found
    assert table.columns[2].best == {2, 3}
    # All jobs lost, and no policy at all, still make a table; one alone is not the best.
    assert len(comparison({"none": EMPTY}).text().splitlines()) == 4
    assert len(comparison({}).text().splitlines()) == 3
    assert all(not column.best for column in comparison({"fifo": FIFO}).columns)


def shown(table: Comparison, *, terminal: bool) -> str:
    stream = io.StringIO()
    # A console that is no terminal has no colours.
    show(table, Console(file=stream, force_terminal=terminal, color_system="standard", width=40))
    return stream.getvalue()


def test_only_a_terminal_marks_the_best_of_each_column() -> None:
    table = comparison({"fifo": FIFO, "las": LAS})
    text = shown(table, terminal=True)
    # A held GPU need not be busy; fewer restarts are better; where all are the same none is best.
    cells = {
        "1.39": True,
        " 5.7": True,
        "90.0": False,
        "     0": True,
        "2.50": False,
        "13.9": False,
    }
    assert {cell: f"\x1b[32m{cell}\x1b[0m" in text for cell in cells} == cells
    # A narrow window cuts nothing off.
    bare = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert [line.rstrip() for line in bare.splitlines()] == table.text().splitlines()
    assert shown(table, terminal=False) == table.text() + "\n"
    assert "\x1b" not in table.text()


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
