"""The upper two layers: measured speeds by node and by GPU type (Hops section 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hetsched_core.store.database import Transaction
from hetsched_core.store.merge import SPEED
from hetsched_core.store.names import NO_NODE, gpu_type_ids, node_ids, profile_ids
from hetsched_core.store.records import Measurement


def record_speeds(transaction: Transaction, measurements: Sequence[Measurement]) -> None:
    """Merge measurements into the rows of their nodes, or of their type where no node is named."""
    profiles = profile_ids(transaction, (m.profile for m in measurements))
    types = gpu_type_ids(transaction, (m.gpu_type for m in measurements))
    nodes = {"": NO_NODE, **node_ids(transaction, (n for m in measurements for n in m.nodes))}
    # What was measured over several nodes stands in the row of each.
    each = [(m, node) for m in measurements for node in m.nodes or ("",)]
    at_s = np.array([m.at_s for m, _ in each])
    SPEED.merge(
        transaction,
        {
            "profile": np.array([profiles[m.profile] for m, _ in each], dtype=np.int32),
            "gpu_type": np.array([types[m.gpu_type] for m, _ in each], dtype=np.int32),
            "node": np.array([nodes[node] for _, node in each], dtype=np.int32),
            "nodes": np.array([m.node_count for m, _ in each], dtype=np.int32),
            "gpus": np.array([m.gpus for m, _ in each], dtype=np.int32),
            "count": np.array([m.speed.count for m, _ in each], dtype=np.int64),
            "mean": np.array([m.speed.mean for m, _ in each]),
            "m2": np.array([m.speed.m2 for m, _ in each]),
            "first_s": at_s,
            "last_s": at_s,
        },
    )
