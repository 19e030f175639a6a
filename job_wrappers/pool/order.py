"""The order that a pool's scheduler leaves for a member, as an executor takes it."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Callable

from job_wrappers.executor import Executor, Task, TaskJob
from job_wrappers.executor.rounds import Rounds
from job_wrappers.pool.folder import Desk, PoolFolder

POLL_S = 0.01
"""How often a member looks for something to do while it has tasks."""

IDLE_S = 0.2
"""How often at the least while it has none."""

GROWTH = 1.1
"""Of the pause until then, so that no order waits for longer than a tenth of what it has waited."""

AHEAD = 32
"""So many tasks are looked at to decide which models stay."""


class PoolOrder:
    """The tail of the order may be replaced at any time; a task that has begun stays begun.

    A task is taken once its round is open, so that an executor never waits for tasks of others: one
    of them may have to come here instead.
    """

    def __init__(
        self, folder: PoolFolder, desk: Desk, executor: Executor, stopped: Callable[[], bool]
    ) -> None:
        """Take tasks until `stopped` says so, or the pool ends."""
        self._folder, self._desk, self._executor = folder, desk, executor
        self._stopped = stopped
        self._jobs: dict[str, TaskJob] = {}
        # Tasks that have begun, but for the first `_forgotten` of them.
        self._begun: list[Task] = []
        self._forgotten = 0
        self._left: list[Task] = []
        self._told: set[str] = set()
        self._damaged: set[str] = set()

    def next(self) -> Task | None:
        """Take the next task, once there is one whose round is open; None when all is to end."""
        pause_s = POLL_S
        while not (self._stopped() or self._folder.stopped):
            self.tell_failures()
            self._look()
            while self._left and self._passed_over(self._left[0]):
                self._left.pop(0)
            if self._left and self._open(self._left[0]):
                task = self._left.pop(0)
                self._begun.append(task)
                self._desk.tell("began", **words_of(task), at_s=time.time())
                return task
            pause_s = POLL_S if self._left else min(IDLE_S, GROWTH * pause_s)
            time.sleep(pause_s)
        return None

    def ahead(self) -> Sequence[Task]:
        """Return what comes next, as it was ordered last."""
        self._look()
        return tuple(
            task
            for task in self._left[:AHEAD]
            if not self._passed_over(task) and task.job in self._jobs
        )

    def over(self, job: str) -> bool:
        """Whether a training has ended, or has all its rounds."""
        known = self._jobs.get(job)
        return known is None or self._folder.ended(job) or self._newest(known) >= known.rounds

    def tell_failures(self) -> None:
        """Tell of trainings that have failed here, each once."""
        self._executor.heed()
        for name, why in self._executor.failed.items():
            self._tell_failure(name, why)

    def _tell_failure(self, name: str, why: str) -> None:
        if name not in self._told:
            self._told.add(name)
            self._desk.tell("failed", job=name, why=why)

    def _look(self) -> None:
        if not self._desk.look():
            return
        order = self._desk.order
        self._left = list(order.tasks)
        # What was known to have begun when it was written is asked for no more.
        known = max(0, order.begun - self._forgotten)
        del self._begun[:known]
        self._forgotten += known
        for task in self._begun:
            if task in self._left:
                self._left.remove(task)

    def _passed_over(self, task: Task) -> bool:
        """Whether a task is not to be run: the training needs no more of it, or is damaged."""
        if task.job in self._told or self._folder.ended(task.job):
            return True
        try:
            job = self._jobs.get(task.job) or self._folder.training(task.job)
        except OSError:
            return False
        except ValueError as error:
            self._tell_damage(task.job, str(error))
            return True
        if task.job not in self._jobs:
            self._jobs[task.job] = job
            self._executor.admit(job)
        return task.round >= job.rounds or task.number >= job.scale

    def _tell_damage(self, name: str, why: str) -> None:
        """Fail a training whose file is damaged, unless a GPU is at it that has read it whole."""
        try:
            under_way = self._folder.under_way(name)
        except OSError:
            under_way = True
        if not under_way:
            self._tell_failure(name, why)
        elif name not in self._damaged:
            self._damaged.add(name)
            sys.stderr.write(f"pool member: {why}; it is under way: mend the file\n")

    def _open(self, task: Task) -> bool:
        """Whether the round before is done, or lacks nothing but its step."""
        job = self._jobs.get(task.job)
        if job is None or task.round == 0:
            return job is not None
        newest = self._newest(job)
        if newest != task.round - 1:
            return newest >= task.round
        rounds = Rounds(self._folder.rounds / job.name, job.scale)
        return all(rounds.has(newest, number) for number in range(job.scale))

    def _newest(self, job: TaskJob) -> int:
        newest = Rounds(self._folder.rounds / job.name, job.scale).newest()
        return -1 if newest is None else newest


def words_of(task: Task) -> dict[str, object]:
    """Return a task as a line tells it."""
    return asdict(task)
