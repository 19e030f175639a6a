"""The queues of HLAS: what waits for a group, in which order (Hare, TCC section IV)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hetsched_core.errors import InputError

if TYPE_CHECKING:
    from hetsched_core.policies.hare.hlas import Hlas
    from hetsched_core.policies.hare.hlas_slots import HlasSlots

MOST_QUEUES = 64
"""With more, the last threshold is beyond any job."""

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The sizes beyond which a job leaves each queue but the last, growing by a factor."""

    queues: int
    first_s: float
    factor: float

    def level(self, size_s: float) -> int:
        """Return the queue of a job of this size: demotion where it exceeds the threshold."""
        for level in range(self.queues - 1):
            if size_s <= self.end_s(level) * (1.0 + 1e-12):
                return level
        return self.queues - 1

    def end_s(self, level: int) -> float:
        """Return the size beyond which a job leaves a queue; infinite for the last."""
        if level >= self.queues - 1:
            return math.inf
        return self.first_s * self.factor**level


def check_parameters(policy: Hlas | HlasSlots) -> None:
    """Refuse queues and groups that cannot be, and times that are none.

    Raises:
        InputError: says which, and what they may be.
    """
    name, groups, queues = policy.info.name, policy.groups, policy.queues
    first_threshold_s, threshold_factor = policy.first_threshold_s, policy.threshold_factor
    if groups < 0 or not 1 <= queues <= MOST_QUEUES:
        raise InputError(
            f"{name}.groups={groups} and {name}.queues={queues}: groups count from "
            f"0, queues from 1 to {MOST_QUEUES}"
        )
    if not 0 < first_threshold_s < math.inf or not 1 <= threshold_factor < math.inf:
        raise InputError(
            f"{name}.first_threshold_s={first_threshold_s} and "
            f"{name}.threshold_factor={threshold_factor}: the first is above 0, the other "
            "1 or more"
        )
    ageing_s = policy.ageing_s
    if ageing_s is not None and not 0 <= ageing_s < math.inf:
        raise InputError(f"{name}.ageing_s={ageing_s} is neither none nor 0 or more")


@dataclass(slots=True)
class Queues:
    """What is queued where, and what is remembered of all jobs.

    Attributes:
        lines: the jobs of each queue, first to be served first.
        level: queued job -> its queue.
        rounds: job -> training rounds done when it was last looked at.
        since_s: queued job -> when it entered its queue (UTC).
        serving: jobs of which tasks run, or are to.
        predicted: job -> rounds that it is predicted to reach, where it has not yet.
        kin: job -> its name and user.
        past: "name" or "user" -> that -> (jobs, rounds) of those that have gone.
    """

    lines: list[list[str]]
    level: dict[str, int] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    since_s: dict[str, float] = field(default_factory=dict)
    serving: list[str] = field(default_factory=list)
    predicted: dict[str, int] = field(default_factory=dict)
    kin: dict[str, list[str]] = field(default_factory=dict)
    past: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def read(cls, memory: Mapping[str, Any], queues: int) -> Queues | None:
        """Return a copy of what a plan remembers; None if it is lost or of other queues."""
        if memory.get("version") != _VERSION or len(memory["lines"]) != queues:
            return None
        return cls(
            [list(line) for line in memory["lines"]],
            dict(memory["level"]),
            dict(memory["rounds"]),
            dict(memory["since_s"]),
            list(memory["serving"]),
            dict(memory["predicted"]),
            dict(memory["kin"]),
            dict(memory["past"]),
        )

    def as_memory(self) -> dict[str, object]:
        """Return all of it as JSON values."""
        return {
            "version": _VERSION,
            "lines": self.lines,
            "level": self.level,
            "rounds": self.rounds,
            "since_s": self.since_s,
            "serving": self.serving,
            "predicted": self.predicted,
            "kin": self.kin,
            "past": self.past,
        }

    def enter(self, job: str, level: int, now: float, *, first: bool = False) -> None:
        """Queue a job at the tail of a queue, or as its first."""
        self.leave(job)
        self.lines[level].insert(0 if first else len(self.lines[level]), job)
        self.level[job] = level
        self.since_s[job] = now

    def leave(self, job: str) -> None:
        """Take a job out of its queue, if it is in one."""
        level = self.level.pop(job, None)
        if level is not None:
            self.lines[level].remove(job)
            del self.since_s[job]

    def forget(self, job: str) -> None:
        """Take a job that has gone out of everything; its rounds count for others like it."""
        self.leave(job)
        self.predicted.pop(job, None)
        rounds = self.rounds.pop(job, None)
        kin = self.kin.pop(job, None)
        if rounds is not None and kin is not None:
            # It ends with a round of which it was never shown that it is done.
            for key in (f"name {kin[0]}" if kin[0] else "", f"user {kin[1]}"):
                if key:
                    jobs, total = self.past.get(key, (0, 0))
                    self.past[key] = [jobs + 1, total + rounds + 1]
