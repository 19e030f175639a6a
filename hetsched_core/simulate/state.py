"""A job inside the simulation: the runs it holds, and quantities that grow with time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from hetsched_core.types import (
    Cluster,
    Configuration,
    Job,
    JobView,
    Placement,
    Purpose,
    Reason,
    Run,
    SpeedPhase,
    Submission,
    TaskProgress,
)
from hetsched_core.types.making import maker

_CRUMB = 1e-9

_make_run, _make_view = maker(Run), maker(JobView)

RunId = tuple[Purpose, int]
"""Tells the runs of one job apart: purpose and copy."""


@dataclass(frozen=True, slots=True)
class ProfilingRun:
    """A profiling run as plans name it."""

    job: str
    copy: int
    configuration: Configuration

    @classmethod
    def of(cls, job: str, placement: Placement) -> ProfilingRun:
        """Return the run that a placement of the job asks for."""
        return cls(job, placement.copy, placement.configuration)


@dataclass(slots=True)
class Held:
    """One run: GPUs from `since_s`, progress at `speed` samples/s from `progress_from_s`.

    `samples` and `productive_s` are settled up to the job's `observed_s`. `estimated` is the speed
    that policies are shown until it has been seen how fast the run really is; its samples are
    shown as done at that speed.
    """

    number: int
    placement: Placement
    since_s: float
    progress_from_s: float
    speed: float
    gpus_by_type: tuple[tuple[str, int], ...]
    budget: float | None = None
    samples: float = 0.0
    productive_s: float = 0.0
    draining_until_s: float | None = None
    estimated: float | None = None
    paces: tuple[tuple[float, float, float], ...] = ()

    @property
    def configuration(self) -> Configuration:
        """Where the run is."""
        return self.placement.configuration

    @property
    def gpus(self) -> int:
        """How many GPUs it holds."""
        return self.placement.configuration.gpus

    @property
    def left(self) -> float:
        """Samples that the run may still do: 0 if it drains."""
        if self.draining_until_s is not None:
            return 0.0
        return math.inf if self.budget is None else max(0.0, self.budget - self.samples)

    @property
    def samples_seen(self) -> float:
        """The samples done as far as policies can tell."""
        if self.estimated is None:
            return self.samples
        done = self.estimated * self.productive_s
        return done if self.budget is None else min(done, self.budget)

    def advance(self, from_s: float, now: float) -> float:
        """Work from `from_s` to `now`; return the samples done."""
        seconds = now - max(from_s, self.progress_from_s)
        if seconds <= 0 or self.speed <= 0 or self.left <= 0:
            return 0.0
        seconds = min(seconds, self.left / self.speed)
        samples = min(self.speed * seconds, self.left)
        self.samples += samples
        self.productive_s += seconds
        return samples

    def change_speed(self, speed: float) -> None:
        """Go on at another speed."""
        if speed != self.speed:
            before = self.paces or ((0.0, 0.0, self.speed),)
            self.paces = (*before, (self.productive_s, self.samples, speed))
            self.speed = speed

    def undo_since_checkpoint(self, checkpoint_s: float) -> float:
        """Lose the work since the last periodic checkpoint; return the samples lost."""
        lost_s = self.productive_s % checkpoint_s if self.productive_s else 0.0
        lost = min(self.samples, self.speed * lost_s)
        kept_s = self.productive_s - lost_s
        for begun_s, samples, speed in reversed(self.paces):
            if begun_s <= kept_s:
                lost = max(0.0, self.samples - samples - speed * (kept_s - begun_s))
                break
        self.productive_s -= lost_s
        self.samples -= lost
        return lost

    def seen(self) -> Run:
        """Return the run as policies see it."""
        return _make_run(
            number=self.number,
            configuration=self.placement.configuration,
            since_s=self.since_s,
            progress_from_s=self.progress_from_s,
            speed=self.speed if self.estimated is None else self.estimated,
            copy=self.placement.copy,
            purpose=self.placement.purpose,
            samples=self.samples_seen,
            budget=self.budget,
            draining_until_s=self.draining_until_s,
        )


@dataclass(slots=True)
class Active:
    """A job between its arrival and its end. Everything is settled up to `observed_s`."""

    submission: Submission
    job: Job
    arrived_s: float
    observed_s: float
    restart_cost_s: float
    runs: dict[RunId, Held] = field(default_factory=dict)
    samples: float = 0.0
    wait_s: float = 0.0
    attained: dict[str, float] = field(default_factory=dict)
    first_start_s: float | None = None
    last_start_s: float | None = None
    restarts: int = 0
    preemptions: int = 0
    run_numbers: int = 0
    generation: int = 0
    progress: TaskProgress | None = None
    blocked: Reason | None = None
    closed_until_s: float = math.inf

    @property
    def left(self) -> float:
        """Samples still to do."""
        return max(0.0, self.submission.samples - self.samples)

    def settle(self, now: float) -> None:
        """Bring every growing quantity up to `now`."""
        seconds = now - self.observed_s
        if seconds <= 0:
            return
        if not self.runs:
            self.wait_s += seconds
        for held in self.runs.values():
            for gpu_type, gpus in held.gpus_by_type:
                self.attained[gpu_type] = self.attained.get(gpu_type, 0.0) + gpus * seconds
            done = held.advance(self.observed_s, now)
            if held.placement.purpose is Purpose.RUN:
                self.samples += done
        self.observed_s = now

    def seen(self) -> JobView:
        """Return the job as policies see it."""
        unseen = 0.0
        for (purpose, _), held in self.runs.items():
            if purpose is Purpose.RUN and held.estimated is not None:
                unseen += held.samples - held.samples_seen
        return _make_view(
            job=self.job,
            observed_s=self.observed_s,
            runs=tuple([held.seen() for held in self.runs.values()]),
            samples_done=max(0.0, self.samples - unseen),
            wait_s=self.wait_s,
            attained_gpu_s=tuple(self.attained.items()),
            first_start_s=self.first_start_s,
            restarts=self.restarts,
            restart_cost_s=self.restart_cost_s,
            blocked=self.blocked,
            progress=self.progress,
        )

    def used_up(self) -> list[tuple[RunId, Held]]:
        """Return the runs that have done their budget, rounding its crumbs away.

        How fast they were is no secret any more.
        """
        used_up = []
        # Time has steps: what a run does within the smallest one can never be waited for.
        step_s = math.ulp(self.observed_s)
        for run_id, held in self.runs.items():
            if held.budget is None or held.draining_until_s is not None:
                continue
            if held.left <= max(_CRUMB * max(1.0, held.budget), held.speed * step_s):
                held.samples = held.budget
                held.estimated = None
                used_up.append((run_id, held))
        return used_up

    @property
    def phase(self) -> SpeedPhase:
        """What its speed is multiplied with now, and up to which share of its samples."""
        phases = self.submission.phases
        # Time has steps, and what is done within one can never be waited for.
        rate = sum(held.speed for held in self.runs.values())
        crumbs = _CRUMB * self.submission.samples + 2.0 * rate * math.ulp(self.observed_s)
        done = (self.samples + crumbs) / self.submission.samples
        return next((each for each in phases if done < each.until), phases[-1])

    def done_at(self) -> float:
        """When its running copies will have done all samples, if nothing changes before."""
        return finish_time(self.left, self._working())

    def end_of(self, phase: SpeedPhase) -> float:
        """When its present phase is over, if nothing changes before; never for the last."""
        if phase.until >= 1.0:
            return math.inf
        return finish_time(phase.until * self.submission.samples - self.samples, self._working())

    def _working(self) -> list[tuple[float, float]]:
        """From when each of its running copies makes progress, and how fast."""
        return [
            (max(self.observed_s, held.progress_from_s), held.speed)
            for (purpose, _), held in self.runs.items()
            if purpose is Purpose.RUN and held.left > 0
        ]

    def next_budget_at(self) -> float:
        """When the first run will have used up its budget, if nothing changes before."""
        soonest_s = math.inf
        for held in self.runs.values():
            if held.budget is not None and held.left > 0 and held.speed > 0:
                begun_s = max(self.observed_s, held.progress_from_s)
                soonest_s = min(soonest_s, begun_s + held.left / held.speed)
        return soonest_s


def finish_time(work: float, workers: Iterable[tuple[float, float]]) -> float:
    """Return when workers, given as (start time, speed), have done `work` together."""
    rate, at_s = 0.0, -math.inf
    for start_s, speed in sorted(workers):
        if rate > 0:
            if at_s + work / rate <= start_s:
                break
            work -= rate * (start_s - at_s)
        rate, at_s = rate + speed, start_s
    return at_s + work / rate if rate > 0 else math.inf


def gpus_by_type(cluster: Cluster, configuration: Configuration) -> tuple[tuple[str, int], ...]:
    """Return (GPU type, GPUs) pairs of a configuration, in its node order."""
    totals: dict[str, int] = {}
    for name, gpus in configuration.pieces:
        gpu_type = cluster[name].gpu_type
        totals[gpu_type] = totals.get(gpu_type, 0) + gpus
    return tuple(totals.items())
