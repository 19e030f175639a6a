"""The simulated cluster: nodes, active jobs, the runs that hold GPUs, and what is written of them.

Nothing here decides. Every change of a job or a node replaces its view, so that the next snapshot
costs only what changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from immutables import Map

from hetsched_core.measures.fairness import RunTimes
from hetsched_core.placement import ways_to_fit
from hetsched_core.placement.ways import shut_out
from hetsched_core.policy import News, Policy, settings_of
from hetsched_core.records.runlog import (
    JobRecord,
    NodeRecord,
    RunEnd,
    RunLog,
    RunLogHeader,
    RunRecord,
)
from hetsched_core.simulate.events import (
    Drained,
    Event,
    GivenUp,
    SpeedSeen,
    WindowMoves,
    WorkDue,
)
from hetsched_core.simulate.heap import EventHeap, EventPriority
from hetsched_core.simulate.settings import Estimates, RunMeasurement, SimulationSettings
from hetsched_core.simulate.state import Active, Held, ProfilingRun, RunId, gpus_by_type
from hetsched_core.site import Ledger
from hetsched_core.types import (
    NONE_ENDED,
    Cluster,
    EndedJob,
    EndState,
    ExecutionModel,
    Job,
    JobView,
    NodeCondition,
    NodeView,
    Placement,
    Purpose,
    Reason,
    ReasonCode,
    Speeds,
    Submission,
    Trigger,
    closed_to,
)
from hetsched_core.types.making import maker
from hetsched_core.types.site import Association, Site, SiteSettings, association_of

_make_held, _make_measured, _make_work_due = maker(Held), maker(RunMeasurement), maker(WorkDue)
_make_run_record, _make_job_record = maker(RunRecord), maker(JobRecord)

_LEADS_TO = {
    EndState.COMPLETED: RunEnd.COMPLETED,
    EndState.FAILED: RunEnd.FAILED,
    EndState.CANCELLED: RunEnd.CANCELLED,
}
"""What the end of a job is to its runs."""

SEEN_AFTER_S = 30.0
"""How long a run must make progress until its speed is known: the wrapper's reporting interval."""


class World:
    """Everything that is true at `now`.

    Attributes:
        now: the present instant, seconds UTC.
        heap: what is still to happen.
        active: jobs that have arrived and not ended.
        jobs, nodes: the views of them that snapshots show.
        triggers: reasons to plan that have come up and not been served.
        changed, gone: jobs whose view was replaced, and that ended, since the last plan was asked.
        nodes_changed: whether a node's condition changed since then.
        vacated: nodes that a run has left since the last plan was asked.
        disturbed: whether a job that held nothing, or a run of one that goes on, has ended since.
        dirty: jobs whose runs changed since the plan in force was last applied.
        speeds: the estimates that the policy was shown last.
        ended: the latest jobs that told no size and have completed.
        profiled: the profiling runs that are over and may still be named in a plan.
        runs_per_job: how many runs of a job there may be at a time; None for any number.
        windows: spans in which nodes are closed, that have not ended.
        gangs: whether a job is all on its GPUs at once, or not at all.
    """

    def __init__(
        self,
        policy: Policy,
        cluster: Cluster,
        truth: Speeds,
        settings: SimulationSettings,
        estimates: Estimates,
        *,
        origin_s: float,
        assumptions: tuple[str, ...] = (),
        ended: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Start with an idle cluster and rounds from `origin_s`; `ended` is told of ended jobs."""
        self.cluster = cluster
        self.truth = truth
        self.settings = settings
        self.estimates = estimates
        self.log = RunLog(
            RunLogHeader(
                policy=policy.info.name,
                parameters=settings_of(policy),
                cluster=cluster,
                origin_s=origin_s,
                round_s=settings.round_s,
                restart_cost_s=settings.restart_cost_s,
                grace_s=settings.grace_s,
                checkpoint_s=settings.checkpoint_s,
                decision_s=settings.decision_s,
                seed=settings.seed,
                assumptions=assumptions,
            )
        )
        self.heap: EventHeap[Event] = EventHeap()
        self.now = -math.inf
        self.active: dict[str, Active] = {}
        self.jobs: Map[str, JobView] = Map()
        self.nodes: Map[str, NodeView] = Map({node.name: NodeView(node) for node in cluster})
        self.news = News(nodes_changed=True)
        self.dirty: set[str] = set()
        self.speeds = estimates.speeds(self.now)
        self.ended = NONE_ENDED
        self.profiled: set[ProfilingRun] = set()
        self.runs_per_job = settings.runs_per_job
        self.windows = settings.windows
        self.gangs = policy.info.model is ExecutionModel.GANG
        self._to_begin = list(settings.windows)
        self._looks_s = math.inf
        for window in self.windows:
            self.look_again(window.from_s)
        self._served: dict[Association, float] = {}
        self._ledger = Ledger()
        self._site: Site | None = None
        self._ended = ended
        self._run_times = RunTimes(truth, cluster)

    # -- jobs --------------------------------------------------------------------------------------

    def arrive(self, submission: Submission, known: Job) -> Active:
        """Let a job in, of which policies know only what `known` says."""
        cost_s = self.settings.restart_s(submission.restart_cost_s)
        active = Active(submission, known, self.now, self.now, cost_s)
        self.active[known.id] = active
        self.touch(active)
        self.news.triggers.add(Trigger.ARRIVAL)
        if active.job.closed:
            # A policy that planned for it before it came may have planned for these nodes.
            self.news.triggers.add(Trigger.NODE)
        return active

    def touch(self, active: Active) -> None:
        """Replace the job's view: something about it changed."""
        if self.windows:
            self._close_nodes(active)
        self.jobs = self.jobs.set(active.job.id, active.seen())
        self.news.changed.add(active.job.id)

    def end(self, active: Active, state: EndState) -> None:
        """Let a job leave the system."""
        active.settle(self.now)
        job_id = active.job.id
        del self.active[job_id]
        self.jobs = self.jobs.delete(job_id)
        self.news.changed.discard(job_id)
        self.news.gone.add(job_id)
        self.news.disturbed |= not active.runs
        for run_id in list(active.runs):
            self.free(active, run_id, _LEADS_TO[state])
        self.log.jobs.append(self._record(active, state, self.now))
        if self.settings.site is not None:
            self._count(active, self._served)
        if state is EndState.COMPLETED and active.submission.job.total_samples is None:
            job, run_s = active.job, self.now - active.arrived_s - active.wait_s
            ended = EndedJob(job.user, job.profile, run_s, job.time_limit_s)
            self.ended = self.ended.followed_by(ended)
        self.news.triggers.add(Trigger.END)
        self._ended(len(self.log.jobs))

    def withdraw(self, active: Active) -> None:
        """Let a user cancel a job; one that could never run is recorded as such."""
        ran = active.first_start_s is not None or self._can_ever_run(active)
        self.end(active, EndState.CANCELLED if ran else EndState.NEVER)

    def close(self) -> None:
        """Write down the jobs that will never end."""
        for active in list(self.active.values()):
            active.settle(self.now)
            for run_id in list(active.runs):
                self.free(active, run_id, RunEnd.UNFINISHED)
            state = EndState.UNFINISHED if self._can_ever_run(active) else EndState.NEVER
            self.log.jobs.append(self._record(active, state, None))
        self.log.closed_s = self.now
        header = self.log.header
        self.log.rounds = math.ceil((self.now - header.origin_s) / header.round_s)

    @property
    def sited(self) -> bool:
        """Whether a site's word is known."""
        return self.settings.site is not None

    def site(self) -> Site | None:
        """Return what the site says, with what users had used when that was looked at last."""
        site = self.settings.site
        if site is not None and self.now >= self._ledger.at_s + site.period_s:
            served = dict(self._served)
            for active in self.active.values():
                self._count(active, served)
            self._ledger = self._ledger.at(self.now, served, site.half_life_s)
            whole = self._whole_past(site)
            used: Map[Association, float] = Map(
                {user: gpu_s / whole for user, gpu_s in self._ledger.used.items()}
            )
            self._site = Site(site.tree, used, site.limits)
        return self._site

    def remember(self, used: Map[Association, float]) -> None:
        """Begin with what users had used until now, the jobs that are active included.

        Args:
            used: as in a site (`Site.used`).
        """
        site = self.settings.site
        if site is None:
            return
        whole = self._whole_past(site)
        # Who has no job now is kept by what it has been served: nothing, from here on.
        self._served = dict.fromkeys(used, 0.0)
        served = dict(self._served)
        for active in self.active.values():
            self._count(active, served)
        past: Map[Association, float] = Map({user: part * whole for user, part in used.items()})
        self._ledger = Ledger(self.now, served, past)
        self._site = Site(site.tree, used, site.limits)

    def _whole_past(self, site: SiteSettings) -> float:
        """GPU seconds that all GPUs give in all the past, decayed."""
        return max(1, self.cluster.gpus) * site.half_life_s / math.log(2.0)

    def _count(self, active: Active, served: dict[Association, float]) -> None:
        user = association_of(active.job)
        served[user] = served.get(user, 0.0) + active.seen().service_at(self.now)

    # -- runs --------------------------------------------------------------------------------------

    def hold(self, active: Active, placement: Placement, speed: float, delay_s: float) -> Held:
        """Give a job the GPUs of a placement from now on; it makes progress after `delay_s`."""
        held = self.take(active, placement, speed, delay_s)
        if self.speeds is self.truth:
            return held
        estimated = self.speeds.speed(active.job.profile, placement.configuration)
        if estimated != speed:
            held.estimated = estimated
            run_id = (placement.purpose, placement.copy)
            seen = SpeedSeen(active.job.id, run_id, held.number)
            self.heap.push(held.progress_from_s + SEEN_AFTER_S, EventPriority.WORK, seen)
        return held

    def take(self, active: Active, placement: Placement, speed: float, delay_s: float) -> Held:
        """Give a job GPUs as `hold` does, at a speed that is no secret."""
        active.settle(self.now)
        held = _make_held(
            number=active.run_numbers,
            placement=placement,
            since_s=self.now,
            progress_from_s=self.now + delay_s,
            speed=speed,
            gpus_by_type=gpus_by_type(self.cluster, placement.configuration),
            budget=placement.budget,
        )
        active.run_numbers += 1
        active.runs[placement.purpose, placement.copy] = held
        self._book(active, held, 1)
        return held

    def start(self, active: Active, placement: Placement) -> None:
        """Start a run at the true speed; it pays the cost of a first start, or of a restart."""
        speed = self.truth.speed(active.job.profile, placement.configuration)
        own_work = placement.purpose is Purpose.RUN
        resumed = active.first_start_s is not None and active.first_start_s != self.now
        submission, target = active.submission, placement.configuration
        cost_s = submission.start_cost_s
        if resumed:
            cost_s = self.settings.restart_on_s(submission.restart_cost_s, target)
        held = self.hold(active, placement, speed, cost_s if own_work else 0.0)
        if own_work:
            if resumed and active.last_start_s != self.now:
                active.restarts += 1
            active.first_start_s = self.now if not resumed else active.first_start_s
            active.last_start_s = self.now
        if speed <= 0 and not own_work:
            self.release(active, (placement.purpose, placement.copy), RunEnd.PROFILED)
            self.news.triggers.add(Trigger.PROFILE)
            return
        if speed <= 0:
            # It does not fit the GPU: the real thing would fall over within seconds.
            self.end(active, EndState.FAILED)
            return
        if placement.until_s is not None:
            run_id = (placement.purpose, placement.copy)
            given_up = GivenUp(active.job.id, run_id, held.number)
            self.heap.push(max(placement.until_s, self.now), EventPriority.WORK, given_up)
        self.reschedule(active)
        self.touch(active)

    def drain(self, active: Active, run_id: RunId, ended: RunEnd) -> bool:
        """Stop a run by way of a checkpoint; return whether its GPUs are free at once."""
        if self.settings.grace_s == 0:
            self.release(active, run_id, ended)
            return True
        active.settle(self.now)
        until_s = self.now + self.settings.grace_s
        held = active.runs[run_id]
        held.draining_until_s = until_s
        drained = Drained(active.job.id, run_id, held.number, ended)
        self.heap.push(until_s, EventPriority.DRAINED, drained)
        self.reschedule(active)
        self.touch(active)
        return False

    def fail(self, active: Active, run_id: RunId, ended: RunEnd) -> None:
        """End a run without a checkpoint: the work since the last periodic one is lost."""
        active.settle(self.now)
        lost = active.runs[run_id].undo_since_checkpoint(self.settings.checkpoint_s)
        if run_id[0] is Purpose.RUN:
            active.samples -= lost
        self.release(active, run_id, ended)

    def grant(self, active: Active, run_id: RunId, budget: float | None) -> None:
        """Change how many samples a run may do."""
        active.settle(self.now)
        active.runs[run_id].budget = budget
        self.reschedule(active)
        self.touch(active)

    def release(self, active: Active, run_id: RunId, ended: RunEnd) -> None:
        """Take the GPUs of a run back, write its record, and see what its job leads to now."""
        self.free(active, run_id, ended)
        self.news.disturbed = True
        self.dirty.add(active.job.id)
        self.reschedule(active)
        self.touch(active)

    def free(self, active: Active, run_id: RunId, ended: RunEnd) -> None:
        """Take the GPUs of a run back and write its record."""
        active.settle(self.now)
        held = active.runs.pop(run_id)
        self._book(active, held, -1)
        self.news.vacated.update([name for name, _ in held.placement.configuration.pieces])
        own_work = held.placement.purpose is Purpose.RUN
        record = _make_run_record(
            job=active.job.id,
            number=held.number,
            copy=held.placement.copy,
            purpose=held.placement.purpose,
            configuration=held.placement.configuration,
            since_s=held.since_s,
            freed_s=self.now,
            productive_s=held.productive_s if own_work else 0.0,
            samples=held.samples if own_work else 0.0,
            ended_by=ended,
        )
        self.log.runs.append(record)
        self.estimates.observe(
            _make_measured(
                active.job,
                held.placement.purpose,
                held.placement.configuration,
                held.samples,
                held.productive_s,
            )
        )
        if ended is RunEnd.PROFILED:
            self.profiled.add(ProfilingRun.of(active.job.id, held.placement))

    def reschedule(self, active: Active) -> None:
        """Schedule what the present runs lead to first.

        All samples done, a used-up budget, or another phase.
        """
        active.generation += 1
        at_s = math.inf
        if active.submission.phases:
            phase = active.phase
            for held in active.runs.values():
                speed = self.truth.speed(active.job.profile, held.configuration)
                held.change_speed(phase.factor * speed)
            at_s = active.end_of(phase)
        at_s, done_s = min(at_s, active.next_budget_at()), active.done_at()
        if min(at_s, done_s) < math.inf:
            due = _make_work_due(active.job.id, active.generation, done_s <= at_s)
            self.heap.push(max(min(at_s, done_s), self.now), EventPriority.WORK, due)

    # -- windows -----------------------------------------------------------------------------------

    def look_again(self, at_s: float) -> None:
        """Look at the windows again at this time."""
        if self.now < at_s < self._looks_s:
            self._looks_s = at_s
            self.heap.push(at_s, EventPriority.INCIDENT, WindowMoves())

    def move_windows(self) -> None:
        """See which nodes are open to which jobs now, and which windows are over."""
        if self._looks_s <= self.now:
            self._looks_s = math.inf
        self.windows = tuple(window for window in self.windows if window.until_s > self.now)
        for window in self.windows:
            self.look_again(window.from_s)
        for active in self.active.values():
            if active.closed_until_s > self.now:
                self.look_again(active.closed_until_s)
            elif self._close_nodes(active):
                active.settle(self.now)
                self.jobs = self.jobs.set(active.job.id, active.seen())
                self.news.changed.add(active.job.id)
                self.news.triggers.add(Trigger.NODE)

    def _close_nodes(self, active: Active) -> bool:
        """Close nodes to a job; return whether that changes what it may do."""
        runs = [
            (held.configuration, held.since_s)
            for held in active.runs.values()
            if held.draining_until_s is None
        ]
        settings, job = self.settings, active.submission.job
        closed = closed_to(job, runs, self.windows, self.now, settings.lead_s)
        active.closed_until_s = closed.until_s
        self.look_again(closed.until_s)
        blocked = None
        if closed.nodes:
            job = replace(active.job, closed=closed.nodes)
            if self.gangs and shut_out(job, self.cluster, self.speeds, self.settings.shapes):
                blocked = Reason(ReasonCode.CLOSED, detail=self._windows_over(job))
        if closed.nodes == active.job.closed and blocked == active.blocked:
            return False
        active.job, active.blocked = replace(active.job, closed=closed.nodes), blocked
        return True

    def _windows_over(self, job: Job) -> str:
        names = (w.name for w in self.windows if w.nodes & job.closed and w.name)
        return ", ".join(dict.fromkeys(names))

    def begin_windows(self) -> bool:
        """Take the nodes of windows that begin from runs that could have been moved, and were not.

        Returns whether there was any such run.
        """
        begin = [window for window in self._to_begin if window.from_s <= self.now]
        late = [
            (active, run_id)
            for window in begin
            for active in self.active.values()
            for run_id, held in active.runs.items()
            if active.job.preemptible
            and any(name in window.nodes for name, _ in held.placement.configuration.pieces)
        ]
        for window in begin:
            self._to_begin.remove(window)
        for active, run_id in late:
            if run_id in active.runs:
                self.fail(active, run_id, RunEnd.NODE_LOST)
                self.news.triggers.add(Trigger.NODE)
        return bool(late)

    # -- nodes -------------------------------------------------------------------------------------

    def set_condition(self, name: str, condition: NodeCondition) -> None:
        """Take a node down, drain it or bring it back."""
        view = self.nodes[name]
        if view.condition is condition:
            return
        if condition is NodeCondition.DOWN:
            for active in list(self.active.values()):
                for run_id, held in list(active.runs.items()):
                    if any(node == name for node, _ in held.placement.configuration):
                        self.fail(active, run_id, RunEnd.NODE_LOST)
        self.nodes = self.nodes.set(name, replace(self.nodes[name], condition=condition))
        self.news.nodes_changed = True
        self.log.nodes.append(NodeRecord(self.now, name, condition))
        self.news.triggers.add(Trigger.NODE)

    def _book(self, active: Active, held: Held, sign: int) -> None:
        job = active.job
        for name, gpus in held.placement.configuration.pieces:
            more = sign * gpus
            view = self.nodes[name].holding(
                more, more * job.cpus_per_gpu, more * job.memory_mb_per_gpu
            )
            self.nodes = self.nodes.set(name, view)

    def _can_ever_run(self, active: Active) -> bool:
        job, shapes = active.submission.job, self.settings.shapes
        return bool(ways_to_fit(job, self.cluster, self.truth, shapes))

    def _record(self, active: Active, state: EndState, end_s: float | None) -> JobRecord:
        job, samples = active.submission.whole_job, active.submission.samples
        return _make_job_record(
            job=job,
            end_s=end_s,
            end_state=state,
            samples=active.samples,
            wait_s=active.wait_s,
            first_start_s=active.first_start_s,
            restarts=active.restarts,
            preemptions=active.preemptions,
            expected_run_s=self._run_times.expected_run_s(job, samples),
        )
