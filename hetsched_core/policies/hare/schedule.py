"""List schedules: a GPU and a start for every task of an order (HPDC '22, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from hetsched_core.kernels.task_list import list_schedule
from hetsched_core.policies.hare.instance import Floats, Instance, Ints
from hetsched_core.types import TaskBlock, TaskItem


class GpuChoice(StrEnum):
    """On which GPU the next task goes.

    EARLIEST_AVAILABLE is the paper's, blind to speed. EARLIEST_FINISH takes the one on which the
    task is in step first.
    """

    EARLIEST_AVAILABLE = "earliest_available"
    EARLIEST_FINISH = "earliest_finish"


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """I tasks in the order in which they were placed; on each GPU they run in that order.

    Attributes:
        job: (I,) whose task it is.
        gpu: (I,) where it runs.
        start_s: (I,) when it begins to train.
        complete_s: (N,) C_n.
        weighted_jct_s: the sum of w (C - a).
    """

    job: Ints
    gpu: Ints
    start_s: Floats
    complete_s: Floats
    weighted_jct_s: float


def schedule(instance: Instance, order: Ints, choice: GpuChoice) -> Schedule:
    """Place the tasks one after another in the given order.

    Args:
        instance: jobs and GPUs.
        order: (I,) the job of each task; a job occurs once for each of its tasks.
        choice: on which GPU.
    """
    complete_s = np.maximum(instance.arrival_s, instance.in_step_s)
    gpu = np.zeros(len(order), np.int64)
    start_s = np.zeros(len(order))
    times = instance.times
    list_schedule(
        np.ascontiguousarray(order, np.int64),
        instance.scale,
        instance.first,
        instance.arrival_s,
        times.train_s,
        times.sync_s,
        np.append(0, np.cumsum(instance.gpus)),
        np.argsort(times.kind, kind="stable"),
        choice is GpuChoice.EARLIEST_FINISH,
        instance.free_s.copy(),
        gpu,
        start_s,
        complete_s,
    )
    weighted = float(instance.weight @ (complete_s - instance.arrival_s))
    return Schedule(order, gpu, start_s, complete_s, weighted)


def blocks_of(
    found: Schedule, instance: Instance, names: list[str], rounds_done: list[int]
) -> dict[int, tuple[TaskBlock, ...]]:
    """Return what each GPU runs, in run-length form: GPU -> blocks.

    Args:
        found: the schedule.
        instance: what it is of.
        names: (N,) the jobs' ids.
        rounds_done: (N,) the number of each job's first training round.
    """
    at = np.argsort(found.gpu, kind="stable")
    job = found.job[at]
    gpu = found.gpu[at]
    number = _round_numbers(found.job, instance, np.array(rounds_done, np.int64))[at]
    starts = _starts_of_runs(gpu, job, number)
    count = np.diff(np.append(starts, len(at)))
    job, gpu, number = job[starts], gpu[starts], number[starts]
    # Of one job, as many tasks of every round: a block that is repeated.
    begins = _starts_of_runs(gpu, job, count, number - np.arange(len(number)))
    times = np.diff(np.append(begins, len(number)))
    blocks: dict[int, list[TaskBlock]] = {}
    for m, n, r, tasks, repeated in zip(
        gpu[begins].tolist(),
        job[begins].tolist(),
        number[begins].tolist(),
        count[begins].tolist(),
        times.tolist(),
        strict=True,
    ):
        item = TaskItem(names[n], r, tasks)
        blocks.setdefault(m, []).append(TaskBlock((item,), repeated))
    return {m: tuple(each) for m, each in blocks.items()}


def _round_numbers(job: Ints, instance: Instance, rounds_done: Ints) -> Ints:
    """The training round of each task of an order."""
    at = np.argsort(job, kind="stable")
    begins = np.cumsum(instance.tasks) - instance.tasks
    nth = np.arange(len(job)) - np.repeat(begins, instance.tasks)
    later = nth - np.repeat(instance.first, instance.tasks)
    scale = np.repeat(instance.scale, instance.tasks)
    number = np.empty(len(job), np.int64)
    number[at] = np.where(later < 0, 0, later // scale + 1) + np.repeat(rounds_done, instance.tasks)
    return number


def _starts_of_runs(*columns: Ints) -> Ints:
    """Where rows begin that differ in any column from the one before."""
    differs = np.zeros(max(0, len(columns[0]) - 1), np.bool_)
    for column in columns:
        differs |= column[1:] != column[:-1]
    return np.flatnonzero(np.concatenate([[len(columns[0]) > 0], differs])).astype(np.int64)
