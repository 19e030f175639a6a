"""Possible futures: the present carried on, with work and arrivals drawn from experience."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from hetsched_core.forecast.experience import Experience, work_done
from hetsched_core.policy import Policy
from hetsched_core.simulate import Settings
from hetsched_core.simulate.forward import first_starts
from hetsched_core.types import Job, Plan, Snapshot

HORIZON_S = 14 * 86_400.0
"""How far ahead a future goes."""

_SETTINGS = Settings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Futures:
    """How far and how often the future is drawn.

    Attributes:
        draws: how many futures.
        horizon_s: seconds to look ahead; a job that has not started by then counts as starting
            then.
        settings: costs that starts and moves have; the rounds are those of the snapshot.
        go_on: asked at every instant of a future; once it is False, no more futures are drawn.
        drawn: told of each future that is drawn to its end.
    """

    draws: int = 24
    horizon_s: float = HORIZON_S
    settings: Settings = _SETTINGS
    go_on: Callable[[], bool] = lambda: True
    drawn: Callable[[], None] = lambda: None


LEAST_DRAWS = 5
"""Fewer futures are no answer."""


def possible_starts(
    snapshot: Snapshot,
    plan: Plan,
    policy: Policy,
    jobs: Mapping[str, Job],
    wanted: Collection[str],
    experience: Experience,
    futures: Futures,
) -> dict[str, tuple[float, ...]]:
    """Return for each wanted job when it starts in each future, seconds UTC, in ascending order.

    Args:
        snapshot: what is known now.
        plan: the plan in force.
        policy: who schedules.
        jobs: what is known of active jobs, hidden from the policy or not.
        wanted: those asked for; one that may not start at all (held, say) is missing in the answer,
            and all are if there was no time for enough futures.
        experience: what past jobs teach.
        futures: how far to look.

    The same arguments give the same answer, but for `go_on`.
    """
    now = snapshot.now
    may = {job_id for job_id, view in snapshot.jobs.items() if view.blocked is None}
    done = {job_id: work_done(snapshot.jobs[job_id], snapshot) for job_id in sorted(may)}
    asked = {job_id for job_id in wanted if job_id in may}
    found: dict[str, list[float]] = {job_id: [] for job_id in sorted(asked)}
    # Differently in each round, and not differently for each of its questions.
    seeds = np.random.SeedSequence([snapshot.seed, abs(int(snapshot.round.index))])
    for rng in map(np.random.default_rng, seeds.spawn(futures.draws)):
        left = {job_id: experience.draw(jobs[job_id], done[job_id], rng) for job_id in done}
        starts = first_starts(
            snapshot,
            plan,
            policy,
            left,
            asked,
            arrivals=experience.arrivals(now, futures.horizon_s, rng),
            settings=futures.settings,
            horizon_s=futures.horizon_s,
            go_on=futures.go_on,
        )
        if starts is None:
            break
        futures.drawn()
        for job_id, own in found.items():
            own.append(starts.get(job_id, now + futures.horizon_s))
    return {job_id: tuple(sorted(own)) for job_id, own in found.items() if len(own) >= LEAST_DRAWS}
