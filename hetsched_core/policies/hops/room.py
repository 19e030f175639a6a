"""What Hops's plans have to share out: GPUs by node, CPUs and memory by host, as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hetsched_core.placement.free import PerGpu
from hetsched_core.types import Cluster, Configuration, Snapshot

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_SLACK = 1e-6
"""Sums of fractions of CPUs or MiB may be off by so much."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
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
def layout_of(cluster: Cluster, groups: bool) -> Layout:
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
    return Layout(
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


class Room:
    """GPUs, CPUs and memory that nobody has been given yet; on closed nodes there are none."""

    def __init__(
        self, layout: Layout, gpus: Ints, opened: Bools, cpus: Floats, memory_mb: Floats
    ) -> None:
        """Start with (N,) GPUs, (N,) whether nodes take work, (H,) CPUs and (H,) MiB."""
        self.layout = layout
        self.gpus = gpus
        self.open = opened
        self.cpus = cpus
        self.memory_mb = memory_mb

    @classmethod
    def healthy(cls, layout: Layout) -> Room:
        """Return the whole cluster, idle and open."""
        return cls(
            layout,
            layout.gpus.copy(),
            np.ones(len(layout.gpus), np.bool_),
            layout.cpus.copy(),
            layout.memory_mb.copy(),
        )

    @classmethod
    def of(cls, snapshot: Snapshot, layout: Layout) -> Room:
        """Return what managed jobs may use altogether, running ones included."""
        room = cls.healthy(layout)
        for at, view in enumerate(snapshot.node_views()):
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
def _may_use(layout: Layout, nodes: frozenset[str] | None, closed: frozenset[str]) -> Bools:
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
