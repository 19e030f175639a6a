"""Speeds of the built-in models on a cluster: the truth of a replay that brings none of its own."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hetsched_core.throughput.gpus import match_gpu
from hetsched_core.throughput.profiles import ModelProfile, builtin_profiles
from hetsched_core.throughput.roofline import samples_per_s
from hetsched_core.types import Cluster, Layer, Speeds, SpeedTable


def builtin_speeds(cluster: Cluster, other_types: Iterable[str] = ()) -> Speeds:
    """Return the speeds of every built-in model on a cluster.

    Args:
        cluster: Its GPU types get speeds for 1 GPU up to all of them.
        other_types: GPU types beside the cluster's, such as those on which a log's jobs ran.
    """
    return Speeds(cluster, builtin_tables((*cluster.gpu_types, *other_types), cluster.gpus))


def builtin_tables(gpu_types: Iterable[str], most: int) -> dict[str, SpeedTable]:
    """Return the speeds of every built-in model by name, for 1 to `most` GPUs of these types."""
    types, counts = tuple(dict.fromkeys(gpu_types)), gpu_counts(most)
    return {profile.name: speed_table(profile, types, counts) for profile in builtin_profiles()}


def assumed_of(gpu_types: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence for each type of which more is assumed than is published."""
    found = (match_gpu(name).assumed for name in dict.fromkeys(gpu_types))
    return tuple(f"{text}." for text in found if text)


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
        batch_size=profile.batch_size,
    )


def gpu_counts(most: int) -> tuple[int, ...]:
    """Return 1, 2, 3, 4, 6, 8, 12, 16, ... up to the first that is at least `most`.

    Between them speeds are interpolated; (N-1)/N bends too little there to matter.
    """
    counts = [1, 2, 3]
    while counts[-1] < most:
        counts.append(counts[-2] * 2)
    return tuple(counts)
