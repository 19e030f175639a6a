"""Measured spreads of node speeds: against the measurements, and as true speeds."""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hetsched_core.errors import UnknownNameError
from hetsched_core.throughput.node_spread import LEVELS, node_spread, node_spreads, spread_out
from hetsched_core.types import Cluster, Node, Speeds
from tests.hetsched_core.worlds import linear_speeds, on

MANY = Cluster(tuple(Node(f"n{at}", "v100", 4) for at in range(2000)))
WIDE = node_spread("longhorn-resnet")


def speeds_on(cluster: Cluster) -> Speeds:
    return linear_speeds(cluster, {"bert": {"v100": 2.0}, "resnet": {"v100": 3.0}})


def factors(speeds: Speeds, profile: str = "bert") -> list[float]:
    return list(speeds.table(profile).node_factor.values())


@pytest.mark.parametrize("name", node_spreads())
def test_a_spread_has_the_quantiles_of_its_measurements(name: str, data_dir: Path) -> None:
    spread, by_node = node_spread(name), defaultdict(list)
    with (data_dir / "variability" / spread.file).open(newline="") as file:
        for line in csv.DictReader(file):
            by_node[line["cabinet"], line["node"]].append(1 / float(line["perf"]))
    speeds = np.array([np.median(values) for values in by_node.values()])
    assert len(speeds) == spread.nodes
    measured = np.quantile(speeds / np.median(speeds), LEVELS)
    assert spread.speeds == pytest.approx(measured, abs=6e-5)


@pytest.mark.parametrize("name", node_spreads())
def test_true_speeds_of_many_nodes_spread_as_measured(name: str) -> None:
    spread = node_spread(name)
    drawn = factors(spread_out(speeds_on(MANY), MANY, spread, 1))
    assert min(drawn) >= spread.speeds[0]
    assert max(drawn) <= spread.speeds[-1]
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        below = np.mean(np.array(drawn) < spread.factor(share))
        assert below == pytest.approx(share, abs=0.035)


def test_a_factor_depends_on_seed_profile_and_node_alone() -> None:
    few = Cluster(MANY.nodes[5:8])
    drawn = spread_out(speeds_on(MANY), MANY, WIDE, 1)
    again = spread_out(speeds_on(few), few, WIDE, 1)
    assert factors(again) == factors(drawn)[5:8]
    assert factors(spread_out(speeds_on(few), few, WIDE, 2)) != factors(again)
    models = factors(drawn), factors(drawn, "resnet")
    assert abs(np.corrcoef(*models)[0, 1]) < 0.1


def test_a_node_is_faster_by_its_factor_and_an_ordinary_one_is_as_it_was() -> None:
    few = Cluster(MANY.nodes[:2])
    plain = speeds_on(few)
    slow = plain.revised({"bert": replace(plain.table("bert"), node_factor={"n0": 0.5})})
    spread = spread_out(slow, few, WIDE, 1)
    drawn = factors(spread_out(plain, few, WIDE, 1))
    assert spread.speed("bert", on(n0=2)) == pytest.approx(4.0 * 0.5 * drawn[0])
    assert spread.speed("bert", on(n1=2)) == pytest.approx(4.0 * drawn[1])
    assert spread.per_gpu("bert", "v100", 2) == 2.0


def test_an_unknown_spread_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'longhorn-bert'"):
        node_spread("longhorn-bart")
