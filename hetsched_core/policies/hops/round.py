"""One call of Hops (SoCC '24, section 3.6): from a snapshot to a plan, step by step.

Before it plans, some jobs keep what they have; after it, each job that waits is told why.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import cached_property
from itertools import chain, compress
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hetsched_core.choose import MOST_WORK
from hetsched_core.placement.entries import MIXED_ONLY, NEVER, NO_ROOM, plan_placing
from hetsched_core.placement.keep import entry_at, may_keep, present
from hetsched_core.placement.pack import why_no_nodes
from hetsched_core.placement.ways import ways_to_fit
from hetsched_core.policies.hops import profiling
from hetsched_core.policies.hops.configurations import Generator, JobOptions
from hetsched_core.policies.hops.demand import demand_of
from hetsched_core.policies.hops.queue import (
    NEED_RUN_TIMES,
    HopsNotes,
    Priority,
    known_run_times,
    priorities_of,
    sensitivity_adjustment,
    service_window,
    weights_of,
)
from hetsched_core.policies.hops.room import configuration_of, layout_of, pieces_of
from hetsched_core.policies.hops.solve import SolverInput, SolverOutput, plan_once, take
from hetsched_core.policies.hops.standing import Standing
from hetsched_core.policies.job_size import run_times
from hetsched_core.site import weights
from hetsched_core.types import (
    Configuration,
    Diagnostics,
    JobView,
    Plan,
    Reason,
    ReasonCode,
    Replan,
    Snapshot,
    Waiting,
    submission_order,
)

if TYPE_CHECKING:
    from hetsched_core.policies.hops.hops import Hops

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_BETWEEN_ROUNDS = 4
"""Programmes for what is left over get this part of the work: they are solved far more often."""

_SHUT = {code: Waiting(Reason(code)) for code in (ReasonCode.NODES_DOWN, ReasonCode.CLOSED)}
_BELOW_WINDOW = Waiting(Reason(ReasonCode.BELOW_WINDOW))
_PROFILING = Waiting(Reason(ReasonCode.PROFILING))


class HopsRound:
    """One call of `plan`: jobs are known by their positions in `_views`, in order of submission."""

    def __init__(
        self,
        policy: Hops,
        snapshot: Snapshot,
        standing: Standing,
        *,
        new_round: bool,
        from_s: float,
    ) -> None:
        """Look at what there is.

        Args:
            policy: its parameters.
            snapshot: the state.
            standing: what is remembered of the plan before, and will be of this one.
            new_round: whether everything is planned anew, or only what is left over.
            from_s: when the plan takes effect, seconds UTC.
        """
        self._policy = policy
        self._snapshot = snapshot
        self._standing = standing
        self._new_round = new_round
        self._from_s = from_s
        layout = layout_of(snapshot.cluster, policy.groups)
        self._gpus = int(layout.gpus.sum())
        self._kept = standing.kept(snapshot, layout, new_round=new_round)
        self._room = self._kept.room.copy()
        self._profiles = profiling.running_profiles(snapshot, self._room)
        self._others = self._kept.others(snapshot)
        able = (view for view in self._others if view.blocked is None)
        self._views = sorted(able, key=submission_order)
        self._demand = demand_of(
            self._views,
            snapshot.speeds,
            layout,
            snapshot.shapes,
            only_profiled=policy.profile_iterations > 0,
        )
        self._generator = Generator(
            self._demand,
            layout,
            policy.neighbours,
            most_sensitive=policy.sensitivity,
            speed_step=policy.speed_step,
        )
        self._notes = HopsNotes.read(snapshot.previous.memory).counted(
            snapshot.now, len(snapshot.jobs)
        )
        # (J,) what each counts for the site's sake, beside what the policy makes of it.
        self._due = np.ones(len(self._views))
        self._most_work = MOST_WORK if new_round else MOST_WORK // _BETWEEN_ROUNDS
        # Where jobs are to be; where those are that may stay there.
        self._placed: dict[int, Configuration] = {}
        self._has: dict[int, Configuration] = {}
        self._outcomes: list[SolverOutput] = []
        self._queue: Ints = np.zeros(0, np.int64)
        self._window: Ints = self._queue

    def share_out(self) -> None:
        """Profile, make the round's plan, then plan what is left until no job takes any of it."""
        if not self._views:
            return
        if self._policy.profile_iterations > 0:
            self._profile()
        priorities = self._order_queue()
        setting = self._setting()
        if self._new_round:
            queue, against = self._whole_round(setting, priorities)
            self._plan(setting, queue[: self._window_size(queue)], against)
        placed = True
        while placed and self._room.gpus.any() and len(self._waiting):
            placed = self._plan(setting, self._later_jobs(), priorities)
        self._keep_unclaimed(setting)
        waiting = self._waiting
        self._window = waiting[: self._window_size(waiting)]

    def answer(self, replan: Replan, *, valid_from_s: float) -> Plan:
        """Return the plan, with a reason for each job that waits."""
        snapshot, views = self._snapshot, self._views
        given = [(views[at], where) for at, where in self._placed.items()]
        unsettled = self._kept.unsettled(snapshot)
        keeping = ((view, self._kept.places[view.id][1]) for view in unsettled)
        placed = {view.id: entry_at(snapshot, view, where) for view, where in chain(given, keeping)}
        if len(self._kept.places) + len(given) == len(snapshot.jobs) and (
            self._ends_change_nothing(valid_from_s)
        ):
            # No job waits for what falls free before the next round.
            replan = replace(replan, room={})
        queued = {views[at].id for at in self._queue.tolist()}
        in_window = {views[at].id for at in self._window.tolist()}

        def waits(_: Snapshot, view: JobView) -> Waiting:
            if view.id not in queued:
                return self._reason_to_wait(view)
            return NO_ROOM if view.id in in_window else _BELOW_WINDOW

        plan = plan_placing(
            snapshot,
            placed,
            waits,
            replan,
            among=chain(self._others, unsettled),
            profiles=self._profiles,
            valid_from_s=valid_from_s,
            diagnostics=self._diagnostics(),
            memory=self._new_notes().write(),
        )
        waiting = [view for view in self._others if view.id not in placed]
        self._standing.follow(plan, self._kept, self._room, given, waiting)
        return plan

    # -- steps -------------------------------------------------------------------------------------

    def _profile(self) -> None:
        """Serve the profiling queue: first come, first served.

        Within a round it gets what is idle, and what was begun since the round did is not tried
        again: it could fail again at once.
        """
        notes = replace(self._notes, profiled=()) if self._new_round else self._notes
        begun = profiling.start_profiles(
            self._snapshot,
            [self._views[at] for at in np.flatnonzero(self._unprofiled).tolist()],
            self._profiles,
            self._room,
            tried=frozenset(notes.profiled),
            from_s=self._from_s,
            limit_s=self._policy.profile_limit_s,
            iterations=self._policy.profile_iterations,
        )
        self._profiles = (*self._profiles, *begun)
        tried = (pair for each in begun for pair in profiling.measured_pairs(self._snapshot, each))
        self._notes = replace(notes, profiled=(*notes.profiled, *tried))

    @cached_property
    def _unprofiled(self) -> Bools:
        """(J,) whether each job could run on a GPU type on which it is not profiled yet."""
        snapshot, demand = self._snapshot, self._demand
        firsts = (self._views[at] for at in demand.first.tolist())
        kinds = [profiling.unprofiled(view, snapshot.speeds, snapshot.cluster) for view in firsts]
        return np.array([bool(types) for types in kinds])[demand.kind]

    def _order_queue(self) -> Floats:
        """Put the jobs that open nodes could hold in queue order; return all (J,) priorities."""
        possible = self._standing.possible.on(self._kept.everything, self._generator)
        able = np.flatnonzero(possible[self._demand.kind] & ~self._busy_profiling)
        priorities = np.zeros(len(self._views))
        priorities[able] = self._priorities(able)
        # The jobs are in order of submission, which decides between equals.
        queue = able[np.argsort(-priorities[able], kind="stable")]
        self._due[queue] = weights(self._snapshot, [self._views[at] for at in queue.tolist()])
        self._queue = queue[np.argsort(-(priorities * self._due)[queue], kind="stable")]
        return priorities

    def _keep_unclaimed(self, setting: SolverInput) -> None:
        """Let runners keep what they have where no job got it and a move gains nothing.

        A solution is good enough within its gap, so it may have such moves in it.
        """
        cluster, speeds = self._snapshot.cluster, self._snapshot.speeds
        for at in (*self._placed, *self._waiting.tolist()):
            if at not in setting.held:
                continue
            goes, (nodes, gpus) = self._placed.get(at), setting.held[at]
            has = self._has[at]
            need = self._demand.needs[self._demand.need[self._demand.kind[at]]]
            if goes is None:
                if not self._room.holds(nodes, gpus, need):
                    continue
            elif (
                not setting.offer_held
                or goes == has
                or goes.gpus != has.gpus
                or speeds.speed(self._views[at].job.profile, goes) > setting.held_speed[at]
            ):
                continue
            else:
                to, many = pieces_of(cluster, goes)
                self._room.take(to, -many, need)
                if not self._room.holds(nodes, gpus, need):
                    self._room.take(to, many, need)
                    continue
            self._room.take(nodes, gpus, need)
            self._placed[at] = has

    def _whole_round(self, setting: SolverInput, priorities: Floats) -> tuple[Ints, Floats]:
        """Return the queue and the (J,) priorities of a plan in which runners compete, too."""
        return self._queue, priorities

    @property
    def _busy_profiling(self) -> Bools:
        """(J,) whether a job may not run beside the profiling runs that it has."""
        runs = Counter(profile.job for profile in self._profiles)
        full = (profiling.full(self._snapshot, runs[view.job.id]) for view in self._views)
        return np.fromiter(full, np.bool_, len(self._views))

    def _priorities(self, jobs: Ints) -> Floats:
        """Return (M,) the priorities of jobs, given as positions."""
        snapshot, policy, notes = self._snapshot, self._policy, self._notes
        views = [self._views[at] for at in jobs.tolist()]
        run_s: dict[str, float] = {}
        if policy.priority in NEED_RUN_TIMES:
            run_s = known_run_times(snapshot, views, notes.expected_run_s)
            settled = (self._views[at].id for at in jobs[~self._unprofiled[jobs]].tolist())
            self._notes = notes.with_run_times(run_s, settled, snapshot.gone)
        times, share = run_times(snapshot.speeds, snapshot.cluster), self._gpus / notes.mean_active
        return priorities_of(
            views,
            policy.priority,
            self._from_s,
            run_s,
            lambda job, samples: times.isolated_run_s(job, samples, share),
        )

    def _window_size(self, queue: Ints) -> int:
        """Return how many jobs from the head of a queue are in its service window."""
        smallest = self._demand.smallest[self._demand.kind[queue]]
        return service_window(smallest, self._policy.window * self._gpus)

    @property
    def _waiting(self) -> Ints:
        """Those of the queue that have no place so far."""
        placed = np.zeros(len(self._views), np.bool_)
        placed[list(self._placed)] = True
        return self._queue[~placed[self._queue]]

    def _later_jobs(self) -> Ints:
        """Return the jobs that may take what is left: the window, and others easily spread."""
        waiting, demand = self._waiting, self._demand
        if demand.limited:
            # A job that waits for other nodes than those that are left keeps no other from these.
            possible = self._generator.on(self._room).segments.possible
            waiting = waiting[possible[demand.kind[waiting]]]
        size = self._window_size(waiting)
        if not self._policy.adjustment:
            return waiting[:size]
        kind = demand.kind[waiting]
        layout = self._room.layout
        gpus = np.bincount(layout.type_of, layout.gpus, len(layout.gpu_types)).astype(np.int64)
        admitted = sensitivity_adjustment(
            demand.mean_sensitivity(gpus)[kind],
            demand.smallest[kind],
            size,
            int(self._room.gpus.sum()),
        )
        chosen: Ints = waiting[np.concatenate([np.arange(size), admitted])]
        return chosen

    def _plan(self, setting: SolverInput, jobs: Ints, priorities: Floats) -> bool:
        """Make one plan for jobs in queue order; return whether any was placed."""
        policy, demand, cluster = self._policy, self._demand, self._snapshot.cluster
        outcome = plan_once(
            setting,
            jobs,
            weights_of((priorities * self._due)[jobs], policy.lam),
            self._room,
            {} if self._outcomes else self._notes.prices,
            strict=policy.lam == math.inf,
            work=self._most_work - sum(each.work for each in self._outcomes),
        )
        self._outcomes.append(outcome)
        take(self._room, demand, outcome.placed)
        for job, (nodes, gpus) in outcome.placed.items():
            self._placed[job] = configuration_of(cluster, nodes.tolist(), gpus.tolist())
        return bool(outcome.placed)

    def _credit(self, view: JobView, length_s: float) -> float:
        """Return what a job that has run counts its present configuration for, beyond its gain."""
        weighed_s = self._policy.restart_weight * min(view.restart_cost_s, length_s)
        return max(weighed_s, self._stop_s(view)) / length_s

    def _stop_s(self, view: JobView) -> float:
        """Seconds of its GPUs that a stop of a job costs: until they are free, and its restart."""
        return view.restart_cost_s + self._snapshot.grace_s

    def _gain(self, jobs: Ints, options: JobOptions) -> Floats:
        """Return (Q,) what the options of (M,) jobs are worth, before weights."""
        return options.gain()

    def _setting(self) -> SolverInput:
        """Return what the plans of this round have in common."""
        snapshot, policy, layout = self._snapshot, self._policy, self._room.layout
        places: dict[int, Configuration] = {}
        held_speed, credit = np.zeros(len(self._views)), np.zeros(len(self._views))
        length_s = snapshot.round.end_s - snapshot.round.start_s
        for at, view in enumerate(self._views):
            if view.started_at(snapshot.now) is not None:
                credit[at] = self._credit(view, length_s)
            has = present(snapshot, view)
            if has is not None and may_keep(snapshot, view, has):
                places[at] = has
        pieces = [pieces_of(snapshot.cluster, has) for has in places.values()]
        accepted = self._demand.accepts(tuple(places), pieces, layout).tolist()
        held = dict(compress(zip(places, pieces, strict=True), accepted))
        self._has = {at: places[at] for at in held}
        for at, has in self._has.items():
            held_speed[at] = snapshot.speeds.speed(self._views[at].job.profile, has)
        return SolverInput(
            generator=self._generator,
            gap=policy.gap,
            held=held,
            held_speed=held_speed,
            credit=credit,
            offer_held=policy.restart_weight > 0,
            gain=self._gain,
        )

    # -- the answer --------------------------------------------------------------------------------

    def _reason_to_wait(self, view: JobView) -> Waiting:
        """Return why a job waits that has no configuration on any node that is open.

        While there is profiling, types on which its speed is only guessed do not count.
        """
        snapshot = self._snapshot
        ways = ways_to_fit(view.job, snapshot.cluster, snapshot.speeds, snapshot.shapes)
        if not ways:
            return NEVER
        if all(way.mixed for way in ways):
            return MIXED_ONLY
        if self._policy.profile_iterations > 0 and profiling.unprofiled(
            view, snapshot.speeds, snapshot.cluster
        ):
            return _PROFILING
        shut = why_no_nodes(snapshot, view.job)
        return NO_ROOM if shut is None else _SHUT[shut]

    def _ends_change_nothing(self, valid_from_s: float) -> bool:
        """Whether an end matters to no job that has a place, until the next plan that is due.

        Not where it does to the notes, nor where places are those of a round that is to come.
        """
        noted = self._policy.priority is Priority.FINISH_TIME_FAIRNESS
        return not noted and valid_from_s <= self._snapshot.now

    def _new_notes(self) -> HopsNotes:
        prices = self._outcomes[0].prices if self._new_round and self._outcomes else {}
        return replace(self._notes, prices=prices) if prices else self._notes

    def _diagnostics(self) -> Diagnostics:
        """Tell how the first plan was found, and how many followed."""
        if not self._outcomes:
            return Diagnostics(method="nothing to plan")
        first, later = self._outcomes[0], len(self._outcomes) - 1
        gap = None
        if first.bound is not None:
            gap = (first.bound - first.objective) / first.objective if first.objective > 0 else 0.0
        return Diagnostics(
            method=first.method + (f", then {later} more for what was left" if later else ""),
            objective=first.objective,
            bound=first.bound,
            gap=gap,
            limits=first.limits,
            prices=first.prices,
        )
