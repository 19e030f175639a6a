"""What a simulation is told besides workload, cluster and policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hetsched_core.costs import Costs, ExecutorKind
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
from hetsched_core.types.site import SiteSettings
from hetsched_core.values.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSettings(Costs):
    """The costs and the grid of a simulation.

    Attributes:
        shapes: the shapes of configuration that can be realised.
        runs_per_job: how many runs one job may have at a time, profiling runs counted; None for
            any number.
        windows: spans in which nodes are closed to the jobs.
        site: shares and limits; None where there are none, and all jobs are of one tier.
    """

    seed: int = setting(0, "for policies that draw random numbers")
    shapes: frozenset[Shape] = ALL_SHAPES
    runs_per_job: int | None = None
    windows: tuple[Window, ...] = ()
    site: SiteSettings | None = None

    @property
    def lead_s(self) -> float:
        """How long before a window a run has to be told to leave, so that it has left in time.

        While one plan is awaited another may have to be, before the run begins to save its state.
        """
        return self.grace_s + 2.0 * self.decision_s

    def switch_s(self, profile: str) -> float:
        """Return the seconds that a switch to a task of this profile takes."""
        if isinstance(self.switch, ExecutorKind):
            return self.switch.switch_s(profile)
        return self.switch


MEASUREMENT_NOISE = 0.01
"""Relative deviation of a measured speed: ResNet on one GPU of Frontera varies by 1.1 % from run to
run, BERT by 0.2 %, BERT on Longhorn by 1.9 % (hal-uw/blox-pal)."""


@cheaply_made
@dataclass(frozen=True, slots=True)
class RunMeasurement:
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

    def observe(self, measured: RunMeasurement) -> None:
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

    def observe(self, measured: RunMeasurement) -> None:
        """Learn nothing."""
        del measured
