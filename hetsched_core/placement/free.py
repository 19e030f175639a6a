"""The GPUs, CPUs and memory that are still free while a plan is being made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from hetsched_core.types import SLACK, Cluster, Configuration, Job, NodeView, Placed, Snapshot


class PerGpu(NamedTuple):
    """The needs of a job and nothing else of it: jobs of equal needs are served alike.

    Attributes:
        cpus_per_gpu: CPUs for each GPU.
        memory_mb_per_gpu: MiB for each GPU.
        nodes: the nodes that it may use; None for all.
        closed: those that are closed to it now.
        min_nodes: on how many nodes it has to be at least; above 1 they give equal parts.
        max_nodes: on how many nodes it may be at most; None for any number.
    """

    cpus_per_gpu: float = 0.0
    memory_mb_per_gpu: float = 0.0
    nodes: frozenset[str] | None = None
    closed: frozenset[str] = frozenset()
    min_nodes: int = 1
    max_nodes: int | None = None

    @classmethod
    def of(cls, job: Needs) -> PerGpu:
        """Return the needs of a job."""
        return cls(
            job.cpus_per_gpu,
            job.memory_mb_per_gpu,
            job.nodes,
            job.closed,
            job.min_nodes,
            job.max_nodes,
        )


Needs = Job | PerGpu
"""What takes CPUs and memory beside each GPU, and of which nodes."""


def host_room(
    cluster: Cluster, views: Iterable[NodeView]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the CPUs and the memory (MiB) that each host leaves to managed jobs.

    Infinite where they are not counted. `views` are all nodes.
    """
    cpus, memory_mb = {}, {}
    for view in views:
        host = view.node.host
        if host not in cpus:
            host_cpus, host_mb = cluster.shared_on(host)
            cpus[host], memory_mb[host] = host_cpus or math.inf, host_mb or math.inf
        cpus[host] -= view.foreign_cpus
        memory_mb[host] -= view.foreign_memory_mb
    return cpus, memory_mb


class FreeGpus:
    """Free capacity of every node, with the nodes of each type grouped by their free GPUs.

    For each GPU type and number of free GPUs one integer holds the set of such nodes, a bit each,
    so that the best-fitting node is found without looking at the others. The nodes that a job may
    use are such a set, too: here, and nowhere else in a packer, are those of others left out.
    """

    def __init__(self, cluster: Cluster, views: tuple[NodeView, ...]) -> None:
        """Start with all that `views` (in the cluster's order) leave to managed jobs."""
        self._cluster = cluster
        self._within = -1
        self._closed = [not view.open for view in views]
        self._free = [max(0, view.capacity) for view in views]
        self._idle: dict[str, int] = {}
        self._sets: dict[str, list[int]] = {}
        self._cpus, self._memory_mb = host_room(cluster, views)
        for at, view in enumerate(views):
            node = view.node
            sets = self._sets.setdefault(node.gpu_type, [])
            sets.extend([0] * (node.gpus + 1 - len(sets)))
            if not self._closed[at]:
                sets[self._free[at]] |= 1 << at
                self._idle[node.gpu_type] = self._idle.get(node.gpu_type, 0) + self._free[at]

    @classmethod
    def of(cls, snapshot: Snapshot) -> FreeGpus:
        """Return what managed jobs may use altogether, running ones included."""
        return cls(snapshot.cluster, tuple(snapshot.node_views()))

    @classmethod
    def beside(cls, snapshot: Snapshot, placed: Mapping[str, Placed]) -> FreeGpus:
        """Return what managed jobs may use beside these, that have one placement each."""
        free = cls.of(snapshot)
        for job_id, entry in placed.items():
            free.take(snapshot.jobs[job_id].job, entry.placements[0].configuration)
        return free

    @classmethod
    def empty(cls, cluster: Cluster) -> FreeGpus:
        """Return the whole cluster, idle and healthy."""
        return cls(cluster, tuple(NodeView(node) for node in cluster))

    def copy(self) -> FreeGpus:
        """Return the same, to be changed without changing this."""
        twin = FreeGpus.__new__(FreeGpus)
        vars(twin).update(
            vars(self),
            _free=self._free.copy(),
            _idle=self._idle.copy(),
            _sets={gpu_type: sets.copy() for gpu_type, sets in self._sets.items()},
            _cpus=self._cpus.copy(),
            _memory_mb=self._memory_mb.copy(),
        )
        return twin

    def outside(self, nodes: int) -> FreeGpus:
        """Return the same without these nodes (a bit each), to be asked before this changes."""
        rest = FreeGpus.__new__(FreeGpus)
        vars(rest).update(vars(self), _within=self._within & ~nodes)
        return rest

    def host(self, node: str) -> str:
        """Return the host of a node."""
        return self._cluster[node].host

    def take(self, job: Needs, configuration: Configuration) -> None:
        """Take the GPUs, CPUs and memory of a configuration."""
        for name, gpus in configuration.pieces:
            self._change(job, name, -gpus)

    def give(self, job: Needs, configuration: Configuration) -> None:
        """Give them back."""
        for name, gpus in configuration.pieces:
            self._change(job, name, gpus)

    def fits(self, job: Needs, configuration: Configuration) -> bool:
        """Whether all of a configuration is free, on nodes that are not down."""
        on_host: dict[str, int] = {}
        for name, gpus in configuration.pieces:
            at = self._cluster.index(name)
            host = self._cluster.nodes[at].host
            if gpus > self._usable(job, at, host, on_host.get(host, 0)):
                return False
            on_host[host] = on_host.get(host, 0) + gpus
        return True

    def closed(self, node: str) -> bool:
        """Whether a node takes no new work."""
        return self._closed[self._cluster.index(node)]

    def idle(self, gpu_type: str) -> int:
        """Return the free GPUs of this type on open nodes."""
        return self._idle.get(gpu_type, 0)

    def nodes_with(self, gpu_type: str, gpus: int) -> int:
        """Return the number of open nodes of this type on which so many GPUs are free."""
        return sum(members.bit_count() for members in self._sets.get(gpu_type, ())[gpus:])

    @property
    def full(self) -> bool:
        """Whether no open node has a free GPU."""
        return not any(self._idle.values())

    def one_node(self, job: Needs, gpu_type: str, count: int) -> Configuration | None:
        """Return `count` GPUs on the open node of this type that they fill best, lowest first."""
        if job.min_nodes > 1:
            return None
        sets = self._sets.get(gpu_type, ())
        nodes, may_use = self._cluster.nodes, self._of(job)
        for free in range(count, len(sets)):
            members = sets[free] & may_use
            while members:
                lowest = members & -members
                at = lowest.bit_length() - 1
                if count <= self._usable(job, at, nodes[at].host):
                    return on_one_node(nodes[at].name, count)
                members ^= lowest
        return None

    def fewest_nodes(
        self, job: Needs, gpu_types: tuple[str, ...], count: int, *, even: bool = False
    ) -> Configuration | None:
        """Return `count` GPUs on as few open nodes of these types as possible, at least two.

        The fullest nodes are taken first and each is filled as far as possible; with `even`, and
        for a job that asks for two nodes or more, all nodes give the same number.
        """
        most = count if job.max_nodes is None else job.max_nodes
        if most < 2:
            return None
        spread = self._offers(job, gpu_types)
        if not even and job.min_nodes < 2:
            return self._spread(job, spread, count, most)
        offers = list(spread)
        for many in range(max(2, job.min_nodes), min(count, len(offers), most) + 1):
            each, rest = divmod(count, many)
            if not rest and offers[many - 1][0] >= each:
                found = self._spread(job, offers, count, many, each)
                if found is not None:
                    return found
        return None

    def most_spread(self, job: Needs, gpu_types: tuple[str, ...]) -> int:
        """Return the most GPUs that `fewest_nodes` finds in unequal parts; 0 where it finds none.

        It finds any number from 2 to that, so one look at the nodes answers for all counts.
        """
        if self.fewest_nodes(job, gpu_types, 2) is None:
            return 0
        most = len(self._cluster) if job.max_nodes is None else job.max_nodes
        found = self._pieces(job, self._offers(job, gpu_types), self._cluster.gpus + 1, most)
        return sum(gpus for _, gpus in found)

    def _spread(
        self, job: Needs, offers: Iterable[tuple[int, int]], count: int, most: int, each: int = 0
    ) -> Configuration | None:
        """Return `count` GPUs of two to `most` of these nodes, `each` of every one if given."""
        pieces = self._pieces(job, offers, count, most, each)
        return Configuration.of(pieces) if sum(gpus for _, gpus in pieces) == count else None

    def _pieces(
        self, job: Needs, offers: Iterable[tuple[int, int]], count: int, most: int, each: int = 0
    ) -> list[tuple[str, int]]:
        """Return up to `count` GPUs of up to `most` of these nodes, filled one after another."""
        pieces: list[tuple[str, int]] = []
        on_host: dict[str, int] = {}
        for alone, at in offers:
            node = self._cluster.nodes[at]
            there = on_host.get(node.host, 0)
            usable = self._usable(job, at, node.host, there) if there else alone
            if each:
                piece = each if usable >= each else 0
            else:
                # The last node needs only the rest; a second must be left something to hold.
                piece = min(usable, count if pieces else count - 1)
            if piece < 1:
                continue
            pieces.append((node.name, piece))
            on_host[node.host] = there + piece
            count -= piece
            if count == 0 or len(pieces) == most:
                break
        return pieces

    def _offers(self, job: Needs, gpu_types: tuple[str, ...]) -> Iterator[tuple[int, int]]:
        """Yield usable GPUs and position of each open node with any, most first, then by order.

        Nodes are looked at as they are asked for: no more is usable of one than is free there.
        """
        may_use, nodes = self._of(job), self._cluster.nodes
        of_types = [self._sets[gpu_type] for gpu_type in gpu_types if gpu_type in self._sets]
        host_counts = job.cpus_per_gpu or job.memory_mb_per_gpu
        usable: dict[int, list[int]] = {}
        for free in range(max(map(len, of_types), default=0) - 1, 0, -1):
            rest = 0
            for sets in of_types:
                if free < len(sets):
                    rest |= sets[free]
            rest &= may_use
            while rest:
                lowest = rest & -rest
                at = lowest.bit_length() - 1
                rest ^= lowest
                if host_counts:
                    gpus = self._usable(job, at, nodes[at].host)
                    usable.setdefault(gpus, []).append(at)
                else:
                    yield free, at
            for at in sorted(usable.get(free, ())):
                yield free, at

    def _of(self, job: Needs) -> int:
        """The nodes that a job may use, a bit each; all bits for all."""
        if job.nodes is None and not job.closed:
            return self._within
        return self._within & self._cluster.mask(job.nodes, job.closed)

    def _usable(self, job: Needs, at: int, host: str, on_host: int = 0) -> int:
        """GPUs of a node that the job can use beside the `on_host` it takes on the same host."""
        usable = self._free[at]
        if job.cpus_per_gpu:
            usable = min(usable, _whole(self._cpus[host], job.cpus_per_gpu) - on_host)
        if job.memory_mb_per_gpu:
            usable = min(usable, _whole(self._memory_mb[host], job.memory_mb_per_gpu) - on_host)
        return usable

    def _change(self, job: Needs, name: str, gpus: int) -> None:
        at = self._cluster.index(name)
        node = self._cluster.nodes[at]
        before = self._free[at]
        self._free[at] = after = before + gpus
        if not self._closed[at]:
            # What runs may hold more than others leave, and there is never less than nothing free.
            before, after = max(0, before), max(0, after)
            sets = self._sets[node.gpu_type]
            bit = 1 << at
            sets[before] ^= bit
            sets[after] ^= bit
            self._idle[node.gpu_type] += after - before
        self._cpus[node.host] += gpus * job.cpus_per_gpu
        self._memory_mb[node.host] += gpus * job.memory_mb_per_gpu


@lru_cache(maxsize=4)
def idle_cluster(cluster: Cluster) -> FreeGpus:
    """Return the whole cluster, idle and healthy; it is shared, and nothing is to be taken."""
    return FreeGpus.empty(cluster)


@lru_cache(1 << 16)
def on_one_node(name: str, count: int) -> Configuration:
    """Return so many GPUs of one node: few are different, and run logs hold millions."""
    return Configuration(((name, count),))


def _whole(free: float, each: float) -> int:
    share = (free + SLACK) / each
    return 1 << 30 if share == math.inf else max(0, int(share))
