"""Pools with real files, their schedulers, and members that train nothing."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hetsched_core.policy import make_policy
from job_wrappers.pool.asked import SCHEMA
from slurm_plugin.pool import Scheduler
from slurm_plugin.pool.creation import create
from slurm_plugin.pool.folder import Pool
from slurm_plugin.pool.records import Member, Training
from slurm_plugin.pool.state import process_space


def pool(path: Path, policy: str = "hlas") -> Pool:
    return create(path / "pool", policy, {})


def training(name: str, rounds: int = 2, scale: int = 1, **others: Any) -> Training:
    others.setdefault("submit_s", 1.0)
    return Training(SCHEMA, name, "jobs.py:make", rounds, scale, key="make", **others)


def add(pool: Pool, training: Training) -> None:
    path = pool.path / "trainings" / f"{training.name}.json"
    path.write_text(json.dumps(asdict(training)))


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond so many bytes."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


class Hand:
    """A member whose tasks a test begins and ends by hand."""

    def __init__(
        self,
        pool: Pool,
        id_: str,
        gpu_type: str = "v100",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.pool, self.id, self.gpu_type, self.clock = pool, id_, gpu_type, clock
        self.begun: list[tuple[str, int, int]] = []
        member = Member(SCHEMA, id_, "n0", process_space(), "cpu", gpu_type, os.getpid(), 1.0)
        self.file = pool.path / "members" / f"{id_}.json"
        self.file.write_text(json.dumps(asdict(member)))

    def order(self) -> list[tuple[str, int, int]]:
        """Return what it is to run now, as a member reads it, which shows that it is alive."""
        os.utime(self.file)
        try:
            said = json.loads((self.pool.path / "orders" / f"{self.id}.json").read_text())
        except FileNotFoundError:
            return []
        tasks = [(str(job), int(r), int(k)) for job, r, k in said["tasks"]]
        for task in self.begun[said["begun"] :]:
            if task in tasks:
                tasks.remove(task)
        return tasks

    def begin(self, task: tuple[str, int, int] | None = None) -> tuple[str, int, int]:
        task = task or self.order()[0]
        self.begun.append(task)
        self.tell(what="began", job=task[0], round=task[1], number=task[2], at_s=self.clock())
        return task

    def train(self, task: tuple[str, int, int], loss: float = 1.0, train_s: float = 0.5) -> None:
        self.tell(
            what="trained",
            job=task[0],
            round=task[1],
            number=task[2],
            at_s=self.clock(),
            train_s=train_s,
            switch_s=0.0,
            kept=True,
            gpu_type=self.gpu_type,
            loss=loss,
        )

    def store(self, task: tuple[str, int, int], scale: int = 1, step: bool = True) -> None:
        """Leave a gradient, and the next round's state if it was the last of `scale`."""
        name, round_, number = task
        folder = self.pool.path / "rounds" / name
        folder.mkdir(exist_ok=True)
        gradients = [folder / f"round-{round_:06}.task-{k:03}.gradient" for k in range(scale)]
        gradients[number].touch()
        if step and all(path.exists() for path in gradients):
            (folder / f"round-{round_ + 1:06}.state").touch()
            for path in gradients:
                path.unlink()

    def run(self, scale: int = 1, train_s: float = 0.5) -> tuple[str, int, int]:
        task = self.begin()
        self.train(task, train_s=train_s)
        self.store(task, scale)
        return task

    def tell(self, **line: Any) -> None:
        with (self.pool.path / "outcomes" / f"{self.id}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


def scheduler(of: Pool, policy: str = "hlas", **parameters: str) -> Scheduler:
    def say(text: str) -> None:
        raise AssertionError(text)

    return Scheduler(of, make_policy(policy, parameters), say)


def worked_off(made: Scheduler, hands: list[Hand], scale: int = 1, steps: int = 400) -> list[str]:
    """Let members run whatever they are ordered, one task at a time, until all has ended."""
    ran: list[str] = []
    for _ in range(steps):
        made.step()
        if not made.state.active:
            return ran
        for hand in hands:
            if hand.order() and made.state.open(hand.order()[0]):
                name, round_, number = hand.run(scale)
                ran.append(f"{name} {round_} {number}")
    raise AssertionError(f"{sorted(made.state.active)} did not end; ran {ran}")


def stopped(pool: Pool) -> bool:
    return pool.stopped
