"""Sorting nodes into classes of interchangeable ones (Hops, with the entity layer of section 3.3).

Nodes are interchangeable that have the same GPU type, idle GPUs, topology group, use for every
need, and speed as far as that is told apart. Measured speeds differ from node to node by chance, so
nodes of a type are sorted into levels: inside one, the mean speed over all profiles differs by no
more than a given part, and a profile runs at the mean of the level's nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hetsched_core.choose import NodeClasses
from hetsched_core.placement.free import PerGpu
from hetsched_core.policies.hops.room import Layout, Room
from hetsched_core.types import Cluster, SpeedTable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class NodeSpeeds:
    """How fast single nodes are relative to their type, for some of P profiles.

    Attributes:
        row: (P,) row of `factor` for each profile; row 0 is for those without a measured node.
        factor: (F, N) speed of each node relative to its type.
        level: (N,) number of the node's speed level inside its type, 0 for the slowest.
    """

    row: Ints
    factor: Floats
    level: Ints

    @classmethod
    def equal(cls, layout: Layout) -> NodeSpeeds:
        """Return the speeds of no profile on nodes that do not differ."""
        nodes = len(layout.type_of)
        return cls(np.zeros(0, np.int64), np.ones((1, nodes)), np.zeros(nodes, np.int64))


def node_speeds(
    tables: Sequence[SpeedTable], cluster: Cluster, layout: Layout, step: float
) -> NodeSpeeds:
    """Return how fast single nodes are, and sort them into levels.

    Args:
        tables: of P profiles.
        cluster: the nodes.
        layout: their columns.
        step: by what part the mean speeds of nodes in one level may differ.
    """
    row = np.zeros(len(tables), np.int64)
    rows = [np.ones(len(layout.type_of))]
    for at, table in enumerate(tables):
        if table.node_factor:
            row[at] = len(rows)
            rows.append(_factors(table, cluster))
    factor = np.stack(rows)
    level = np.zeros(len(layout.type_of), np.int64)
    if len(rows) > 1:
        mean = np.exp(np.log(factor[1:]).mean(axis=0))
        for gpu_type in range(len(layout.gpu_types)):
            nodes = np.flatnonzero(layout.type_of == gpu_type)
            level[nodes] = _levels(mean[nodes], step)
    return NodeSpeeds(row, factor, level)


@lru_cache(maxsize=512)
def _factors(table: SpeedTable, cluster: Cluster) -> Floats:
    get = table.node_factor.get
    return np.array([get(name, 1.0) for name in cluster.names])


def _levels(speed: Floats, step: float) -> Ints:
    """Number the levels of (M,) speeds: a level ends where one exceeds its slowest by `step`."""
    values, at = np.unique(speed, return_inverse=True)
    level = np.zeros(len(values), np.int64)
    slowest = values[0]
    for k in range(1, len(values)):
        ends = values[k] > slowest * (1.0 + step)
        slowest = values[k] if ends else slowest
        level[k] = level[k - 1] + ends
    return level[at]


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """The C classes of idle nodes, sorted by GPU type and pool.

    Attributes:
        nodes: what `choose` knows of them.
        members: (M,) the nodes that somebody can use, ascending.
        member_class: (M,) class of each.
        type_from: (T+1,) where the classes of each type begin.
        pool_from: (L+1,) where the classes of each pool begin.
        type_pools: (T+1,) where the pools of each type begin.
        usable: (D, C) GPUs of a node that a job of each need can use.
        factor: (F, C) speed of a node relative to its type, by row of `NodeSpeeds.factor`.
    """

    nodes: NodeClasses
    members: Ints
    member_class: Ints
    type_from: Ints
    pool_from: Ints
    type_pools: Ints
    usable: Ints
    factor: Floats


def classes_of(
    room: Room, needs: Sequence[PerGpu], speeds: NodeSpeeds, *, by_node: bool
) -> Classes:
    """Sort the nodes with idle GPUs into classes.

    Args:
        room: what is idle.
        needs: D needs; two nodes of a class are of the same use for each.
        speeds: of single nodes.
        by_node: every node is a class of its own, in the cluster's order inside its pool.
    """
    layout = room.layout
    usable = room.usable(needs)
    able = np.flatnonzero(usable.max(axis=0, initial=0) > 0)
    limited = [row[able] for row in usable if (row[able] != room.gpus[able]).any()]
    columns = [layout.type_of[able], layout.pool_of[able]]
    if by_node:
        columns.append(able)
    else:
        columns += [speeds.level[able], room.gpus[able], *limited]
    order = np.lexsort(columns[::-1])
    able = able[order]
    new = np.ones(len(able), np.bool_)
    new[1:] = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
    of_node = np.cumsum(new) - 1
    first = able[new]
    count = np.bincount(of_node, minlength=len(first)).astype(np.int64)
    ascending = np.argsort(able)
    factor = np.ones((len(speeds.factor), len(first)))
    for row, values in zip(factor[1:], speeds.factor[1:], strict=True):
        row[:] = np.bincount(of_node, values[able], len(first)) / count
    kind = pool = None
    if not by_node and len(layout.pool_type) > len(layout.gpu_types):
        alike = np.stack([column[order][new] for column in [columns[0], *columns[2:]]], axis=1)
        kind = np.unique(alike, axis=0, return_inverse=True)[1].astype(np.int64)
        pool = layout.pool_of[first]
    types, pools = np.arange(len(layout.gpu_types) + 1), np.arange(len(layout.pool_type) + 1)
    return Classes(
        nodes=NodeClasses(
            capacity=room.gpus[first],
            count=count,
            label=tuple(layout.names[node] for node in first)
            if by_node
            else _labels(layout, room, speeds, first),
            kind=kind,
            pool=pool,
        ),
        members=able[ascending],
        member_class=of_node[ascending],
        type_from=np.searchsorted(layout.type_of[first], types),
        pool_from=np.searchsorted(layout.pool_of[first], pools),
        type_pools=np.searchsorted(layout.pool_type, types),
        usable=np.ascontiguousarray(usable[:, first]),
        factor=factor,
    )


def _labels(layout: Layout, room: Room, speeds: NodeSpeeds, first: Ints) -> tuple[str, ...]:
    """Name each class after one of its nodes: `v100 x8`, and what tells it from others."""
    labels: dict[str, None] = {}
    levels = speeds.level.max(initial=0) > 0
    for node in first.tolist():
        label = f"{layout.gpu_types[layout.type_of[node]]} x{room.gpus[node]}"
        if levels:
            label += f" speed {speeds.level[node]}"
        if name := layout.pool_name[layout.pool_of[node]]:
            label += f" in {name}"
        plain, again = label, 2
        while label in labels:
            label, again = f"{plain} #{again}", again + 1
        labels[label] = None
    return tuple(labels)
