"""Who held which node when: bars for a small run, shades of use for a large one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsched_core.report.history import History, Pieces, Spans
from hetsched_core.types import Cluster

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_BARS = 5_000
"""More bars than this in one figure are neither legible nor light."""
MAX_LANES = 160
"""More GPUs than this are thinner than a line."""
MAX_ROWS = 200
"""A row of the shades stands for one node, or for several where there are more of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Bars:
    """(B,) columns: job `job` holds the GPUs [first, first + gpus) from `since_s` to `until_s`.

    The GPUs of all nodes are numbered through in the order of the nodes. Which of a node's GPUs a
    job gets is not part of a run log: the first free ones are taken.
    """

    job: Ints
    first: Ints
    gpus: Ints
    since_s: Floats
    until_s: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Shades:
    """(rows, bins) shares of the GPUs of `nodes_each` neighbouring nodes (or fewer) that are held.

    The rows go through the GPU types in the order of the cluster; `types` names them, each with
    its first row.
    """

    share: Floats
    nodes_each: int
    types: tuple[tuple[str, int], ...]


def fits_bars(histories: Sequence[History]) -> bool:
    """Whether every bar of these runs can be drawn and told apart."""
    most = max(len(history.pieces) for history in histories)
    return most <= MAX_BARS and histories[0].cluster.gpus <= MAX_LANES


def bars(pieces: Pieces, cluster: Cluster) -> Bars:
    """Return the bars of a Gantt chart with a lane for each GPU."""
    offsets = np.cumsum([0, *(node.gpus for node in cluster)])
    free_s = np.full(cluster.gpus, -np.inf)
    rows = []
    for at in np.lexsort((pieces.node, pieces.since_s)):
        node, since_s, until_s = pieces.node[at], pieces.since_s[at], pieces.until_s[at]
        lanes = free_s[offsets[node] : offsets[node + 1]]
        # Tasks share a GPU between two plans, so that none may be free: then the first to be.
        wanted = np.argsort(np.where(lanes > since_s, lanes, -np.inf), kind="stable")
        taken = np.sort(wanted[: pieces.gpus[at]])
        lanes[taken] = until_s
        breaks = np.flatnonzero(np.diff(taken) > 1) + 1
        rows += [
            (pieces.job[at], offsets[node] + block[0], len(block), since_s, until_s)
            for block in np.split(taken, breaks)
        ]
    columns = np.array(rows, np.float64).reshape(-1, 5).T
    job, first, gpus = columns[:3].astype(np.int64)
    return Bars(job, first, gpus, columns[3], columns[4])


def shades(pieces: Pieces, cluster: Cluster, edges: Floats) -> Shades:
    """Return the use of each node, or of groups of neighbours of one type, over the bins."""
    nodes_each = -(-len(cluster) // MAX_ROWS)
    gpus = np.array([node.gpus for node in cluster], np.float64)
    by_node = np.argsort(pieces.node, kind="stable")
    starts = np.searchsorted(pieces.node, np.arange(len(cluster) + 1), sorter=by_node)
    share: list[Floats] = []
    types = []
    for gpu_type in cluster.gpu_types:
        of_type = [at for at, node in enumerate(cluster) if node.gpu_type == gpu_type and gpus[at]]
        if of_type:
            types.append((gpu_type, len(share)))
        for start in range(0, len(of_type), nodes_each):
            group = of_type[start : start + nodes_each]
            here = np.concatenate([by_node[starts[at] : starts[at + 1]] for at in group])
            spans = Spans(
                pieces.since_s[here], pieces.until_s[here], pieces.gpus[here].astype(np.float64)
            )
            share.append(spans.mean_over(edges) / gpus[group].sum())
    return Shades(np.array(share), nodes_each, tuple(types))
