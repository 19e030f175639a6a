"""GPU types of a log in the words of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hetsched_core.throughput import match_gpu
from hetsched_core.traces.cluster_file import ClusterFile
from hetsched_core.traces.sacct import Allocation


class ToldBy(Enum):
    """What the type of a GPU is known from."""

    LOG = "the log names it"
    NODE = "its node has only this type"
    CLUSTER = "the cluster has only this type"


@dataclass(frozen=True, slots=True)
class HeldTypes:
    """The types of the GPUs that a run held, none where they cannot be told."""

    types: frozenset[str] = frozenset()
    told_by: frozenset[ToldBy] = frozenset()


class LogTypes:
    """Tells types; remembers its answers, for a log has few names and many jobs."""

    def __init__(self, cluster: ClusterFile) -> None:
        """Tell types in the words of this cluster."""
        self._cluster = cluster
        self._types = cluster.cluster.gpu_types
        self._names: dict[str, str] = {}
        self._hosts: dict[str, str | None] = {}

    def held(self, run: Allocation) -> HeldTypes:
        """Return the types of the GPUs that a run held."""
        types: set[str] = set()
        told_by: set[ToldBy] = set()
        for name, _ in run.gpus:
            if name is not None:
                types.add(self.known_as(name))
                told_by.add(ToldBy.LOG)
                continue
            on_nodes = {self._type_on(node) for node in run.nodes} or {None}
            if None not in on_nodes:
                types |= {gpu_type for gpu_type in on_nodes if gpu_type}
                told_by.add(ToldBy.NODE)
            elif len(self._types) == 1:
                types.add(self._types[0])
                told_by.add(ToldBy.CLUSTER)
            else:
                return HeldTypes()
        return HeldTypes(frozenset(types), frozenset(told_by))

    def known_as(self, name: str) -> str:
        """Return the cluster's name for a GPU type, or the given one where the cluster has none.

        Two names are of the same type where both are certain to be of the same published one.
        """
        if name not in self._names:
            own = name.lower()
            if own not in self._types:
                match = match_gpu(own)
                alike = (match_gpu(t) for t in self._types if not match.assumed)
                own = next((m.name for m in alike if not m.assumed and m.spec == match.spec), own)
            self._names[name] = own
        return self._names[name]

    def _type_on(self, node: str) -> str | None:
        if node not in self._hosts:
            self._hosts[node] = self._cluster.gpu_type_on(node)
        return self._hosts[node]
