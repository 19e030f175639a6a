"""Can a job ever run on a cluster? Answered naively, to hold policies' reasons against."""

from __future__ import annotations

import math
from enum import Enum

from hetsched_core.types import Cluster, ExecutionModel, Job, Node, Shape, Speeds


class Feasibility(Enum):
    """Whether the idle, healthy cluster holds a job.

    A policy need not mix GPU types: it may refuse a job that fits on a mix alone.
    """

    NO = "no"
    MIXED_ONLY = "on a mix of GPU types only"
    YES = "yes"


def feasibility(
    job: Job,
    cluster: Cluster,
    speeds: Speeds,
    shapes: frozenset[Shape],
    model: ExecutionModel,
) -> Feasibility:
    """Return whether a job fits on the idle, healthy cluster under an execution model.

    A gang needs one of its counts, in one of the shapes, on as many nodes as it asks for; a job of
    copies a whole node; a job of tasks a GPU. All need a GPU type that the job accepts and makes
    progress on, on nodes that it may use. What is closed for a time makes no difference.
    """
    mine = [n for n in cluster if job.nodes is None or n.name in job.nodes]
    accepted = [n for n in mine if job.accepts_type(n.gpu_type)]
    runs = [n for n in accepted if speeds.table(job.profile).runs_on(n.gpu_type)]
    match model:
        case ExecutionModel.GANG:
            return _gang(job, cluster, runs, shapes)
        case ExecutionModel.COPIES:
            whole = (n for n in runs if job.copies is None or n.gpus in job.requirements)
            return _where(
                job.min_nodes < 2 and any(0 < n.gpus <= _room(job, n, n.gpus) for n in whole)
            )
        case ExecutionModel.TASKS:
            return _where(job.tasks is not None and any(_room(job, n, n.gpus) for n in accepted))


def _where(found: bool) -> Feasibility:
    return Feasibility.YES if found else Feasibility.NO


def _gang(job: Job, cluster: Cluster, runs: list[Node], shapes: frozenset[Shape]) -> Feasibility:
    rooms: dict[str, list[int]] = {}
    for node in runs:
        rooms.setdefault(node.gpu_type, []).append(_room(job, node, node.gpus))
    for count in job.requirements:
        if any(_one_type(job, count, room, shapes) for room in rooms.values()):
            return Feasibility.YES
    if job.min_nodes > 1 or (job.max_nodes or 2) < 2:
        several = [room for of_type in rooms.values() for room in of_type]
        mixed = Shape.MIXED_TYPES in shapes and len(rooms) > 1
        fits = mixed and any(_in_equal_parts(job, count, several) for count in job.requirements)
        return Feasibility.MIXED_ONLY if fits else Feasibility.NO
    if Shape.MIXED_TYPES in shapes and len(rooms) > 1:
        hosts: dict[str, int] = {}
        for node in runs:
            hosts[node.host] = hosts.get(node.host, 0) + node.gpus
        together = sum(
            _room(job, cluster[cluster.on_host(host)[0]], gpus) for host, gpus in hosts.items()
        )
        if job.max_nodes is not None:
            every = sorted((room for of_type in rooms.values() for room in of_type), reverse=True)
            together = min(together, sum(every[: job.max_nodes]))
        if any(1 < count <= together for count in job.requirements):
            return Feasibility.MIXED_ONLY
    return Feasibility.NO


def _one_type(job: Job, count: int, rooms: list[int], shapes: frozenset[Shape]) -> bool:
    """Whether nodes of one type with this much room each hold a count."""
    if job.min_nodes < 2 and any(count <= room for room in rooms):
        return True
    if job.min_nodes < 2 and Shape.UNEVEN in shapes:
        return count <= sum(sorted(rooms, reverse=True)[: job.max_nodes])
    return Shape.EVEN in shapes and _in_equal_parts(job, count, rooms)


def _in_equal_parts(job: Job, count: int, rooms: list[int]) -> bool:
    """Whether nodes with this much room each hold a count in parts that are equal."""
    most = len(rooms) if job.max_nodes is None else min(job.max_nodes, len(rooms))
    return any(
        count % nodes == 0 and sum(count // nodes <= room for room in rooms) >= nodes
        for nodes in range(max(2, job.min_nodes), most + 1)
    )


def _room(job: Job, node: Node, gpus: int) -> int:
    """How many of `gpus` GPUs the CPUs and memory of a node's host can serve."""
    room = float(gpus)
    if node.cpus and job.cpus_per_gpu:
        room = min(room, node.cpus / job.cpus_per_gpu)
    if node.memory_mb and job.memory_mb_per_gpu:
        room = min(room, node.memory_mb / job.memory_mb_per_gpu)
    return math.floor(room + 1e-9)
