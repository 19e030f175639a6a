"""Profiling runs, live: short placements of a job on one GPU type after another.

A live gang is one Slurm job, so it cannot be measured while it runs elsewhere. A profiling run is a
run like any other, which ends as soon as it has told enough; what it did counts for its job.
Source: Hops (SoCC '24), section 3.2, where all types are measured at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hetsched_core.policy import Action, Start, Stop
from hetsched_core.types import Plan, ProfilePlacement, Purpose
from slurm_plugin.backend import JobState
from slurm_plugin.daemon.jobs.managed import ManagedJob
from slurm_plugin.daemon.world import LiveWorld

SILENT_S = 60.0
"""A run that has begun no spool file by then is given up: it will hardly tell anything."""


def staying(world: LiveWorld, actions: Sequence[Action]) -> tuple[Action, ...]:
    """Return actions without those that would stop a profiling run to begin the job's own there.

    Such a run is its own from now on.
    """
    starts = {a.key.job: a.placement for a in actions if isinstance(a, Start)}
    stay = set()
    for action in actions:
        if not isinstance(action, Stop) or action.key.purpose is not Purpose.PROFILE:
            continue
        job = action.key.job
        known, placement = world.managed.get(job), starts.get(job)
        if (
            known is not None
            and known.run is not None
            and placement is not None
            and placement.purpose is Purpose.RUN
            and placement.configuration == known.run.configuration
        ):
            world.placed(job, placement)
            stay.add(job)
    return tuple(action for action in actions if action.key.job not in stay)


@dataclass(slots=True)
class ProfilingRuns:
    """Tells which profiling runs of a plan are over.

    `_begun` is the run number, and the samples that its job had done before, of each that runs.
    """

    _begun: dict[str, tuple[int, float]] = field(default_factory=dict)

    def going_on(
        self,
        world: LiveWorld,
        plan: Plan,
        now: float,
        silent: Callable[[str, int], bool] = lambda *_: False,
    ) -> tuple[ProfilePlacement, ...]:
        """Return the profiling runs of a plan that are not over.

        One is over when the speeds of its GPU type are measured, by whatever run; when it has done
        its iterations; when it has begun no spool file for long, as `silent` tells of a job and the
        number of its run; and when its time is up. After the latter three no more is to be had
        there, and what is known has to do.
        """
        self._begun = {job: begun for job, begun in self._begun.items() if job in world.managed}
        return tuple(p for p in plan.profiles if not self._over(world, p, now, silent))

    def _over(
        self,
        world: LiveWorld,
        profile: ProfilePlacement,
        now: float,
        silent: Callable[[str, int], bool],
    ) -> bool:
        known = world.managed.get(profile.job)
        if known is None or world.speeds is None or world.cluster is None:
            return True
        placement = profile.placement
        kinds = {world.cluster[name].gpu_type for name, _ in placement.configuration}
        table = world.speeds.table(known.job.profile)
        if all(table.profiled(kind) for kind in kinds):
            return True
        runs = self._runs(known, profile)
        late = placement.until_s is not None and placement.until_s <= now
        run = known.run
        vain = run is not None and now >= run.since_s + SILENT_S and silent(profile.job, run.number)
        if runs and (late or vain or self._has_done(known, placement.budget)):
            for kind in kinds:
                world.estimates.settle(known.job.profile, kind)
            return True
        return late

    def _runs(self, known: ManagedJob, profile: ProfilePlacement) -> bool:
        """Whether a profiling run has begun; the first time, note how far its job was."""
        run = known.run
        if (
            run is None
            or run.purpose is not Purpose.PROFILE
            or run.configuration != profile.placement.configuration
            or known.slurm.state is not JobState.RUNNING
        ):
            return False
        begun = self._begun.get(profile.job)
        if begun is None or begun[0] != run.number:
            told = known.progress
            self._begun[profile.job] = run.number, told.samples if told is not None else 0.0
        return True

    def _has_done(self, known: ManagedJob, budget: float | None) -> bool:
        number, before = self._begun[known.slurm.id]
        told = known.progress
        if told is None or told.run != number or budget is None:
            return False
        return told.samples - before >= budget
