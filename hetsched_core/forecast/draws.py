"""Possible futures: the present carried on, with work and arrivals drawn from experience."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from hetsched_core.forecast.experience import Experience, work_done
from hetsched_core.policy import Policy
from hetsched_core.simulate import SimulationSettings
from hetsched_core.simulate.forward import ALL, Sparing, first_starts
from hetsched_core.types import Job, Plan, Snapshot

HORIZON_S = 14 * 86_400.0
"""How far ahead a future goes."""

_SETTINGS = SimulationSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Futures:
    """How far and how often the future is drawn.

    Attributes:
        draws: how many futures.
        horizon_s: seconds to look ahead; a job that has not started by then counts as starting
            then.
        settings: costs that starts and moves have, stopping for `grace_s` at most; the rounds are
            those of the snapshot.
        go_on: asked at every instant of a future; once it is False, no more futures are drawn.
        slow: asked at every instant of a future with its number, from 1; once it is True, the
            future is drawn anew, and it and those after it ask the policy less often.
        drawn: told of each future that is drawn to its end.
    """

    draws: int = 24
    horizon_s: float = HORIZON_S
    settings: SimulationSettings = _SETTINGS
    go_on: Callable[[], bool] = lambda: True
    slow: Callable[[int], bool] = lambda _: False
    drawn: Callable[[], None] = lambda: None


SPARING = (ALL, Sparing(0.1, 0.0), Sparing(0.5, 0.02), Sparing(0.5, 0.1))
"""How sparingly a policy is asked: as it would be, and then more and more so."""

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
        policy: what schedules.
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
    seen = experience.beside((jobs[job_id], done[job_id]) for job_id in done)
    sparing = list(SPARING)
    for seed in seeds.spawn(futures.draws):
        while True:
            patience = _Patience(futures, may_be_slow=len(sparing) == 1)
            rng = np.random.default_rng(seed)
            # Where jobs end sooner than they may, it is not known by how much.
            grace_s = float(rng.uniform(0.0, futures.settings.grace_s))
            one = seen.future(rng)
            starts = first_starts(
                snapshot,
                plan,
                policy,
                {job_id: one.draw(jobs[job_id], done[job_id]) for job_id in done},
                asked,
                arrivals=one.arrivals(now, futures.horizon_s),
                settings=replace(futures.settings, grace_s=grace_s),
                horizon_s=futures.horizon_s,
                sparing=sparing[0],
                go_on=patience,
            )
            if not patience.over:
                break
            del sparing[0]
        if starts is None:
            break
        futures.drawn()
        for job_id, own in found.items():
            own.append(starts.get(job_id, now + futures.horizon_s))
    return {job_id: tuple(sorted(own)) for job_id, own in found.items() if len(own) >= LEAST_DRAWS}


class _Patience:
    """Whether a future is to go on; `over` once it has taken too long to be drawn so finely."""

    def __init__(self, futures: Futures, *, may_be_slow: bool) -> None:
        self._futures, self._may_be_slow = futures, may_be_slow
        self._instants, self.over = 0, False

    def __call__(self) -> bool:
        self._instants += 1
        self.over = not self._may_be_slow and self._futures.slow(self._instants)
        return not self.over and self._futures.go_on()
