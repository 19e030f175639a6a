"""Small clusters, speeds and jobs for tests."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hetsched_core.types import (
    Cluster,
    EndState,
    Job,
    Layer,
    Node,
    RequirementSet,
    Speeds,
    SpeedTable,
    Submission,
    TaskShape,
    TaskTimes,
)


def cluster_of(**nodes: tuple[str, int]) -> Cluster:
    """Build a cluster from name=(GPU type, GPUs)."""
    return Cluster(tuple(Node(name, gpu_type, gpus) for name, (gpu_type, gpus) in nodes.items()))


def linear_speeds(
    cluster: Cluster,
    per_gpu: Mapping[str, Mapping[str, float]],
    several_nodes: float = 1.0,
    tasks: Mapping[str, Mapping[str, TaskTimes]] | None = None,
) -> Speeds:
    """Build speeds that grow linearly with the GPUs, from {profile: {GPU type: samples/s per GPU}}.

    Over several nodes each GPU is `several_nodes` times as fast as on one.
    """
    tables = {}
    for profile, by_type in per_gpu.items():
        one_node = np.array([[speed] for speed in by_type.values()], dtype=np.float64)
        tables[profile] = SpeedTable(
            gpu_types=tuple(by_type),
            counts=np.array([1], dtype=np.int64),
            one_node=one_node,
            several_nodes=one_node * several_nodes,
            layers=np.full(one_node.shape, Layer.TRUTH, dtype=np.int8),
            tasks=(tasks or {}).get(profile, {}),
        )
    return Speeds(cluster, tables)


def submission(
    job_id: str,
    samples: float,
    counts: tuple[int, ...] = (1,),
    *,
    submit_s: float = 0.0,
    profile: str = "m",
    gpu_types: frozenset[str] | None = None,
    cpus_per_gpu: float = 0.0,
    memory_mb_per_gpu: float = 0.0,
    tasks: TaskShape | None = None,
    ends_as: EndState = EndState.COMPLETED,
    cancel_s: float | None = None,
    eligible_s: float | None = None,
) -> Submission:
    """Build a job with its true size."""
    return Submission(
        Job(
            id=job_id,
            submit_s=submit_s,
            requirements=RequirementSet(counts),
            profile=profile,
            gpu_types=gpu_types,
            cpus_per_gpu=cpus_per_gpu,
            memory_mb_per_gpu=memory_mb_per_gpu,
            eligible_s=eligible_s,
            tasks=tasks,
        ),
        samples=samples,
        ends_as=ends_as,
        cancel_s=cancel_s,
    )
