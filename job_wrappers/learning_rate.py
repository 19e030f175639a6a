"""The learning rate that goes with a number of GPUs (Hops, section 2.2).

The batch on each GPU stays as it is, so that the global batch grows with the GPUs; the rate follows
by a rule that the user names, `linear` or `sqrt`, or stays (`none`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

SCALINGS = ("linear", "sqrt", "none")

RATE = "HETSCHED_LR_GIVEN"
SCALING = "HETSCHED_LR_SCALING"
GPUS = "HETSCHED_LR_GPUS"
"""By these job_submit.lua tells a job of its `--learning-rate`: rate, rule, for how many GPUs."""


@dataclass(frozen=True)
class LearningRateRule:
    """A learning rate for one number of GPUs, and how it carries over to others.

    Attributes:
        rate: at `gpus`; None where the user gave none.
        gpus: for which the rate was given.
        scaling: `linear`, `sqrt` or `none`.
    """

    rate: float | None = None
    gpus: int = 1
    scaling: str = "none"

    def __post_init__(self) -> None:
        """Refuse what is no rule."""
        if self.scaling not in SCALINGS:
            raise ValueError(f"scaling {self.scaling!r}: expected one of {', '.join(SCALINGS)}")
        if self.gpus < 1 or (self.rate is not None and not 0 < self.rate < math.inf):
            raise ValueError(f"a rate of {self.rate} for {self.gpus} GPUs: expected more than 0")

    def factor(self, gpus: int, before: int) -> float:
        """Return by what the rate for `before` GPUs is multiplied for `gpus` GPUs."""
        if self.scaling == "none":
            return 1.0
        return gpus / before if self.scaling == "linear" else math.sqrt(gpus / before)

    def at(self, gpus: int) -> float | None:
        """Return the rate for a number of GPUs; None where the user gave none."""
        return None if self.rate is None else self.rate * self.factor(gpus, self.gpus)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> LearningRateRule:
        """Read what job_submit.lua has told the job.

        Raises:
            ValueError: it makes no sense.
        """
        rate, gpus = environment.get(RATE, ""), environment.get(GPUS, "1")
        try:
            given = float(rate) if rate else None
            return cls(given, int(gpus), environment.get(SCALING) or "none")
        except ValueError as error:
            told = f"{RATE}={rate} {GPUS}={gpus} {SCALING}={environment.get(SCALING, '')}"
            raise ValueError(f"{told}: {error}") from None
