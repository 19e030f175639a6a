"""Offline Hare: all tasks of all jobs, those to come included, in one list schedule.

Source: HPDC '22, section 5. A relaxation bounds what any schedule can reach and says when each job
is in the middle of its work; tasks are placed one after another in the order of H. The plan holds
the sequences of all GPUs to the end, and is made anew only when the cluster changes.

Trace and deviations: docs/policies/hare.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hetsched_core.errors import InputError
from hetsched_core.placement.task_gpus import (
    Gpu,
    GpuKinds,
    busy_gpus,
    open_task_gpus,
    runs_beside,
    runs_somewhere,
    task_plan,
    task_times,
    tasks_left,
)
from hetsched_core.policies.hare.bound import relax
from hetsched_core.policies.hare.instance import Instance
from hetsched_core.policies.hare.order import by_fluid_wspt, by_rounds_around, by_rounds_spread
from hetsched_core.policies.hare.schedule import GpuChoice, Schedule, blocks_of, schedule
from hetsched_core.policy import PolicyInfo, parameter
from hetsched_core.types import (
    Diagnostics,
    ExecutionModel,
    Job,
    JobView,
    Knowledge,
    OfflineSnapshot,
    Plan,
    Replan,
    Snapshot,
    TaskSequence,
    Trigger,
)


@dataclass(frozen=True, slots=True)
class _Work:
    """What is left of a job: where it stands, None if it is still to come."""

    job: Job
    view: JobView | None

    @property
    def arrival_s(self) -> float:
        """When its first round may begin (UTC)."""
        return self.job.eligible_from_s

    def left(self) -> tuple[int, int]:
        """Return the tasks of the first round that are not begun, and the rounds after."""
        if self.view is not None:
            return tasks_left(self.view)
        shape = self.job.tasks
        return (0, 0) if shape is None else (shape.scale, (shape.rounds or 1) - 1)


@dataclass(frozen=True)
class Hare:
    """One list schedule of all tasks, in the order of a relaxation."""

    gpu_choice: GpuChoice = parameter(
        GpuChoice.EARLIEST_FINISH, "on which GPU the next task goes; the paper's is blind to speed"
    )
    grid_growth: float = parameter(
        1.2, "ratio of the relaxation's time intervals; smaller is tighter and slower"
    )

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="hare",
        summary="all training tasks list-scheduled in the order of a relaxation, knowing all jobs",
        paper="Hare (HPDC '22, section 5)",
        model=ExecutionModel.TASKS,
        knows=frozenset({Knowledge.TOTAL_SAMPLES, Knowledge.FUTURE_ARRIVALS}),
        replay_only="it plans training tasks, and the daemon whole jobs; `hetsched pool` runs it, "
        "without the future",
    )

    def __post_init__(self) -> None:
        """Refuse a grid that does not grow, or hardly, or at once to the end."""
        if not 1.01 <= self.grid_growth <= 100.0:
            raise InputError(f"hare.grid_growth={self.grid_growth} is not from 1.01 to 100")

    def plan(self, snapshot: Snapshot) -> Plan:
        """Schedule everything that is left, from now to the end."""
        work = _work(snapshot)
        gpus = open_task_gpus(snapshot)
        times = runs_beside(snapshot, gpus, [each.job for each in work])
        served = np.flatnonzero(np.isfinite(times.train_s).any(axis=1)).tolist()
        all_served = len(served) == len(work)
        work = [work[n] for n in served]
        sequences: tuple[TaskSequence, ...] = ()
        diagnostics = Diagnostics(method="nothing to schedule")
        if work:
            instance, rounds_done = _instance(snapshot, work, gpus, times.only(served))
            found, diagnostics = self.best(instance)
            names = [each.job.id for each in work]
            blocks = blocks_of(found, instance, names, rounds_done)
            sequences = tuple(
                TaskSequence(gpus[m].node, gpus[m].number, blocks[m]) for m in sorted(blocks)
            )
        on = {Trigger.NODE}
        if not all_served:
            # A job that found no room beside the others is tried again when one of them has gone.
            on |= {Trigger.ARRIVAL, Trigger.END}
        if not isinstance(snapshot, OfflineSnapshot):
            # It was not told what will come: a pool's batch is planned anew when it grows, and when
            # the times of tasks turn out to be others than they were taken for.
            on |= {Trigger.ARRIVAL, Trigger.PROFILE}
        replan = Replan(on=frozenset(on))
        return task_plan(snapshot, sequences, replan, diagnostics=diagnostics)

    def best(self, instance: Instance) -> tuple[Schedule, Diagnostics]:
        """Return the best of three list schedules, and what is proven of it.

        The objective and its bound are weighted sums of JCTs, in seconds from now for jobs that
        are here.
        """
        relaxation = relax(instance, self.grid_growth)
        orders = {
            "rounds around the relaxation's middle": by_rounds_around(
                instance, relaxation.middle_s
            ),
            "rounds spread around the relaxation's middle": by_rounds_spread(
                instance, relaxation.middle_s
            ),
            "fluid WSPT": by_fluid_wspt(instance),
        }
        found = {name: schedule(instance, o, self.gpu_choice) for name, o in orders.items()}
        name = min(found, key=lambda name: found[name].weighted_jct_s)
        objective, bound = found[name].weighted_jct_s, relaxation.bound_s
        gap = None if bound is None else max(0.0, objective - bound) / max(objective, 1e-9)
        method = f"{name}, {self.gpu_choice}"
        return found[name], Diagnostics(method=method, objective=objective, bound=bound, gap=gap)


def _work(snapshot: Snapshot) -> list[_Work]:
    """What is left to schedule, by submission."""
    future = snapshot.future if isinstance(snapshot, OfflineSnapshot) else ()
    present = [_Work(view.job, view) for view in snapshot.jobs.values() if view.blocked is None]
    work = [*present, *(_Work(submission.job, None) for submission in future)]
    work = [each for each in work if any(each.left()) and runs_somewhere(snapshot, each.job)]
    return sorted(work, key=lambda each: (each.job.submit_s, each.job.id))


def _instance(
    snapshot: Snapshot, work: Sequence[_Work], gpus: Sequence[Gpu], times: GpuKinds
) -> tuple[Instance, list[int]]:
    """Return the instance, and how many rounds of each job come before it."""
    now = snapshot.now
    first = np.zeros(len(work), np.int64)
    rounds = np.zeros(len(work), np.int64)
    scale = np.ones(len(work), np.int64)
    in_step_s, done = np.zeros(len(work)), []
    for n, each in enumerate(work):
        left, later = each.left()
        scale[n] = each.job.tasks.scale if each.job.tasks else 1
        view = each.view
        before = view.progress.rounds_done if view is not None and view.progress else 0
        # With all tasks of its round begun, a job's next round is its first.
        first[n], rounds[n] = (left, later + 1) if left else (scale[n], later)
        done.append(before if left else before + 1)
        if view is not None:
            in_step_s[n] = _in_step_s(snapshot, view) - now
    arrival = np.array([max(0.0, each.arrival_s - now) for each in work])
    waits = np.array([not each.left()[0] for each in work])
    arrival = np.where(waits, np.maximum(arrival, in_step_s), arrival)
    free_s = np.zeros(len(gpus))
    busy = busy_gpus(snapshot)
    for m, gpu in enumerate(gpus):
        if gpu in busy:
            present = task_times(snapshot, busy[gpu].job, gpu.node)
            # At most: how long the task has run already makes no difference to the sequences.
            free_s[m] = present.train_s if present else 0.0
    weight = np.array([each.job.weight for each in work])
    instance = Instance(
        arrival, weight, rounds, scale, first, times, free_s, np.maximum(in_step_s, 0.0)
    )
    return instance, done


def _in_step_s(snapshot: Snapshot, view: JobView) -> float:
    """When the tasks of a job that run now are in step (UTC)."""
    ends = [snapshot.now]
    for run in view.runs:
        times = task_times(snapshot, view.job, run.configuration.pieces[0][0])
        if times is not None:
            ends.append(run.since_s + times.train_s + times.sync_s)
    return max(ends)
