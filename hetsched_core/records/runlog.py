"""What happened in a run of the scheduler, simulated or live: the input of every measure."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hetsched_core.types import (
    Cluster,
    Configuration,
    EndState,
    Job,
    NodeCondition,
    Purpose,
    Trigger,
)
from hetsched_core.types.making import cheaply_made


class RunEnd(StrEnum):
    """Why a run gave its GPUs back."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    MOVED = "moved"
    NODE_LOST = "node lost"
    CRASHED = "crashed"
    BUDGET = "budget"
    PROFILED = "profiled"
    UNFINISHED = "unfinished"


@cheaply_made
@dataclass(frozen=True, slots=True)
class RunRecord:
    """GPUs held from `since_s` to `freed_s`.

    `productive_s` is the part of that time whose progress was kept; the rest is restart cost, drain
    and lost work. `samples` is the work kept. Times are seconds UTC. For the `tasks` model a record
    stands for one task on one GPU and `productive_s` is the time spent training; one that is
    repeated `times` times, every `every_s` seconds, stands for as many tasks, and all else in it is
    of the first of them.
    """

    job: str
    number: int
    copy: int
    purpose: Purpose
    configuration: Configuration
    since_s: float
    freed_s: float
    productive_s: float
    samples: float
    ended_by: RunEnd
    times: int = 1
    every_s: float = 0.0


def each(runs: Iterable[RunRecord]) -> Iterator[RunRecord]:
    """Yield a record for every repetition of every run."""
    for run in runs:
        if run.times == 1:
            yield run
        else:
            for at in range(run.times):
                yield replace(
                    run,
                    number=run.number + at,
                    since_s=run.since_s + at * run.every_s,
                    freed_s=run.freed_s + at * run.every_s,
                    times=1,
                    every_s=0.0,
                )


@cheaply_made
@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job when it left the system (or when the run log was closed).

    `expected_run_s` is its run time without waiting at true speeds (Hops formula 9); None where no
    speed is known. `end_s` is None for a job that never ended. `job` shows all that was known
    in the end, whatever the policy saw.
    """

    job: Job
    end_s: float | None
    end_state: EndState
    samples: float
    wait_s: float
    first_start_s: float | None
    restarts: int
    preemptions: int
    expected_run_s: float | None


@cheaply_made
@dataclass(frozen=True, slots=True)
class PlanRecord:
    """One decision: when, why, how long it took (wall clock) and what it left waiting."""

    at_s: float
    triggers: frozenset[Trigger]
    plan_s: float
    placed: int
    waiting: int


@dataclass(slots=True)
class PlanRecords:
    """Plan records as columns: there are more of them than of jobs, and few are looked at alone."""

    _at_s: array[float] = field(default_factory=lambda: array("d"))
    _triggers: list[frozenset[Trigger]] = field(default_factory=list)
    _plan_s: array[float] = field(default_factory=lambda: array("d"))
    _placed: array[int] = field(default_factory=lambda: array("q"))
    _waiting: array[int] = field(default_factory=lambda: array("q"))

    def add(
        self, at_s: float, triggers: frozenset[Trigger], plan_s: float, placed: int, waiting: int
    ) -> None:
        """Add the record of these fields, without making it."""
        self._at_s.append(at_s)
        self._triggers.append(_same(triggers))
        self._plan_s.append(plan_s)
        self._placed.append(placed)
        self._waiting.append(waiting)

    @property
    def plan_s(self) -> NDArray[np.float64]:
        """How long each plan took, in seconds of the wall clock."""
        return np.array(self._plan_s)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._at_s)

    def __iter__(self) -> Iterator[PlanRecord]:
        """Yield the records in order."""
        columns = (self._at_s, self._triggers, self._plan_s, self._placed, self._waiting)
        return map(PlanRecord, *columns)


@lru_cache
def _same(triggers: frozenset[Trigger]) -> frozenset[Trigger]:
    """Return one object for all sets that are equal: there are few, and millions of plans."""
    return triggers


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node changed its condition."""

    at_s: float
    node: str
    condition: NodeCondition


@dataclass(frozen=True, slots=True)
class RunLogHeader:
    """Under what assumptions a run log came about.

    `origin_s` is where the round grid starts; a plan takes effect `decision_s` after it was asked
    for, so that the state of a round is looked at that much after its start.
    """

    policy: str
    parameters: Mapping[str, object]
    cluster: Cluster
    origin_s: float
    round_s: float
    restart_cost_s: float
    grace_s: float
    checkpoint_s: float
    decision_s: float
    seed: int
    assumptions: tuple[str, ...] = ()


@dataclass(slots=True)
class RunLog:
    """Everything that happened, in the order in which it was closed. Filled by one writer."""

    header: RunLogHeader
    jobs: list[JobRecord] = field(default_factory=list)
    runs: list[RunRecord] = field(default_factory=list)
    plans: PlanRecords = field(default_factory=PlanRecords)
    nodes: list[NodeRecord] = field(default_factory=list)
    closed_s: float = 0.0
    rounds: int = 0
    wall_s: float = 0.0
