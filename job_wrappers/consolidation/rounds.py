"""What a job's tracker does next: when a round begins, the steps of each copy, when it ends.

A pure function of what is in the folder and what time it is. Nothing is remembered, so that several
trackers, or one that was killed and started anew, come to the same.

Source: Sultana et al., "Resource Heterogeneity-Aware and Utilization-Enhanced Scheduling for Deep
Learning Clusters" (HadarE), sections V-A and V-B. The steps that are left are divided over the
copies in proportion to their throughputs, by largest remainder; none gets more than fit into a
round; a round whose copies have all reported ends early.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

from job_wrappers.consolidation.folder import ConsolidationRound


@dataclass(frozen=True)
class RoundRules:
    """What holds for all rounds of a job. Times are seconds.

    Attributes:
        steps: of the whole job.
        round_s: how long a round lasts at most; longer than a step on the slowest node.
        late_s: how long after its end reports are waited for.
        gather_s: how long after its first copy the first round waits for more.
    """

    steps: int
    round_s: float = 360.0
    late_s: float = 30.0
    gather_s: float = 10.0

    def __post_init__(self) -> None:
        """Refuse what no job can be.

        Raises:
            ValueError: says what.
        """
        if self.steps < 1 or not 0 < self.round_s < math.inf:
            raise ValueError(f"{self.steps} steps in rounds of {self.round_s:g} s: both above 0")
        if not (0 <= self.late_s < math.inf and 0 <= self.gather_s < math.inf):
            raise ValueError(
                f"late after {self.late_s:g} s, gather for {self.gather_s:g} s: from 0"
            )


@dataclass(frozen=True)
class Standing:
    """What a tracker sees.

    Attributes:
        now_s: seconds UTC.
        round: the newest round; None before the first.
        averaged: whether that round is consolidated.
        done: steps in the newest model; None while no copy has offered a start.
        present: copy -> when it joined, seconds UTC; a copy that has left is not here.
        arrived: copy -> steps reported on the newest round.
        rates: copy -> steps/s, of the copies that have ever reported.
    """

    now_s: float
    round: ConsolidationRound | None = None
    averaged: bool = False
    done: int | None = None
    present: Mapping[str, float] = field(default_factory=dict)
    arrived: Mapping[str, int] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Begin:
    """Begin a round: copy -> steps, 1 or more; and when it ends at the latest, seconds UTC."""

    steps: Mapping[str, int]
    ends_s: float


@dataclass(frozen=True)
class Consolidate:
    """Average what has come of the newest round."""


@dataclass(frozen=True)
class Finish:
    """Tell the copies that the job is over."""


@dataclass(frozen=True)
class Wait:
    """Nothing is to be done yet; `why` says what for."""

    why: str


@dataclass(frozen=True)
class Over:
    """The copies know that the job is over."""


Act = Union[Begin, Consolidate, Finish, Wait, Over]


def next_act(seen: Standing, rules: RoundRules) -> Act:
    """Return what to do now.

    A copy that has left is not waited for, and one that died or hangs until the round has been over
    for `late_s`. Neither gets a part in the next round unless it joins anew.
    """
    now = seen.round
    if now is not None and not now.shares:
        return Over()
    if now is not None and not seen.averaged:
        out = sorted(c for c in now.shares if c not in seen.arrived and c in seen.present)
        late = now.ends_s is not None and seen.now_s >= now.ends_s + rules.late_s
        return Wait("reports of " + ", ".join(out)) if out and not late else Consolidate()
    if seen.done is None:
        return Wait("a copy's start")
    if seen.done >= rules.steps:
        return Finish()
    if not seen.present:
        return Wait("copies")
    if now is None and seen.now_s < min(seen.present.values()) + rules.gather_s:
        return Wait("more copies")
    parts = divided(rules.steps - seen.done, sorted(seen.present), seen.rates, rules.round_s)
    return Begin(parts, seen.now_s + rules.round_s)


def divided(
    steps: int, copies: Sequence[str], rates: Mapping[str, float], round_s: float
) -> dict[str, int]:
    """Return copy -> steps, of those that get any: in proportion to their rates.

    By largest remainder, ties to the copy that comes first. A copy of which no rate is known counts
    like the mean of the others, and the end of the round bounds what it does; those that are known
    get no more than they do in a round, but one step at least.

    Args:
        steps: left in the job, 1 or more.
        copies: one or more.
        rates: steps/s, above 0.
        round_s: seconds.
    """
    known = [rates[copy] for copy in copies if copy in rates]
    usual = math.fsum(known) / len(known) if known else 1.0
    speeds = [rates.get(copy, usual) for copy in copies]
    total = math.fsum(speeds)
    quotas = [steps * speed / total for speed in speeds]
    parts = [math.floor(quota) for quota in quotas]
    order = sorted(range(len(copies)), key=lambda at: (round(parts[at] - quotas[at], 6), at))
    for at in order[: max(0, steps - sum(parts))]:
        parts[at] += 1
    for at, copy in enumerate(copies):
        if copy in rates:
            parts[at] = min(parts[at], max(1, math.floor(rates[copy] * round_s + 1e-9)))
    return {copy: part for copy, part in zip(copies, parts) if part > 0}
