"""Speeds of the built-in models on a cluster: the truth of a replay that brings none of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hetsched_core.throughput.gpus import match_gpu
from hetsched_core.throughput.profiles import ModelProfile, builtin_profiles
from hetsched_core.throughput.roofline import samples_per_s
from hetsched_core.types import Cluster, Layer, Speeds, SpeedTable


@dataclass(frozen=True, slots=True)
class BuiltinSpeeds:
    """Speeds of the built-in models, and a sentence for everything assumed about GPU types."""

    speeds: Speeds
    assumptions: tuple[str, ...]


def builtin_speeds(cluster: Cluster, other_types: Iterable[str] = ()) -> BuiltinSpeeds:
    """Return the speeds of every built-in model on the GPU types of a cluster.

    Args:
        cluster: Its GPU types get speeds for 1 GPU up to all of them.
        other_types: GPU types beside the cluster's, such as those on which a log's jobs ran.
    """
    types = tuple(dict.fromkeys((*cluster.gpu_types, *other_types)))
    counts = gpu_counts(cluster.gpus)
    tables = {p.name: speed_table(p, types, counts) for p in builtin_profiles()}
    assumed = (match_gpu(name).assumed for name in types)
    return BuiltinSpeeds(Speeds(cluster, tables), tuple(text for text in assumed if text))


def speed_table(
    profile: ModelProfile, gpu_types: tuple[str, ...], counts: tuple[int, ...]
) -> SpeedTable:
    """Return samples/s per GPU of a model on these types, at these GPU counts."""
    one_node, several_nodes = (
        np.array(
            [
                [samples_per_s(profile, match_gpu(t).spec, n, nodes) for n in counts]
                for t in gpu_types
            ]
        )
        for nodes in (1, 2)
    )
    return SpeedTable(
        gpu_types=gpu_types,
        counts=np.array(counts, dtype=np.int64),
        one_node=one_node,
        several_nodes=several_nodes,
        layers=np.full(one_node.shape, Layer.TRUTH, dtype=np.int8),
    )


def gpu_counts(most: int) -> tuple[int, ...]:
    """Return 1, 2, 3, 4, 6, 8, 12, 16, ... up to the first that is at least `most`.

    Between them speeds are interpolated; (N-1)/N bends too little there to matter.
    """
    counts = [1, 2, 3]
    while counts[-1] < most:
        counts.append(counts[-2] * 2)
    return tuple(counts)
