"""What the figures of the live page draw: bins of readings, gaps, closed nodes."""

import math
from dataclasses import replace
from datetime import UTC

import numpy as np
import pytest

from hetsched_core.report import live_figures
from hetsched_core.report.clock import BINS
from hetsched_core.report.figures import MAX_ROWS
from hetsched_core.report.live_figures import bins_of
from hetsched_core.report.live_state import LiveNode, Past


def past_of(at_s: list[float], **nodes: str) -> Past:
    return Past(step_s=60.0, keep_s=86_400.0, at_s=tuple(at_s), gpus={}, nodes=nodes)


def test_a_bin_is_a_whole_number_of_steps_and_there_are_not_too_many() -> None:
    for minutes in (2, 7, 299, 300, 301, 1440):
        past = past_of([60.0 * at for at in range(minutes)])
        bins = bins_of(past, UTC)
        width_s = bins.edges[1] - bins.edges[0]
        assert width_s % 60.0 == 0.0
        assert len(bins.edges) - 1 <= BINS
        assert bins.edges[-1] == 60.0 * minutes
        assert -width_s < bins.edges[0] <= 0.0
        assert not np.isnan(bins.means([1] * minutes)).any()


def test_means_and_maxima_are_those_of_a_bins_readings_and_none_is_a_gap() -> None:
    random = np.random.default_rng(3)
    at_s = sorted(float(s) for s in random.choice(1440 * 60, 900, replace=False))
    past = past_of(at_s)
    bins = bins_of(past, UTC)
    values = random.integers(0, 9, len(at_s)).tolist()
    plans = [None if value < 4 else value / 7 for value in values]
    means, most = bins.means(values), bins.most(plans)
    for at, (low, high) in enumerate(zip(bins.edges, bins.edges[1:], strict=False)):
        here = [k for k, time_s in enumerate(at_s) if low <= time_s < high]
        expected = sum(values[k] for k in here) / len(here) if here else math.nan
        assert means[at] == pytest.approx(expected, nan_ok=True)
        known = [plan for k in here if (plan := plans[k]) is not None]
        assert most[at] == pytest.approx(max(known, default=math.nan), nan_ok=True)
    assert np.isnan(means).any()


def test_a_row_is_closed_where_most_of_it_is_and_unknown_where_nobody_knows() -> None:
    past = past_of([0.0, 60.0, 120.0, 180.0])
    bins = bins_of(past, UTC)
    shares = live_figures._shares(["0fx-", "0xx-", "fxx-"], bins)
    assert shares[0] == pytest.approx(5.0)
    assert shares[1] == live_figures._CLOSED_LEVEL  # two of three
    assert shares[2] == live_figures._CLOSED_LEVEL
    assert math.isnan(shares[3])


def test_nodes_share_rows_where_there_are_too_many() -> None:
    nodes = [LiveNode(f"n{at}", f"t{at % 3}", "up", 0, 0, 0, 4) for at in range(500)]
    past = past_of([0.0, 60.0], **{node.name: "0f" for node in nodes})
    svg, each = live_figures.nodes_over_time(past, bins_of(past, UTC), nodes)
    assert each == 8
    assert 3 * math.ceil(167 / each) <= MAX_ROWS < 3 * math.ceil(167 / (each - 1))
    assert svg.count("<image") == 1
    few = live_figures.nodes_over_time(past, bins_of(past, UTC), nodes[:4])
    assert few[1] == 1
    assert "n3  t0" in few[0]


def test_no_plan_is_no_figure() -> None:
    past = replace(past_of([0.0, 60.0]), plan_s=(None, None))
    bins = bins_of(past, UTC)
    assert live_figures.plan_time_over_time(past, bins) == ""
