"""What can happen in the simulation: facts of the world, failures, and the planning's own times."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched_core.records.runlog import RunEnd
from hetsched_core.simulate.state import RunId
from hetsched_core.types import Plan, Submission
from hetsched_core.types.making import cheaply_made


@cheaply_made
@dataclass(frozen=True, slots=True)
class Arrives:
    """A job is submitted and eligible."""

    submission: Submission


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A user withdraws a job."""

    job: str


@cheaply_made
@dataclass(frozen=True, slots=True)
class WorkDue:
    """A job has done all samples (`done`) or a run its budget; void once its runs have changed."""

    job: str
    generation: int
    done: bool


@dataclass(frozen=True, slots=True)
class SpeedSeen:
    """A run has made progress for long enough to tell its speed."""

    job: str
    run: RunId
    number: int


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A profiling run has reached the time at which it is given up."""

    job: str
    run: RunId
    number: int


@dataclass(frozen=True, slots=True)
class Drained:
    """A stopped run has saved its state and frees its GPUs."""

    job: str
    run: RunId
    number: int
    ended: RunEnd


@dataclass(frozen=True, slots=True)
class RoundStarts:
    """The next round of the grid begins."""


@dataclass(frozen=True, slots=True)
class TimerRings:
    """The time has come at which a plan wanted to be made again; void unless that in force does."""

    wanted_s: float


@dataclass(frozen=True, slots=True)
class PlanTakesEffect:
    """A plan that was made earlier comes into force; void while it waits, or once replaced."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class WindowMoves:
    """What windows close to some job may change."""


@dataclass(frozen=True, slots=True)
class TasksDue:
    """A training task or round ends."""


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node goes down: its runs lose the work since their last periodic checkpoint."""

    at_s: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """A node takes no new work; what runs there may stay."""

    at_s: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeBack:
    """A node takes work again."""

    at_s: float
    node: str


@dataclass(frozen=True, slots=True)
class JobCrashed:
    """A job's processes die; it may be started again from its last periodic checkpoint."""

    at_s: float
    job: str


Incident = NodeLost | NodeDrained | NodeBack | JobCrashed
"""What a simulation can be told to suffer."""

Event = (
    Arrives
    | Cancelled
    | WorkDue
    | SpeedSeen
    | GivenUp
    | Drained
    | RoundStarts
    | TimerRings
    | PlanTakesEffect
    | TasksDue
    | WindowMoves
    | Incident
)
