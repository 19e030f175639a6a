"""What plans say of jobs: the reasons for which they wait, and what of a plan is another now."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from hetsched_core.placement.ways import ways_to_fit
from hetsched_core.types import (
    Diagnostics,
    Entry,
    JobView,
    Placed,
    Plan,
    ProfilePlacement,
    Reason,
    ReasonCode,
    Replan,
    Snapshot,
    Trigger,
    Waiting,
)

NEVER = Waiting(Reason(ReasonCode.NEVER_FITS))
NO_ROOM = Waiting(Reason(ReasonCode.NO_ROOM))
AHEAD = Waiting(Reason(ReasonCode.AHEAD))
MIXED_ONLY = Waiting(
    Reason(
        ReasonCode.NEVER_FITS,
        detail="only a mix of GPU types holds it, and this policy gives a job one type at a time",
    )
)

EACH_ROUND = Replan(on=frozenset({Trigger.ROUND, Trigger.ARRIVAL, Trigger.END, Trigger.NODE}))
"""Planned anew when a round starts; between rounds what is idle is given away at once."""


def plan_placing(
    snapshot: Snapshot,
    placed: Mapping[str, Placed],
    waits: Callable[[Snapshot, JobView], Waiting],
    replan: Replan,
    *,
    among: Iterable[JobView] | None = None,
    memory: Mapping[str, object] | None = None,
    diagnostics: Diagnostics | None = None,
    profiles: tuple[ProfilePlacement, ...] = (),
    valid_from_s: float = -math.inf,
) -> Plan:
    """Return the plan in which the placed jobs run and all others wait, with the reason for it.

    Args:
        snapshot: the state that was planned for.
        placed: the jobs that run.
        waits: why another job waits that is not blocked.
        replan: when to plan again.
        among: the jobs of which the plan in force may say something else; all if not given.
        memory: what the policy remembers.
        diagnostics: how the plan was found.
        profiles: the profiling runs.
        valid_from_s: when the plan takes effect, seconds UTC.
    """
    before = snapshot.previous.entries
    changes: dict[str, Entry] = {}
    for view in snapshot.jobs.values() if among is None else among:
        job_id = view.job.id
        entry: Entry | None = placed.get(job_id)
        if entry is None:
            blocked = view.blocked
            entry = waits(snapshot, view) if blocked is None else Waiting(blocked)
        if entry is not (old := before.get(job_id)) and entry != old:
            changes[job_id] = entry
    return snapshot.previous.revise(
        changes,
        snapshot.gone,
        replan=replan,
        profiles=profiles,
        valid_from_s=valid_from_s,
        diagnostics=diagnostics,
        memory=memory,
    )


def passes_limit(entry: Entry) -> bool:
    """Whether a job waits since it would pass a limit over several jobs."""
    return isinstance(entry, Waiting) and entry.reason.code is ReasonCode.QUOTA


def behind(snapshot: Snapshot, view: JobView) -> Waiting:
    """Return why a job waits that gets GPUs of one type: others are ahead, if it can ever run."""
    ways = ways_to_fit(view.job, snapshot.cluster, snapshot.speeds, snapshot.shapes)
    if not ways:
        return NEVER
    return MIXED_ONLY if all(way.mixed for way in ways) else AHEAD
