"""The loop: a cycle observes, plans if there is reason to, and brings Slurm nearer to the plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

from hetsched_core.errors import InputError, described
from hetsched_core.policy import (
    ASK_AGAIN_S,
    Action,
    Planner,
    Policy,
    Start,
    Stop,
    Violation,
    diff,
    salvaged,
)
from hetsched_core.records.decision_record import DecisionWriter
from hetsched_core.records.runlog import PlanRecord
from hetsched_core.store import Decision, Store, StoreError
from hetsched_core.types import (
    EMPTY_PLAN,
    NONE_ENDED,
    Cluster,
    EndedJob,
    EndedJobs,
    ExecutionModel,
    Plan,
    Round,
    Snapshot,
    Trigger,
    Waiting,
)
from hetsched_core.types.ended import LATEST
from slurm_plugin.backend import (
    ApplyResult,
    BackendError,
    SlurmBackend,
    SlurmJob,
    SlurmState,
    apply_changes,
)
from slurm_plugin.backend.change import Cancel, Change, Enter, Hold, Requeue, Signal
from slurm_plugin.daemon.changes import alone_on, changes_for, leave_changes, warned_jobs
from slurm_plugin.daemon.cpu_jobs import BEYOND, CpuCycle, CpuJobs
from slurm_plugin.daemon.jobs.copies import ELEMENTS, Aim, aims, check_fit
from slurm_plugin.daemon.jobs.gangs import element_id
from slurm_plugin.daemon.nodes.hold import (
    hold_changes,
    hold_of,
    letting_go,
    renewing,
    whole_hold,
)
from slurm_plugin.daemon.nodes.kept_for_gpus import could_use, kept_for, needs_of
from slurm_plugin.daemon.nodes.refusals import Refusals
from slurm_plugin.daemon.profiling import staying
from slurm_plugin.daemon.settings import DaemonMode, DaemonSettings, round_of
from slurm_plugin.daemon.site_warnings import check_partitions
from slurm_plugin.daemon.speeds import LiveSpeeds
from slurm_plugin.daemon.spool.listening import NOTHING, Heard
from slurm_plugin.daemon.spool.spool import Spool
from slurm_plugin.daemon.world import LiveWorld

_FORGET_EVERY = 50
"""After how many decisions those that are too old are forgotten."""

_SITE_S = 20.0
"""How often it is looked up what the site has set. Limits and shares are those of the time before:
slurmdbd is asked beside the loop."""

_RENEW = 0.25
"""After this share of the slack the hold is renewed if a policy is still thinking.

For as long, changes are made in a cycle: Slurm may answer few calls a second, and what is left is
found again by the next cycle, which renews the hold first.
"""

_LOOK_UP_S = 0.25
"""How long a cycle may look up what new jobs ask for, roughly."""

_SETTLE_S = 10.0
"""How long nothing is placed or stopped once Slurm answers again.

A controller that was killed comes back with what it had saved some seconds before: of jobs that
began since it learns as their nodes register, and ends what runs there.
"""

_MUCH_LONGER = 3.0
"""A read that takes so many times as long as the last one has waited for something."""

_MOST_TOLD = 20
"""So many of the rules that a plan breaks are told, and of the records that are left out."""


@dataclass(frozen=True, slots=True)
class CycleReport:
    """What one cycle did, for the log.

    Attributes:
        decision: what was recorded of the plan that was asked for and is in force now; None where
            none was asked for.
        violations: the rules that the policy's plan breaks, whose valid rest is in force where
            something was decided; or why the policy made none.
        changes: what was to change in Slurm.
        outcome: what became of that; None in shadow mode, or if Slurm was away.
        away: what was said if Slurm did not answer; "" if it did.
        warnings: what is wrong, each said once: with marks, and with how the site is set up.
        heard: what was taken in of what jobs tell.
        lost: jobs as they were seen last of which Slurm knows nothing any more.
    """

    decision: Decision | None = None
    violations: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    outcome: ApplyResult | None = None
    away: str = ""
    warnings: tuple[str, ...] = ()
    heard: Heard = NOTHING
    lost: tuple[SlurmJob, ...] = ()


class Daemon:
    """Schedules a live cluster with one policy."""

    def __init__(
        self,
        backend: SlurmBackend,
        policy: Policy,
        settings: DaemonSettings,
        *,
        mode: DaemonMode,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        store: Store | None = None,
        stopwatch: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Prepare; nothing is read or changed yet.

        Args:
            backend: Slurm.
            policy: the scheduler.
            settings: partitions and times.
            mode: whether to act.
            clock: seconds UTC.
            sleep: waits for so many seconds, between attempts of a call.
            store: where decisions are recorded.
            stopwatch: seconds, for how long decisions take.

        Raises:
            InputError: the policy cannot schedule a live cluster.
        """
        check_fit(policy)
        self._backend, self._settings = backend, settings
        self._planner = Planner(policy, stopwatch)
        self._mode, self._clock, self._sleep = mode, clock, sleep
        self.store, self._stopwatch = store, stopwatch
        self._unrecorded: StoreError | None = None
        self._spool = self._open_spool()
        estimates = LiveSpeeds(store, measures=self._measures)
        self._world = LiveWorld(settings, policy.info.knows, estimates, ELEMENTS[policy.info.model])
        self._open_requests(store)
        self._state: SlurmState | None = None
        self._cpu_jobs, self._refusals = CpuJobs(), Refusals()
        self._writer = DecisionWriter(policy)
        self._rounds_seen = -1
        self._leaving: frozenset[str] = frozenset()
        self._site_due_s = self._failed_s = self._settled_s = -math.inf
        self._read_s = 0.0
        self._away = False
        self._no_spool = ""
        self._warned: dict[str, str] = {}
        self.decisions = 0
        self.ended = self._ended_in(store)

    def cycle(self) -> CycleReport:
        """Observe, plan, check, diff, apply, record: once."""
        try:
            # The clock may have been set back. Jobs are read last, so that they are fresh.
            if not self._clock() < self._site_due_s <= self._clock() + _SITE_S:
                site = self._backend.site()
                self._world.observe_site(site)
                self._site_due_s = self._clock() + _SITE_S
            begun = self._stopwatch()
            state = self._backend.read()
            took_s = self._stopwatch() - begun
            # Where there is a backup controller, a read waits until that has taken over. Of many
            # jobs each takes long.
            self._away |= took_s > max(_SETTLE_S / 2, _MUCH_LONGER * self._read_s)
            self._read_s = took_s
        except BackendError as error:
            self._away = True
            return CycleReport(away=str(error))
        now = self._clock()
        if self._away:
            self._away, self._settled_s = False, now + _SETTLE_S
        before = self._world.cluster
        try:
            self._world.observe(state, now, self._asking())
        except InputError as error:
            # For example: no node has GPUs, since Slurm's configuration is being changed.
            return CycleReport(away=self._world.site_warnings.get("partitions") or str(error))
        again = any(job in self._world.jobs for job in self._world.news.gone)
        if again or (before is not None and not self._names_the_same(before)):
            # A plan that names nodes which are gone, or another job that had the same id, is void.
            self._planner.plan = EMPTY_PLAN
            self._world.news.triggers.add(Trigger.NODE)
            self._world.news.gone.clear()
        self._state = state
        lost = tuple(self._world.lost)
        warnings = self._new_warnings()
        heard = self._hear(now)
        decision: Decision | None = None
        violations: tuple[str, ...] = ()
        if self._due(now):
            decision, violations = self._decide(now)
        given_back = self._refusals.given_back(now)
        actions = () if given_back or self._settling(now) else self._actions(now)
        if given_back:
            held = hold_of(state.reservations, now) is not None
            changes = self._handing_back(state, now) if held else ()
        else:
            moves = changes_for(self._world, actions, self._settings, now)
            changes = (*self._holding(now), *moves, *self._passing(actions, moves, now))
        if self._settling(now):
            # Of a job that seems to have ended Slurm may yet learn that it runs.
            changes = tuple(change for change in changes if not isinstance(change, Cancel))
        self._write_requests()
        if self._mode is DaemonMode.SHADOW:
            return CycleReport(
                decision, violations, changes, warnings=warnings, heard=heard, lost=lost
            )
        until = self._stopwatch() + self._settings.slack_s * _RENEW
        outcome = apply_changes(
            self._backend, changes, self._sleep, enough=lambda: self._stopwatch() > until
        )
        self._away = bool(outcome.away)
        aimed = tuple(self._aims(actions, now))
        stopping = {unit.slurm.id for unit, action in aimed if isinstance(action, Stop)}
        units = map(self._world.unit, outcome.tried(Signal))
        self._world.warned({unit.slurm.id for unit in units if unit is not None}, stopping, now)
        self._carried_out(actions, outcome, now)
        return CycleReport(
            decision, violations, changes, outcome, outcome.away, warnings, heard, lost
        )

    def _names_the_same(self, before: Cluster) -> bool:
        """Whether what a plan names is what it was: its nodes, and copies, which bear their places.

        A node that is new, or comes back, may move the places of all others.
        """
        cluster = self._world.cluster
        if self._planner.policy.info.model is ExecutionModel.COPIES:
            return cluster is not None and cluster.names == before.names
        return _has_all(cluster, before)

    @property
    def world(self) -> LiveWorld:
        """What was observed last."""
        return self._world

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._planner.plan

    def snapshot(self) -> Snapshot | None:
        """Return what is known now; None before Slurm was first read."""
        return None if self._world.cluster is None else self._snapshot(self._clock())

    def check_partitions(self, settings: DaemonSettings) -> None:
        """Refuse partitions that Slurm does not have; one that does not answer is not waited for.

        Raises:
            InputError: names them, and those that there are.
        """
        check_partitions(self._backend, settings)

    def adopt(self, policy: Policy, settings: DaemonSettings, mode: DaemonMode) -> CycleReport:
        """Go on with another configuration; the next cycle asks for a new plan.

        Returns:
            what was changed in Slurm where nothing is to be changed any more.

        Raises:
            InputError: the policy cannot schedule a live cluster, or the spool directory is not one
                to trust; nothing has changed then.
        """
        check_fit(policy)
        self._spool = Spool.open(settings, self.store, self._stopwatch)
        self._no_spool = ""
        report = self.let_go() if mode is DaemonMode.SHADOW else CycleReport()
        self._settings, self._mode = settings, mode
        self._planner = Planner(policy, self._stopwatch)
        self._writer = DecisionWriter(policy)
        self._world.estimates.adopt(measures=self._measures)
        self._world.adopt(settings, policy.info.knows, ELEMENTS[policy.info.model])
        self._world.news.triggers.add(Trigger.NODE)
        self._rounds_seen = -1
        # What the site has set is looked up anew, too: it may have got the partitions just now.
        self._failed_s = self._site_due_s = -math.inf
        return report

    @property
    def store_failure(self) -> StoreError | None:
        """What the store has said last, if that was an error."""
        spool = None if self._spool is None else self._spool.failure
        return self._unrecorded or spool or self._world.estimates.failure

    def _ended_in(self, store: Store | None) -> EndedJobs:
        """Return what a store knows of jobs that have ended: an earlier daemon's plan rests on it.

        What is wrong with a store is said where it is written.
        """
        try:
            return NONE_ENDED if store is None else EndedJobs.of(store.ended_jobs(4 * LATEST))
        except StoreError:
            return NONE_ENDED

    def learn(self, ended: Iterable[EndedJob]) -> None:
        """Tell the policy of jobs that told no size and have completed since."""
        for job in ended:
            self.ended = self.ended.followed_by(job)

    def keep_in(self, store: Store | None) -> None:
        """Go on with another store, or without one: what the old one knew is not known any more."""
        self.store = store
        if self.ended is NONE_ENDED:
            self.ended = self._ended_in(store)
        self._unrecorded, self._no_spool = None, ""
        try:
            self._spool = self._open_spool()
        except InputError as error:
            self._spool, self._no_spool = None, f"nothing is measured: {error}"
        self._open_requests(store)
        self._world.estimates.look_up_in(store, measures=self._measures)
        self._world.news.triggers.add(Trigger.PROFILE)

    @property
    def _measures(self) -> bool:
        """Whether jobs are run to be measured: in shadow no such run begins or ends."""
        return self._spool is not None and self._mode is DaemonMode.ENFORCE

    def _open_requests(self, store: Store | None) -> None:
        try:
            self._world.requests.keep_in(store)
        except StoreError as error:
            self._unrecorded = error

    def _write_requests(self) -> None:
        """Keep what jobs asked for before anything is changed of them."""
        try:
            self._world.requests.write()
        except StoreError as error:
            # A full disk is no reason to leave the cluster alone.
            self._unrecorded = error

    def _open_spool(self) -> Spool | None:
        """Open the spool, or go on without one if the store fails."""
        try:
            return Spool.open(self._settings, self.store, self._stopwatch)
        except StoreError as error:
            self._unrecorded = error
            return None

    def _new_warnings(self) -> tuple[str, ...]:
        """Return what is wrong now and was not when it was asked last."""
        found = dict(self._world.warnings)
        found = {job: f"job={job}: {words}" for job, words in found.items()}
        found |= self._world.site_warnings
        found |= dict(_few(self._world.odd))
        found |= {"record": _unrecorded(self._unrecorded), "spool": self._no_spool}
        found["refusals"] = self._refusals.warning(self._clock())
        new = tuple(
            words for what, words in found.items() if words and self._warned.get(what) != words
        )
        self._warned = found
        return new

    def _hear(self, now: float) -> Heard:
        """Take in what jobs tell; profiling runs that have told enough leave the plan."""
        if self._spool is None:
            return NOTHING
        heard = self._spool.hear(self._world, now)
        left = self._spool.left(self._world, self._planner.plan, now)
        if left is not self._planner.plan:
            self._planner.plan = left
            self._world.news.triggers.add(Trigger.PROFILE)
        return heard

    def _settling(self, now: float) -> bool:
        """Whether Slurm has only just come back, and may yet learn from its nodes what runs."""
        return now < self._settled_s <= now + _SETTLE_S

    def _carried_out(self, actions: Sequence[Action], outcome: ApplyResult, now: float) -> None:
        """Remember what jobs were placed for, and let them know."""
        placed = {change.job for change in outcome.made if isinstance(change, Enter)}
        self._world.entered(placed, self._clock())
        for unit, action in self._aims(actions, now):
            if isinstance(action, Start) and action.ready and element_id(unit.slurm) in placed:
                self._world.placed(element_id(unit.slurm), action.placement)
        for change in outcome.made:
            if isinstance(change, Requeue):
                self._world.stopped(change.job, self._clock())
        for change, words in outcome.refused:
            if isinstance(change, Enter):
                self._world.refused(change.job, words, now)
                self._cpu_jobs.refused(change.job, now)
        self._refusals.note(outcome, now, self._settings.slack_s)
        if self._spool is not None:
            self._spool.note(self._world, self._planner.plan, actions, outcome.made, now)

    def _due(self, now: float) -> bool:
        """Whether something has happened that the plan in force wanted to be replanned on."""
        if 0.0 <= now - self._failed_s < ASK_AGAIN_S:
            return False
        triggers = self._world.news.triggers
        if self._round(now).index != self._rounds_seen:
            triggers.add(Trigger.ROUND)
        at_s = self._planner.plan.replan.at_s
        if at_s is not None and at_s <= now:
            triggers.add(Trigger.TIMER)
        return self._planner.due(self._world)

    def _decide(self, now: float) -> tuple[Decision | None, tuple[str, ...]]:
        """Ask for a plan, and put it into force, or the rest that breaks no rule.

        Returns:
            what was decided, and the rules that were broken.
        """
        snapshot = self._snapshot(now)
        # What has been told to save its state is on its way out: that is not decided anew.
        leaving = warned_jobs(self._world, self._settings)
        shown_anew = {job for job in leaving.keys() | self._leaving if job in snapshot.jobs}
        if shown_anew:
            snapshot = replace(
                snapshot,
                jobs=snapshot.jobs.update(leaving),
                changed=snapshot.changed | shown_anew,
            )
        self._rounds_seen = snapshot.round.index
        try:
            plan, violations, took_s = self._planner.ask(snapshot, self._renewing)
            if violations:
                plan = salvaged(snapshot, plan, violations, self._planner.policy.info.model)
                self._planner.checker.check(snapshot, plan)
        except Exception as error:
            # A policy that fails on one strange job must not end what keeps all others back: the
            # cluster stays as it is, and the same question is not asked again at once.
            self._failed_s = now
            return None, (f"it failed: {described(error)}",)
        self._world.served()
        self._leaving = frozenset(leaving)
        self._planner.plan = plan
        return self._record(snapshot, plan, took_s), _told(violations)

    def _renewing(self) -> AbstractContextManager[None]:
        """Return what keeps the nodes held while a policy thinks, if they are to be held."""
        now = self._clock()
        held = self._mode is DaemonMode.ENFORCE and not self._refusals.given_back(now)
        wanted = self._wanted(now) if held else None
        return renewing(self._backend, wanted, self._settings.slack_s * _RENEW)

    def _holding(self, now: float) -> tuple[Change, ...]:
        """Return what keeps the managed nodes held: nothing in shadow mode."""
        if self._mode is DaemonMode.SHADOW:
            return ()
        assert self._state is not None
        return tuple(hold_changes(self._state.reservations, self._wanted(now), now))

    def _passing(
        self, actions: Sequence[Action], moves: Sequence[Change], now: float
    ) -> tuple[Change, ...]:
        """Return what becomes of jobs without GPUs; after all others, which come first."""
        world, settings = self._world, self._settings
        # What idle GPUs keep is for those that may yet be placed there.
        hopeful = world.hopeful() if world.intake.without_gpus else ()
        waiting = [known for known in hopeful if not self._planner.plan.never(known.job.id)]
        able = [known for known in waiting if not known.blocked]
        # A job that moves does not wait, and has a node to come to.
        starts = (each.placement.configuration for each in actions if isinstance(each, Start))
        managed = world.managed_nodes
        soon = {each for pieces in starts for each in managed.hosts_of(name for name, _ in pieces)}

        @cache
        def wanted(name: str) -> bool:
            assert world.cluster is not None
            nodes = [world.cluster[part] for part in world.cluster.on_host(name)]
            return name in soon or any(
                could_use(known.job, node) for known in able for node in nodes
            )

        kept = kept_for(able, world.nodes.values())

        cycle = CpuCycle(
            waiting=world.intake.without_gpus,
            others=self._state.jobs.values() if self._state else (),
            nodes=managed.by_host,
            asleep=managed.hosts_of(managed.asleep),
            needs=needs_of(known.request for known in waiting),
            kept=kept._replace(nodes=frozenset(managed.hosts_of(kept.nodes))),
            closed=alone_on(world, moves),
            wanted=wanted,
            comers=world.comers,
            hold=world.hold,
            partitions_for=managed.partitions_for,
            start_timeout_s=settings.start_timeout_s,
            now=now,
        )
        changes = tuple(self._cpu_jobs.changes(cycle))
        world.intake.aside |= dict.fromkeys(self._cpu_jobs.beyond, BEYOND)
        return changes

    def _wanted(self, now: float) -> Hold | None:
        assert self._state is not None
        hosts = self._world.managed_nodes.hosts
        return whole_hold(self._state.reservations, hosts, self._settings, now)

    def _asking(self) -> Callable[[SlurmJob], bool]:
        """Return what asks Slurm about a new job, and whether it could: one cycle has limits."""
        until = self._stopwatch() + _LOOK_UP_S

        def ask(seen: SlurmJob) -> bool:
            if self._stopwatch() > until:
                return False
            try:
                self._world.requests.look_up(seen, self._backend)
            except BackendError:
                return False
            return True

        return ask

    def let_go(self) -> CycleReport:
        """Hand the nodes back to Slurm, which then starts what waits, each as it was submitted."""
        if self._mode is DaemonMode.SHADOW:
            return CycleReport()
        try:
            # Read anew: the last cycle has made changes, of the hold itself perhaps.
            state, now = self._backend.read(), self._clock()
            self._world.observe(state, now, self._asking())
        except (BackendError, InputError) as error:
            return CycleReport(away=str(error))  # the hold ends by itself
        changes = self._handing_back(state, now)
        return CycleReport(
            changes=changes, outcome=apply_changes(self._backend, changes, self._sleep)
        )

    def _handing_back(self, state: SlurmState, now: float) -> tuple[Change, ...]:
        return (
            *leave_changes(self._world),
            *(
                each.leave
                for each in self._world.intake.without_gpus
                if each.request.placed(each.job)
            ),
            *letting_go(state.reservations, now),
        )

    def _actions(self, now: float) -> tuple[Action, ...]:
        if self._planner.plan is EMPTY_PLAN:
            return ()
        return staying(self._world, diff(self._snapshot(now), self._planner.plan))

    def _snapshot(self, now: float) -> Snapshot:
        world = self._world
        assert world.cluster is not None
        assert world.speeds is not None
        return Snapshot(
            now=now,
            triggers=frozenset(world.news.triggers),
            round=self._round(now),
            cluster=world.cluster,
            nodes=world.nodes,
            jobs=world.jobs,
            speeds=world.speeds,
            effective_s=now,
            grace_s=self._settings.grace_s,
            shapes=world.shapes,
            runs_per_job=world.elements.runs_per_job,
            seed=self._settings.seed,
            previous=self._planner.plan,
            changed=frozenset(world.news.changed),
            gone=frozenset(world.news.gone),
            nodes_changed=world.news.nodes_changed,
            windows=world.windows,
            asleep=world.asleep,
            site=world.standing.site,
            ended=self.ended,
        )

    def _round(self, now: float) -> Round:
        return round_of(now, self._settings)

    def _aims(self, actions: Sequence[Action], now: float) -> Iterator[Aim]:
        return aims(self._world.managed, actions, self._round(now).start_s)

    def _record(self, snapshot: Snapshot, plan: Plan, took_s: float) -> Decision:
        self.decisions += 1
        waiting = sum(isinstance(entry, Waiting) for entry in plan.entries.values())
        record = PlanRecord(
            snapshot.now, snapshot.triggers, took_s, len(plan.entries) - waiting, waiting
        )
        decision = Decision(self._planner.policy.info.name, record, plan.diagnostics)
        if self.store is None:
            return decision
        decision = replace(decision, document=self._writer.write(snapshot, plan))
        try:
            # Numbers go on from those of the last daemon, which the history names.
            self.decisions = max(self.decisions, self.store.record_decision(decision))
            if self.decisions % _FORGET_EVERY == 0:
                keep, most_mib = self._settings.keep_decisions, self._settings.keep_decisions_mib
                self.store.forget_decisions(keep, most_mib << 20)
            self._unrecorded = None
        except StoreError as error:
            # A full disk is no reason to leave the cluster alone.
            self._unrecorded = error
        return decision


def _told(violations: Sequence[Violation]) -> tuple[str, ...]:
    told = tuple(map(str, violations[:_MOST_TOLD]))
    more = len(violations) - _MOST_TOLD
    return (*told, f"and {more} more") if more > 0 else told


def _few(odd: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what is told of records that are left out: of many only the first are named."""
    for what, words in islice(odd.items(), _MOST_TOLD):
        yield what, f"{what} is left out: {words}"
    if (more := len(odd) - _MOST_TOLD) > 0:
        yield "odd", f"{more} more records are left out"


def _has_all(cluster: Cluster | None, before: Cluster) -> bool:
    """Whether all nodes of a cluster are in another one."""
    return cluster is before or (cluster is not None and all(n.name in cluster for n in before))


def _unrecorded(error: StoreError | None) -> str:
    return "" if error is None else f"decisions are not recorded: {error}"
