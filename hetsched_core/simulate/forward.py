"""What comes next: the simulator begun from a snapshot, until those asked for have started.

The same engine, policy and checks as a replay. What is unknown now (how much work each job has,
which jobs will come) is given, so that a forecast draws it several times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from hetsched_core.errors import InputError
from hetsched_core.policy import Policy
from hetsched_core.records.runlog import RunEnd
from hetsched_core.simulate.engine import Simulation
from hetsched_core.simulate.events import Drained, GivenUp, TimerRings
from hetsched_core.simulate.heap import EventPriority
from hetsched_core.simulate.settings import KnownSpeeds, SimulationSettings
from hetsched_core.simulate.state import Active, Held, gpus_by_type
from hetsched_core.simulate.world import World
from hetsched_core.types import (
    EMPTY_PLAN,
    ExecutionModel,
    JobView,
    NodeView,
    Placement,
    Plan,
    Purpose,
    Snapshot,
    Submission,
    Trigger,
)
from hetsched_core.types.site import SiteSettings


class Sparing(NamedTuple):
    """How seldom a policy is asked, as parts of the time that has passed by then.

    For `others` of it the policy is left alone though jobs have come or a round begins, for `ends`
    of it though a job has ended: GPUs then stay idle meanwhile.
    """

    others: float
    ends: float


ALL = Sparing(0.0, 0.0)
"""A policy is asked whenever it would be."""


def first_starts(
    snapshot: Snapshot,
    plan: Plan,
    policy: Policy,
    left: Mapping[str, float],
    wanted: Collection[str],
    *,
    arrivals: Sequence[Submission] = (),
    settings: SimulationSettings | None = None,
    horizon_s: float = math.inf,
    sparing: Sparing = ALL,
    go_on: Callable[[], bool] = lambda: True,
) -> dict[str, float] | None:
    """Return when jobs that wait now would first hold GPUs for their own work.

    Args:
        snapshot: what is known now; its speeds count as true.
        plan: the plan in force.
        policy: what schedules from here on.
        left: job -> samples still to do; jobs that may not start at all are left out.
        wanted: the jobs asked for; the simulation ends when all of them have started.
        arrivals: jobs that come later.
        settings: costs, and how fast use is forgotten; rounds, shares and limits are those of the
            snapshot.
        horizon_s: how many seconds to look ahead.
        sparing: how seldom the policy is asked.
        go_on: asked at each instant; once it is False, no more is simulated.

    Returns:
        Seconds UTC by job; those that have not started within the horizon are missing. None if it
        was not to go on.

    Raises:
        InputError: the policy schedules tasks, which a snapshot shows no state of.
        PlanError: the policy made an invalid plan.
    """
    if policy.info.model is ExecutionModel.TASKS:
        raise InputError(f"policy {policy.info.name!r} schedules tasks; only replays know of them")
    settings = settings or SimulationSettings()
    site = snapshot.site
    settings = replace(
        settings,
        round_s=snapshot.round.end_s - snapshot.round.start_s,
        seed=snapshot.seed,
        shapes=snapshot.shapes,
        windows=snapshot.windows,
        runs_per_job=snapshot.runs_per_job,
        site=None
        if site is None
        else replace(settings.site or SiteSettings(), tree=site.tree, limits=site.limits),
    )
    world = _world(snapshot, plan, policy, left, settings)
    future = {submission.job.id: submission for submission in arrivals}
    forward = _Forward(world, future, policy, lambda: 0.0)
    forward.sparing, forward.begin_s = sparing, snapshot.now
    return forward.first_starts(snapshot, plan, set(wanted), snapshot.now + horizon_s, go_on)


class _Forward(Simulation):
    """A simulation that begins in the middle."""

    sparing, begin_s = ALL, 0.0
    _asked_s = _woken_s = 0.0

    def first_starts(
        self,
        snapshot: Snapshot,
        plan: Plan,
        wanted: set[str],
        until_s: float,
        go_on: Callable[[], bool],
    ) -> dict[str, float] | None:
        """Go on until all wanted jobs have started, or until a time."""
        world, starts = self._world, dict[str, float]()
        self._planner.plan = self._counted = plan
        if plan is EMPTY_PLAN:
            world.news.triggers.add(Trigger.ARRIVAL)
        elif plan.replan.at_s is not None:
            at_s = max(plan.replan.at_s, world.now)
            world.heap.push(at_s, EventPriority.TIMER, TimerRings(plan.replan.at_s))
        world.dirty.update(world.active)
        self._round = snapshot.round
        self._step()
        self._note(wanted, starts)
        while wanted and world.heap and world.heap.next_s <= until_s and not self._over():
            if not go_on():
                return None
            world.now = world.heap.next_s
            for event in world.heap.due(world.now):
                self._happen(event)
            self._decide()
            self._note(wanted, starts)
        return starts

    def _decide(self) -> None:
        """Decide; once something has ended, fewer rounds are left out."""
        if Trigger.END in self._world.news.triggers:
            self._round_due = math.inf
        super()._decide()

    def _due(self) -> bool:
        """Whether to ask for a plan, and not only later, with what will have happened by then."""
        if not super()._due():
            return False
        world, again_s = self._world, self._again_s
        if world.now >= again_s:
            self._asked_s = world.now
            return True
        if self._woken_s != again_s:
            self._woken_s = again_s
            world.heap.push(again_s, EventPriority.TIMER, TimerRings(-math.inf))
        return False

    @property
    def _again_s(self) -> float:
        """When the policy may be asked again."""
        ended = Trigger.END in self._world.news.triggers
        part = self.sparing.ends if ended else self.sparing.others
        return self._asked_s + part * (self._asked_s - self.begin_s)

    def _round_to_come_s(self) -> float:
        """Return when the first round begins in which the policy may be asked again."""
        next_s, round_s = super()._round_to_come_s(), self._world.log.header.round_s
        return next_s + max(0, math.ceil((self._again_s - next_s) / round_s)) * round_s

    def _step(self) -> None:
        """Carry out the plan in force, and ask for another only if there is none."""
        if self._planner.plan is EMPTY_PLAN:
            self._decide()
            return
        self._apply(self._world.active)
        self._keep_rounds()

    def _note(self, wanted: set[str], starts: dict[str, float]) -> None:
        """Move those that have started from `wanted` to `starts`."""
        active = self._world.active
        for job_id in list(wanted):
            job = active.get(job_id)
            if job is None:
                wanted.discard(job_id)
            elif any(purpose is Purpose.RUN for purpose, _ in job.runs):
                wanted.discard(job_id)
                starts[job_id] = self._world.now


def _world(
    snapshot: Snapshot,
    plan: Plan,
    policy: Policy,
    left: Mapping[str, float],
    settings: SimulationSettings,
) -> World:
    """Return the cluster as the snapshot shows it, with so much work left for each job."""
    origin_s = snapshot.round.start_s - snapshot.round.index * settings.round_s
    estimates = KnownSpeeds(snapshot.speeds)
    world = World(policy, snapshot.cluster, snapshot.speeds, settings, estimates, origin_s=origin_s)
    world.now = snapshot.now
    world.ended = snapshot.ended
    for name, node in snapshot.nodes.items():
        world.nodes = world.nodes.set(name, _without_ours(node))
    until_s = {p.job: p.placement.until_s for p in plan.profiles}
    for job_id in sorted(snapshot.jobs):
        view = snapshot.jobs[job_id]
        if job_id in left:
            _take_over(world, view, left[job_id], until_s.get(job_id))
        elif job_id in plan.entries:
            world.news.gone.add(job_id)
    if snapshot.site is not None:
        world.remember(snapshot.site.used)
    return world


def _without_ours(view: NodeView) -> NodeView:
    return replace(view, held_gpus=0, held_cpus=0.0, held_memory_mb=0.0)


def _take_over(world: World, view: JobView, left: float, until_s: float | None) -> None:
    """Let a job go on from where it stands."""
    now, job = world.now, view.job
    done = view.samples_at(now)
    active = Active(
        submission=Submission(job, done + left, restart_cost_s=view.restart_cost_s),
        job=job,
        arrived_s=job.eligible_from_s,
        observed_s=now,
        restart_cost_s=view.restart_cost_s,
        samples=done,
        wait_s=view.wait_at(now),
        attained=view.attained_at(now, world.cluster),
        first_start_s=view.started_at(now),
        last_start_s=max((run.since_s for run in view.runs), default=None),
        restarts=view.restarts,
        run_numbers=max((run.number for run in view.runs), default=view.restarts - 1) + 1,
    )
    world.active[job.id] = active
    for run in view.runs:
        # What is placed begins now, as every start here.
        held = Held(
            number=run.number,
            placement=Placement(run.configuration, run.copy, run.purpose, run.budget),
            since_s=run.since_s,
            progress_from_s=run.progress_from_s,
            speed=run.speed,
            gpus_by_type=gpus_by_type(world.cluster, run.configuration),
            budget=run.budget,
            samples=run.samples,
            draining_until_s=run.draining_until_s,
        )
        run_id = (run.purpose, run.copy)
        active.runs[run_id] = held
        for name, gpus in run.configuration:
            node = world.nodes[name].holding(
                gpus, gpus * job.cpus_per_gpu, gpus * job.memory_mb_per_gpu
            )
            world.nodes = world.nodes.set(name, node)
        if run.draining_until_s is not None:
            drained = Drained(job.id, run_id, run.number, RunEnd.PREEMPTED)
            world.heap.push(max(run.draining_until_s, now), EventPriority.DRAINED, drained)
        elif until_s is not None and run.purpose is Purpose.PROFILE:
            given_up = GivenUp(job.id, run_id, run.number)
            world.heap.push(max(until_s, now), EventPriority.WORK, given_up)
    world.reschedule(active)
    world.touch(active)
