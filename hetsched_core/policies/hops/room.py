"""What Hops's plans have to share out: GPUs by node, CPUs and memory by host, and node classes.

Nodes are interchangeable that have the same GPU type, idle GPUs, topology group, use for every
need, and speed as far as that is told apart. Measured speeds (the entity layer, SoCC '24, section
3.3) differ from node to node by chance, so nodes of a type are sorted into levels: inside one, the
mean speed over all profiles differs by no more than a given part, and a profile runs at the mean of
the level's nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hetsched_core.choose import NodeClasses
from hetsched_core.placement.free import PerGpu
from hetsched_core.types import Cluster, Configuration, NodeCondition, Snapshot, SpeedTable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_SLACK = 1e-6
"""Sums of fractions of CPUs or MiB may be off by so much."""


@dataclass(frozen=True, slots=True, eq=False)
class ClusterLayout:
    """A cluster's N nodes on H hosts as columns.

    A pool is where a distributed configuration looks for nodes: a topology group of one GPU type.

    Attributes:
        names: N names.
        gpu_types: T types, in the cluster's order.
        type_of: (N,) type of each node.
        pool_of: (N,) pool of each node; pools are numbered type by type.
        pool_type: (L,) type of each pool.
        pool_name: L names of groups.
        host_of: (N,) host of each node.
        gpus: (N,) GPUs.
        cpus: (H,) CPUs, infinite where they are not counted.
        memory_mb: (H,) MiB, likewise.
    """

    names: tuple[str, ...]
    gpu_types: tuple[str, ...]
    type_of: Ints
    pool_of: Ints
    pool_type: Ints
    pool_name: tuple[str, ...]
    host_of: Ints
    gpus: Ints
    cpus: Floats
    memory_mb: Floats


@lru_cache(maxsize=16)
def layout_of(cluster: Cluster, groups: bool) -> ClusterLayout:
    """Return the columns of a cluster; without `groups`, all nodes of a type are one pool."""
    types = {name: at for at, name in enumerate(cluster.gpu_types)}
    type_of = [types[node.gpu_type] for node in cluster]
    within = [node.group if groups else "" for node in cluster]
    pools = list(dict.fromkeys(zip(type_of, within, strict=True)))
    pools.sort(key=lambda pool: pool[0])
    pool_at = {pool: at for at, pool in enumerate(pools)}
    hosts: dict[str, int] = {}
    host_of = [hosts.setdefault(node.host, len(hosts)) for node in cluster]
    cpus, memory_mb = np.zeros(len(hosts)), np.zeros(len(hosts))
    for node, host in zip(cluster, host_of, strict=True):
        cpus[host] = max(cpus[host], node.cpus)
        memory_mb[host] = max(memory_mb[host], node.memory_mb)
    return ClusterLayout(
        names=cluster.names,
        gpu_types=cluster.gpu_types,
        type_of=np.array(type_of, np.int64),
        pool_of=np.array([pool_at[pool] for pool in zip(type_of, within, strict=True)], np.int64),
        pool_type=np.array([gpu_type for gpu_type, _ in pools], np.int64),
        pool_name=tuple(name for _, name in pools),
        host_of=np.array(host_of, np.int64),
        gpus=np.array([node.gpus for node in cluster], np.int64),
        cpus=np.where(cpus > 0, cpus, np.inf),
        memory_mb=np.where(memory_mb > 0, memory_mb, np.inf),
    )


@dataclass(slots=True, eq=False)
class Room:
    """GPUs, CPUs and memory that no job has been given yet; on closed nodes there are none.

    Attributes:
        layout: the cluster.
        gpus: (N,) GPUs.
        open: (N,) whether nodes take work.
        cpus: (H,) CPUs.
        memory_mb: (H,) MiB.
    """

    layout: ClusterLayout
    gpus: Ints
    open: Bools
    cpus: Floats
    memory_mb: Floats

    @classmethod
    def healthy(cls, layout: ClusterLayout) -> Room:
        """Return the whole cluster, idle and open."""
        return cls(
            layout,
            layout.gpus.copy(),
            np.ones(len(layout.gpus), np.bool_),
            layout.cpus.copy(),
            layout.memory_mb.copy(),
        )

    @classmethod
    def of(cls, snapshot: Snapshot, layout: ClusterLayout) -> Room:
        """Return what managed jobs may use altogether, running ones included."""
        room, up = cls.healthy(layout), NodeCondition.UP
        for at, view in enumerate(snapshot.node_views()):
            # Most nodes are as they are when healthy, and all are looked at for each plan.
            if view.condition is not up or view.left_out or view.foreign_gpus:
                room.open[at] = view.open
                room.gpus[at] = max(0, view.capacity) if view.open else 0
            if view.foreign_cpus or view.foreign_memory_mb:
                host = layout.host_of[at]
                room.cpus[host] -= view.foreign_cpus
                room.memory_mb[host] -= view.foreign_memory_mb
        return room

    def copy(self) -> Room:
        """Return the same, to be changed without changing this."""
        return Room(
            self.layout, self.gpus.copy(), self.open, self.cpus.copy(), self.memory_mb.copy()
        )

    def take(self, nodes: Ints, gpus: Ints, need: PerGpu) -> None:
        """Take GPUs of nodes, and the CPUs and memory that go with them."""
        many = np.ones(len(nodes))
        self.take_all(nodes, gpus, many * need.cpus_per_gpu, many * need.memory_mb_per_gpu)

    def take_all(
        self, nodes: Ints, gpus: Ints, cpus_per_gpu: Floats, memory_mb_per_gpu: Floats
    ) -> None:
        """Take the pieces of many jobs; on a closed node GPUs stay at 0."""
        np.subtract.at(self.gpus, nodes, np.where(self.open[nodes], gpus, 0))
        hosts = self.layout.host_of[nodes]
        np.subtract.at(self.cpus, hosts, gpus * cpus_per_gpu)
        np.subtract.at(self.memory_mb, hosts, gpus * memory_mb_per_gpu)

    @property
    def overdrawn(self) -> bool:
        """Whether more has been taken than there was."""
        return bool(
            (self.gpus < 0).any() or (self.cpus < -_SLACK).any() or (self.memory_mb < -_SLACK).any()
        )

    def holds(self, nodes: Ints, gpus: Ints, need: PerGpu) -> bool:
        """Whether so many GPUs of these nodes are free, with what goes with them."""
        rest, hosts = self.copy(), self.layout.host_of[nodes]
        rest.take(nodes, gpus, need)
        # Elsewhere what runs may hold more than there is.
        return not (
            (rest.gpus[nodes] < 0).any()
            or (need.cpus_per_gpu > 0 and (rest.cpus[hosts] < -_SLACK).any())
            or (need.memory_mb_per_gpu > 0 and (rest.memory_mb[hosts] < -_SLACK).any())
        )

    def usable(self, needs: Sequence[PerGpu]) -> Ints:
        """Return (D, N) how many GPUs of each node a job of each need could use."""
        usable = np.tile(self.gpus, (len(needs), 1))
        for row, need in zip(usable, needs, strict=True):
            if need.nodes is not None or need.closed:
                row *= _may_use(self.layout, need.nodes, need.closed)
            for free, each in (
                (self.cpus, need.cpus_per_gpu),
                (self.memory_mb, need.memory_mb_per_gpu),
            ):
                if each > 0:
                    most = np.maximum(0.0, np.minimum((free + _SLACK) / each, 1e9))
                    np.minimum(row, most.astype(np.int64)[self.layout.host_of], out=row)
        return usable


@lru_cache(maxsize=1 << 10)
def _may_use(layout: ClusterLayout, nodes: frozenset[str] | None, closed: frozenset[str]) -> Bools:
    """(N,) whether each node is one of these and not closed."""
    return np.array(
        [(nodes is None or name in nodes) and name not in closed for name in layout.names], np.bool_
    )


def pieces_of(cluster: Cluster, configuration: Configuration) -> tuple[Ints, Ints]:
    """Return the nodes of a configuration, as positions in the cluster, and the GPUs on each."""
    nodes = [cluster.index(name) for name, _ in configuration]
    return np.array(nodes, np.int64), np.array([gpus for _, gpus in configuration], np.int64)


def configuration_of(cluster: Cluster, nodes: Iterable[int], gpus: Iterable[int]) -> Configuration:
    """Return the configuration of these nodes, given as positions, and GPUs."""
    return Configuration.of(
        (cluster.nodes[node].name, each) for node, each in zip(nodes, gpus, strict=True)
    )


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


def node_speeds(tables: Sequence[SpeedTable], layout: ClusterLayout, step: float) -> NodeSpeeds:
    """Return how fast single nodes are, and sort them into levels.

    Args:
        tables: of P profiles; without any, nodes do not differ.
        layout: the nodes.
        step: by what part the mean speeds of nodes in one level may differ.
    """
    row = np.zeros(len(tables), np.int64)
    rows = [np.ones(len(layout.type_of))]
    for at, table in enumerate(tables):
        if table.node_factor:
            row[at] = len(rows)
            rows.append(_factors(table, layout))
    factor = np.stack(rows)
    level = np.zeros(len(layout.type_of), np.int64)
    if len(rows) > 1:
        mean = np.exp(np.log(factor[1:]).mean(axis=0))
        for gpu_type in range(len(layout.gpu_types)):
            nodes = np.flatnonzero(layout.type_of == gpu_type)
            level[nodes] = _levels(mean[nodes], step)
    return NodeSpeeds(row, factor, level)


@lru_cache(maxsize=512)
def _factors(table: SpeedTable, layout: ClusterLayout) -> Floats:
    return np.array([table.node_factor.get(name, 1.0) for name in layout.names])


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
        members: (M,) the nodes that some job can use, ascending.
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


def _labels(layout: ClusterLayout, room: Room, speeds: NodeSpeeds, first: Ints) -> tuple[str, ...]:
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
