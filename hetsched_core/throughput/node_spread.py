"""How far nodes of one GPU type differ, as measured, and true speeds that differ as far.

Source: the measurements that `node_spread.toml` names. On Frontera and Longhorn a node that is slow
for one model says little about another (rank correlation of BERT and ResNet: 0.27 and 0.18), so
each profile draws factors of its own.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from random import Random

import numpy as np

from hetsched_core.errors import unknown
from hetsched_core.types import Cluster, Speeds

LEVELS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
"""Shares of the nodes that are slower than each of `NodeSpread.speeds`."""


@dataclass(frozen=True, slots=True)
class NodeSpread:
    """The distribution of node speeds of one GPU type, measured with one job on one cluster.

    `speeds` are the quantiles at `LEVELS`, relative to the median node; `file` is where they were
    measured, in the source's own folder.
    """

    name: str
    cluster: str
    gpu_type: str
    job: str
    file: str
    nodes: int
    speeds: tuple[float, ...]

    def factor(self, share: float) -> float:
        """Return the speed, relative to the median, that this share of the nodes stays below."""
        return float(np.interp(share, LEVELS, self.speeds))


@cache
def node_spreads() -> dict[str, NodeSpread]:
    """Return the measured spreads by name."""
    text = files("hetsched_core.throughput").joinpath("node_spread.toml").read_text("utf-8")
    return {
        name: NodeSpread(name, **{**entry, "speeds": tuple(entry["speeds"])})
        for name, entry in tomllib.loads(text).items()
    }


def node_spread(name: str) -> NodeSpread:
    """Return a measured spread.

    Raises:
        UnknownNameError: there is none of this name.
    """
    try:
        return node_spreads()[name]
    except KeyError:
        raise unknown("node spread", name, node_spreads()) from None


def spread_out(speeds: Speeds, cluster: Cluster, spread: NodeSpread, seed: int) -> Speeds:
    """Return the speeds with a factor for each (profile, node), drawn independently.

    Equal seeds, profiles and names of nodes draw equal factors, whatever else the cluster holds;
    factors that the speeds have already are multiplied.
    """
    tables = {}
    for profile in speeds.profiles:
        table = speeds.table(profile)
        factors = {
            node: table.node_factor.get(node, 1.0)
            * spread.factor(Random(f"{seed}/{profile}/{node}").random())
            for node in cluster.names
        }
        tables[profile] = replace(table, node_factor=factors)
    return speeds.revised(tables)
