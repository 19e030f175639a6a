"""What the daemon believes of speeds before anything was measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from hetsched_core.throughput.builtin import builtin_tables
from hetsched_core.types import Cluster, Layer, Speeds

ASSUMED_PROFILE = "resnet50-imagenet"
"""The built-in profile that stands in for a profile key that nobody knows."""


def live_speeds(cluster: Cluster, profiles: Iterable[str]) -> Speeds:
    """Return the built-in speeds, and those assumed for profile keys beside them.

    They come from a formula, and say so (`Layer.THEORY`).
    """
    tables = {
        name: replace(table, layers=np.full_like(table.layers, Layer.THEORY))
        for name, table in builtin_tables(cluster.gpu_types, cluster.gpus).items()
    }
    for profile in profiles:
        tables.setdefault(profile, tables[ASSUMED_PROFILE])
    return Speeds(cluster, tables)
