"""HadarE: every job forked into a copy for each node, so that no node is idle while a job is left.

Source: Sultana et al., "Resource Heterogeneity-Aware and Utilization-Enhanced Scheduling for Deep
Learning Clusters" (HadarE), section V. In every round the jobs choose nodes, in an `Order`; the
steps that a job has left are divided over its nodes in proportion to their throughputs; at the end
of the round the copies' steps add up and their parameters are averaged.

It knows speeds and how many samples a job has.

Deviations. The paper has the job with most time remaining choose first; the default is `shortest`.
Copies are not sold at Hadar's prices: a copy takes a whole idle node, whose price is the lowest
there is, so all would be let in, and the order decides. A copy is named after its node, so that one
that keeps its node goes on without a restart.
Averaging takes the time that parameters need over the link, out of the slot; after a job's last
round it is not counted. A job of unknown size fills its slots. Jobs that are not preemptible get
one copy and keep it. GPU counts of requirement sets mean nothing in a replay, where every job may
be forked: a copy takes all of a node. Where a job says how many copies it can be (`Job.copies`), as
it does live, a copy goes to nodes with as many GPUs as the job accepts. A job that runs in another
shape, begun outside the daemon, stays as it is if it is not preemptible or could run on no node.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar

from hetsched_core.errors import InputError
from hetsched_core.placement import FreeGpus
from hetsched_core.placement.entries import AHEAD, NEVER, NO_ROOM, plan_placing
from hetsched_core.placement.free import PerGpu, idle_cluster, on_one_node
from hetsched_core.policies.hadar.copies import consolidation_s, split_steps, within_slot
from hetsched_core.policies.hadar.tracker import TrackerNotes
from hetsched_core.policy import PolicyInfo, parameter
from hetsched_core.site import in_turn
from hetsched_core.types import (
    Configuration,
    Diagnostics,
    ExecutionModel,
    Job,
    JobView,
    Knowledge,
    Placed,
    Placement,
    Plan,
    Purpose,
    Reason,
    ReasonCode,
    Replan,
    Run,
    Snapshot,
    Trigger,
    Waiting,
)

_PLANS_ON = frozenset({Trigger.ROUND, Trigger.NODE})
"""What it plans anew on. At a site it is asked in between, too, when a job arrives."""

_CRUMB = 1e-4
"""Part of a step that rounding may leave of a job; copies may do so much more than their steps."""


class Rates(StrEnum):
    """Where throughputs come from: what is known of speeds, or formula (10) until measured."""

    KNOWN = "known"
    MEASURED = "measured"


class Order(StrEnum):
    """Which job chooses the next node, once each has one or there are no more nodes.

    `remaining` is the paper's (section V-B): the one with most time left on the nodes that it has
    by then. `shortest`: the one with least, if these do not end it in this slot. `turns`: the one
    on fewest nodes. First nodes go by the time left on a job's fastest node, most or least.
    """

    REMAINING = "remaining"
    SHORTEST = "shortest"
    TURNS = "turns"

    @property
    def sign(self) -> float:
        """Return -1 where the job with most time left is the first, else 1."""
        return -1.0 if self is Order.REMAINING else 1.0


_METHODS = {
    Order.REMAINING: "most time remaining first",
    Order.SHORTEST: "least time remaining first",
    Order.TURNS: "one node each by turns",
}


@dataclass(frozen=True)
class Hadare:
    """Fork every job over the nodes, and divide its steps by their throughputs."""

    copies: int = parameter(0, "most copies of a job; 0 for as many as there are nodes")
    last_nodes: int = parameter(
        0, "nodes of a last round that so few of them can end (beta); 0 for all"
    )
    order: Order = parameter(Order.SHORTEST, "which job chooses the next node")
    rates: Rates = parameter(Rates.KNOWN, "where throughputs come from")
    bandwidth_gb_s: float = parameter(1.25, "what a node's link moves when copies are averaged")

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="hadare",
        summary="a copy of every job on each node, steps divided by throughput, models averaged",
        paper="HadarE (Sultana et al., section V)",
        model=ExecutionModel.COPIES,
        knows=frozenset({Knowledge.TOTAL_SAMPLES}),
    )

    def __post_init__(self) -> None:
        """Refuse counts below 0 and a link that moves nothing."""
        if self.copies < 0 or self.last_nodes < 0:
            raise InputError(
                f"hadare.copies={self.copies} and hadare.last_nodes={self.last_nodes}: both count "
                "from 0"
            )
        if not self.bandwidth_gb_s > 0:
            raise InputError(
                f"hadare.bandwidth_gb_s={self.bandwidth_gb_s} is not above 0; for example 1.25"
            )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Let the jobs choose nodes and divide their steps."""
        views = snapshot.by_submission()
        tracker = TrackerNotes.read(snapshot.previous.memory).seen(views)
        slot_s = max(snapshot.round.end_s - snapshot.now, 1.0)
        kinds: dict[object, tuple[tuple[str, float], ...]] = {}
        able = []
        free = FreeGpus.of(snapshot)
        placed, assigned = {}, {}
        for view in views:
            job = view.job
            counts = None if job.copies is None else job.requirements
            # Which nodes are closed to it for a time is looked at when they are chosen.
            needs = PerGpu.of(replace(job, closed=frozenset()) if job.closed else job)
            kind = (job.profile, job.gpu_types, needs, counts)
            if kind not in kinds:
                kinds[kind] = self._ranked(snapshot, job, tracker)
            if stays := _as_it_is(snapshot, view, kinds[kind]):
                placed[view.id] = Placed(stays)
                for placement in stays:
                    free.take(job, placement.configuration)
            elif kinds[kind]:
                able.append(_Fork.of(view, kinds[kind], snapshot.now, self._most(snapshot, view)))
        forks = [fork for fork in able if fork.view.blocked is None]
        _choose(snapshot, forks, slot_s, free, self.order)
        alone = forks[0] if len(forks) == 1 else None
        if self.last_nodes and alone and not (alone.runs and _between_rounds(snapshot)):
            alone.keep_fastest(self.last_nodes, slot_s)
        for fork in forks:
            average_s = self._average_s(fork.view.job)
            found = fork.placements(snapshot, slot_s - average_s if len(fork.nodes) > 1 else slot_s)
            if found:
                placed[fork.view.id] = Placed(tuple(p for p, _ in found))
                assigned[fork.view.id] = {str(p.copy): steps for p, steps in found}
        memory = TrackerNotes(tracker.measured, assigned).as_memory()
        possible = {fork.view.id for fork in able}

        def waits(_: Snapshot, view: JobView) -> Waiting:
            if view.id not in possible:
                return _never(view.job)
            return AHEAD if placed else NO_ROOM

        return plan_placing(
            snapshot,
            placed,
            waits,
            Replan(on=_PLANS_ON),
            diagnostics=Diagnostics(method=_METHODS[self.order]),
            memory=memory,
        )

    def _average_s(self, job: Job) -> float:
        return consolidation_s(job.profile, self.bandwidth_gb_s)

    def _most(self, snapshot: Snapshot, view: JobView) -> int:
        """How many copies of a job there may be; one where averaging takes a round or longer."""
        whole_s = snapshot.round.end_s - snapshot.round.start_s
        if not view.job.preemptible or self._average_s(view.job) >= whole_s:
            return 1
        most = self.copies or len(snapshot.cluster)
        if view.job.max_nodes is not None:
            most = min(most, max(1, view.job.max_nodes))
        return most if view.job.copies is None else min(most, max(1, view.job.copies))

    def _ranked(
        self, snapshot: Snapshot, job: Job, tracker: TrackerNotes
    ) -> tuple[tuple[str, float], ...]:
        """Nodes that could hold a copy if they were idle, with its samples/s, the fastest first."""
        empty, speeds = idle_cluster(snapshot.cluster), snapshot.speeds
        known = {}
        for node in snapshot.cluster:
            if not node.gpus or not job.accepts_type(node.gpu_type) or job.min_nodes > 1:
                continue
            if job.nodes is not None and node.name not in job.nodes:
                continue
            if job.copies is not None and node.gpus not in job.requirements:
                continue
            whole = on_one_node(node.name, node.gpus)
            rate = speeds.speed(job.profile, whole)
            if rate > 0 and empty.fits(job, whole):
                known[node.name] = rate
        if self.rates is Rates.MEASURED:
            known = tracker.rates(job.profile, [snapshot.cluster[name] for name in known])
        return tuple(sorted(known.items(), key=lambda item: -item[1]))


@dataclass(slots=True)
class _Fork:
    """A job while its copies are being planned.

    Attributes:
        view: the job.
        ranked: the nodes that can hold a copy, with its samples/s, the fastest first.
        left: samples that it has left, infinity where that is not known.
        runs: its copies that go on, by node.
        most: how many copies it may have.
        nodes: the nodes that it has chosen, in that order, with its samples/s.
    """

    view: JobView
    ranked: tuple[tuple[str, float], ...]
    left: float
    runs: Mapping[str, Run]
    most: int
    nodes: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, view: JobView, ranked: tuple[tuple[str, float], ...], now: float, most: int
    ) -> _Fork:
        total = view.job.total_samples
        left = math.inf if total is None else total - view.samples_at(now)
        # More work than was told is as good as unknown.
        return cls(view, ranked, left if left > 0 else math.inf, _runs(view), most)

    @property
    def remaining_s(self) -> float:
        """Seconds that it has left on the nodes that it has; before the first, infinity."""
        rate = sum(self.nodes.values())
        return self.left / rate if rate else math.inf

    @property
    def alone_s(self) -> float:
        """Seconds that it has left on its fastest node."""
        return self.left / self.ranked[0][1]

    def keep_fastest(self, most: int, slot_s: float) -> None:
        """Keep the `most` fastest nodes if these end the job in this slot."""
        fastest = sorted(self.nodes.items(), key=lambda item: (-item[1], item[0]))[:most]
        if sum(rate for _, rate in fastest) * slot_s >= self.left:
            self.nodes = dict(fastest)

    def placements(self, snapshot: Snapshot, slot_s: float) -> list[tuple[Placement, int]]:
        """Return a placement and its steps for each copy that has any; a step is a sample."""
        index = snapshot.cluster.index
        nodes = sorted(self.nodes, key=index)
        rates = [self.nodes[name] for name in nodes]
        if math.isinf(self.left):
            parts = [1 << 60] * len(nodes)
        else:
            parts = split_steps(max(1, math.ceil(self.left - _CRUMB)), rates)
        found = []
        for name, part, rate in zip(nodes, parts, rates, strict=True):
            run = self.runs.get(name)
            working_s = slot_s if run else max(slot_s - _start_s(self.view), 0.0)
            (steps,) = within_slot([part], [rate], working_s)
            if steps:
                done = _done(self.view, run, snapshot.now) if run else 0.0
                where = on_one_node(name, snapshot.cluster[name].gpus)
                budget = done + steps + _CRUMB
                found.append((Placement(where, index(name), budget=budget), steps))
        return found


def _runs(view: JobView) -> dict[str, Run]:
    """The copies of a job that go on, by node."""
    return {
        run.configuration.pieces[0][0]: run
        for run in view.runs
        if run.purpose is Purpose.RUN and run.draining_until_s is None
    }


def _done(view: JobView, run: Run, now: float) -> float:
    """Samples that a copy has done, from which its budget counts."""
    if not run.begun:
        return run.samples
    more = run.speed * max(0.0, now - max(view.observed_s, run.progress_from_s))
    return run.samples + more if run.budget is None else min(run.samples + more, run.budget)


def _start_s(view: JobView) -> float:
    """Seconds that a new copy of the job takes before it makes progress."""
    return 0.0 if view.first_start_s is None else view.restart_cost_s


def _as_it_is(
    snapshot: Snapshot, view: JobView, ranked: Sequence[tuple[str, float]]
) -> tuple[Placement, ...]:
    """Return where a job stays that others have begun in another shape.

    It is not to be stopped, or not before the round, or there is no node for it to run again.
    """
    runs = _runs(view)
    whole = all(_is_whole(snapshot, run.configuration) for run in runs.values())
    astray = any(not view.job.may_start_on(name) for name in runs)
    movable = view.job.preemptible and (whole or not _between_rounds(snapshot))
    if ranked and (movable or (whole and not astray)):
        return ()
    return tuple(Placement(run.configuration, run.copy, budget=run.budget) for run in runs.values())


def _between_rounds(snapshot: Snapshot) -> bool:
    """Whether it is asked by a site, since a job has arrived."""
    return snapshot.triggers.isdisjoint(_PLANS_ON)


def _is_whole(snapshot: Snapshot, configuration: Configuration) -> bool:
    ((name, gpus), *more) = configuration.pieces
    return not more and gpus == snapshot.cluster[name].gpus


def _choose(
    snapshot: Snapshot, forks: Sequence[_Fork], slot_s: float, free: FreeGpus, order: Order
) -> None:
    """Let jobs choose one node after another."""
    taken: set[str] = set()

    def able(fork: _Fork, name: str) -> bool:
        if name in taken or name in fork.view.job.closed:
            return False
        whole = on_one_node(name, snapshot.cluster[name].gpus)
        if not free.fits(fork.view.job, whole):
            return False
        return name in fork.runs or not free.closed(name)

    def take(fork: _Fork, name: str, rate: float) -> None:
        free.take(fork.view.job, on_one_node(name, snapshot.cluster[name].gpus))
        taken.add(name)
        fork.nodes[name] = rate

    # What arrives between rounds has what is idle.
    between = _between_rounds(snapshot)
    stay = {fork.view.id for fork in forks if between or not fork.view.job.preemptible}
    for fork in forks:
        if fork.view.id in stay:
            for name, rate in fork.ranked:
                if name in fork.runs and able(fork, name):
                    take(fork, name, rate)
    choosers = sorted(
        (f for f in forks if not f.nodes or f.view.id not in stay),
        key=lambda f: order.sign * f.alone_s,
    )
    of = {fork.view.id: fork for fork in choosers}
    node_gpus = snapshot.cluster.gpus / max(1, len(snapshot.cluster))

    def wanted(view: JobView) -> float:
        # Whatever a job asks for, each copy has all GPUs of a node: to the end of the slot or its
        # own, so that accounts of short jobs have what is due to them in time, not in turns.
        fork = of.get(view.id)
        return node_gpus * (1.0 if fork is None else min(1.0, fork.alone_s / slot_s))

    turn = in_turn(snapshot, [fork.view for fork in choosers], running_stay=False, wanted=wanted)
    choosers = [of[view.id] for view in turn]
    waiting = [(_rank(order, fork, slot_s), at) for at, fork in enumerate(choosers)]
    heapq.heapify(waiting)
    while waiting and len(taken) < len(snapshot.cluster):
        _, at = heapq.heappop(waiting)
        fork = choosers[at]
        best = _best(fork, slot_s, able)
        if best is not None:
            take(fork, *best)
            if len(fork.nodes) < fork.most:
                heapq.heappush(waiting, (_rank(order, fork, slot_s), at))


def _rank(order: Order, fork: _Fork, slot_s: float) -> tuple[float, int]:
    """Return what ranks a job by the nodes that it has: of all jobs the least chooses next.

    Of jobs of unknown size none has more left than another: they take turns.
    """
    nodes = len(fork.nodes)
    if not nodes:
        return -math.inf, 0
    if order is Order.TURNS:
        return nodes, 0
    left_s = fork.remaining_s
    if order is Order.SHORTEST and left_s <= slot_s:
        # What it leaves of the slot would be idle; another job can use the node to the end.
        return math.inf, nodes
    return order.sign * left_s, nodes if math.isinf(left_s) else 0


def _best(
    fork: _Fork, slot_s: float, able: Callable[[_Fork, str], bool]
) -> tuple[str, float] | None:
    """Return the node, and its samples/s, where a copy gets most done in the slot.

    What a new copy waits for its start counts.
    """
    new_s = max(slot_s - _start_s(fork.view), 1e-3)
    best, best_done = None, 0.0
    for name, rate in fork.ranked:
        done = rate * (slot_s if name in fork.runs else new_s)
        if done > best_done and able(fork, name):
            best, best_done = (name, rate), done
        elif rate * slot_s <= best_done:
            break
    return best


def _never(job: Job) -> Waiting:
    """Say why a job fits nowhere: where every job is forked, for want of a node of its types."""
    if job.copies is None:
        return NEVER
    words = f"no node that it can use has {job.requirements} GPUs, and it gets all GPUs of a node"
    return Waiting(Reason(ReasonCode.NEVER_FITS, detail=words))
