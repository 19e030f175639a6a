"""How many GPUs there are to share out, for policies that choose types and counts but no nodes.

A *pool* is the GPUs of one type on the nodes that some job may use: all nodes of the type first,
then, for each set of nodes that a job is limited to, those of the type in it. What a job gets of
its own pool is gone from every pool that has all nodes of that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsched_core.placement.ways import of_type
from hetsched_core.types import Job, Placed, Snapshot

_Set = tuple[frozenset[str] | None, frozenset[str]]


@dataclass(frozen=True, slots=True, eq=False)
class Pools:
    """P pools of T GPU types; the first T are all nodes of each type, in the cluster's order.

    Attributes:
        gpu_types: the T types.
        type_of: (P,) number of the type of each.
        labels: P names: that of the type, and for smaller pools those of their nodes.
        capacity: (P,) GPUs on nodes that take new work, less what is fixed.
        inside: (P, P) whether a pool (row) is inside another (column); each is inside itself.
    """

    gpu_types: tuple[str, ...]
    type_of: NDArray[np.int64]
    labels: tuple[str, ...]
    capacity: NDArray[np.float64]
    inside: NDArray[np.bool_]
    _own: Mapping[_Set, tuple[int, ...]]

    @classmethod
    def of(cls, snapshot: Snapshot, fixed: Mapping[str, Placed], jobs: Iterable[Job]) -> Pools:
        """Return the pools of these jobs, less what is `fixed`."""
        cluster, types = snapshot.cluster, snapshot.cluster.gpu_types
        gpus = _open_gpus(snapshot, fixed)
        of_types = dict.fromkeys(types, 0)
        for node, free in zip(cluster, gpus, strict=True):
            of_types[node.gpu_type] += free
        capacity = np.array(list(of_types.values()), np.float64)
        sets: dict[_Set, None] = {}
        for job in jobs:
            if job.nodes is not None or job.closed:
                sets[job.nodes, job.closed] = None
        count = len(types)
        if not sets:
            same = np.eye(count, dtype=np.bool_)
            return cls(types, np.arange(count), types, capacity, same, {})
        masks = [of_type(cluster, gpu_type) for gpu_type in types]
        number = {(t, mask): t for t, mask in enumerate(masks)}
        own = {}
        for which in sorted(sets, key=set_order):
            mask = cluster.mask(*which)
            own[which] = tuple(
                number.setdefault((t, whole & mask), len(number)) if whole & mask else -1
                for t, whole in enumerate(masks)
            )
        type_of = np.array([t for t, _ in number], np.int64)
        members = [mask for _, mask in number]
        more = [sum(gpus[at] for at in _bits(mask)) for mask in members[count:]]
        labels = [
            f"{types[t]} in {','.join(cluster.nodes[at].name for at in _bits(mask))}"
            for t, mask in list(number)[count:]
        ]
        inside = np.array([[not one & ~other for other in members] for one in members], np.bool_)
        return cls(
            types,
            type_of,
            (*types, *labels),
            np.concatenate([capacity, np.array(more, np.float64)]),
            inside,
            own,
        )

    def around(self) -> list[list[int]]:
        """Return for each pool those that it is inside of, itself among them."""
        return [np.flatnonzero(row).tolist() for row in self.inside]

    def own(self, job: Job) -> Sequence[int]:
        """Return (T,) the job's pool of each type, -1 for none."""
        if job.nodes is None and not job.closed:
            return range(len(self.gpu_types))
        return self._own[job.nodes, job.closed]


def set_order(which: _Set) -> tuple[bool, list[str], list[str]]:
    """Key that sorts what jobs are limited to: nodes, and those that are closed."""
    nodes, closed = which
    return nodes is None, sorted(nodes or ()), sorted(closed)


def _open_gpus(snapshot: Snapshot, fixed: Mapping[str, Placed]) -> list[int]:
    """GPUs of each node that take new work, less what is fixed."""
    index = snapshot.cluster.index
    gpus = [view.capacity if view.open else 0 for view in snapshot.node_views()]
    for placed in fixed.values():
        for name, held in placed.placements[0].configuration:
            if snapshot.nodes[name].open:
                gpus[index(name)] -= held
    return gpus


def _bits(mask: int) -> Iterable[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
