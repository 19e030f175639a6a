"""HLAS-P and HLAS-L: HLAS with a conservative guess at how long jobs go on.

Source: Hare's extension in TCC 2024, section V. The question is whether a job runs the rounds that
fill its present queue. If so it is taken for that long at once, and goes where long jobs go. With
`claim` the same is asked of the next queue, and so on, as Fig. 12(c) has it.
The guess is a fit of the loss curve; HLAS-P averages it with similar jobs of the past, and halves
it for a job of a search group that does badly among its siblings.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import ClassVar

import numpy as np

from hetsched_core.errors import InputError
from hetsched_core.policies.hare.hlas import Hlas
from hetsched_core.policies.hare.queues import Queues
from hetsched_core.policy import PolicyInfo, parameter
from hetsched_core.types import ExecutionModel, JobView, Snapshot

_NEEDS = "it plans training tasks, and the daemon whole jobs; `hetsched pool` runs it"


class Claim(StrEnum):
    """What is claimed of a job that is guessed to run for so long.

    PRESENT_QUEUE: that it outlasts its present queue, where the guess says so. EVERY_QUEUE: that it
    outlasts every queue that the guess says it outlasts.
    """

    PRESENT_QUEUE = "present-queue"
    EVERY_QUEUE = "every-queue"


@dataclass(frozen=True)
class _Predicting(Hlas, ABC):
    """HLAS whose sizes hold what a job is predicted to run."""

    convergence: float = parameter(0.05, "part of a loss's way down that is left when a job ends")
    claim: Claim = parameter(
        Claim.PRESENT_QUEUE,
        "a guess claims that a job outlasts its queue, or all that it may",
    )

    def __post_init__(self) -> None:
        """Refuse a part that is none, and what `Hlas` refuses."""
        super().__post_init__()
        if not 0 < self.convergence < 1:
            raise InputError(
                f"{self.info.name}.convergence={self.convergence} is not between 0 and 1"
            )

    @abstractmethod
    def rounds_left(self, snapshot: Snapshot, queues: Queues, view: JobView) -> float | None:
        """Return how many more rounds a job is guessed to run; None for no idea."""

    def size_s(self, snapshot: Snapshot, queues: Queues, view: JobView) -> float:
        """Return attained service, that of predicted rounds included."""
        rounds = max(queues.rounds[view.id], queues.predicted.get(view.id, 0))
        return rounds * self.round_s(snapshot, view)

    def before(self, queues: Queues, line: Sequence[str]) -> Iterator[str]:
        """Yield the predicted jobs, those with more of it left first; then the others in turn."""
        known = [job for job in line if job in queues.predicted]
        known.sort(key=lambda job: queues.rounds[job] - queues.predicted[job])
        yield from known
        yield from (job for job in line if job not in queues.predicted)

    def note_round(self, snapshot: Snapshot, queues: Queues, view: JobView) -> None:
        """Predict anew where there is no prediction, or it is used up."""
        queues.kin.setdefault(view.id, [view.job.name, view.job.user])
        if queues.rounds[view.id] < queues.predicted.get(view.id, 0):
            return
        queues.predicted.pop(view.id, None)
        outlasts = tuple(self._rounds_to_outlast(snapshot, queues, view))
        left = self.rounds_left(snapshot, queues, view) if outlasts else None
        for more in outlasts if self.claim is Claim.EVERY_QUEUE else outlasts[:1]:
            if left is not None and left >= more:
                queues.predicted[view.id] = queues.rounds[view.id] + more

    def _rounds_to_outlast(
        self, snapshot: Snapshot, queues: Queues, view: JobView
    ) -> Iterator[int]:
        """Yield how many more rounds take a job beyond its queue, the next one, and so on."""
        round_s = self.round_s(snapshot, view)
        size_s = queues.rounds[view.id] * round_s
        if round_s <= 0:
            return
        for level in range(self.thresholds.level(size_s), self.queues - 1):
            yield math.floor((self.thresholds.end_s(level) - size_s) / round_s + 1e-9) + 1


def by_loss(view: JobView, convergence: float) -> float | None:
    """Return the rounds that a job's loss curve says are left, not below 0."""
    if view.progress is None:
        return None
    total = rounds_to_converge(view.progress.loss, convergence)
    return None if total is None else max(0.0, total - view.progress.rounds_done)


def by_the_past(queues: Queues, view: JobView) -> float | None:
    """Return the mean rounds of past jobs of its name, else of its user, less those it has run."""
    for key in (f"name {view.job.name}" if view.job.name else "", f"user {view.job.user}"):
        if key in queues.past:
            jobs, rounds = queues.past[key]
            return max(0.0, rounds / jobs - queues.rounds[view.id])
    return None


def does_badly(snapshot: Snapshot, view: JobView) -> bool:
    """Whether a job's loss has dropped by less than half the median of its search group's."""
    group = view.job.tasks.search_group if view.job.tasks else ""
    if not group:
        return False
    drops = {
        other.id: other.progress.loss[0] - other.progress.loss[-1]
        for other in snapshot.jobs.values()
        if other.job.tasks is not None
        and other.job.tasks.search_group == group
        and other.progress is not None
        and len(other.progress.loss) > 1
    }
    mine = drops.pop(view.id, None)
    return mine is not None and bool(drops) and mine < median(drops.values()) / 2.0


@dataclass(frozen=True)
class HlasP(_Predicting):
    """HLAS with predictions from loss curves, similar jobs of the past, and search groups."""

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="hlas-p",
        summary="hlas with a cautious guess at which jobs are long",
        paper="Hare (TCC 2024, section V)",
        model=ExecutionModel.TASKS,
        replay_only=_NEEDS,
    )

    def rounds_left(self, snapshot: Snapshot, queues: Queues, view: JobView) -> float | None:
        """Return the mean of what the loss and the past say, halved for a job that does badly."""
        said = [by_loss(view, self.convergence), by_the_past(queues, view)]
        known = [rounds for rounds in said if rounds is not None]
        if not known:
            return None
        left = sum(known) / len(known)
        return left / 2.0 if does_badly(snapshot, view) else left


@dataclass(frozen=True)
class HlasL(_Predicting):
    """HLAS with predictions from loss curves alone, for comparison."""

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="hlas-l",
        summary="hlas with a guess from each job's loss curve alone",
        paper="Hare (TCC 2024, section VI)",
        model=ExecutionModel.TASKS,
        replay_only=_NEEDS,
    )

    def rounds_left(self, snapshot: Snapshot, queues: Queues, view: JobView) -> float | None:
        """Return what the loss curve says."""
        return by_loss(view, self.convergence)


# The loss curve -----------------------------------------------------------------------------------

LEAST_POINTS = 4
"""Losses without which a curve is a guess."""

_FLOORS = np.linspace(0.0, 0.99, 34)


def rounds_to_converge(loss: Sequence[float], convergence: float) -> float | None:
    """Return after how many rounds the loss has lost all but `convergence` of what it can lose.

    The curve is l(r) = c + 1 / (a r + b), as SGD converges: linear in r once the floor c is taken
    off. The floor is the one of a few between 0 and the last loss that fits best.

    Args:
        loss: the loss after each round, oldest first.
        convergence: the part of the way from the first loss to the floor that is left in the end.

    Returns:
        None where there are too few points, or the loss does not fall.
    """
    points = np.asarray(loss, np.float64)
    if len(points) < LEAST_POINTS or not np.isfinite(points).all() or points[-1] >= points[0]:
        return None
    rounds = np.arange(1, len(points) + 1, dtype=np.float64)
    best_error, best = np.inf, None
    for floor in _FLOORS * max(0.0, float(points.min())):
        inverse = 1.0 / np.maximum(points - floor, 1e-12)
        slope, start = np.polyfit(rounds, inverse, 1)
        if slope <= 0 or start <= 0:
            continue
        error = float(np.sum((floor + 1.0 / (slope * rounds + start) - points) ** 2))
        if error < best_error:
            # l(r) - c is the part `convergence` of l(0) - c where a r + b = b / convergence.
            best_error, best = error, start * (1.0 / convergence - 1.0) / slope
    return best
