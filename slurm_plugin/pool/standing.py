"""How far a training of a pool is."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from slurm_plugin.pool.records import Training


@dataclass
class Standing:
    """A training that has not ended, and how far it is.

    Attributes:
        training: what was submitted.
        rounds: done, by the states that are there.
        gradients: tasks of the next round whose gradients are there.
        trained: its tasks that have trained, and where.
        complete_s: since when all gradients of the next round are there (UTC).
        stepless: whether nobody is left to make the step of it.
        gone_s: since when the states that were there are not (UTC).
        ended_s: when the last task of a round had trained (UTC).
    """

    training: Training
    rounds: int = 0
    gradients: frozenset[int] = frozenset()
    trained: dict[tuple[int, int], str] = field(default_factory=dict)
    ended_s: float = 0.0
    complete_s: float | None = None
    stepless: bool = False
    gone_s: float | None = None
    _told: dict[int, dict[int, float]] = field(default_factory=dict)
    # Rounds of which a loss was told, in order, and their means: there may be very many.
    _rounds: list[int] = field(default_factory=list)
    _means: list[float] = field(default_factory=list)
    _loss: tuple[float, ...] | None = None
    _loss_rounds: int = 0

    @property
    def over(self) -> bool:
        """Whether all of its rounds are done."""
        return self.rounds >= self.training.rounds

    def done(self, round_: int) -> set[int]:
        """Return which tasks of a round need not be begun any more, those that run not counted."""
        if round_ < self.rounds:
            return set(range(self.training.scale))
        found = {k for r, k in self.trained if r == round_}
        if round_ == self.rounds:
            found |= self.gradients
            if self.stepless:
                # Its step was lost with the process that was to do it: one task is passed over
                # again, which closes the round.
                found.discard(self.training.scale - 1)
        return found

    def tell(self, round_: int, number: int, loss: float) -> None:
        """Note the loss of a task."""
        told = self._told.setdefault(round_, {})
        told[number] = loss
        mean = sum(told.values()) / len(told)
        at = bisect_left(self._rounds, round_)
        if self._rounds[at : at + 1] == [round_]:
            self._means[at] = mean
        else:
            self._rounds.insert(at, round_)
            self._means.insert(at, mean)
        self._loss = None

    def loss(self) -> tuple[float, ...]:
        """Return the mean loss of each round that is done and of which any was told."""
        if self._loss is None or self._loss_rounds != self.rounds:
            self._loss = tuple(self._means[: bisect_left(self._rounds, self.rounds)])
            self._loss_rounds = self.rounds
        return self._loss
