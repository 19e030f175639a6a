"""The figures: what is drawn is what was measured, bounded in size, and fit to stand in a page."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import UTC
from functools import cache

import numpy as np
import pytest
from matplotlib import rcParams

from hetsched_core.measures.accounts import rivals
from hetsched_core.report import figures
from hetsched_core.report.clock import BINS, ReportClock
from hetsched_core.report.figures import Floats
from hetsched_core.report.gains import size_classes
from hetsched_core.report.history import History, LoggedHistory
from hetsched_core.report.svg import with_ids
from hetsched_core.types import Cluster, Node
from tests.hetsched_core.report.runs import jobs, logged_jobs, run_log, usual
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


def test_ids_of_two_drawings_are_kept_apart() -> None:
    svg = drawn()["gpus"]
    one, two = (with_ids(svg, prefix) for prefix in ("a", "b"))
    ids = [set(re.findall(r' id="([^"]*)"', each)) for each in (one, two)]
    assert ids[0]
    assert not ids[0] & ids[1]
    for each, own in zip((one, two), ids, strict=True):
        assert set(re.findall(r'(?:url\(|")#([^)"]+)', each)) <= own


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


def test_figures_of_many_jobs_are_hardly_larger_than_those_of_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(figures, "MAX_BARS", 0)
    sizes = []
    for count in (600, 2400):
        histories = [History.of("fifo", run_log("fifo", jobs(count)))]
        clock = ReportClock.of(histories, UTC)
        nodes, shades = figures.nodes_over_time(histories, clock, size_classes(histories[0]))
        assert shades is not None
        assert shades.share.shape == (3, BINS)
        drawings = (
            nodes["fifo"],
            figures.gpus_over_time(histories, clock),
            figures.jct_distribution(histories),
        )
        sizes.append([len(one) for one in drawings])
    for few, many in zip(*sizes, strict=True):
        assert many < 1.3 * few


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
