"""A stretch of training rounds in which nothing changes: rounds that need no event each.

A job whose tasks have their GPUs to themselves, the same ones in every round, does each round in
the time of the one before. So many rounds are one step: a record for each task of a round, which
says how often it is repeated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hetsched_core.records.runlog import RunEnd, RunRecord
from hetsched_core.simulate.settings import RunMeasurement
from hetsched_core.simulate.world import World
from hetsched_core.types import Configuration, Purpose


@dataclass(frozen=True, slots=True)
class TaskShare:
    """What one GPU does of each round: `tasks` of T^c in a row, beginning when the round opens."""

    copy: int
    gpu_type: str
    configuration: Configuration
    tasks: int
    train_s: float
    sync_s: float

    @property
    def busy_s(self) -> float:
        """How long it holds the GPU in each round."""
        return self.tasks * self.train_s

    @property
    def in_step_s(self) -> float:
        """When its last task is in step, from the round's opening."""
        return self.busy_s + self.sync_s


@dataclass(frozen=True, slots=True)
class Stretch:
    """Equal rounds of a job, one after another.

    Attributes:
        job: whose rounds.
        since_s: when the first of them opened.
        rounds: how many.
        shares: which GPUs do what of each.
        samples: work of one task.
    """

    job: str
    since_s: float
    rounds: int
    shares: tuple[TaskShare, ...]
    samples: float

    @property
    def every_s(self) -> float:
        """The length of a round."""
        return max(share.in_step_s for share in self.shares)

    @property
    def end_s(self) -> float:
        """When the last round is done."""
        return self.opens_s(self.rounds)

    def opens_s(self, rounds: int) -> float:
        """When so many rounds are done."""
        return self.since_s + rounds * self.every_s

    def done_at(self, now: float) -> int:
        """Return how many rounds are done at an instant."""
        rounds = min(self.rounds, math.floor((now - self.since_s) / self.every_s))
        return rounds - 1 if rounds and self.opens_s(rounds) > now else rounds

    def book(self, world: World, rounds: int) -> None:
        """Write down so many rounds as done: what the job has got, and its tasks' records."""
        if not rounds:
            return
        active = world.active[self.job]
        active.settle(self.since_s)
        for share in self.shares:
            gpu_s = rounds * share.busy_s
            active.attained[share.gpu_type] = active.attained.get(share.gpu_type, 0.0) + gpu_s
            active.samples += rounds * share.tasks * self.samples
            for at in range(share.tasks):
                begin_s = self.since_s + at * share.train_s
                world.log.runs.append(
                    RunRecord(
                        job=self.job,
                        number=active.run_numbers,
                        copy=share.copy,
                        purpose=Purpose.RUN,
                        configuration=share.configuration,
                        since_s=begin_s,
                        freed_s=begin_s + share.train_s,
                        productive_s=share.train_s,
                        samples=self.samples,
                        ended_by=RunEnd.COMPLETED,
                        times=rounds,
                        every_s=self.every_s,
                    )
                )
                active.run_numbers += rounds
            done = rounds * share.tasks
            world.estimates.observe(
                RunMeasurement(
                    active.job,
                    Purpose.RUN,
                    share.configuration,
                    done * self.samples,
                    done * share.train_s,
                )
            )
        active.wait_s += rounds * (self.every_s - max(share.busy_s for share in self.shares))
        active.observed_s = self.opens_s(rounds)
