"""The floor where training tasks run: every GPU works through its own sequence (Hare).

A task is one mini-batch. It occupies its GPU for T^c, then synchronises for T^s while the GPU goes
on with the next task (HPDC '22, section 5). The next training round of a job begins when all tasks
of the round before have trained and synchronised. A running task is never interrupted: a new plan
takes over each GPU at the end of the task it is in.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from hetsched_core.errors import InputError
from hetsched_core.policy.check import ROUNDING
from hetsched_core.runlog import RunEnd
from hetsched_core.simulate.events import TasksDue
from hetsched_core.simulate.heap import Priority
from hetsched_core.simulate.state import Active
from hetsched_core.simulate.world import World
from hetsched_core.types import (
    Configuration,
    Placement,
    Purpose,
    TaskProgress,
    TaskSequence,
    Trigger,
)


@dataclass(slots=True)
class _Station:
    """One GPU: what it still has to run, and the task it is in.

    The task is of `job`; it trains until `free_s` and is in step at `in_step_s`.
    """

    gpu_type: str
    copy: int
    configuration: Configuration
    todo: Iterator[tuple[str, int]]
    next: tuple[str, int] | None
    job: str | None = None
    free_s: float = 0.0
    in_step_s: float = 0.0


@dataclass(slots=True)
class _TrainingRound:
    """The round a job is in: tasks trained, and when the last of them is in step."""

    trained: int = 0
    in_step_s: float = 0.0


@dataclass(slots=True)
class TaskFloor:
    """All GPUs that run task sequences."""

    world: World
    _stations: dict[tuple[str, int], _Station] = field(default_factory=dict)
    _rounds: dict[str, _TrainingRound] = field(default_factory=dict)
    _due: list[tuple[float, str]] = field(default_factory=list)

    def admit(self, active: Active) -> None:
        """Take in a job that arrives.

        Raises:
            InputError: the job has no tasks.
        """
        shape = active.submission.job.tasks
        if shape is None or shape.rounds is None:
            raise InputError(
                f"job {active.job.id!r} has no training rounds, which a policy that schedules "
                "tasks needs; give the workload's jobs `tasks` with `scale` and `rounds`"
            )
        active.progress = TaskProgress()
        self.world.touch(active)
        self._rounds[active.job.id] = _TrainingRound()

    def assign(self, sequences: tuple[TaskSequence, ...]) -> None:
        """Give every GPU its new sequence; a GPU that is left out gets nothing more to do."""
        for station in self._stations.values():
            station.todo, station.next = iter(()), None
        for sequence in sequences:
            station = self._station(sequence.node, sequence.gpu)
            station.todo = _tasks(sequence)
            station.next = next(station.todo, None)

    def settle(self) -> None:
        """Finish the tasks and training rounds that are due at this instant."""
        while self._finish_tasks() or self._close_rounds():
            pass

    def move(self) -> None:
        """Start every task that can start, and finish those that take no time."""
        self.settle()
        while self._start_tasks():
            self.settle()

    def _station(self, node: str, gpu: int) -> _Station:
        key = (node, gpu)
        if key not in self._stations:
            cluster = self.world.cluster
            before = sum(n.gpus for n in cluster.nodes[: cluster.index(node)])
            self._stations[key] = _Station(
                cluster[node].gpu_type,
                before + gpu,
                Configuration(((node, 1),)),
                iter(()),
                None,
            )
        return self._stations[key]

    def _finish_tasks(self) -> bool:
        moved = False
        for station in self._stations.values():
            if station.job is None:
                continue
            active = self._in_task(station)
            if active is not None:
                if station.free_s > self.world.now:
                    continue
                self._note_trained(active, station)
                self.world.release(active, (Purpose.RUN, station.copy), RunEnd.COMPLETED)
            station.job = None
            moved = True
            if station.next is None:
                self.world.triggers.add(Trigger.BUDGET)
        return moved

    def _in_task(self, station: _Station) -> Active | None:
        """The job whose task a GPU is in; None if it has ended, crashed or lost the node."""
        active = self.world.active.get(station.job or "")
        run_id = (Purpose.RUN, station.copy)
        return active if active is not None and run_id in active.runs else None

    def _note_trained(self, active: Active, station: _Station) -> None:
        current = self._rounds[active.job.id]
        current.trained += 1
        current.in_step_s = max(current.in_step_s, station.in_step_s)
        if current.trained == _scale(active):
            heapq.heappush(self._due, (current.in_step_s, active.job.id))
            self._wake(current.in_step_s)
        if active.progress is not None:
            active.progress = replace(active.progress, tasks_done=current.trained)

    def _close_rounds(self) -> bool:
        moved = False
        while self._due and self._due[0][0] <= self.world.now:
            _, job_id = heapq.heappop(self._due)
            active = self.world.active.get(job_id)
            if active is None or active.progress is None:
                continue
            moved = True
            done = active.progress.rounds_done + 1
            self._rounds[job_id] = _TrainingRound()
            active.progress = replace(active.progress, rounds_done=done, tasks_done=0)
            shape = active.submission.job.tasks
            if shape is not None and done == shape.rounds:
                active.settle(self.world.now)
                active.samples = active.submission.samples
                self.world.end(active, active.submission.ends_as)
            else:
                self.world.touch(active)
        return moved

    def _start_tasks(self) -> bool:
        moved = False
        for station in self._stations.values():
            while station.job is None and station.next is not None:
                job_id, training_round = station.next
                active = self.world.active.get(job_id)
                if active is None or self._begun(active, training_round):
                    station.next = next(station.todo, None)
                elif self._may_start(active, training_round, station):
                    self._start(station, active)
                    moved = True
                else:
                    break
        return moved

    def _begun(self, active: Active, training_round: int) -> bool:
        """Whether all tasks of a round have begun, perhaps since the plan was made."""
        done = active.progress.rounds_done if active.progress else 0
        begun = self._rounds[active.job.id].trained + len(active.runs)
        return training_round < done or (training_round == done and begun >= _scale(active))

    def _may_start(self, active: Active, training_round: int, station: _Station) -> bool:
        """Whether the round is open, and the node has what a task needs."""
        done = active.progress.rounds_done if active.progress else 0
        if training_round != done:
            return False
        (name, _), *_ = station.configuration
        node = self.world.nodes[name]
        siblings = [self.world.nodes[n] for n in self.world.cluster.on_host(node.node.host)]
        cpus = max(view.node.cpus for view in siblings) or math.inf
        memory_mb = max(view.node.memory_mb for view in siblings) or math.inf
        job = active.job
        return (
            node.open
            and sum(v.held_cpus for v in siblings) + job.cpus_per_gpu <= cpus + ROUNDING
            and sum(v.held_memory_mb for v in siblings) + job.memory_mb_per_gpu
            <= memory_mb + ROUNDING
        )

    def _start(self, station: _Station, active: Active) -> None:
        now = self.world.now
        times = self.world.truth.table(active.job.profile).tasks.get(station.gpu_type)
        if times is None:
            raise InputError(
                f"profile {active.job.profile!r} has no task times for {station.gpu_type}; "
                "give train_s and sync_s for every GPU type of the cluster"
            )
        samples = active.submission.samples
        shape = active.submission.job.tasks
        tasks = shape.scale * (shape.rounds or 1) if shape else 1
        placement = Placement(station.configuration, copy=station.copy, budget=samples / tasks)
        # Between tasks there is nothing to restore: a switch costs nothing here.
        self.world.hold(active, placement, samples / tasks / times.train_s, 0.0)
        if active.first_start_s is None:
            active.first_start_s = now
        station.job = active.job.id
        station.free_s = now + times.train_s
        station.in_step_s = station.free_s + times.sync_s
        station.next = next(station.todo, None)
        self._wake(station.free_s)
        self.world.touch(active)

    def _wake(self, at_s: float) -> None:
        self.world.heap.push(at_s, Priority.WORK, TasksDue())


def _scale(active: Active) -> int:
    shape = active.submission.job.tasks
    return shape.scale if shape is not None else 0


def _tasks(sequence: TaskSequence) -> Iterator[tuple[str, int]]:
    """Yield (job, training round) of every task, in order."""
    for block in sequence.blocks:
        for repetition in range(block.times):
            for item in block.items:
                for _ in range(item.tasks):
                    yield item.job, item.training_round + repetition
