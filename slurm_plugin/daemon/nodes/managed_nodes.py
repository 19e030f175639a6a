"""The managed nodes between two reads: what they have, which jobs may run there, what is in use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from ClusterShell.NodeSet import NodeSet
from immutables import Map

from hetsched_core.types import Cluster, Node, NodeView
from hetsched_core.types.cluster import nodes_of_host
from slurm_plugin.backend import SlurmJob, SlurmNode
from slurm_plugin.backend.gres import UNTYPED
from slurm_plugin.daemon.jobs.request import Request
from slurm_plugin.daemon.nodes.allowed_nodes import Where
from slurm_plugin.daemon.nodes.hold import is_managed
from slurm_plugin.daemon.settings import DaemonSettings


class ManagedNodes:
    """The managed nodes as of the last read.

    Attributes:
        cluster: what they have; None before the first read. One of Slurm's with several GPU types,
            a host, is several scheduling nodes here.
        views: how they stand, by name.
        where: on which of them jobs may run.
        asleep: those that are powered down.
        odd: those that are left out, such as `node n[1-2]`, each with why.
        hosts: what Slurm calls the nodes of the cluster.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.cluster: Cluster | None = None
        self.views: Map[str, NodeView] = Map()
        self.where = Where()
        self.asleep: frozenset[str] = frozenset()
        self.odd: dict[str, str] = {}
        self.hosts: frozenset[str] = frozenset()
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
        described: list[Node] = []
        names = {node.name for node in nodes}
        for node in ours:
            parts = _parts(node.name, node.gpus, node.cpus, node.memory_mb)
            if not parts:
                left_out["it has no GPUs"].append(node.name)
            elif len(parts) > 1 and any(part.gpu_type == UNTYPED for part in parts):
                # Nothing can be pinned to those without a type by count alone.
                left_out["it has GPUs with a type and GPUs without"].append(node.name)
            elif len(parts) > 1 and not names.isdisjoint(part.name for part in parts):
                left_out["another node has the name of one of its GPU types"].append(node.name)
            else:
                described += parts
                names |= {part.name for part in parts if len(parts) > 1}
        self.odd = {f"node {NodeSet.fromlist(names)}": words for words, names in left_out.items()}
        if self.cluster is None or self.cluster.nodes != tuple(described):
            self.cluster = Cluster(tuple(described), "slurm")
            self.hosts = frozenset(node.host for node in described)
            self.views = Map({node.name: NodeView(node) for node in described})
        kept = self.cluster
        asleep = frozenset(node.name for node in nodes if node.asleep and node.name in self.hosts)
        self.asleep = frozenset(name for name in self.where.with_parts(asleep) if name in kept)
        return moved

    def renew(self, views: Iterable[NodeView]) -> Iterator[tuple[NodeView, NodeView]]:
        """Let nodes stand as they do now; yield those of which that differs, before and now."""
        for now in views:
            before = self.views[now.node.name]
            if now != before:
                self.views = self.views.set(now.node.name, now)
                yield before, now

    def writes_type(self, seen: SlurmJob, request: Request) -> bool:
        """Whether a job that runs as it was submitted is told which GPU type it was given.

        Wherever it goes, as long as some node has several: it may come from there.
        """
        takes_any = request.rigid and request.own.gpus > 0 and not request.own.gpu_types
        # What shares no node has the GPUs of all types there.
        shares = seen.exclusive != "node"
        # Slurm has one text for all gres.
        return takes_any and shares and not seen.gres and bool(self.where.parts)

    def hosts_of(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Return what Slurm calls these scheduling nodes, each once."""
        assert self.cluster is not None
        return tuple(dict.fromkeys(self.cluster[name].host for name in nodes))

    @property
    def by_host(self) -> Mapping[str, NodeView]:
        """How the nodes stand by Slurm's names: one with several GPU types once, with all GPUs."""
        if not self.where.parts:
            return self.views
        found: dict[str, NodeView] = {}
        for view in self.views.values():
            host, before = view.node.host, found.get(view.node.host)
            found[host] = view if before is None else _both(before, view)
        return found

    def may_have(self, seen: SlurmJob) -> bool:
        """Whether a job runs on these nodes alone, or was placed there, or may be."""
        if seen.nodes:
            return self.hosts.issuperset(seen.nodes)
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


@lru_cache(maxsize=4096)
def _parts(
    host: str, gpus: tuple[tuple[str, int], ...], cpus: int, memory_mb: int
) -> tuple[Node, ...]:
    """Return the scheduling nodes of one of Slurm's nodes: the same ones each time."""
    return nodes_of_host(host, {name: count for name, count in gpus if count}, cpus, memory_mb)


def _both(one: NodeView, other: NodeView) -> NodeView:
    """Return two scheduling nodes of a host as one."""
    return replace(
        one,
        node=replace(one.node, name=one.node.host, gpus=one.node.gpus + other.node.gpus),
        foreign_gpus=one.foreign_gpus + other.foreign_gpus,
        foreign_cpus=one.foreign_cpus + other.foreign_cpus,
        foreign_memory_mb=one.foreign_memory_mb + other.foreign_memory_mb,
        held_gpus=one.held_gpus + other.held_gpus,
        held_cpus=one.held_cpus + other.held_cpus,
        held_memory_mb=one.held_memory_mb + other.held_memory_mb,
    )
