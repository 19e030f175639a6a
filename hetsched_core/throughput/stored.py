"""From what a store holds to what the estimator takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hetsched_core.kernels import iteration as kernels
from hetsched_core.store.layers import SpeedColumns, StoredLayers, TheoryColumns
from hetsched_core.throughput.builtin import bandwidths as published_bandwidths
from hetsched_core.throughput.estimate import Layers
from hetsched_core.throughput.gpus import match_gpu
from hetsched_core.throughput.iteration import Bandwidths, Pattern
from hetsched_core.throughput.measured import SpeedRows
from hetsched_core.throughput.theory import IterationTheory
from hetsched_core.types import Cluster

Ints = NDArray[np.int64]


def layers_of(
    stored: StoredLayers, bandwidths: Sequence[Bandwidths], cluster: Cluster, names: Sequence[str]
) -> Layers:
    """Return what a store knows, for the estimator.

    Nodes that the cluster does not have any more count for their type alone. Bandwidths that nobody
    measured are those published for the GPU type.

    Args:
        stored: what `Store.layers` returned.
        bandwidths: of each GPU type of `stored`, what `Store.bandwidths` returned.
        cluster: the nodes to estimate for.
        names: how the jobs call each profile of `stored`.
    """
    position = {node: at for at, node in enumerate(cluster.names)}
    node = np.array([position.get(name, -1) for name in stored.nodes], dtype=np.int64)
    # One more place, for the rows that name no node.
    place = np.append(node, -1)[stored.by_entity.entity]
    here = np.flatnonzero(place >= 0)
    # A node that was given other GPUs since has no speeds yet.
    gpu_type = np.array([_index(stored.gpu_types, n.gpu_type) for n in cluster], dtype=np.int64)
    here = here[gpu_type[place[here]] == stored.by_entity.gpu_type[here]]
    by_type = stored.by_type
    return Layers(
        profiles=tuple(names),
        gpu_types=stored.gpu_types,
        by_node=_rows(stored.by_entity, place[here], here),
        by_type=_rows(by_type, by_type.gpu_type, np.arange(len(by_type))),
        theories=[_theory(stored.theory, _known(stored.gpu_types, bandwidths))],
    )


def _index(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else -1


def _rows(columns: SpeedColumns, place: Ints, keep: Ints) -> SpeedRows:
    return SpeedRows(
        columns.profile[keep],
        place,
        columns.gpus[keep],
        columns.nodes[keep],
        columns.mean[keep],
        columns.count[keep],
        columns.sd[keep],
    )


def _known(gpu_types: Sequence[str], measured: Sequence[Bandwidths]) -> list[Bandwidths]:
    known = []
    for gpu_type, bandwidth in zip(gpu_types, measured, strict=True):
        published = published_bandwidths(match_gpu(gpu_type).spec)
        link = published.link if math.isnan(bandwidth.link) else bandwidth.link
        network = published.network if math.isnan(bandwidth.network) else bandwidth.network
        known.append(replace(bandwidth, link=link, network=network))
    return known


def _theory(columns: TheoryColumns, bandwidths: Sequence[Bandwidths]) -> IterationTheory:
    models = np.zeros((len(columns), kernels.COLUMNS))
    at = columns.gpu_type
    models[:, kernels.OVERLAPPED] = columns.pattern == Pattern.OVERLAPPED_DATA
    models[:, kernels.BATCH] = columns.batch_size
    models[:, kernels.FORWARD] = columns.forward_s
    models[:, kernels.BACKWARD] = columns.backward_s
    models[:, kernels.UPDATE] = columns.update_s
    models[:, kernels.LINK] = columns.parameters / np.array([b.link for b in bandwidths])[at]
    models[:, kernels.NETWORK] = columns.parameters / np.array([b.network for b in bandwidths])[at]
    models[:, kernels.NETWORK_RING] = np.array([b.network_ring for b in bandwidths])[at]
    models[:, kernels.FIRST_MODE :] = columns.modes.reshape(len(columns), 8)
    # Times that are all 0 were never measured.
    timed = columns.forward_s + columns.backward_s + columns.update_s > 0
    return IterationTheory(columns.profile[timed], columns.gpu_type[timed], models[timed])
