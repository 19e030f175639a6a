"""Steady: what is left and what has been waited, as one weight in the programme of Hops.

No paper: the policy that this project's comparison led to (docs/reproduction/comparison.md). It
takes from others what paid there:

- from SRTF, that what is nearly done goes first, which makes the mean completion time short;
- from Hops (SoCC '24, section 3.6), wait over run time as what must not grow, configurations on
  nodes, and one programme for all jobs of a round, whose prices of GPUs (as Hadar has them, IPDPS
  '24) say which jobs pay for their places;
- from Sia (SOSP '23), that the programme sees far more jobs than the cluster holds, so that slow
  GPUs go to what is least slow on them, and that more GPUs are worth less and less to a job;
- from Hadar, GPUs of several types for one job, where nothing else is left;
- from LAS and the Gittins index, that a job of unknown size is as long as those before it were, and
  that what it has run for tells more (hetsched_core/policies/unknown_size.py).

A job with r seconds left that has waited w weighs (w + patience) / r: with a large patience that is
SRTF, with none about the latency ratio. A configuration is worth that times (speed / mean speed)
^ power. What a job has counts for more by the share of its horizon that a restart takes. Where an
arrival would be done before the next round, and nothing is idle, the round is planned anew at once.

Put in the place of another that has s left, a job with r left ends s sooner, and the other r and
the stop's cost later. So where r plus that cost is not below s, however long the job has waited it
weighs no more than the other: waits decide what is started, and gains what is stopped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hetsched_core.placement.entries import MIXED_ONLY, NO_ROOM
from hetsched_core.placement.keep import may_keep, present
from hetsched_core.placement.ways import ways_to_fit
from hetsched_core.policies.hops.configurations import JobOptions
from hetsched_core.policies.hops.hops import Hops, refuse_outside
from hetsched_core.policies.hops.room import configuration_of, pieces_of
from hetsched_core.policies.hops.round import HopsRound
from hetsched_core.policies.hops.solve import SolverInput
from hetsched_core.policies.hops.standing import Standing
from hetsched_core.policies.job_size import expected_run_s
from hetsched_core.policies.unknown_size import UnknownSizes
from hetsched_core.policy import PolicyInfo, parameter
from hetsched_core.types import (
    Job,
    JobView,
    Knowledge,
    Plan,
    Replan,
    Shape,
    Snapshot,
    Trigger,
    Waiting,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_TRIGGERS = frozenset({Trigger.ROUND, Trigger.ARRIVAL, Trigger.END, Trigger.NODE, Trigger.PROFILE})

_PAYS_OVER = 12.0
"""A move may take so many times its restart's cost to pay, where that is longer than a round."""


@dataclass(frozen=True)
class Steady:
    """Short waits for what they delay, and short jobs first, by one weight."""

    patience_s: float = parameter(1800.0, "seconds of wait with which every job begins")
    power: float = parameter(1.0, "how much more a configuration of twice the speed is worth")
    floor_s: float = parameter(5.0, "least seconds that a job counts as having left")
    restart_weight: float = parameter(
        3.0, "how many times its cost a restart counts in the decision; 0: not at all"
    )
    urgent: float = parameter(
        1.0,
        "plan anew at once for what would be done in so many times the rest of the round",
    )
    mixed: float = parameter(
        0.3, "least speed on a mix of GPU types, as a part of the best there is; above 1: none"
    )
    window: float = parameter(
        4.0, "GPUs, relative to the cluster's, that the jobs planned for together need at least"
    )
    gap: float = parameter(5e-4, "relative gap at which a solution is good enough")
    sensitivity: float = parameter(
        1.4, "speed per GPU on one node over that on two, above which a job is not spread"
    )
    profile_iterations: int = parameter(
        50, "iterations of a profiling run; 0: no profiling, estimates as they are"
    )

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="steady",
        summary="least left and longest waited first, preemptive, by an integer programme",
        paper="this project (docs/policies/steady.md)",
        knows=frozenset({Knowledge.TOTAL_SAMPLES, Knowledge.TIME_LIMIT}),
    )
    _standing: Standing = field(default_factory=Standing, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        refuse_outside(
            self,
            patience_s=(1.0, 1e9),
            power=(0.0, 10.0),
            floor_s=(1e-3, 1e9),
            restart_weight=(0.0, 1e3),
            urgent=(0.0, 1e9),
            mixed=(0.0, math.inf),
            window=(1e-6, math.inf),
            gap=(0.0, 1.0),
            sensitivity=(0.0, math.inf),
            profile_iterations=(0, 1e9),
        )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan a whole round when one starts or a job cannot wait for it; else what is left."""
        standing, new_round = self._standing, Trigger.ROUND in snapshot.triggers
        steady_round = _SteadyRound(self, snapshot, standing, new_round=new_round)
        steady_round.share_out()
        if Trigger.ARRIVAL in snapshot.triggers and steady_round.some_job_cannot_wait:
            steady_round = _SteadyRound(self, snapshot, standing, new_round=True)
            steady_round.share_out()
        return steady_round.answer(Replan(on=_TRIGGERS), valid_from_s=-math.inf)


class _SteadyRound(HopsRound):
    """One call: Hops's, with other weights, and mixes of types for what is left."""

    def __init__(
        self, steady: Steady, snapshot: Snapshot, standing: Standing, *, new_round: bool
    ) -> None:
        self._steady = steady
        hops = Hops(
            gap=steady.gap,
            sensitivity=steady.sensitivity,
            window=steady.window,
            restart_weight=steady.restart_weight,
            profile_iterations=steady.profile_iterations,
        )
        super().__init__(hops, snapshot, standing, new_round=new_round, from_s=snapshot.now)
        self._left_s = np.array([self._seconds_left(view) for view in self._views], np.float64)

    def share_out(self) -> None:
        """Share out as Hops does, then let waiting jobs have mixes of GPU types."""
        super().share_out()
        # Those that GPUs of one type cannot hold are not in the queue.
        able = np.flatnonzero(~self._busy_profiling)
        beyond = np.setdiff1d(able, [*self._queue, *self._placed]).tolist()
        beyond = [at for at in beyond if not self._stays(at)]
        # Of a kind to which what is left is of no use, thousands may wait.
        refused: set[int] = set()
        for at in (*beyond, *self._waiting.tolist()):
            if int(self._room.gpus.sum()) < 2:
                break
            kind = int(self._demand.kind[at])
            if kind in refused or not self._may_mix(self._views[at].job):
                continue
            if self._mix(at):
                refused.clear()
            else:
                refused.add(kind)

    @property
    def some_job_cannot_wait(self) -> bool:
        """Whether a job that waits would be done before the next round."""
        if self._new_round:
            return False
        until_s = self._snapshot.round.end_s - self._from_s
        return bool((self._left_s[self._waiting] < self._steady.urgent * until_s).any())

    def _seconds_left(self, view: JobView) -> float:
        """Expected seconds that a job still needs, waiting not counted."""
        if (total := view.job.total_samples) is not None:
            done = view.samples_at(self._snapshot.now) / total
            left_s = expected_run_s(view.job, self._snapshot) * max(0.0, 1.0 - done)
            return max(self._steady.floor_s, min(left_s, 1e9))
        # Within so short a time nothing is learned that would be worth a stop.
        least_s = _PAYS_OVER * self._stop_s(view)
        ran_s = self._ran_s(view)
        known = UnknownSizes.of(self._snapshot.ended)
        left_s = known.left_s(view.job, ran_s if ran_s >= least_s else 0.0)
        return min(max(self._steady.floor_s, least_s, left_s), 1e9)

    def _ran_s(self, view: JobView) -> float:
        """Seconds for which a job has held GPUs; time in which it might not start is none."""
        if view.first_start_s is None:
            return 0.0
        now = self._snapshot.now
        alive_s = now - view.job.eligible_from_s - view.wait_at(now)
        return max(0.0, min(alive_s, now - view.first_start_s))

    def _priorities(self, jobs: Ints) -> Floats:
        wait_s = np.array([self._views[at].wait_at(self._from_s) for at in jobs.tolist()])
        priorities: Floats = (wait_s + self._steady.patience_s) / self._left_s[jobs]
        return priorities

    def _whole_round(self, setting: SolverInput, priorities: Floats) -> tuple[Ints, Floats]:
        """Let none weigh more than a runner whose stop for it would gain less than it costs."""
        queue, held = self._queue, np.zeros(len(self._views), np.bool_)
        held[list(setting.held)] = True
        runners, waiting = queue[held[queue]], queue[~held[queue]]
        against = priorities.copy()
        gpus = np.array([setting.held[at][1].sum() for at in runners.tolist()], np.int64)
        stop_s = np.array([self._stop_s(self._views[at]) for at in runners.tolist()])
        smallest = self._demand.smallest[self._demand.kind[waiting]]
        for count in np.unique(smallest).tolist():
            wide, ones = gpus >= count, waiting[smallest == count]
            against[ones] = np.minimum(
                against[ones],
                least_of_the_shorter(
                    (self._left_s[runners] - stop_s)[wide],
                    priorities[runners[wide]],
                    self._left_s[ones],
                ),
            )
        self._equal_to_runners(runners.tolist(), waiting.tolist(), against)
        worth = against * self._due * np.where(held, 1.0 + setting.credit, 1.0)
        # Of those worth the same, runners come first.
        return queue[np.lexsort((~held[queue], -worth[queue]))], against

    def _equal_to_runners(
        self, runners: Sequence[int], waiting: Sequence[int], against: Floats
    ) -> None:
        """Let no job weigh more than a runner that it is equal to for all that is known.

        That one has run for longer does not tell which of them ends first.
        """
        least: dict[tuple[str, int], float] = {}
        for at in runners:
            if self._views[at].job.total_samples is None:
                equals = self._views[at].job.user, int(self._demand.kind[at])
                least[equals] = min(least.get(equals, math.inf), against[at])
        for at in waiting if least else ():
            if self._views[at].job.total_samples is None:
                equals = self._views[at].job.user, int(self._demand.kind[at])
                against[at] = min(against[at], least.get(equals, math.inf))

    def _credit(self, view: JobView, length_s: float) -> float:
        cost_s = view.restart_cost_s
        # Were a round the limit whatever a restart costs, no gain would ever pay for a dear one,
        # however long the job would have it.
        horizon_s = min(self._seconds_left(view), max(length_s, _PAYS_OVER * cost_s))
        weighed_s = self._steady.restart_weight * min(cost_s, horizon_s)
        return max(weighed_s, self._stop_s(view)) / horizon_s

    def _gain(self, jobs: Ints, options: JobOptions) -> Floats:
        """Speed over the job's mean speed, to a power."""
        total = np.bincount(options.job, options.speed, len(jobs))
        many = np.bincount(options.job, minlength=len(jobs))
        mean = total / np.maximum(many, 1)
        gain: Floats = (options.speed / mean[options.job]) ** self._steady.power
        return gain

    def _stays(self, at: int) -> bool:
        """Let a job keep what it has if no other got it; return whether it does."""
        view, room = self._views[at], self._room
        has = present(self._snapshot, view)
        if has is None or not may_keep(self._snapshot, view, has):
            return False
        nodes, gpus = pieces_of(self._snapshot.cluster, has)
        need = self._demand.needs[self._demand.need[self._demand.kind[at]]]
        if not room.holds(nodes, gpus, need):
            return False
        room.take(nodes, gpus, need)
        self._placed[at] = has
        return True

    def _may_mix(self, job: Job) -> bool:
        """Whether a job may have GPUs of several types on several nodes."""
        several = job.max_nodes is None or job.max_nodes > 1
        return several and Shape.MIXED_TYPES in self._snapshot.shapes_for(job)

    def _mix(self, at: int) -> bool:
        """Give a waiting job idle GPUs of several types; return whether it got any.

        It does if it is fast enough on them, and if it could never run on those of one type.
        """
        job, demand, room = self._views[at].job, self._demand, self._room
        kind = demand.kind[at]
        need, runs_on = demand.needs[demand.need[kind]], demand.types[kind]
        most = job.max_nodes
        usable = np.where(runs_on[room.layout.type_of], room.usable([need])[0], 0)
        nodes = np.argsort(-usable, kind="stable")
        total = int(usable.sum())
        for count in reversed(job.requirements.counts):
            if count > total:
                continue
            gpus = _parts(count, job, usable[nodes])
            some = gpus > 0
            if most is not None and some.sum() > most:
                continue
            if gpus.sum() < count or not room.holds(nodes[some], gpus[some], need):
                continue
            where = configuration_of(
                self._snapshot.cluster, nodes[some].tolist(), gpus[some].tolist()
            )
            speed = self._snapshot.speeds.speed(job.profile, where)
            fast = speed >= self._steady.mixed * self._best_speed(kind)
            if speed > 0 and (fast or self._runs_on_mixes_alone(self._views[at])):
                room.take(nodes[some], gpus[some], need)
                self._placed[at] = where
                return True
        return False

    def _runs_on_mixes_alone(self, view: JobView) -> bool:
        snapshot = self._snapshot
        ways = ways_to_fit(view.job, snapshot.cluster, snapshot.speeds, snapshot.shapes)
        return all(way.mixed for way in ways)

    def _reason_to_wait(self, view: JobView) -> Waiting:
        reason = super()._reason_to_wait(view)
        mixes = Shape.MIXED_TYPES in self._snapshot.shapes_for(view.job)
        return NO_ROOM if reason == MIXED_ONLY and mixes else reason

    def _best_speed(self, kind: int) -> float:
        """Samples/s of a kind of jobs with most GPUs on one node of its fastest type."""
        demand = self._demand
        want = demand.want[demand.want_from[kind] : demand.want_from[kind + 1]]
        per_gpu = demand.per_gpu[demand.profile[kind], :, 0][:, want]
        return float((per_gpu * demand.wants[want] * demand.types[kind][:, None]).max())


def least_of_the_shorter(left_s: Floats, priorities: Floats, than_s: Floats) -> Floats:
    """Return (W,) the least priority of those runners that have no more left, inf if none.

    Args:
        left_s: (R,) seconds that each runner has left, less what its stop costs.
        priorities: (R,) of each runner.
        than_s: (W,) seconds that each waiting job has left.
    """
    order = np.argsort(left_s, kind="stable")
    least = np.minimum.accumulate(np.append(math.inf, priorities[order]))
    found: Floats = least[np.searchsorted(left_s[order], than_s, side="right")]
    return found


def _parts(count: int, job: Job, usable: Ints) -> Ints:
    """Return (N,) how many GPUs to take of each node; fewer than `count` where it lacks them.

    `usable` is (N,), the most first. A job that has to be on several nodes has as many on each,
    on as few nodes as it may.
    """
    gpus: Ints = np.clip(count - _before(usable), 0, usable)
    if job.min_nodes < 2:
        return gpus
    for many in range(job.min_nodes, min(count, len(usable), job.max_nodes or count) + 1):
        if count % many == 0 and usable[many - 1] >= count // many:
            return np.where(np.arange(len(usable)) < many, count // many, 0)
    return np.zeros_like(usable)


def _before(values: Ints) -> Ints:
    """Return the sum of all values before each."""
    return np.cumsum(values) - values
