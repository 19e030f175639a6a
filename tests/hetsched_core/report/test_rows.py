"""The rows of the comparison: values as measured, the best, the intervals, the changes."""

from dataclasses import replace

import pytest

from hetsched_core.measures.metrics import Measures, measure
from hetsched_core.report.rows import Row, rows, time_bars
from tests.hetsched_core.report.runs import SPEEDS, usual_log


@pytest.fixture(scope="module")
def fifo() -> Measures:
    return measure(usual_log("fifo"), SPEEDS)


@pytest.fixture(scope="module")
def las() -> Measures:
    return measure(usual_log("las"), SPEEDS)


def row(found: tuple[Row, ...], key: str) -> Row:
    (one,) = (one for one in found if one.key == key)
    return one


def test_counts_that_no_policy_has_and_what_a_clock_measured_are_left_out(
    fifo: Measures, las: Measures
) -> None:
    keys = {one.key for one in rows([{"fifo": fifo, "las": las}])}
    assert "failed" in keys
    assert not {"cancelled", "never", "unfinished", "profiling_gpu_s", "wall_s", "plan_s"} & keys
    assert "never" in {one.key for one in rows([{"fifo": fifo, "las": replace(las, never=1)}])}


def test_the_best_is_marked_where_there_is_a_better_direction(fifo: Measures) -> None:
    other = replace(fifo, avg_jct_s=1.0, gpu_utilisation=0.999, gpu_s=1.0, restarts=5)
    found = rows([{"fifo": fifo, "other": other}])
    best = {
        "avg_jct_s": [False, True],
        "gpu_utilisation": [False, False],
        "gpu_s": [False, False],
        "restarts": [True, False],
        "makespan_s": [False, False],
    }
    assert {key: [cell.best for cell in row(found, key).cells] for key in best} == best


def test_a_change_is_against_the_first_policy(fifo: Measures) -> None:
    other = replace(fifo, avg_jct_s=(fifo.avg_jct_s or 0.0) / 4, gpu_utilisation=0.999)
    found = rows([{"fifo": fifo, "other": other}])
    changes = [cell.change for cell in row(found, "avg_jct_s").cells]
    assert changes == ["", "−75\N{NO-BREAK SPACE}%"]
    assert [cell.change for cell in row(found, "makespan_s").cells] == ["", ""]
    # Per cent of per cent would be misread.
    assert [cell.change for cell in row(found, "gpu_utilisation").cells] == ["", ""]


def test_seeds_give_means_with_intervals_and_what_they_alone_could_make_is_in_doubt(
    fifo: Measures,
) -> None:
    def seeds(*pairs: tuple[float, float]) -> list[dict[str, Measures]]:
        return [
            {
                name: replace(fifo, avg_jct_s=s)
                for name, s in zip(("fifo", "new"), pair, strict=True)
            }
            for pair in pairs
        ]

    found = rows(seeds((7200.0, 3600.0), (14_400.0, 7200.0)))
    first, new = row(found, "avg_jct_s").cells
    # t(0.975, 1) = 12.706, s = 1.4142 h, n = 2.
    assert (first.value, first.text, first.spread) == (10_800.0, "3.00", "12.71")
    assert (new.change, new.in_doubt) == ("−50\N{NO-BREAK SPACE}%", False)
    assert [cell.spread for cell in row(found, "makespan_s").cells] == ["", ""]
    found = rows(seeds((100.0, 80.0), (100.0, 110.0), (100.0, 101.0)))
    assert row(found, "avg_jct_s").cells[1].in_doubt
    # Sums in another order.
    found = rows(seeds((100.0, 80.0), (100.0 + 1e-11, 80.0)))
    assert row(found, "avg_jct_s").cells[0].spread == ""


def test_what_was_not_measured_is_a_dash(fifo: Measures, las: Measures) -> None:
    found = rows([{"fifo": replace(fifo, avg_jct_s=None), "las": las}])
    first, second = row(found, "avg_jct_s").cells
    assert (first.value, first.text) == (None, "–")
    assert (second.change, second.best) == ("", False)


def test_completion_times_are_split_into_waiting_and_running(fifo: Measures) -> None:
    one = replace(fifo, avg_jct_s=7200.0, avg_wait_s=1800.0)
    other = replace(fifo, avg_jct_s=3600.0, avg_wait_s=0.0)
    none = replace(fifo, avg_jct_s=None, avg_wait_s=None)
    longer, shorter = time_bars([{"fifo": one, "las": other, "hops": none}])
    assert (longer.name, longer.waits, longer.runs, longer.takes) == (
        "fifo",
        "30.0\N{NO-BREAK SPACE}min",
        "90.0\N{NO-BREAK SPACE}min",
        "2.00\N{NO-BREAK SPACE}h",
    )
    assert (longer.wait_share, longer.run_share) == (0.25, 0.75)
    assert (shorter.name, shorter.wait_share, shorter.run_share) == ("las", 0.0, 0.5)
    # Means over the seeds.
    (mean,) = time_bars([{"fifo": one}, {"fifo": other}])
    assert (mean.takes, mean.wait_share) == ("90.0\N{NO-BREAK SPACE}min", 900 / 5400)
