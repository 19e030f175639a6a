"""The managed nodes between two reads: what they have, which jobs may run there, what is in use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from ClusterShell.NodeSet import NodeSet
from immutables import Map

from hetsched_core.types import Cluster, Node, NodeView
from slurm_plugin.backend import SlurmJob, SlurmNode
from slurm_plugin.backend.gres import UNTYPED
from slurm_plugin.daemon.hold import is_managed
from slurm_plugin.daemon.settings import DaemonSettings
from slurm_plugin.daemon.where import Where


class ManagedNodes:
    """The managed nodes as of the last read.

    Attributes:
        cluster: what they have; None before the first read.
        views: how they stand, by name.
        where: on which of them jobs may run.
        asleep: those that are powered down.
        odd: those that are left out, such as `node n[1-2]`, each with why.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.cluster: Cluster | None = None
        self.views: Map[str, NodeView] = Map()
        self.where = Where()
        self.asleep: frozenset[str] = frozenset()
        self.odd: dict[str, str] = {}
        self._partitions: frozenset[str] = frozenset()

    def observe(self, nodes: Iterable[SlurmNode], settings: DaemonSettings) -> bool:
        """Take in which nodes there are; return whether jobs may run on others than before.

        Where what they have differs, `cluster` is another one, and they stand as if empty.
        """
        nodes = tuple(nodes)
        ours = tuple(node for node in nodes if is_managed(node, settings))
        self._partitions = frozenset().union(*(node.partitions or () for node in ours))
        moved = self.where.differs(ours)
        if moved:
            self.where = Where(ours)
        left_out = defaultdict(list)
        for name in settings.node_names - {node.name for node in nodes}:
            left_out["Slurm has no such node"].append(name)
        described = []
        for node in ours:
            # Of a node with several types nothing can be pinned to one of them by count alone.
            if len(node.gpus) == 1 and node.gpus[0][1]:
                described.append(Node(node.name, *node.gpus[0], node.cpus, node.memory_mb))
            else:
                types = " and ".join(gpu_type for gpu_type, count in node.gpus if count)
                left_out[f"it has GPUs {types}" if types else "it has no GPUs"].append(node.name)
        self.odd = {f"node {NodeSet.fromlist(names)}": words for words, names in left_out.items()}
        if self.cluster is None or self.cluster.nodes != tuple(described):
            self.cluster = Cluster(tuple(described), "slurm")
            self.views = Map({node.name: NodeView(node) for node in described})
        kept = self.cluster
        self.asleep = frozenset(node.name for node in nodes if node.asleep and node.name in kept)
        return moved

    def renew(self, views: Iterable[NodeView]) -> Iterator[tuple[NodeView, NodeView]]:
        """Let nodes stand as they do now; yield those of which that differs, before and now."""
        for now in views:
            before = self.views[now.node.name]
            if now != before:
                self.views = self.views.set(now.node.name, now)
                yield before, now

    def may_have(self, seen: SlurmJob) -> bool:
        """Whether a job runs on these nodes alone, or was placed there, or may be."""
        assert self.cluster is not None
        if seen.nodes:
            return all(name in self.cluster for name in seen.nodes)
        if seen.reservation and not seen.in_hold:
            return False
        return seen.entered or not self._partitions.isdisjoint(seen.partitions)

    def partitions_for(self, seen: SlurmJob, nodes: Collection[str]) -> tuple[str, ...]:
        """Return a job's partitions, that of the nodes first; () where they stand like that."""
        first = next((each for each in seen.partitions if self.where.has(each, nodes)), "")
        if not first or first == seen.partitions[0]:
            return ()
        return (first, *(each for each in seen.partitions if each != first))

    def gpu_type(self, nodes: Iterable[str]) -> str:
        """Return the type of GPUs that nodes share, as Slurm names it; "" if it names none.

        A job that asks for it comes under limits on that type.
        """
        assert self.cluster is not None
        types = {self.cluster[name].gpu_type for name in nodes}
        return types.pop() if len(types) == 1 and UNTYPED not in types else ""
