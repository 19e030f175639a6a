"""HadarE's job tracker: what the copies of every job were seen to do.

It lives in the plan's memory and may be lost: then speeds start again from their first estimates.
Source: HadarE, section V-A and formula (10).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hetsched_core.policies.hadar.copies import known_profile
from hetsched_core.throughput.first_estimate import GpuFacts, ProfileFacts, first_estimate
from hetsched_core.types import JobView, Node, Purpose

_VERSION = 1


@dataclass(frozen=True, slots=True)
class TrackerNotes:
    """The tracker's notes.

    Attributes:
        measured: profile -> node -> samples/s that a copy was last seen to make there.
        assigned: job -> copy -> steps of the present round, which weigh its parameters.
    """

    measured: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    assigned: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def read(cls, memory: Mapping[str, Any]) -> TrackerNotes:
        """Return the notes of a plan's memory, empty ones if they are lost."""
        if memory.get("version") != _VERSION:
            return cls()
        return cls(memory["measured"], memory["assigned"])

    def as_memory(self) -> dict[str, object]:
        """Return the notes as JSON values."""
        return {
            "version": _VERSION,
            "measured": {profile: dict(rates) for profile, rates in self.measured.items()},
            "assigned": {job: dict(steps) for job, steps in self.assigned.items()},
        }

    def seen(self, views: Iterable[JobView]) -> TrackerNotes:
        """Return the notes with what the copies of these active jobs achieve."""
        measured = {profile: dict(rates) for profile, rates in self.measured.items()}
        for view in views:
            for run in view.runs:
                if run.purpose is Purpose.RUN and run.speed > 0:
                    node = run.configuration.pieces[0][0]
                    measured.setdefault(view.job.profile, {})[node] = run.speed
        return TrackerNotes(measured, self.assigned)

    def rates(self, profile: str, nodes: Iterable[Node]) -> dict[str, float]:
        """Return samples/s of a copy on each node: measured there, else estimated.

        The estimate is formula (10) for all GPUs of the node. It has no unit of its own, so as soon
        as anything is measured it is scaled to agree with that on average.
        """
        mine = self.measured.get(profile, {})
        facts = _facts(profile)
        guesses = {
            n.name: n.gpus * first_estimate(GpuFacts.published(n.gpu_type), facts) for n in nodes
        }
        known = [mine[name] / guess for name, guess in guesses.items() if name in mine]
        scale = sum(known) / len(known) if known else 1.0
        return {name: mine.get(name, scale * guess) for name, guess in guesses.items()}


def _facts(profile: str) -> ProfileFacts:
    known = known_profile(profile)
    return ProfileFacts() if known is None else ProfileFacts(batch_size=float(known.batch_size))
