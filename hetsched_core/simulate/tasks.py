"""The floor where training tasks run: every GPU works through its own sequence (Hare).

A task is one mini-batch. It occupies its GPU for T^c, then synchronises for T^s while the GPU goes
on with the next task (HPDC '22, section 5). The next training round of a job begins when all tasks
of the round before have trained and synchronised. A running task is never interrupted: a new plan
takes over each GPU at the end of the task it is in. A task that is lost is the next of its GPU's
sequence again, unless a new plan has other ideas.

A task costs by the logarithm of the GPUs: a GPU is looked at when its task ends, when the round
that it waits for opens, and when plans or failures change what it may do. Rounds that a job does on
GPUs of its own, like the one before, are one stretch: the floor is ahead of itself, and comes back
to the present (`catch_up`) before anything looks at it or changes it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Container
from dataclasses import dataclass, field

from hetsched_core.errors import InputError
from hetsched_core.records.runlog import RunEnd
from hetsched_core.simulate.events import TasksDue
from hetsched_core.simulate.heap import EventPriority
from hetsched_core.simulate.state import Active
from hetsched_core.simulate.stretch import Stretch, TaskShare
from hetsched_core.simulate.world import World
from hetsched_core.types import (
    SLACK,
    Configuration,
    Placement,
    Purpose,
    TaskBlock,
    TaskProgress,
    TaskSequence,
    Trigger,
)

LEAST_STRETCH = 3
"""Fewer equal rounds are no stretch: finding one costs about as much as a round."""


Task = tuple[str, int]
"""(job, training round)."""


@dataclass(slots=True)
class _Todo:
    """The blocks of a sequence, and where in them its GPU is.

    Attributes:
        blocks: what the GPU was given.
        next: the next task, None at the end.
    """

    blocks: tuple[TaskBlock, ...] = ()
    next: Task | None = None
    _back: list[Task] = field(default_factory=list)
    _block: int = 0
    _repetition: int = 0
    _item: int = 0
    _task: int = 0

    @classmethod
    def of(cls, blocks: tuple[TaskBlock, ...]) -> _Todo:
        """Begin a sequence."""
        todo = cls(blocks)
        todo._look()
        return todo

    def advance(self) -> None:
        """Take the next task as done with."""
        if self._back:
            self._back.pop()
        elif self.next is not None:
            self._task += 1
        self._look()

    def put_back(self, task: Task) -> None:
        """Have a task be the next one, before all others."""
        self._back.append(task)
        self.next = task

    def ahead(self) -> tuple[int, int]:
        """Return (tasks, times) where a repetition of a block of one item begins, else (0, 0).

        The item's tasks come in a row, and so once for each of the `times` next training rounds.
        """
        if self._back or self._task or self._item or self._block >= len(self.blocks):
            return 0, 0
        block = self.blocks[self._block]
        if len(block.items) > 1:
            return 0, 0
        return block.items[0].tasks, block.times - self._repetition

    def skip(self, repetitions: int) -> None:
        """Leave out so many repetitions of a block that is at the begin of one."""
        self._repetition += repetitions
        self._look()

    def _look(self) -> None:
        """Find the next task, past what is empty."""
        if self._back:
            self.next = self._back[-1]
            return
        while self._block < len(self.blocks):
            block = self.blocks[self._block]
            if self._repetition >= block.times:
                self._block, self._repetition, self._item = self._block + 1, 0, 0
            elif self._item >= len(block.items):
                self._repetition, self._item = self._repetition + 1, 0
            elif self._task >= block.items[self._item].tasks:
                self._item, self._task = self._item + 1, 0
            else:
                item = block.items[self._item]
                self.next = item.job, item.training_round + self._repetition
                return
        self.next = None


@dataclass(slots=True)
class _Station:
    """One GPU: what it still has to run, and the task it is in.

    The task is `running`; it trains until `free_s` and is in step at `in_step_s`. `begun` counts
    the tasks that the GPU ever began, the last of them of `last_job`.
    """

    gpu_type: str
    copy: int
    configuration: Configuration
    todo: _Todo = field(default_factory=_Todo)
    running: Task | None = None
    free_s: float = 0.0
    in_step_s: float = 0.0
    begun: int = 0
    last_job: str | None = None

    @property
    def next(self) -> Task | None:
        """The task that it is to run next."""
        return self.todo.next


@dataclass(slots=True)
class _TrainingRound:
    """The round a job is in: how many came before, tasks trained, when the last is in step.

    `before` has the GPUs (copies) of the round before, `copies` those of this one.
    """

    number: int = 0
    trained: int = 0
    in_step_s: float = 0.0
    before: frozenset[int] = frozenset()
    copies: set[int] = field(default_factory=set)


@dataclass(slots=True)
class TaskFloor:
    """All GPUs that run task sequences.

    Attributes:
        world: the cluster and its jobs.
        coming: the ids of the jobs that are still to arrive; their tasks are waited for.
    """

    world: World
    coming: Container[str]
    _stations: dict[tuple[str, int], _Station] = field(default_factory=dict)
    _by_copy: dict[int, _Station] = field(default_factory=dict)
    _rounds: dict[str, _TrainingRound] = field(default_factory=dict)
    _training: list[tuple[float, int, int]] = field(default_factory=list)
    _due: list[tuple[float, str]] = field(default_factory=list)
    # Where to look for something to start: at these stations; at those once a job's next round
    # is open; and at those that found no CPUs or memory.
    _look_at: set[int] = field(default_factory=set)
    _awaiting: dict[str, set[int]] = field(default_factory=dict)
    _crowded: set[int] = field(default_factory=set)
    _last_planned: dict[str, int] = field(default_factory=dict)
    _unseen: set[str] = field(default_factory=set)
    _disturbed: bool = False
    _ahead: dict[str, Stretch] = field(default_factory=dict)
    _back_at: list[tuple[float, str]] = field(default_factory=list)
    # While the floor comes back: the present, before which there are no events any more.
    _present_s: float | None = None

    @property
    def ahead(self) -> bool:
        """Whether some job is in a stretch of rounds."""
        return bool(self._ahead)

    def admit(self, active: Active) -> None:
        """Take in a job that arrives.

        Raises:
            InputError: the job has no tasks.
        """
        job_id, shape = active.job.id, active.submission.job.tasks
        if shape is None or shape.rounds is None:
            raise InputError(
                f"job {job_id!r} has no training rounds, which a policy that schedules "
                "tasks needs; give the workload's jobs `tasks` with `scale` and `rounds`"
            )
        active.progress = TaskProgress()
        self._rounds[job_id] = _TrainingRound()
        self._look_at |= self._awaiting.pop(job_id, set())
        self._unseen.add(job_id)

    def assign(self, sequences: tuple[TaskSequence, ...]) -> None:
        """Give every GPU its new sequence; a GPU that is left out gets nothing more to do."""
        for station in self._stations.values():
            station.todo = _Todo()
        self._last_planned.clear()
        self._awaiting.clear()
        self._crowded.clear()
        self._look_at.clear()
        for sequence in sequences:
            station = self._station(sequence.node, sequence.gpu)
            station.todo = _Todo.of(sequence.blocks)
            self._look_at.add(station.copy)
            for block in sequence.blocks:
                for item in block.items:
                    last = item.training_round + block.times - 1
                    known = self._last_planned.get(item.job, -1)
                    self._last_planned[item.job] = max(known, last)

    def disturb(self) -> None:
        """Look everywhere once more: tasks may have been lost, or nodes changed."""
        self._disturbed = True

    def settle(self) -> None:
        """Finish the tasks and training rounds that are due at this instant."""
        if self._disturbed:
            self._disturbed = False
            self._find_lost_tasks()
            self._look_at.update(self._by_copy)
        while self._end_stretches() or self._finish_tasks() or self._close_rounds():
            pass

    def catch_up(self) -> None:
        """Come back to the present: do the rounds of all stretches up to now, task by task at last.

        Tasks that end at this very instant are left to `settle`.
        """
        now, kept = self.world.now, self._look_at
        for job_id in sorted(self._ahead):
            stretch = self._ahead[job_id]
            rounds = stretch.done_at(now)
            self._look_at = set()
            self._book(stretch, rounds)
            kept |= self._look_at
            if stretch.opens_s(rounds) < now:
                self._present_s, self.world.now = now, stretch.opens_s(rounds)
                while self.world.now < now:
                    self._start_tasks()
                    # Whoever is not ahead is done with all that was due before now.
                    due = (heap[0][0] for heap in (self._training, self._due) if heap)
                    self.world.now = min(now, *due, now)
                    if self.world.now < now:
                        self.settle()
                self._present_s = None
        self._look_at = kept

    def move(self) -> None:
        """Start every task that can start, and finish those that take no time."""
        self.settle()
        self._look_at |= self._crowded
        self._crowded.clear()
        while self._start_tasks():
            self.settle()

    def show(self) -> None:
        """Bring the jobs' views up to date, before a plan is asked for."""
        for job_id in sorted(self._unseen):
            active = self.world.active.get(job_id)
            if active is not None:
                current = self._rounds[job_id]
                active.settle(self.world.now)
                active.progress = TaskProgress(
                    current.number, current.trained, _losses(active, current.number)
                )
                self.world.touch(active)
        self._unseen.clear()

    def _station(self, node: str, gpu: int) -> _Station:
        key = (node, gpu)
        if key not in self._stations:
            cluster = self.world.cluster
            copy = sum(n.gpus for n in cluster.nodes[: cluster.index(node)]) + gpu
            gpu_type, where = cluster[node].gpu_type, Configuration(((node, 1),))
            self._stations[key] = self._by_copy[copy] = _Station(gpu_type, copy, where)
        return self._stations[key]

    def _find_lost_tasks(self) -> None:
        for station in self._stations.values():
            if station.running is None or self._in_task(station) is not None:
                continue
            if station.running[0] in self.world.active:
                station.todo.put_back(station.running)
                self._unseen.add(station.running[0])
            station.running = None
            if station.next is None:
                self.world.news.triggers.add(Trigger.BUDGET)

    def _in_task(self, station: _Station) -> Active | None:
        """The job whose task a GPU is in; None if it has ended, crashed or lost the node."""
        active = self.world.active.get(station.running[0]) if station.running else None
        run_id = (Purpose.RUN, station.copy)
        return active if active is not None and run_id in active.runs else None

    def _finish_tasks(self) -> bool:
        moved = False
        while self._training and self._training[0][0] <= self.world.now:
            _, copy, begun = heapq.heappop(self._training)
            station = self._by_copy[copy]
            if station.begun != begun or (active := self._in_task(station)) is None:
                continue
            self._note_trained(active, station)
            self.world.free(active, (Purpose.RUN, copy), RunEnd.COMPLETED)
            station.running = None
            self._look_at.add(copy)
            self._look_at |= self._crowded
            self._crowded.clear()
            moved = True
            if station.next is None:
                self.world.news.triggers.add(Trigger.BUDGET)
        return moved

    def _note_trained(self, active: Active, station: _Station) -> None:
        current = self._rounds[active.job.id]
        current.trained += 1
        current.copies.add(station.copy)
        current.in_step_s = max(current.in_step_s, station.in_step_s)
        if current.trained == _scale(active):
            heapq.heappush(self._due, (current.in_step_s, active.job.id))
            self._wake(current.in_step_s)
        self._unseen.add(active.job.id)

    def _close_rounds(self) -> bool:
        moved = False
        while self._due and self._due[0][0] <= self.world.now:
            _, job_id = heapq.heappop(self._due)
            active = self.world.active.get(job_id)
            if active is None:
                continue
            moved = True
            last = self._rounds[job_id]
            done = last.number + 1
            self._rounds[job_id] = _TrainingRound(done, before=frozenset(last.copies))
            awaited = self._awaiting.get(job_id, set())
            if self._look_ahead(active, awaited):
                self._awaiting.pop(job_id, None)
                continue
            self._look_at |= self._awaiting.pop(job_id, set())
            self._unseen.add(job_id)
            shape = active.submission.job.tasks
            if shape is not None and done == shape.rounds:
                active.settle(self.world.now)
                active.samples = active.submission.samples
                self.world.end(active, active.submission.ends_as)
            elif done > self._last_planned.get(job_id, -1):
                self.world.news.triggers.add(Trigger.BUDGET)
        return moved

    def _start_tasks(self) -> bool:
        moved = False
        chosen, self._look_at = sorted(self._look_at), set()
        for copy in chosen:
            station = self._by_copy[copy]
            while station.running is None and station.next is not None:
                job_id, training_round = station.next
                active = self.world.active.get(job_id)
                if active is None and job_id in self.coming:
                    self._awaiting.setdefault(job_id, set()).add(copy)
                    break
                if active is None or self._begun(active, training_round):
                    station.todo.advance()
                elif training_round > self._rounds[job_id].number:
                    self._awaiting.setdefault(job_id, set()).add(copy)
                    break
                elif self._has_room(active, station):
                    self._start(station, active, station.next)
                    moved = True
                else:
                    self._crowded.add(copy)
                    break
        return moved

    def _begun(self, active: Active, training_round: int) -> bool:
        """Whether all tasks of a round have begun, perhaps since the plan was made."""
        current = self._rounds[active.job.id]
        begun = current.trained + len(active.runs)
        return training_round < current.number or (
            training_round == current.number and begun >= _scale(active)
        )

    def _has_room(self, active: Active, station: _Station) -> bool:
        """Whether the node takes work and has what a task needs."""
        (name, _), *_ = station.configuration
        node, job = self.world.nodes[name], active.job
        if not (node.open and job.may_start_on(name)):
            return False
        if not (job.cpus_per_gpu or job.memory_mb_per_gpu):
            return True
        siblings = [self.world.nodes[n] for n in self.world.cluster.on_host(node.node.host)]
        cpus = max(view.node.cpus for view in siblings) or math.inf
        memory_mb = max(view.node.memory_mb for view in siblings) or math.inf
        return (
            sum(v.held_cpus for v in siblings) + job.cpus_per_gpu <= cpus + SLACK
            and sum(v.held_memory_mb for v in siblings) + job.memory_mb_per_gpu <= memory_mb + SLACK
        )

    def _start(self, station: _Station, active: Active, task: Task) -> None:
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
        switches = station.last_job not in (None, active.job.id)
        switch_s = self.world.settings.switch_s(active.job.profile) if switches else 0.0
        self.world.take(active, placement, samples / tasks / times.train_s, switch_s)
        if active.first_start_s is None:
            active.first_start_s = now
        station.running = task
        station.begun += 1
        station.last_job = active.job.id
        station.free_s = now + switch_s + times.train_s
        station.in_step_s = station.free_s + times.sync_s
        station.todo.advance()
        heapq.heappush(self._training, (station.free_s, station.copy, station.begun))
        self._wake(station.free_s)
        self._unseen.add(active.job.id)

    def _look_ahead(self, active: Active, awaited: set[int]) -> bool:
        """Begin a stretch if the round that has just opened is the first of one."""
        current, shape = self._rounds[active.job.id], active.submission.job.tasks
        job = active.job
        if self._present_s is not None or not current.before or job.cpus_per_gpu or shape is None:
            return False
        if job.memory_mb_per_gpu or not awaited <= current.before:
            return False
        stations = [self._by_copy[copy] for copy in sorted(current.before)]
        ahead = [station.todo.ahead() for station in stations]
        rounds = min(min(times for _, times in ahead), (shape.rounds or 0) - current.number) - 1
        if rounds < LEAST_STRETCH or sum(tasks for tasks, _ in ahead) != shape.scale:
            return False
        task = (job.id, current.number)
        for station in stations:
            (name, _), *_ = station.configuration
            own = station.last_job == job.id and station.running is None and station.next == task
            if not own or not (self.world.nodes[name].open and job.may_start_on(name)):
                return False
        times = self.world.truth.table(job.profile).tasks
        shares = tuple(
            TaskShare(
                station.copy,
                station.gpu_type,
                station.configuration,
                tasks,
                times[station.gpu_type].train_s,
                times[station.gpu_type].sync_s,
            )
            for station, (tasks, _) in zip(stations, ahead, strict=True)
        )
        active.settle(self.world.now)
        samples = active.submission.samples / (shape.scale * (shape.rounds or 1))
        stretch = Stretch(job.id, self.world.now, rounds, shares, samples)
        self._ahead[job.id] = stretch
        heapq.heappush(self._back_at, (stretch.end_s, job.id))
        self._wake(stretch.end_s)
        self._look_at -= current.before
        return True

    def _end_stretches(self) -> bool:
        moved = False
        while self._back_at and self._back_at[0][0] <= self.world.now:
            end_s, job_id = heapq.heappop(self._back_at)
            stretch = self._ahead.get(job_id)
            if stretch is not None and stretch.end_s == end_s:
                self._book(stretch, stretch.rounds)
                moved = True
        return moved

    def _book(self, stretch: Stretch, rounds: int) -> None:
        """Leave a stretch after so many of its rounds, with the next one open."""
        del self._ahead[stretch.job]
        stretch.book(self.world, rounds)
        current = self._rounds[stretch.job]
        current.number += rounds
        for share in stretch.shares:
            station = self._by_copy[share.copy]
            station.todo.skip(rounds)
            station.begun += rounds * share.tasks
            self._look_at.add(share.copy)
        self._unseen.add(stretch.job)

    def _wake(self, at_s: float) -> None:
        if self._present_s is None or at_s >= self._present_s:
            self.world.heap.push(at_s, EventPriority.WORK, TasksDue())


def _losses(active: Active, rounds: int) -> tuple[float, ...]:
    """What a job has reported after this many rounds."""
    curve, told = active.submission.loss, active.progress.loss if active.progress else ()
    if curve is None:
        return ()
    return (*told, *(curve.after(r) for r in range(len(told) + 1, rounds + 1)))


def _scale(active: Active) -> int:
    shape = active.submission.job.tasks
    return shape.scale if shape is not None else 0
