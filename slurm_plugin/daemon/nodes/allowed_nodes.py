"""On which managed nodes a job may run: its partitions, features, disk, gres, what it named.

These are Slurm's nodes. For policies a node with several GPU types, a *host*, is several scheduling
nodes; wherever nodes are told to them, those of each host stand beside it, and each side passes
over the other's names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hetsched_core.types.cluster import part_name
from slurm_plugin.backend import SlurmJob, SlurmNode
from slurm_plugin.backend.features import nodes_with


class Where:
    """Tells where jobs may run, with the same object for all that may run on the same nodes.

    Attributes:
        parts: the scheduling nodes of those with several GPU types.
    """

    def __init__(self, nodes: Iterable[SlurmNode] = ()) -> None:
        """Look at the managed nodes."""
        nodes = tuple(nodes)
        self._partitions = {node.name: node.partitions for node in nodes}
        self._features: Mapping[str, frozenset[str]] = {node.name: node.features for node in nodes}
        self._disk_mb = {node.name: node.disk_mb for node in nodes}
        self._gres = {node.name: dict(node.gres) for node in nodes}
        self.parts = {
            node.name: tuple(part_name(node.name, gpu_type) for gpu_type, _ in node.gpus)
            for node in nodes
            if len(node.gpus) > 1
        }
        self._all = frozenset(self._partitions)
        self._found: dict[tuple[object, ...], frozenset[str] | None] = {}
        self._apart: dict[tuple[str, ...], tuple[str, ...]] = {}

    def differs(self, nodes: Iterable[SlurmNode]) -> bool:
        """Whether nodes are others than those that were looked at, or have other properties."""
        new = Where(nodes)
        return (self._partitions, self._features, self._disk_mb, self._gres, self.parts) != (
            *(new._partitions, new._features, new._disk_mb, new._gres, new.parts),
        )

    def with_parts(self, nodes: frozenset[str]) -> frozenset[str]:
        """Return nodes of Slurm, and beside those with several GPU types their scheduling nodes."""
        if not self.parts:
            return nodes
        return nodes.union(*(self.parts.get(name, ()) for name in nodes))

    def has(self, partition: str, nodes: Iterable[str]) -> bool:
        """Whether all of these nodes are in a partition."""
        return all(partition in (self._partitions.get(name) or ()) for name in nodes)

    def apart(self, partitions: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of a job's partitions of which none has all nodes of another.

        () where one has those of all: a run is on nodes of one partition anyhow.
        """
        if len(partitions) < 2:
            return ()
        if partitions not in self._apart:
            nodes = {
                each: {name for name in self._all if self.has(each, (name,))} for each in partitions
            }
            # The greatest first, so that of equal ones one is left.
            kept: list[str] = []
            for each in sorted(nodes, key=lambda each: -len(nodes[each])):
                if nodes[each] and not any(nodes[each] <= nodes[other] for other in kept):
                    kept.append(each)
            self._apart[partitions] = tuple(kept) if len(kept) > 1 else ()
        return self._apart[partitions]

    def of(
        self, seen: SlurmJob, named: tuple[str, ...], partition: str = ""
    ) -> frozenset[str] | None:
        """Return the nodes on which a job may run; None for all.

        Args:
            seen: the job.
            named: the nodes that its user asked for, () for none.
            partition: the one of its partitions on whose nodes it is to be, "" for any.
        """
        partitions = (partition,) if partition else seen.partitions
        key = (partitions, seen.constraint, seen.excluded, seen.disk_mb, seen.gres, named)
        if key not in self._found:
            self._found[key] = self._look(seen, named, frozenset(partitions))
        return self._found[key]

    def _look(
        self, seen: SlurmJob, named: tuple[str, ...], wanted: frozenset[str]
    ) -> frozenset[str] | None:
        found = {
            name
            for name, own in self._partitions.items()
            if (own is None or not wanted.isdisjoint(own))
            and self._disk_mb[name] >= seen.disk_mb
            and all(self._gres[name].get(each, 0) >= count for each, count in seen.gres)
        }
        found.difference_update(seen.excluded)
        if named:
            found.intersection_update(named)
        if seen.constraint:
            # Of several sets, of which all nodes of a run are to be in one, the greatest will do.
            sets = nodes_with(seen.constraint, self._features)
            if sets is not None:
                found &= max(sets, key=len)
        # The type would be written over what else the job asks for of the node.
        plain = bool(seen.gres and self.parts)
        if plain or found != self._all:
            return frozenset(found) if plain else self.with_parts(frozenset(found))
        return None
