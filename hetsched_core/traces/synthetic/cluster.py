"""Clusters for generated workloads."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched_core.errors import InputError
from hetsched_core.types import Cluster, Node

MOST_NODES = 100_000
"""More than any cluster has; a mistyped number would fill the memory."""


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
        InputError: The GPUs are not whole nodes, fewer nodes than types or above `MOST_NODES`.
    """
    if not gpu_types or len(set(gpu_types)) < len(gpu_types):
        named = f"are {', '.join(gpu_types)!r}" if gpu_types else "are none"
        raise InputError(f"the GPU types {named}; name one or more, each once: a100,v100")
    nodes, rest = divmod(gpus, gpus_per_node)
    if rest or nodes < len(gpu_types):
        raise InputError(
            f"{gpus} GPUs are {nodes} nodes of {gpus_per_node} and {rest} GPUs over; give whole "
            f"nodes, and at least one for each of the {len(gpu_types)} types"
        )
    if nodes > MOST_NODES:
        raise InputError(
            f"{gpus} GPUs are {nodes} nodes of {gpus_per_node}; give at most {MOST_NODES} nodes: "
            f"{MOST_NODES * gpus_per_node} GPUs"
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
