"""GPU seconds used by accounts and users, those of the past decayed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from immutables import Map

from hetsched_core.types import Configuration, Job
from hetsched_core.types.site import Association, association_of


@dataclass(frozen=True, slots=True)
class Usage:
    """GPU seconds used by each association, those of the past decayed.

    Attributes:
        at_s: when these amounts hold (UTC).
        gpu_s: decayed GPU seconds of everybody who was ever seen.
        gpus: GPUs held from then on.
    """

    at_s: float = -math.inf
    gpu_s: Mapping[Association, float] = field(default_factory=dict)
    gpus: Mapping[Association, int] = field(default_factory=dict)

    def carried_on(self, now: float, half_life_s: float) -> Usage:
        """Return the usage at `now`: what was held counts, and everything halves in a half-life.

        With GPUs held at a constant rate, u' = gpus - u ln 2 / half-life.
        """
        seconds = now - self.at_s
        if seconds <= 0:
            return self
        kept = 0.5 ** (seconds / half_life_s)
        counted_s = (1.0 - kept) * half_life_s / math.log(2.0)
        gpu_s = {
            who: kept * used + counted_s * self.gpus.get(who, 0) for who, used in self.gpu_s.items()
        }
        return Usage(now, gpu_s, self.gpus)

    def knowing(self, jobs: Iterable[Job]) -> Usage:
        """Return the usage with all these jobs' associations; who is new has used nothing."""
        return Usage(
            self.at_s, {**{association_of(job): 0.0 for job in jobs}, **self.gpu_s}, self.gpus
        )

    def holding(self, placed: Iterable[tuple[Job, Configuration]]) -> Usage:
        """Return the usage with these GPUs, and no others, held from `at_s` on."""
        gpus: Counter[Association] = Counter()
        for job, configuration in placed:
            gpus[association_of(job)] += configuration.gpus
        return Usage(self.at_s, self.gpu_s, gpus)


@dataclass(frozen=True, slots=True)
class Ledger:
    """What users have used, looked at now and then.

    Attributes:
        at_s: when it was looked at last (UTC).
        served: GPU seconds of each user until then, of all time.
        used: the same, those of the past decayed.
    """

    at_s: float = -math.inf
    served: Mapping[Association, float] = field(default_factory=dict)
    used: Map[Association, float] = field(default_factory=Map)

    def at(self, now: float, served: Mapping[Association, float], half_life_s: float) -> Ledger:
        """Return the ledger at `now`, when `served` GPU seconds have been had by each user.

        What came since the last look counts as if it had come in the middle of that time.
        """
        seconds = max(0.0, now - self.at_s)
        kept = 0.5 ** (seconds / half_life_s)
        used = {
            user: kept * self.used.get(user, 0.0)
            + math.sqrt(kept) * max(0.0, amount - self.served.get(user, 0.0))
            for user, amount in served.items()
        }
        return Ledger(now, dict(served), Map(used))
