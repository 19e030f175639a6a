"""What a job gets beside its GPUs when it starts: CPUs, memory, and how long it may run."""

from __future__ import annotations

import math

import numpy as np

from hetsched_core.types import Cluster, Configuration, Job, Layer, Speeds, SpeedTable
from slurm_plugin.backend import Terms
from slurm_plugin.daemon.jobs.request import Request


def terms_for(
    request: Request, gpus_per_node: int, nodes: int, time_limit_min: int | None
) -> Terms:
    """Return what to set for so many GPUs on each of so many nodes.

    What a job asks for by node or by task has to be set anew when the GPUs change; what it asks for
    by GPU or by CPU Slurm itself multiplies.
    """
    own, asked = request.own, request.own.asked
    tasks = request.tasks_on(gpus_per_node)
    # No more in all than the plan has counted on, and no fewer for a task than were asked for.
    on_node = request.cpus_per_gpu * gpus_per_node
    cpus = None if asked.cpus_per_gpu else max(1, on_node // tasks)
    return Terms(
        time_limit_min,
        cpus,
        request.memory_mb_per_gpu * gpus_per_node if asked.memory_mb_per_node else None,
        cpus and cpus * tasks * nodes,
        None if own.terms.tasks_per_node is None else tasks,
    )


def limit_min(
    limit_s: float,
    job: Job,
    default_count: int,
    configuration: Configuration,
    cluster: Cluster,
    speeds: Speeds,
    longest_s: float | None,
) -> int:
    """Return the time limit of a run, in minutes: the user's, scaled by how slow the run will be.

    The user's limit holds for the default count in the fastest way in which it fits the cluster.
    A run of half that speed gets twice the time. It gets less than the user's limit only where both
    speeds were measured, and where there is no speed at all the numbers of GPUs stand in.

    Args:
        limit_s: the user's limit, seconds.
        job: the job.
        default_count: the GPUs that the limit was meant for.
        configuration: where it is to run.
        cluster: all nodes.
        speeds: estimates.
        longest_s: the greatest that the partition, QOS and account allow, None for none.
    """
    table = speeds.table(job.profile)
    reference, sure = _reference(job, default_count, cluster, speeds)
    speed = speeds.speed(job.profile, configuration)
    if reference > 0 and speed > 0:
        factor = reference / speed
    else:
        factor = default_count / configuration.gpus
    types = {cluster[name].gpu_type for name, _ in configuration}
    if not (sure and all(_measured(table, each, configuration.gpus) for each in types)):
        factor = max(1.0, factor)
    scaled_s = limit_s * factor
    if longest_s is not None:
        scaled_s = min(scaled_s, max(longest_s, 60.0))
    return max(1, math.ceil(scaled_s / 60.0 - 1e-9))


def _reference(job: Job, count: int, cluster: Cluster, speeds: Speeds) -> tuple[float, bool]:
    """Return the greatest speed of so many GPUs of one type, and whether it was measured."""
    best, sure = 0.0, False
    for gpu_type, gpus in cluster.gpus_by_type().items():
        if gpus < count or not job.accepts_type(gpu_type):
            continue
        most = max(node.gpus for node in cluster if node.gpu_type == gpu_type)
        speed = count * speeds.per_gpu(job.profile, gpu_type, count, 1 if most >= count else 2)
        if speed > best:
            best, sure = speed, _measured(speeds.table(job.profile), gpu_type, count)
    return best, sure


def _measured(table: SpeedTable, gpu_type: str, count: int) -> bool:
    """Whether what the table says of a count rests on measurements alone."""
    if gpu_type not in table.gpu_types:
        return False
    at = float(np.interp(count, table.counts, np.arange(len(table.counts))))
    layers = table.layers[table.gpu_types.index(gpu_type)]
    return bool(min(layers[math.floor(at)], layers[math.ceil(at)]) >= Layer.GPU_TYPE)
