"""Which of its partitions a job that may be on several nodes waits for.

Slurm runs a job on nodes of one partition. Where those of its partitions differ, policies would
spread it over nodes of several.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hetsched_core.types import Cluster, NodeView
from slurm_plugin.backend import SlurmJob
from slurm_plugin.daemon.jobs.request import Request
from slurm_plugin.daemon.nodes.allowed_nodes import Where


class _Room(NamedTuple):
    """The GPUs of each of some nodes, and how many of them are idle."""

    gpus: tuple[int, ...]
    idle: tuple[int, ...]


class OnePartition:
    """Chooses partitions by how the nodes stand at one time."""

    def __init__(self, where: Where, cluster: Cluster, views: Mapping[str, NodeView]) -> None:
        """Look at nodes: on which of them jobs may run, what they have, and how they stand."""
        self._where, self._cluster, self._views = where, cluster, views
        self._rooms: dict[tuple[frozenset[str] | None, frozenset[str] | None], _Room] = {}

    def of(self, request: Request, seen: SlurmJob, waits_for: str = "") -> str:
        """Return the partition on whose nodes a job is to be; "" where it makes no difference.

        It stays where it waits while that has room for it, or no other has.

        Args:
            request: what the job asks for, without GPUs, too.
            seen: the job.
            waits_for: what this said before, "" for nothing.
        """
        several = request.least_nodes > 1 or (
            request.most_nodes != 1 and request.counts.largest > 1
        )
        apart = self._where.apart(seen.partitions) if several else ()
        rooms = {
            each: self._room(self._where.of(seen, request.own.nodes, each), request.gpu_types)
            for each in apart
        }
        fits = {each: room for each, room in rooms.items() if _holds(room.gpus, request)}
        if not fits:
            return ""
        now = [each for each, room in fits.items() if _holds(room.idle, request)]
        stays = waits_for if waits_for in fits else max(fits, key=lambda each: sum(fits[each].idle))
        return now[0] if now and stays not in now else stays

    def _room(self, nodes: frozenset[str] | None, gpu_types: frozenset[str] | None) -> _Room:
        key = nodes, gpu_types
        if key not in self._rooms:
            on = [
                node
                for node in self._cluster
                if (nodes is None or node.name in nodes)
                and (gpu_types is None or node.gpu_type in gpu_types)
            ]
            self._rooms[key] = _Room(
                tuple(node.gpus for node in on),
                tuple(_idle(self._views[node.name]) for node in on),
            )
        return self._rooms[key]


def _holds(gpus: tuple[int, ...], request: Request) -> bool:
    """Whether nodes with so many GPUs each are enough for a job, which may ask for none."""
    if not request.own.gpus and request.rigid:
        return len(gpus) >= request.least_nodes
    each = request.own.gpus_on_each if request.rigid else 1
    on_each = [many for many in gpus if many >= max(1, each)]
    return len(on_each) >= request.least_nodes and sum(on_each) >= request.counts.smallest


def _idle(view: NodeView) -> int:
    return max(0, view.capacity - view.held_gpus) if view.open else 0
