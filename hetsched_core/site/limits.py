"""Limits over several jobs: which may start under them, and with how many GPUs at most."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from hetsched_core.site.turns import in_turn
from hetsched_core.types import (
    EMPTY_PLAN,
    Entry,
    JobView,
    Placed,
    Placement,
    Plan,
    Reason,
    ReasonCode,
    RequirementSet,
    Snapshot,
    Waiting,
)
from hetsched_core.types.site import Limit

_NAMED = 5
"""So many holders of a limit are named."""


def within_limits(snapshot: Snapshot, goes_on: Plan = EMPTY_PLAN) -> Snapshot:
    """Return the snapshot as it is shown to a policy: whatever it plans keeps the site's limits.

    What runs counts first, then jobs in the order of the site (`in_turn`), equals by submission. A
    job for which nothing is left under a limit of it is blocked, and keeps nothing from others. An
    elastic one accepts no more than what is left.

    Args:
        snapshot: the state to plan for.
        goes_on: a plan of gangs of which the places are kept: each counts as if it were held.
    """
    site = snapshot.site
    if site is None or not site.limits:
        return snapshot
    under = [view for view in snapshot.by_submission() if view.job.limits and view.blocked is None]
    left = LimitsLeft(site.limits)
    order = in_turn(snapshot, under, running_stay=True)
    held = {view.id: _holds(view, goes_on) for view in under}
    for view in order:
        if (has := held[view.id]) is not None:
            left.take(view, has)
    shown: dict[str, JobView] = {}
    able = []
    for view in order:
        least = view.job.requirements.counts[0]
        if held[view.id] is not None:
            able.append(view)
        elif (name := left.met(view, least)) is None:
            left.take(view, least)
            able.append(view)
        else:
            shown[view.id] = replace(view, blocked=left.reason(name))
    for view in able:
        counts = view.job.requirements.counts
        has = held[view.id]
        least = counts[0] if has is None else has
        most = least + left.gpus(view)
        if most < counts[-1]:
            fewer = RequirementSet(tuple(n for n in counts if n <= max(most, counts[0])))
            shown[view.id] = replace(view, job=replace(view.job, requirements=fewer))
            most = fewer.counts[-1]
        left.take(view, max(0, min(most, counts[-1]) - least), jobs=0)
    if not shown:
        return snapshot
    changed = snapshot.changed | shown.keys()
    return replace(snapshot, jobs=snapshot.jobs.update(shown), changed=changed)


def _holds(view: JobView, goes_on: Plan) -> int | None:
    """Return how many GPUs a job holds, or is to hold; None for none."""
    entry = goes_on.entries.get(view.id)
    places = entry.placements if isinstance(entry, Placed) else ()
    found = [place.configuration.gpus for place in places[:1]]
    if view.holds is not None:
        found.append(view.holds.gpus)
    return max(found, default=None)


def without_excess(snapshot: Snapshot, plan: Plan) -> Plan:
    """Return the plan of copies in which no limit is passed: what was added to it last goes.

    How many GPUs a copy takes is not known before it has a node.
    """
    site = snapshot.site
    if site is None or not site.limits:
        return plan
    left = LimitsLeft(site.limits)
    changes: dict[str, Entry] = {}
    for view in in_turn(snapshot, snapshot.by_submission(), running_stay=True):
        entry = plan.entries.get(view.id)
        if not isinstance(entry, Placed) or not entry.placements or not view.job.limits:
            continue
        kept: list[Placement] = []
        met = None
        for placement in entry.placements:
            gpus, jobs = placement.configuration.gpus, 0 if kept else 1
            if (name := left.met(view, gpus, jobs)) is None:
                left.take(view, gpus, jobs)
                kept.append(placement)
            met = met or name
        if met is not None:
            changes[view.id] = Placed(tuple(kept)) if kept else Waiting(left.reason(met))
    return plan.revise(changes, valid_from_s=plan.valid_from_s) if changes else plan


class LimitsLeft:
    """What is left under each limit."""

    def __init__(self, limits: Mapping[str, Limit]) -> None:
        """Begin with all that they allow."""
        self._limits = limits
        self._gpus = {n: math.inf if at.gpus is None else at.gpus for n, at in limits.items()}
        self._jobs = {n: math.inf if at.jobs is None else at.jobs for n, at in limits.items()}
        self._holders: dict[str, list[str]] = {name: [] for name in limits}

    def copy(self) -> LimitsLeft:
        """Return another of which as much is left."""
        other = LimitsLeft(self._limits)
        other._gpus, other._jobs = dict(self._gpus), dict(self._jobs)
        other._holders = {name: list(jobs) for name, jobs in self._holders.items()}
        return other

    def take(self, view: JobView, gpus: int, jobs: int = 1) -> None:
        """Count so many GPUs more of a job, which is new itself or (0) counted already."""
        for name in view.job.limits:
            if name in self._gpus:
                self._gpus[name] -= gpus
                self._jobs[name] -= jobs
                if jobs:
                    self._holders[name].append(view.id)

    def met(self, view: JobView, gpus: int, jobs: int = 1) -> str | None:
        """Return the limit under which a job may not have so many GPUs more, if any."""
        for name in view.job.limits:
            if name in self._gpus and (self._gpus[name] < gpus or self._jobs[name] < jobs):
                return name
        return None

    def reason(self, name: str) -> Reason:
        """Return why a job waits that has met a limit: its name, and who holds what it allows."""
        limit = self._limits[name]
        parts = ((limit.gpus, "GPUs"), (limit.jobs, "jobs"))
        what = " and ".join(f"{many} {noun}" for many, noun in parts if many is not None)
        holders = tuple(self._holders[name][:_NAMED])
        return Reason(ReasonCode.QUOTA, behind=holders, detail=f"{name}, of {what}")

    def gpus(self, view: JobView) -> int:
        """Return how many more GPUs a job may have: at least 0."""
        least = min((self._gpus[n] for n in view.job.limits if n in self._gpus), default=math.inf)
        return 1 << 30 if least == math.inf else max(0, int(least))
