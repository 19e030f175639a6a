"""The simulator's loop: let things happen, ask the policy, apply its plan, until nothing is left.

It shows the policy a `Snapshot`, and what the policy answers goes through `check_plan` and `diff`,
exactly as in the daemon. There is no clock but the events'; decision times are measured with a
stopwatch that is passed in, and change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hetsched_core.errors import InputError, PlanError, unknown
from hetsched_core.policy import (
    Grant,
    News,
    Planner,
    Policy,
    Start,
    Stop,
    StopCause,
    diff,
)
from hetsched_core.records.runlog import RunEnd, RunLog
from hetsched_core.simulate.events import (
    Arrives,
    Cancelled,
    Drained,
    Event,
    GivenUp,
    Incident,
    JobCrashed,
    NodeBack,
    NodeDrained,
    NodeLost,
    PlanTakesEffect,
    RoundStarts,
    SpeedSeen,
    TasksDue,
    TimerRings,
    WindowMoves,
    WorkDue,
)
from hetsched_core.simulate.heap import EventPriority
from hetsched_core.simulate.settings import Estimates, KnownSpeeds, SimulationSettings
from hetsched_core.simulate.state import ProfilingRun
from hetsched_core.simulate.tasks import TaskFloor
from hetsched_core.simulate.world import World
from hetsched_core.types import (
    EMPTY_PLAN,
    Cluster,
    Entry,
    ExecutionModel,
    Knowledge,
    NodeCondition,
    OfflineSnapshot,
    Plan,
    Purpose,
    Round,
    Snapshot,
    Speeds,
    Submission,
    Trigger,
    Waiting,
)
from hetsched_core.types.making import maker

MAX_IDLE_ROUNDS = 1000
"""After so many instants in a row at which nothing runs and no job comes, nothing ever will."""


MAX_ROUNDS = 20_000_000
"""A workload that lasts for more rounds has a wrong time in it: two centuries of 360 s."""


def simulate(
    submissions: Sequence[Submission],
    cluster: Cluster,
    policy: Policy,
    truth: Speeds,
    settings: SimulationSettings | None = None,
    *,
    estimates: Estimates | None = None,
    incidents: Iterable[Incident] = (),
    assumptions: tuple[str, ...] = (),
    stopwatch: Callable[[], float] = lambda: 0.0,
    ended: Callable[[int], None] = lambda _: None,
) -> RunLog:
    """Run a workload through a policy and return everything that happened.

    Args:
        submissions: the jobs, with what only the simulator knows of them.
        cluster: the nodes.
        policy: the scheduler under test.
        truth: the speeds that jobs really run at.
        settings: costs and round length.
        estimates: what the policy is told about speeds; the truth if not given.
        incidents: node losses and crashes that are to happen.
        assumptions: sentences to carry into the run log.
        stopwatch: seconds, for measuring how long decisions take.
        ended: told the number of ended jobs whenever one ends.

    Raises:
        InputError: there is no job, or two have the same id.
        PlanError: the policy's plan breaks a rule.
    """
    settings = settings or SimulationSettings()
    if not submissions:
        raise InputError("there is no job to simulate; see `hetsched workload show` for the input")
    jobs = {submission.job.id: submission for submission in submissions}
    if len(jobs) < len(submissions):
        raise InputError(f"job id {_twice(submissions)!r} occurs twice; ids must be unique")
    first_s = min(submission.job.submit_s for submission in submissions)
    last_s = max(submission.job.eligible_from_s for submission in submissions)
    if not (last_s - first_s) / settings.round_s <= MAX_ROUNDS:
        raise InputError(
            f"the jobs arrive over {last_s - first_s:g} s (from {first_s:g} to {last_s:g}), which "
            f"is more than {MAX_ROUNDS} rounds of {settings.round_s:g} s: mend the times or take "
            "longer rounds"
        )
    world = World(
        policy,
        cluster,
        truth,
        settings,
        estimates or KnownSpeeds(truth),
        origin_s=first_s,
        assumptions=assumptions,
        ended=ended,
    )
    simulation = Simulation(world, jobs, policy, stopwatch)
    for incident in incidents:
        if isinstance(incident, JobCrashed):
            if incident.job not in jobs:
                raise unknown("job", incident.job, jobs)
        else:
            cluster.index(incident.node)
        simulation.add_incident(incident)
    return simulation.run()


@dataclass(slots=True)
class _Awaited:
    """A plan that is not in force yet, and what it was told of."""

    plan: Plan
    news: News


class Simulation:
    """One workload under one policy, from its first event to its last."""

    def __init__(
        self,
        world: World,
        jobs: Mapping[str, Submission],
        policy: Policy,
        stopwatch: Callable[[], float],
    ) -> None:
        """Begin with an idle world; `jobs` are those to come, by id."""
        self._world = world
        self._planner = Planner(policy, stopwatch)
        self._stopwatch = stopwatch
        self._future = dict(jobs)
        tasks = policy.info.model is ExecutionModel.TASKS
        self._floor = TaskFloor(world, self._future) if tasks else None
        for submission in sorted(jobs.values(), key=lambda s: (s.job.submit_s, s.job.id)):
            job = submission.job
            world.heap.push(job.eligible_from_s, EventPriority.ARRIVAL, Arrives(submission))
            if submission.cancel_s is not None:
                world.heap.push(submission.cancel_s, EventPriority.CANCEL, Cancelled(job.id))
        world.heap.sort()

        self._awaited: _Awaited | None = None
        self._decided_s = -math.inf
        self._counted = EMPTY_PLAN
        self._waiting = 0
        # Jobs whose next run waits for GPUs that are being vacated.
        self._in_transit: set[str] = set()
        # The time for which a timer was set last.
        self._timer_s = -math.inf
        self._round_due = math.inf
        self._round = Round(0, math.inf, -math.inf)
        # Which rounding may set off from the end of the present one.
        self._next_round_s = -math.inf
        self._idle_instants = 0
        self._incidents = 0

    def add_incident(self, incident: Incident) -> None:
        """Schedule a failure; the run is not over while a node's condition is still to change."""
        self._incidents += not isinstance(incident, JobCrashed)
        self._world.heap.push(incident.at_s, EventPriority.INCIDENT, incident)

    def run(self) -> RunLog:
        """Process all events, instant by instant."""
        world = self._world
        begun = self._stopwatch()
        while world.heap and not self._over():
            world.now = world.heap.next_s
            for event in world.heap.due(world.now):
                if self._floor is not None and not isinstance(event, TasksDue):
                    self._floor.catch_up()
                self._happen(event)
            self._decide()
            if world.windows and world.begin_windows():
                if self._floor is not None:
                    self._floor.disturb()
                self._decide()
        world.close()
        world.log.wall_s = self._stopwatch() - begun
        return world.log

    # -- what happens ------------------------------------------------------------------------------

    def _happen(self, event: Event) -> None:
        world = self._world
        match event:
            case WorkDue():
                self._work_due(event)
            case Arrives(submission):
                if submission.job.id in self._future:
                    self._arrive(submission)
            case Drained(job_id, run_id, number, ended):
                active = world.active.get(job_id)
                if active and run_id in active.runs and active.runs[run_id].number == number:
                    world.release(active, run_id, ended)
            case GivenUp(job_id, run_id, number):
                active = world.active.get(job_id)
                held = active.runs.get(run_id) if active else None
                if active and held and held.number == number and held.draining_until_s is None:
                    world.release(active, run_id, RunEnd.PROFILED)
                    world.news.triggers.add(Trigger.PROFILE)
            case SpeedSeen(job_id, run_id, number):
                active = world.active.get(job_id)
                if active and run_id in active.runs and active.runs[run_id].number == number:
                    active.settle(world.now)
                    active.runs[run_id].estimated = None
                    world.touch(active)
            case RoundStarts():
                self._round_due = math.inf
                world.news.triggers.add(Trigger.ROUND)
            case TimerRings(wanted_s):
                if self._planner.plan.replan.at_s == wanted_s:
                    world.news.triggers.add(Trigger.TIMER)
            case PlanTakesEffect(plan):
                awaited = self._awaited
                due = awaited is not None and plan.identity is awaited.plan.identity
                if awaited is not None and due and world.now >= plan.valid_from_s:
                    self._awaited = None
                    self._adopt(awaited.plan)
                    if plan.replan.at_s is not None and plan.replan.at_s <= world.now:
                        # Its time passed while it was awaited.
                        world.news.triggers.add(Trigger.TIMER)
            case Cancelled(job_id):
                # A job withdrawn before it is eligible comes and goes without being seen.
                if job_id in self._future:
                    self._arrive(self._future[job_id])
                if job_id in world.active:
                    world.withdraw(world.active[job_id])
            case JobCrashed(_, job_id):
                active = world.active.get(job_id)
                for run_id in list(active.runs) if active else []:
                    world.fail(world.active[job_id], run_id, RunEnd.CRASHED)
                    world.news.triggers.add(Trigger.END)
            case NodeLost(_, node):
                self._incidents -= 1
                world.set_condition(node, NodeCondition.DOWN)
            case NodeDrained(_, node):
                self._incidents -= 1
                world.set_condition(node, NodeCondition.DRAINED)
            case NodeBack(_, node):
                self._incidents -= 1
                world.set_condition(node, NodeCondition.UP)
            case WindowMoves():
                world.move_windows()
            case TasksDue():
                pass
        if self._floor is not None and isinstance(event, _DISTURBING):
            self._floor.disturb()

    def _arrive(self, submission: Submission) -> None:
        del self._future[submission.job.id]
        known = submission.job.hidden_from(self._planner.policy.info.knows)
        active = self._world.arrive(submission, known)
        if self._floor is not None:
            self._floor.admit(active)

    def _work_due(self, event: WorkDue) -> None:
        world = self._world
        active = world.active.get(event.job)
        if active is None or active.generation != event.generation or self._floor is not None:
            return
        active.settle(world.now)
        if event.done:
            active.samples = active.submission.samples
            world.end(active, active.submission.ends_as)
            return
        for run_id, held in active.used_up():
            if held.placement.purpose is Purpose.PROFILE:
                world.release(active, run_id, RunEnd.PROFILED)
                world.news.triggers.add(Trigger.PROFILE)
            else:
                world.news.triggers.add(Trigger.BUDGET)
        world.reschedule(active)
        world.touch(active)

    # -- what is decided ---------------------------------------------------------------------------

    def _decide(self) -> None:
        world = self._world
        if self._present_round().start_s == world.now:
            # Also where no job was there to schedule it for.
            world.news.triggers.add(Trigger.ROUND)
        if self._floor is not None:
            self._floor.settle()
        self._leave_out_profiled()
        if not world.active:
            world.news.triggers.clear()
        elif world.now >= self._decided_s and self._due():
            self._ask()
        self._apply(())
        if self._floor is not None:
            self._floor.move()
        self._keep_rounds()

    def _due(self) -> bool:
        return self._planner.due(self._world)

    def _ask(self) -> None:
        world = self._world
        if self._floor is not None:
            self._floor.catch_up()
            self._floor.settle()
            self._floor.show()
        if self._awaited is not None:
            # The plan in force is still the one that was asked for before it.
            world.news.take_up(self._awaited.news)
            self._awaited = None
        world.speeds = world.estimates.speeds(world.now)
        snapshot = self._snapshot()
        plan, violations, took_s = self._planner.ask(snapshot)
        if violations:
            name = self._planner.policy.info.name
            raise PlanError(
                f"policy {name!r} made an invalid plan at t={world.now:.3f} s: "
                + "; ".join(map(str, violations[:5]))
                + (f"; and {len(violations) - 5} more" if len(violations) > 5 else "")
            )
        self._count_waiting(plan)
        waiting = self._waiting
        world.log.plans.add(
            world.now, snapshot.triggers, took_s, len(snapshot.jobs) - waiting, waiting
        )
        self._decided_s = snapshot.effective_s
        effective_s = max(snapshot.effective_s, plan.valid_from_s)
        if effective_s > world.now:
            self._awaited = _Awaited(plan, world.news)
            # Once it is decided, another may be asked for, though this one is still to wait.
            for at_s in sorted({snapshot.effective_s, effective_s} - {world.now}):
                world.heap.push(at_s, EventPriority.PLAN, PlanTakesEffect(plan))
        world.news = News()
        if effective_s <= world.now:
            self._adopt(plan)

    def _count_waiting(self, plan: Plan) -> None:
        """Keep the number of waiting jobs at the cost of what changed."""
        before: Mapping[str, Entry] = {}
        changed: Iterable[str] = plan.entries
        if plan.changed is not None and plan.base is self._counted.identity:
            before, changed = self._counted.entries, plan.changed
        else:
            self._waiting = 0
        self._counted = plan
        for job_id in changed:
            self._waiting -= isinstance(before.get(job_id), Waiting)
            self._waiting += isinstance(plan.entries.get(job_id), Waiting)

    def _snapshot(self) -> Snapshot:
        world, settings = self._world, self._world.settings
        snapshot = _make_snapshot(
            now=world.now,
            triggers=frozenset(world.news.triggers),
            round=self._present_round(),
            cluster=world.cluster,
            nodes=world.nodes,
            jobs=world.jobs,
            speeds=world.speeds,
            ended=world.ended,
            effective_s=world.now + settings.decision_s,
            grace_s=settings.grace_s,
            shapes=settings.shapes,
            runs_per_job=settings.runs_per_job,
            seed=settings.seed,
            previous=self._planner.plan,
            changed=frozenset(world.news.changed),
            gone=frozenset(world.news.gone),
            nodes_changed=world.news.nodes_changed,
            windows=world.windows,
            site=world.site(),
        )
        if Knowledge.FUTURE_ARRIVALS in self._planner.policy.info.knows:
            return OfflineSnapshot.of(snapshot, tuple(self._future.values()))
        return snapshot

    def _adopt(self, plan: Plan) -> None:
        """Put a plan into force."""
        revises = plan.changed is not None and plan.base is self._planner.plan.identity
        among: Iterable[str] = (plan.changed if revises else self._world.jobs) or ()
        look_at = set(among)
        for profile in (*self._planner.plan.profiles, *plan.profiles):
            look_at.add(profile.job)
        self._planner.plan = plan
        if self._floor is not None:
            self._floor.assign(plan.sequences)
        again_s = plan.replan.at_s
        # Plan after plan may name the same time.
        if again_s is not None and again_s > self._world.now and again_s != self._timer_s:
            self._timer_s = again_s
            self._world.heap.push(again_s, EventPriority.TIMER, TimerRings(again_s))
        self._apply(look_at)

    def _apply(self, among: Collection[str]) -> None:
        """Bring the runs nearer to the plan in force, as far as GPUs are free."""
        world = self._world
        if not (among or world.dirty or self._in_transit):
            return
        # Most of what ends leaves nothing to look at.
        look_at = {*among, *world.dirty, *self._in_transit} & world.active.keys()
        if self._floor is not None:
            # Tasks are started by the floor, from the sequences of the plan.
            look_at.clear()
        if not look_at:
            world.dirty.clear()
        while look_at and self._planner.plan is not EMPTY_PLAN:
            freed = False
            self._in_transit.clear()
            for action in diff(world, self._planner.plan, look_at):
                active = world.active.get(action.key.job)
                run_id = (action.key.purpose, action.key.copy)
                if active is None:
                    continue
                match action:
                    case Stop(_, cause):
                        ended = RunEnd.PREEMPTED if cause is StopCause.PREEMPT else RunEnd.MOVED
                        if active.runs[run_id].left == 0:
                            ended = RunEnd.BUDGET
                        own_work = action.key.purpose is Purpose.RUN
                        active.preemptions += own_work and ended is RunEnd.PREEMPTED
                        job = active.job
                        if own_work and job.gives_way and not job.preemptible:
                            # It saves nothing, and so needs no time for that.
                            world.fail(active, run_id, ended)
                            freed = True
                        else:
                            freed |= world.drain(active, run_id, ended)
                    case Grant(_, budget):
                        world.grant(active, run_id, budget)
                    case Start(_, placement, True):
                        world.start(active, placement)
                    case Start():
                        self._in_transit.add(action.key.job)
            world.dirty.clear()
            self._leave_out_profiled()
            if not (freed and self._in_transit):
                break
            look_at = set(self._in_transit)

    def _leave_out_profiled(self) -> None:
        """Take profiling runs that are over out of the plans, which would begin them anew.

        So too the plan that is awaited: it was asked for before they were over.
        """
        over = self._world.profiled
        if over:
            self._planner.plan = _without(self._planner.plan, over)
            if self._awaited is not None:
                self._awaited.plan = _without(self._awaited.plan, over)
            over.clear()

    # -- rounds, and the end -----------------------------------------------------------------------

    def _present_round(self) -> Round:
        now = self._world.now
        if not self._round.start_s <= now < self._next_round_s:
            header = self._world.log.header
            index = math.floor((now - header.origin_s) / header.round_s)
            # The division may fall just short of a round that has begun.
            index += header.origin_s + (index + 1) * header.round_s <= now
            start_s = header.origin_s + index * header.round_s
            self._round = Round(index, start_s, start_s + header.round_s)
            self._next_round_s = header.origin_s + (index + 1) * header.round_s
        return self._round

    def _keep_rounds(self) -> None:
        """Keep the next start of a round scheduled as long as the policy asks for it."""
        world = self._world
        if self._round_due < math.inf or not world.active:
            return
        if Trigger.ROUND in self._planner.plan.replan.on:
            self._round_due = self._round_to_come_s()
            world.heap.push(self._round_due, EventPriority.ROUND, RoundStarts())

    def _round_to_come_s(self) -> float:
        """Return when the next round begins."""
        self._present_round()
        return self._next_round_s

    def _over(self) -> bool:
        """Whether nothing that is still scheduled can change anything."""
        world = self._world
        if self._future or self._awaited is not None or self._incidents:
            return False
        if (self._floor is not None and self._floor.ahead) or any(
            active.runs for active in world.active.values()
        ):
            self._idle_instants = 0
            return False
        self._idle_instants += 1
        return self._idle_instants > MAX_IDLE_ROUNDS or all(
            self._planner.plan.never(job_id) for job_id in world.active
        )


_DISTURBING = (Cancelled, JobCrashed, NodeLost, NodeDrained, NodeBack, WindowMoves)
"""What can end a task before its time, or change where tasks may begin."""

_make_snapshot = maker(Snapshot)


def _without(plan: Plan, over: Collection[ProfilingRun]) -> Plan:
    left = (p for p in plan.profiles if ProfilingRun.of(p.job, p.placement) not in over)
    return replace(plan, profiles=tuple(left))


def _twice(submissions: Sequence[Submission]) -> str:
    seen: set[str] = set()
    for submission in submissions:
        if submission.job.id in seen:
            break
        seen.add(submission.job.id)
    return submission.job.id
