"""What a simulation is told besides workload, cluster and policy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from hetsched_core.errors import InputError
from hetsched_core.simulate.switching import Executor
from hetsched_core.types import (
    ALL_SHAPES,
    Configuration,
    Job,
    Purpose,
    Shape,
    Speeds,
    Window,
)
from hetsched_core.types.making import cheaply_made


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The costs and the grid of a simulation. All times in seconds.

    Attributes:
        round_s: length of a scheduling round.
        restart_cost_s: no progress on the new GPUs at each start of a job but its first.
        grace_s: how long a stopped run keeps its GPUs while it saves its state.
        checkpoint_s: time between periodic checkpoints, which bound what a failure loses.
        decision_s: how long after being asked for a plan takes effect.
        switch: no progress on a GPU whose next training task is of another job than its last: what
            an executor takes for the model of that task, or seconds for all models.
        seed: for policies that draw random numbers.
        shapes: the shapes of configuration that can be realised.
        runs_per_job: how many runs one job may have at a time, profiling runs counted; None for
            any number.
        windows: spans in which nodes are closed to the jobs.
    """

    round_s: float = 360.0
    restart_cost_s: float = 10.0
    grace_s: float = 0.0
    checkpoint_s: float = 1800.0
    decision_s: float = 0.0
    switch: Executor | float = Executor.HARE
    seed: int = 0
    shapes: frozenset[Shape] = ALL_SHAPES
    runs_per_job: int | None = None
    windows: tuple[Window, ...] = ()

    def __post_init__(self) -> None:
        """Refuse times that no simulation can use."""
        for name, least in (
            ("round_s", 1e-3),
            ("restart_cost_s", 0.0),
            ("grace_s", 0.0),
            ("checkpoint_s", 1e-3),
            ("decision_s", 0.0),
            ("switch", 0.0),
        ):
            value = getattr(self, name)
            if isinstance(value, Executor):
                continue
            if not least <= value or (value == math.inf and name != "checkpoint_s"):
                raise InputError(f"{name}={value} is not a number of seconds of at least {least:g}")

    @property
    def lead_s(self) -> float:
        """How long before a window a run has to be told to leave, so that it has left in time.

        While one plan is awaited another may have to be, before the run begins to save its state.
        """
        return self.grace_s + 2.0 * self.decision_s

    def switch_s(self, profile: str) -> float:
        """Return the seconds that a switch to a task of this profile takes."""
        if isinstance(self.switch, Executor):
            return self.switch.switch_s(profile)
        return self.switch


MEASUREMENT_NOISE = 0.01
"""Relative deviation of a measured speed: ResNet on one GPU of Frontera varies by 1.1 % from run to
run, BERT by 0.2 %, BERT on Longhorn by 1.9 % (hal-uw/blox-pal)."""


@cheaply_made
@dataclass(frozen=True, slots=True)
class Measured:
    """What can be measured of a run that ended: the `samples` it did in `seconds` of progress.

    Those of a profiling run count here, though they are no progress of its job.
    """

    job: Job
    purpose: Purpose
    configuration: Configuration
    samples: float
    seconds: float


class Estimates(Protocol):
    """What the policy is told about speeds, and how it learns from what ran."""

    def speeds(self, now: float) -> Speeds:
        """Return the estimates that exist at `now`."""
        ...

    def observe(self, measured: Measured) -> None:
        """Take note of a run that has just ended."""
        ...


@dataclass(frozen=True, slots=True)
class KnownSpeeds:
    """Estimates that are given once and never change: the truth, say."""

    given: Speeds

    def speeds(self, now: float) -> Speeds:
        """Return the given speeds, whatever the time."""
        del now
        return self.given

    def observe(self, measured: Measured) -> None:
        """Learn nothing."""
        del measured
