"""What Hops writes down for its next plan: JSON values only, and nothing that it needs."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

VERSION = 2


@dataclass(frozen=True, slots=True)
class Notes:
    """Notes from one plan to the next.

    Attributes:
        prices: class of node -> price of a GPU in the last round's plan.
        expected_run_s: job id -> expected run time as it was when the job's profiling ended.
        profiled: profiles with the GPU types on which runs were begun in this round.
        since_s: since when active jobs have been counted, seconds UTC; None for not yet.
        at_s: until when.
        job_s: seconds that they were active in that time, all jobs together.
        active: how many there are since.
    """

    prices: Mapping[str, float] = field(default_factory=dict)
    expected_run_s: Mapping[str, float] = field(default_factory=dict)
    profiled: tuple[tuple[str, str], ...] = ()
    since_s: float | None = None
    at_s: float = 0.0
    job_s: float = 0.0
    active: int = 0

    @classmethod
    def read(cls, memory: Mapping[str, object]) -> Notes:
        """Return what `write` wrote; empty notes where there is nothing that can be read."""
        if memory.get("version") != VERSION:
            return cls()
        kept: dict[str, Any] = {name: memory[name] for name in cls.__slots__}
        return cls(**kept | {"profiled": tuple((key, t) for key, t in kept["profiled"])})

    def write(self) -> dict[str, object]:
        """Return the notes as `Plan.memory`."""
        kept = {name: getattr(self, name) for name in self.__slots__}
        return {"version": VERSION} | kept | {"profiled": [list(each) for each in self.profiled]}

    def counted(self, now: float, active: int) -> Notes:
        """Return the notes at `now`, when so many jobs are active."""
        job_s = self.job_s + self.active * max(0.0, now - self.at_s)
        since_s = self.since_s
        if since_s is None:
            since_s, job_s = now, 0.0
        return replace(self, since_s=since_s, at_s=now, job_s=job_s, active=active)

    def with_run_times(
        self, run_s: Mapping[str, float], settled: Iterable[str], active: Container[str]
    ) -> Notes:
        """Return the notes with the run times of `settled` jobs, and of none that is not active."""
        noted = {job: time for job, time in self.expected_run_s.items() if job in active}
        noted |= {job: run_s[job] for job in settled if job in run_s}
        return replace(self, expected_run_s=noted)

    @property
    def mean_active(self) -> float:
        """The time-average number of active jobs, at least 1."""
        if self.since_s is None or self.at_s <= self.since_s:
            return max(1.0, float(self.active))
        return max(1.0, self.job_s / (self.at_s - self.since_s))
