"""Clusters for generated workloads."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched_core.errors import InputError
from hetsched_core.types import Cluster, Node


def synthetic_cluster(
    gpus: int, gpu_types: Sequence[str], gpus_per_node: int = 8, name: str = "synthetic"
) -> Cluster:
    """Return a cluster with as many nodes of each type as of any other, give or take one.

    CPUs and memory are not counted on its nodes.

    Args:
        gpus: GPUs in all nodes.
        gpu_types: Types, each once; the first ones get the nodes that cannot be shared evenly.
        gpus_per_node: GPUs of each node.
        name: Name of the cluster.

    Raises:
        InputError: The GPUs are not whole nodes, or there are fewer nodes than types.
    """
    if not gpu_types or len(set(gpu_types)) < len(gpu_types):
        raise InputError(f"the GPU types are {', '.join(gpu_types)!r}; name one or more, each once")
    nodes, rest = divmod(gpus, gpus_per_node)
    if rest or nodes < len(gpu_types):
        raise InputError(
            f"{gpus} GPUs are {gpus / gpus_per_node:g} nodes of {gpus_per_node}; give whole nodes, "
            f"and at least one for each of the {len(gpu_types)} types"
        )
    each, more = divmod(nodes, len(gpu_types))
    return Cluster(
        tuple(
            Node(f"{gpu_type}-{number}", gpu_type, gpus_per_node)
            for at, gpu_type in enumerate(gpu_types)
            for number in range(1, each + (at < more) + 1)
        ),
        name,
    )
