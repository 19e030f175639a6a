"""The floor where training tasks run: every GPU works through its own sequence (Hare).

A task is one mini-batch. It occupies its GPU for T^c, then synchronises for T^s while the GPU goes
on with the next task (HPDC '22, section 5). The next training round of a job begins when all tasks
of the round before have trained and synchronised. A running task is never interrupted: a new plan
takes over each GPU at the end of the task it is in.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from hetsched_core.errors import InputError
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
    """One GPU: what it still has to run, and the task it is in."""

    gpu_type: str
    copy: int
    configuration: Configuration
    todo: Iterator[tuple[str, int]]
    next: tuple[str, int] | None
    job: str | None = None
    free_s: float = 0.0


@dataclass(slots=True)
class _TrainingRound:
    """The round a job is in: tasks begun and trained, and when the last one will be in step."""

    begun: int = 0
    trained: int = 0
    in_step_s: float = 0.0
    open_s: float = 0.0


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
        self._rounds[active.job.id] = _TrainingRound(open_s=self.world.now)

    def assign(self, sequences: tuple[TaskSequence, ...]) -> None:
        """Give every GPU its new sequence; a GPU that is left out gets nothing more to do."""
        for station in self._stations.values():
            station.todo, station.next = iter(()), None
        for sequence in sequences:
            station = self._station(sequence.node, sequence.gpu)
            station.todo = _tasks(sequence)
            station.next = next(station.todo, None)

    def move(self) -> None:
        """Finish what is due at this instant, then start every task that can start."""
        moved = True
        while moved:
            moved = self._finish_tasks()
            moved |= self._close_rounds()
            moved |= self._start_tasks()

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
        now = self.world.now
        for station in self._stations.values():
            if station.job is None or station.free_s > now:
                continue
            active = self.world.active.get(station.job)
            if active is not None:
                current = self._rounds[station.job]
                current.trained += 1
                shape = active.submission.job.tasks
                if shape is not None and current.trained == shape.scale:
                    heapq.heappush(self._due, (current.in_step_s, station.job))
                    self._wake(current.in_step_s)
                self._note_progress(active, current)
                self.world.release(active, (Purpose.RUN, station.copy), RunEnd.COMPLETED)
            station.job = None
            moved = True
            if station.next is None:
                self.world.triggers.add(Trigger.BUDGET)
        return moved

    def _close_rounds(self) -> bool:
        moved = False
        while self._due and self._due[0][0] <= self.world.now:
            _, job_id = heapq.heappop(self._due)
            active = self.world.active.get(job_id)
            if active is None or active.progress is None:
                continue
            moved = True
            done = active.progress.rounds_done + 1
            self._rounds[job_id] = _TrainingRound(open_s=self.world.now)
            active.progress = TaskProgress(rounds_done=done)
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
        now = self.world.now
        for station in self._stations.values():
            while station.job is None and station.next is not None:
                job_id, training_round = station.next
                active = self.world.active.get(job_id)
                if active is None or active.progress is None:
                    # The job has ended: its remaining tasks fall away.
                    station.next = next(station.todo, None)
                    continue
                current = self._rounds[job_id]
                if training_round != active.progress.rounds_done or current.open_s > now:
                    break
                self._start(station, active, current)
                moved = True
        return moved

    def _start(self, station: _Station, active: Active, current: _TrainingRound) -> None:
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
        current.begun += 1
        current.in_step_s = max(current.in_step_s, now + times.train_s + times.sync_s)
        station.job, station.free_s = active.job.id, now + times.train_s
        station.next = next(station.todo, None)
        self._wake(station.free_s)
        self.world.touch(active)

    def _wake(self, at_s: float) -> None:
        self.world.heap.push(at_s, Priority.WORK, TasksDue())

    def _note_progress(self, active: Active, current: _TrainingRound) -> None:
        if active.progress is not None:
            active.progress = TaskProgress(
                active.progress.rounds_done, current.trained, active.progress.loss
            )


def _tasks(sequence: TaskSequence) -> Iterator[tuple[str, int]]:
    """Yield (job, training round) of every task, in order."""
    for block in sequence.blocks:
        for repetition in range(block.times):
            for item in block.items:
                for _ in range(item.tasks):
                    yield item.job, item.training_round + repetition
