"""HLAS: least attained service in rounds, for groups of GPUs that are alike for all jobs.

Source: Hare's extension in TCC 2024, section IV. GPUs are grouped so that a round takes about as
long in each group. A job's attained service is its rounds times their mean length. Jobs are in
queues by it; an idle group takes tasks of one round from the highest queue, one a GPU, and what is
left of the round stays in front. After a round the job is queued again, at the tail. By another
reading (`within`) the group takes the whole round, and each task goes where it is in step first.

It knows neither sizes nor arrivals. Trace and deviations: docs/policies/hare.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar

import numpy as np

from hetsched_core.placement.entries import AHEAD, NEVER
from hetsched_core.placement.free import FreeGpus, on_one_node
from hetsched_core.placement.task_gpus import AT_EVERY_CHANGE, Gpu, runs_somewhere, task_times
from hetsched_core.policies.hare.grouping import GpuGrouping, group_gpus
from hetsched_core.policies.hare.queues import Queues, Thresholds, check_parameters
from hetsched_core.policy import PolicyInfo, parameter
from hetsched_core.types import (
    Cluster,
    Diagnostics,
    Entry,
    ExecutionModel,
    JobView,
    Placed,
    Plan,
    Reason,
    ReasonCode,
    Snapshot,
    Speeds,
    TaskBlock,
    TaskItem,
    TaskProgress,
    TaskSequence,
    TaskTimes,
    Waiting,
    submission_order,
)

_IN_ROUND = Waiting(Reason(ReasonCode.NO_ROOM, detail="all tasks of its round are begun"))


class Within(StrEnum):
    """Which GPUs of its group a round's tasks run on.

    ONE_EACH: as many tasks as the group has GPUs, one on each. EARLIEST_FINISH: all tasks of the
    round, each on the GPU where it is in step first, so that a fast GPU may run several in a row.
    """

    ONE_EACH = "one-each"
    EARLIEST_FINISH = "earliest-finish"


@dataclass(frozen=True)
class Hlas:
    """Least attained service first, in rounds on groups of GPUs."""

    groups: int = parameter(0, "groups of GPUs; 0 for a quarter of the GPUs")
    normalised: bool = parameter(False, "group by speeds relative to each profile's mean")
    queues: int = parameter(8, "number of queues")
    first_threshold_s: float = parameter(60.0, "attained service that the first queue holds")
    threshold_factor: float = parameter(4.0, "how much more each further queue holds")
    ageing_s: float | None = parameter(None, "serve what has been queued for longer first")
    within: Within = parameter(
        Within.ONE_EACH, "tasks in a group: one a GPU, or each where it is in step first"
    )

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="hlas",
        summary="least attained service in training rounds, on groups of GPUs of equal speed",
        paper="Hare (TCC 2024, section IV)",
        model=ExecutionModel.TASKS,
        replay_only="it plans training tasks, and the daemon whole jobs; `hetsched pool` runs it, "
        "and hlas-slots is its form for whole jobs",
    )

    def __post_init__(self) -> None:
        """Refuse queues and groups that cannot be, and times that are none."""
        check_parameters(self)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Bring the queues up to date and give every idle group tasks of a round."""
        queues = Queues.read(snapshot.previous.memory, self.thresholds.queues)
        fresh = queues is None
        queues = queues or Queues([[] for _ in range(self.thresholds.queues)])
        touched = set(snapshot.jobs) if fresh else {*snapshot.changed, *queues.serving}
        for job in sorted(snapshot.gone):
            queues.forget(job)
        views = sorted(
            (snapshot.jobs[job] for job in touched if job in snapshot.jobs), key=submission_order
        )
        grouping = grouped(snapshot.cluster, snapshot.speeds, self.groups, self.normalised)
        service = _Service(snapshot, queues, grouping, self)
        going_on = service.go_on() if self.within is Within.EARLIEST_FINISH else ()
        dealt = _jobs_of(going_on)
        for view in views:
            if view.id not in dealt:
                self._look_at(snapshot, queues, view)
        sequences = (*going_on, *service.serve())
        placed = _jobs_of(sequences)
        queues.serving = [v.id for v in views if v.runs or v.id in placed]
        queues.serving += sorted(placed.difference(queues.serving))
        entries = {
            job: self._entry(snapshot, snapshot.jobs[job], queues, placed)
            for job in (*(view.id for view in views), *sorted(placed))
        }
        diagnostics = Diagnostics(
            method=f"{len(grouping.groups)} groups, {'proven' if grouping.proven else 'annealed'}, "
            f"spread {grouping.spread:g}"
        )
        previous = snapshot.previous.entries
        gone = [job for job in snapshot.gone if job in previous]
        new = sum(job not in previous for job in entries)
        if fresh or len(previous) - len(gone) + new != len(snapshot.jobs):
            gone = [job for job in previous if job not in snapshot.jobs]
            entries = {
                job: self._entry(snapshot, view, queues, placed)
                for job, view in snapshot.jobs.items()
            }
        return snapshot.previous.revise(
            entries,
            gone,
            replan=AT_EVERY_CHANGE,
            sequences=sequences,
            diagnostics=diagnostics,
            memory=queues.as_memory(),
        )

    @property
    def thresholds(self) -> Thresholds:
        """Which queue holds which sizes."""
        return Thresholds(self.queues, self.first_threshold_s, self.threshold_factor)

    def size_s(self, snapshot: Snapshot, queues: Queues, view: JobView) -> float:
        """Return what decides the job's queue: its attained service, seconds."""
        return queues.rounds[view.id] * self.round_s(snapshot, view)

    def before(self, queues: Queues, line: Sequence[str]) -> Iterator[str]:
        """Yield the jobs of a queue in the order in which they are to be served."""
        yield from line

    def note_round(self, snapshot: Snapshot, queues: Queues, view: JobView) -> None:
        """Take note of a job that is new or has done a round."""

    def round_s(self, snapshot: Snapshot, view: JobView) -> float:
        """Return T_n, the mean length of a job's round: its tasks / mean group speed."""
        grouping = grouped(snapshot.cluster, snapshot.speeds, self.groups, self.normalised)
        at = _profiles(snapshot.speeds).index(view.job.profile)
        speed = grouping.mean_speed[at]
        return (view.job.tasks.scale if view.job.tasks else 1) / speed if speed > 0 else 0.0

    def _look_at(self, snapshot: Snapshot, queues: Queues, view: JobView) -> None:
        """Queue a job whose round has tasks that are not begun, and only that."""
        left, done = tasks_waiting(view), (view.progress or TaskProgress()).rounds_done
        if view.blocked is not None or not left or not runs_somewhere(snapshot, view.job):
            queues.leave(view.id)
            return
        another = queues.rounds.get(view.id) != done
        if another:
            queues.rounds[view.id] = done
            self.note_round(snapshot, queues, view)
        if another or view.id not in queues.level:
            level = self.thresholds.level(self.size_s(snapshot, queues, view))
            # What is left of a round that has begun goes first.
            queues.enter(view.id, level, snapshot.now, first=not another)

    def _entry(self, snapshot: Snapshot, view: JobView, queues: Queues, placed: set[str]) -> Entry:
        if view.id in placed:
            return Placed(())
        if view.blocked is not None:
            return Waiting(view.blocked)
        if view.id in queues.level:
            return AHEAD
        return _IN_ROUND if runs_somewhere(snapshot, view.job) else NEVER


def tasks_waiting(view: JobView) -> int:
    """Return how many tasks of the present round are not begun, whatever the rounds to come."""
    if view.job.tasks is None:
        return 0
    done = view.progress.tasks_done if view.progress else 0
    return max(0, view.job.tasks.scale - done - len(view.runs))


def _jobs_of(sequences: Iterable[TaskSequence]) -> set[str]:
    return {item.job for s in sequences for block in s.blocks for item in block.items}


class _Service:
    """What the idle groups take at one instant."""

    def __init__(
        self, snapshot: Snapshot, queues: Queues, grouping: GpuGrouping, policy: Hlas
    ) -> None:
        self._snapshot = snapshot
        self._queues = queues
        self._policy = policy
        self._room: FreeGpus | None = None
        self._gpus = _all_gpus(snapshot.cluster)
        self._groups = grouping.groups
        self._busy: dict[int, JobView] = {}
        self._handed: set[int] = set()
        self._left: dict[str, int] = {}
        for job in queues.serving:
            view = snapshot.jobs.get(job)
            for run in view.runs if view else ():
                # A run of a task has the GPU's number in the cluster for its copy.
                self._busy[run.copy] = snapshot.jobs[job]

    def go_on(self) -> tuple[TaskSequence, ...]:
        """Return what the GPUs still have to run of rounds that their groups have taken whole.

        A group has a round of which a task runs on it, or that the plan in force gave it.
        """
        on = {
            Gpu(sequence.node, sequence.gpu): item
            for sequence in self._snapshot.previous.sequences
            for block in sequence.blocks
            for item in block.items
        }
        found: list[TaskSequence] = []
        for group in self._groups:
            for m in group:
                item, view = on.get(self._gpus[m]), self._busy.get(m)
                if view is None and item is not None:
                    view = self._snapshot.jobs.get(item.job)
                    done = (view.progress or TaskProgress()).rounds_done if view else None
                    view = view if item.training_round == done else None
                if view is not None and view.blocked is None:
                    found += self._hand_out(view, group)
        return tuple(found)

    def serve(self) -> tuple[TaskSequence, ...]:
        """Return what every GPU of an idle group is to run now."""
        found: list[TaskSequence] = []
        for group in self._groups:
            if self._queues.level and not any(m in self._busy or m in self._handed for m in group):
                found += self._give(group)
        return tuple(found)

    def _hand_out(self, view: JobView, group: Sequence[int]) -> list[TaskSequence]:
        """Give tasks of a job's round to a group, as the policy reads it; none if none can run."""
        left = self._left.get(view.id, tasks_waiting(view))
        if self._policy.within is Within.ONE_EACH:
            tasks: dict[int, int] = {}
            for m in group:
                if len(tasks) < left and self._take(view, m):
                    tasks[m] = 1
        else:
            tasks = self._where_in_step_first(view, group, left)
        self._left[view.id] = left - sum(tasks.values())
        self._handed.update(tasks)
        number = (view.progress or TaskProgress()).rounds_done
        return [
            TaskSequence(
                self._gpus[m].node,
                self._gpus[m].number,
                (TaskBlock((TaskItem(view.id, number, count),)),),
            )
            for m, count in tasks.items()
        ]

    def _where_in_step_first(
        self, view: JobView, group: Sequence[int], left: int
    ) -> dict[int, int]:
        """Return how many of a job's tasks each GPU runs, each task where it is in step first."""
        ready_s = {m: self._free_s(m) for m in group if left and self._able(view, m)}
        found: dict[int, int] = {}
        while left and ready_s:
            at_s = {m: self._times(view, m) for m in ready_s}
            m = min(ready_s, key=lambda m: ready_s[m] + at_s[m].train_s + at_s[m].sync_s)
            if m not in found and self._busy.get(m) is not view and not self._make_room(view, m):
                del ready_s[m]
                continue
            found[m] = found.get(m, 0) + 1
            ready_s[m] += at_s[m].train_s
            left -= 1
        return found

    def _give(self, group: Sequence[int]) -> list[TaskSequence]:
        for job in self._in_order():
            view = self._snapshot.jobs[job]
            given = self._hand_out(view, group)
            if not given:
                continue
            if not self._left[job]:
                self._queues.leave(job)
            elif self._queues.lines[self._queues.level[job]][0] != job:
                level, since = self._queues.level[job], self._queues.since_s[job]
                self._queues.enter(job, level, since, first=True)
            return given
        return []

    def _in_order(self) -> Iterator[str]:
        """Yield the queued jobs, the next to be served first."""
        queues, ageing_s = self._queues, self._policy.ageing_s
        if ageing_s is not None:
            heads = [
                line[at]
                for line in queues.lines
                for at in range(min(len(line), 2))
                if self._snapshot.now - queues.since_s[line[at]] > ageing_s
            ]
            yield from sorted(heads, key=lambda job: queues.since_s[job])
        for line in queues.lines:
            if line and self._begun(line[0]):
                yield line[0]
            yield from self._policy.before(queues, line)

    def _begun(self, job: str) -> bool:
        view = self._snapshot.jobs[job]
        return view.job.tasks is not None and (
            self._left.get(job, tasks_waiting(view)) < view.job.tasks.scale
        )

    def _take(self, view: JobView, number: int) -> bool:
        return self._able(view, number) and self._make_room(view, number)

    def _able(self, view: JobView, number: int) -> bool:
        """Whether a GPU takes new tasks, and runs those of this job."""
        gpu = self._gpus[number]
        node = self._snapshot.nodes[gpu.node]
        if not node.open or gpu.number >= node.capacity:
            return False
        return task_times(self._snapshot, view.job, gpu.node) is not None

    def _make_room(self, view: JobView, number: int) -> bool:
        """Take the CPUs and memory for a task beside a GPU, if they are there."""
        if not (view.job.cpus_per_gpu or view.job.memory_mb_per_gpu):
            return True
        # Most jobs need nothing beside their GPUs, and looking for it costs more than all the rest.
        self._room = self._room or self._room_beside_runs()
        one = on_one_node(self._gpus[number].node, 1)
        if not self._room.fits(view.job, one):
            return False
        self._room.take(view.job, one)
        return True

    def _times(self, view: JobView, number: int) -> TaskTimes:
        """Return the times of a job's task on a GPU that is able to run it."""
        gpu_type = self._snapshot.cluster[self._gpus[number].node].gpu_type
        return self._snapshot.speeds.table(view.job.profile).tasks[gpu_type]

    def _free_s(self, number: int) -> float:
        """Return when a GPU has trained the task that it is in (UTC); now if in none."""
        now, view = self._snapshot.now, self._busy.get(number)
        if view is None:
            return now
        begun_s = max(run.progress_from_s for run in view.runs if run.copy == number)
        return max(now, begun_s + self._times(view, number).train_s)

    def _room_beside_runs(self) -> FreeGpus:
        room = FreeGpus.of(self._snapshot)
        for job in self._queues.serving:
            view = self._snapshot.jobs.get(job)
            for run in view.runs if view else ():
                if view is not None:
                    room.take(view.job, run.configuration)
        return room


@lru_cache(maxsize=64)
def grouped(cluster: Cluster, speeds: Speeds, groups: int, normalised: bool) -> GpuGrouping:
    """Return the groups of a cluster for all profiles that run as tasks: jobs are not known yet."""
    gpus = _all_gpus(cluster)
    rows = []
    for profile in _profiles(speeds):
        times = speeds.table(profile).tasks
        by_type = {
            gpu_type: 1.0 / (times[gpu_type].train_s + times[gpu_type].sync_s)
            if gpu_type in times
            else 0.0
            for gpu_type in cluster.gpu_types
        }
        rows.append([by_type[cluster[gpu.node].gpu_type] for gpu in gpus])
    matrix = np.array(rows, np.float64).reshape(len(rows), len(gpus))
    return group_gpus(matrix, groups or max(1, len(gpus) // 4), normalised=normalised)


@lru_cache(maxsize=64)
def _profiles(speeds: Speeds) -> tuple[str, ...]:
    return tuple(sorted(p for p in speeds.profiles if speeds.table(p).tasks))


@lru_cache(maxsize=64)
def _all_gpus(cluster: Cluster) -> tuple[Gpu, ...]:
    return tuple(Gpu(node.name, number) for node in cluster for number in range(node.gpus))
