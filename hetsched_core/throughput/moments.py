"""Count, mean and spread of what was measured, so that two measurements merge exactly.

Source: Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
Variances", 1979, formulas (2.1a) and (2.1b); with one new value this is Welford's method.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from hetsched_core.errors import InputError

MAX_COUNT = 10**12
"""More values than this are not measured in a lifetime."""

MAX_M2 = 1e60
"""Far beyond what `MAX_COUNT` values can have; sums of it stay finite."""


@dataclass(frozen=True, slots=True)
class Moments:
    """`count` values, their mean, and the sum of their squared distances from it (`m2`)."""

    count: int
    mean: float
    m2: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what no values can have."""
        if not 1 <= self.count <= MAX_COUNT:
            raise InputError(f"a count of {self.count!r:.40}; expected 1 to {MAX_COUNT}")
        if not math.isfinite(self.mean):
            raise InputError(f"a mean of {self.mean!r:.40}; expected a finite number")
        if not 0.0 <= self.m2 <= MAX_M2:
            raise InputError(f"a sum of squares of {self.m2!r:.40}; expected 0 to {MAX_M2:g}")

    @classmethod
    def of(cls, values: Iterable[float]) -> Moments:
        """Return the moments of some values.

        Raises:
            InputError: there is no value, or one that is not finite.
        """
        seen = list(values)
        if not seen:
            raise InputError("no value to take a mean of; expected at least 1")
        mean = math.fsum(seen) / len(seen)
        return cls(len(seen), mean, math.fsum((value - mean) ** 2 for value in seen))

    @property
    def variance(self) -> float:
        """The sample variance (divisor count - 1); 0 for a single value."""
        return self.m2 / (self.count - 1) if self.count > 1 else 0.0

    @property
    def sd(self) -> float:
        """The sample standard deviation; 0 for a single value."""
        return math.sqrt(self.variance)

    def merged(self, other: Moments) -> Moments:
        """Return the moments of the values of both."""
        count = self.count + other.count
        apart = other.mean - self.mean
        return Moments(
            count,
            self.mean + apart * other.count / count,
            self.m2 + other.m2 + apart * apart * self.count * other.count / count,
        )
