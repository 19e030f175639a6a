"""What of a read can be used: records of which nothing can be made are left out, and named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hetsched_core.types.cluster import MAX_GPUS_PER_NODE
from hetsched_core.types.requirement import MAX_GPU_COUNT
from slurm_plugin.backend import SlurmJob, SlurmNode, SlurmState

_LATEST_S = 1e11
"""No time of a job is beyond it: what is, is no time."""

_MOST = 1_000_000_000
"""No count of a job's or a node's is beyond it."""


@dataclass(frozen=True, slots=True)
class Sound:
    """A read without the records that cannot be used, and what is wrong with each of those."""

    state: SlurmState
    odd: Mapping[str, str]


def sound(state: SlurmState) -> Sound:
    """Return what can be used of a read: one odd record must not cost all others their turn."""
    odd = dict(state.unread)
    nodes: dict[str, SlurmNode] = {}
    for node in state.nodes:
        words = "it is shown twice" if node.name in nodes else _wrong_with_node(node)
        if words:
            odd[f"node {node.name}"] = words
        else:
            nodes[node.name] = node
    jobs = {}
    for job_id, job in state.jobs.items():
        if words := _wrong_with_job(job):
            odd[f"job {job_id}"] = words
        else:
            jobs[job_id] = job
    if len(nodes) == len(state.nodes) and len(jobs) == len(state.jobs):
        return Sound(state, odd)
    return Sound(replace(state, nodes=tuple(nodes.values()), jobs=jobs), odd)


def _wrong_with_node(node: SlurmNode) -> str:
    if not node.name:
        return "it has no name"
    if any(not 0 <= count <= MAX_GPUS_PER_NODE for _, count in (*node.gpus, *node.gpus_used)):
        return f"it has {node.gpus} GPUs, of which {node.gpus_used} are in use"
    others = node.cpus, node.cpus_used, node.memory_mb, node.memory_used_mb
    if not all(0 <= value <= _MOST for value in others):
        return f"it has {node.cpus} CPUs and {node.memory_mb} MiB"
    return ""


def _wrong_with_job(job: SlurmJob) -> str:
    asked = job.asked
    if not (
        0.0 <= job.submit_s < _LATEST_S
        and (job.begin_s is None or 0.0 <= job.begin_s < _LATEST_S)
        and (job.start_s is None or 0.0 <= job.start_s < _LATEST_S)
        and (job.end_s is None or 0.0 <= job.end_s < _LATEST_S)
        and (job.time_limit_s is None or 0.0 <= job.time_limit_s < _LATEST_S)
    ):
        times = job.submit_s, job.begin_s, job.start_s, job.end_s, job.time_limit_s
        return f"its times are {', '.join(map(str, times))}"
    if not (
        0 <= job.gpus <= MAX_GPU_COUNT
        and 0 <= job.cpus <= _MOST
        and job.restarts >= 0
        and 0 <= asked.cpus_per_task <= _MOST
        and 0 <= asked.memory_mb_per_node <= _MOST
        and 0 <= asked.memory_mb_per_cpu <= _MOST
        and 0 <= asked.memory_mb_per_gpu <= _MOST
    ):
        return f"it asks for {job.gpus} GPUs, {job.cpus} CPUs and {asked}"
    return ""
