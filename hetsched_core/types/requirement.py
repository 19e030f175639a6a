"""What a user asks for: the GPU counts a job accepts, and the learning rate at each."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from hetsched_core.errors import InputError

DEFAULT_MAX_REQUIREMENTS = 8
"""How many counts one range may stand for, unless the operator says otherwise (Hops R_num)."""

MAX_SET_SIZE = 16
"""How many counts a merged requirement set may hold."""

MAX_GPU_COUNT = 1_000_000

_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


@dataclass(frozen=True, slots=True)
class RequirementSet:
    """The GPU counts that a job accepts, ascending and distinct (Hops section 2.2).

    One element makes the job rigid.
    """

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse a set that no job could mean."""
        if not self.counts:
            raise InputError("a requirement set is empty; give GPU counts, for example 1,2,4")
        if len(self.counts) > MAX_SET_SIZE:
            raise InputError(
                f"a requirement set of {len(self.counts)} counts is too large; "
                f"at most {MAX_SET_SIZE} are allowed: use fewer counts or a coarser range"
            )
        if any(a >= b for a, b in zip(self.counts, self.counts[1:], strict=False)):
            raise InputError(f"the counts {self.counts} are not ascending and distinct")
        if self.counts[0] < 1 or self.counts[-1] > MAX_GPU_COUNT:
            raise InputError(f"the counts {self.counts} are not all within 1 to {MAX_GPU_COUNT}")

    @classmethod
    def rigid(cls, count: int) -> RequirementSet:
        """Return the set of a job that accepts `count` GPUs and nothing else."""
        return cls((count,))

    @classmethod
    def parse(cls, text: str, max_requirements: int = DEFAULT_MAX_REQUIREMENTS) -> RequirementSet:
        """Read `4`, `1,2,4`, `2-16` or a mix such as `1,2,4-8`.

        A range stands for `max_requirements` evenly spaced counts with both bounds included,
        rounded half up, duplicates merged (Hops section 2.2; worked example W1).

        Raises:
            InputError: the text is not such a list, or the set is too large.
        """
        counts: set[int] = set()
        for part in text.split(","):
            match = _PART.fullmatch(part.strip())
            if match is None:
                raise InputError(
                    f"{part.strip()!r} in requirement set {text!r} is neither a GPU count nor a "
                    "range; write for example 4, 1,2,4 or 2-16"
                )
            low = int(match[1])
            high = int(match[2]) if match[2] else low
            if low > high:
                raise InputError(
                    f"the range {part.strip()!r} runs backwards; write {high}-{low} instead"
                )
            counts.update(_evenly_spaced(low, high, max_requirements))
        return cls(tuple(sorted(counts)))

    @property
    def smallest(self) -> int:
        """The least count, R_1 in Hops."""
        return self.counts[0]

    @property
    def largest(self) -> int:
        """The greatest count, R_n in Hops."""
        return self.counts[-1]

    @property
    def mean(self) -> float:
        """The mean of the counts, as in Hops formula (9)."""
        return sum(self.counts) / len(self.counts)

    @property
    def lower_median(self) -> int:
        """The count that a policy for rigid jobs takes."""
        return self.counts[(len(self.counts) - 1) // 2]

    def default_count(self, asked: int | None = None) -> int:
        """Return the count of its own shape: the one `asked` for if accepted, or the least."""
        return asked if asked is not None and asked in self else self.smallest

    def __contains__(self, count: object) -> bool:
        """Whether the job accepts this GPU count."""
        if not isinstance(count, int):
            return False
        at = bisect_left(self.counts, count)
        return at < len(self.counts) and self.counts[at] == count

    def __iter__(self) -> Iterator[int]:
        """Yield the counts in ascending order."""
        return iter(self.counts)

    def __len__(self) -> int:
        """Return the number of counts."""
        return len(self.counts)

    def __str__(self) -> str:
        """Return the form that `parse` reads."""
        return ",".join(map(str, self.counts))


def _evenly_spaced(low: int, high: int, most: int) -> set[int]:
    if most < 2 or low == high:
        return {low, high}
    # floor(x + 1/2) in integers: exact for every range, where floats would round some halves down.
    return {low + (2 * k * (high - low) + (most - 1)) // (2 * (most - 1)) for k in range(most)}


class LearningRateScaling(StrEnum):
    """How a learning rate given for one GPU count carries over to another."""

    LINEAR = "linear"
    SQRT = "sqrt"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class LearningRate:
    """The learning rate for each GPU count (Hops section 2.2).

    `given` holds (GPU count, rate) pairs. With one pair, `scaling` extends it to other counts; with
    several, each count has its own rate and nothing is extended.
    """

    given: tuple[tuple[int, float], ...]
    scaling: LearningRateScaling = LearningRateScaling.NONE

    def __post_init__(self) -> None:
        """Refuse rates that are not positive numbers, and scaling beside several rates."""
        if not self.given or any(k < 1 or not 0 < rate < math.inf for k, rate in self.given):
            raise InputError(
                f"the learning rates {self.given} are not pairs of a GPU count and a positive rate"
            )
        if len(self.given) > 1 and self.scaling is not LearningRateScaling.NONE:
            raise InputError(
                f"scaling {self.scaling.value!r} needs one learning rate, but {len(self.given)} "
                "are given; leave the scaling out or give one rate"
            )

    def at(self, count: int) -> float:
        """Return the learning rate for `count` GPUs.

        Raises:
            InputError: several rates are given and none of them is for `count`.
        """
        if len(self.given) > 1:
            for given_count, rate in self.given:
                if given_count == count:
                    return rate
            raise InputError(
                f"no learning rate is given for {count} GPUs; given are "
                + ", ".join(str(k) for k, _ in self.given)
            )
        ((base, rate),) = self.given
        match self.scaling:
            case LearningRateScaling.LINEAR:
                return rate * count / base
            case LearningRateScaling.SQRT:
                return rate * math.sqrt(count / base)
            case LearningRateScaling.NONE:
                return rate
