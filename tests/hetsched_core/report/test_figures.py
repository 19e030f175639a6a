"""The figures: what is drawn is what was measured, bounded in size, and fit to stand in a page."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import UTC
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from matplotlib import rcParams

from hetsched_core.measures.accounts import rivals
from hetsched_core.report import figures
from hetsched_core.report import figures as gantt
from hetsched_core.report.clock import ReportClock
from hetsched_core.report.figures import Floats, bars, fits_bars, shades
from hetsched_core.report.gains import size_classes
from hetsched_core.report.history import History, LoggedHistory, Pieces
from hetsched_core.types import Cluster, Node
from tests.hetsched_core.report.runs import CLUSTER, jobs, logged_jobs, run_log, usual
from tests.hetsched_core.worlds import linear_speeds

SVG = "{http://www.w3.org/2000/svg}"


def whole(svg: str) -> ET.Element:
    """The drawing as an XML tree, with the name spaces that HTML takes for granted."""
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return ET.fromstring(svg.replace("<svg", f"<svg {spaces}", 1))


def texts(svg: str) -> list[str]:
    return [text.text or "" for text in whole(svg).iter(f"{SVG}text")]


@cache
def drawn() -> dict[str, str]:
    histories = usual("fifo", "las")
    clock = ReportClock.of(histories, UTC)
    nodes, _ = figures.nodes_over_time(histories, clock, size_classes(histories[0]))
    return {
        "jct": figures.jct_distribution(histories),
        "ratio": figures.latency_ratio_distribution(histories),
        "gpus": figures.gpus_over_time(histories, clock),
        "work": figures.work_over_time(histories, clock),
        "queue": figures.queue_over_time(histories, clock),
        "use": figures.use_over_time(histories, clock, rivals(histories[0].use.rows)),
        "nodes": nodes["las"],
    }


@pytest.mark.parametrize("name", ["jct", "ratio", "gpus", "work", "queue", "use", "nodes"])
def test_a_drawing_is_whole_and_brings_neither_ids_nor_style_nor_colours(name: str) -> None:
    svg = drawn()[name]
    root = whole(svg)
    assert root.get("role") == "img"
    assert root.get("aria-label")
    assert "<style" not in svg
    assert "<metadata" not in svg
    assert not re.findall(r"#0[01]0[0-9a-f]{3}", svg), "a stand-in was left in"
    assert "var(--ink)" in svg
    ids = re.findall(r' id="([^"]*)"', svg)
    assert len(ids) == len(set(ids))
    assert all(f"#{one}" in svg for one in ids)


def test_drawing_again_gives_the_same_and_leaves_matplotlib_as_it_was() -> None:
    before = dict(rcParams)
    assert drawn.__wrapped__() == drawn()
    assert dict(rcParams) == before


@pytest.mark.parametrize("count", [1, 5, figures.MAX_POINTS, 10 * figures.MAX_POINTS + 3])
def test_a_distribution_is_true_at_every_point_it_shows(count: int) -> None:
    values = np.random.default_rng(count).integers(1, 2 + count // 2, count).astype(np.float64)
    x, percent = figures._cumulative(values)
    assert len(x) <= figures.MAX_POINTS
    assert np.all(np.diff(x) > 0)
    assert percent == pytest.approx([100.0 * np.mean(values <= value) for value in x])
    assert (x[-1], percent[-1]) == (values.max(), 100.0)


def test_policies_that_do_the_same_share_a_panel() -> None:
    curves: list[Floats] = [
        np.array([1.0, 2.0]),
        np.array([1.0, 3.0]),
        np.array([1.0, 2.0 + 1e-9]),
    ]
    assert figures._alike("abc", curves) == [(0, "a, c"), (1, "b")]
    fifo, las = usual("fifo", "las")
    clock = ReportClock.of([fifo, las], UTC)
    assert {"fifo", "las"} <= set(texts(figures.gpus_over_time([fifo, las], clock)))
    again = replace(fifo, policy="again")
    assert "fifo, again" in texts(figures.gpus_over_time([fifo, again], clock))
    users = rivals(fifo.use.rows)
    assert "fifo, again" in texts(figures.use_over_time([fifo, again], clock, users))
    assert {"fifo", "las"} <= set(texts(figures.use_over_time([fifo, las], clock, users)))
    nodes, _ = figures.nodes_over_time([fifo, again, las], clock, size_classes(fifo))
    assert list(nodes) == ["fifo, again", "las"]


def test_each_account_has_a_line_of_what_it_had_and_a_dashed_one_of_what_was_due() -> None:
    histories = usual("fifo")
    users = rivals(histories[0].use.rows)[:3]
    svg = figures.use_over_time(histories, ReportClock.of(histories, UTC), users)
    styles = [path.get("style", "") for path in whole(svg).iter(f"{SVG}path")]
    for at in range(3):
        lines = [style for style in styles if f"var(--policy-{at})" in style]
        assert ["dasharray" in style for style in lines] == [False, True]
    assert not any("var(--policy-3)" in style for style in styles)


def test_the_chart_of_nodes_names_each_node_with_its_type_and_has_a_box_for_each_bar() -> None:
    histories = usual("las")
    svg = drawn()["nodes"]
    assert texts(svg)[-3:] == ["fast  a100", "slow-1  v100", "slow-2  v100"]
    boxes = sum(
        path.get("d", "").count("z")
        for path in whole(svg).iter(f"{SVG}path")
        if "var(--size-" in path.get("style", "")
    )
    assert boxes == len(figures.bars(histories[0].pieces, histories[0].cluster).job)


def test_names_that_look_like_formulas_or_markup_are_drawn_as_they_are() -> None:
    odd = Cluster((Node("$x^2$ <b>&", "a$b$", 4), Node("节点", "v100", 4)))
    speeds = linear_speeds(odd, {"m": {"a$b$": 20.0, "v100": 10.0}})
    history = History.of("$p$", run_log("fifo", jobs(8), odd, speeds))
    clock = ReportClock.of([history], UTC)
    nodes, _ = figures.nodes_over_time([history], clock, size_classes(history))
    assert {"$x^2$ <b>&  a$b$", "节点  v100"} <= set(texts(nodes["$p$"]))
    assert "$p$" in texts(figures.queue_over_time([history], clock))


def test_a_log_has_a_panel_above_the_policies_and_a_line_among_the_waits() -> None:
    histories = usual("fifo", "las")
    site = LoggedHistory.of(logged_jobs())
    assert site is not None
    clock = ReportClock.of([*histories, site], UTC)
    for svg in (
        figures.gpus_over_time(histories, clock, site),
        figures.queue_over_time(histories, clock, site),
    ):
        assert [text for text in texts(svg) if text in ("logged", "fifo", "las")] == [
            "logged",
            "fifo",
            "las",
        ]
        assert "var(--logged)" in svg
    assert figures.wait_distribution(histories, site).count("var(--logged)") == 1
    assert "var(--logged)" not in figures.gpus_over_time(histories, clock)


def pieces(*rows: tuple[int, int, int, float, float]) -> Pieces:
    """Pieces from (node, job, GPUs, since, until)."""
    return Pieces(*(np.array(column) for column in zip(*rows, strict=True)))


def test_bars_overlap_nowhere_and_cover_what_was_held() -> None:
    (history,) = usual("las")
    drawn = bars(history.pieces, CLUSTER)
    by_lane: dict[int, list[tuple[float, float]]] = {}
    for first, gpus, since_s, until_s in zip(
        drawn.first, drawn.gpus, drawn.since_s, drawn.until_s, strict=True
    ):
        for lane in range(first, first + gpus):
            by_lane.setdefault(lane, []).append((since_s, until_s))
    for times in by_lane.values():
        times.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(times))
    area = (drawn.gpus * (drawn.until_s - drawn.since_s)).sum()
    assert area == pytest.approx(history.jobs.gpu_hours.sum() * 3600)


def test_a_job_takes_the_first_free_gpus_of_its_node() -> None:
    # Job 0 holds GPU 0, job 1 GPU 1; job 2 gets GPU 0 again, and job 3 what is left around job 1.
    rows = [(1, 0, 1, 0.0, 5.0), (1, 1, 1, 0.0, 9.0), (1, 2, 1, 5.0, 6.0), (1, 3, 2, 6.0, 9.0)]
    drawn = bars(pieces(*rows), Cluster((Node("x", "a", 2), Node("y", "a", 3))))
    found = zip(drawn.job.tolist(), drawn.first.tolist(), drawn.gpus.tolist(), strict=True)
    assert list(found) == [(0, 2, 1), (1, 3, 1), (2, 2, 1), (3, 2, 1), (3, 4, 1)]


def test_tasks_that_share_a_gpu_between_two_plans_are_drawn_all_the_same() -> None:
    drawn = bars(pieces((0, 0, 1, 0.0, 5.0), (0, 1, 1, 1.0, 6.0)), Cluster((Node("x", "a", 1),)))
    assert drawn.first.tolist() == [0, 0]


def test_shades_are_shares_of_the_gpus_of_a_row() -> None:
    (history,) = usual("fifo")
    edges = np.linspace(*history.span_s, 8)
    drawn = shades(history.pieces, CLUSTER, edges)
    assert drawn.types == (("a100", 0), ("v100", 1))
    assert drawn.share.shape == (3, 7)
    held = (drawn.share * np.array([[2], [4], [4]])).sum(axis=0)
    assert held == pytest.approx(history.held.mean_over(edges))


def test_many_nodes_share_rows_within_their_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gantt, "MAX_ROWS", 2)
    nodes = (("a", "x", 2), ("b", "y", 4), ("c", "x", 2), ("d", "y", 1), ("e", "x", 1))
    cluster = Cluster(tuple(Node(*node) for node in nodes))
    held = pieces((1, 0, 4, 0.0, 10.0), (4, 1, 1, 0.0, 5.0))
    drawn = shades(held, cluster, np.array([0.0, 10.0]))
    assert drawn.nodes_each == 3
    assert drawn.types == (("x", 0), ("y", 1))
    assert drawn.share[:, 0] == pytest.approx([0.5 / 5, 4 / 5])


def test_bars_give_way_to_shades_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    histories = usual("fifo", "las")
    most = max(len(history.pieces) for history in histories)
    for name, value, fits in (
        ("MAX_BARS", most, True),
        ("MAX_BARS", most - 1, False),
        ("MAX_LANES", 10, True),
        ("MAX_LANES", 9, False),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(gantt, name, value)
            assert fits_bars(histories) is fits
