"""HadarE: every job forked into a copy for each node, so that no node is idle while a job is left.

Source: Sultana et al., "Resource Heterogeneity-Aware and Utilization-Enhanced Scheduling for Deep
Learning Clusters" (HadarE), section V. In every round the jobs choose nodes, the one with most time
remaining first; the steps that a job has left are divided over its nodes in proportion to their
throughputs; at the end of the round the copies' steps add up and their parameters are averaged.

It knows speeds and how many samples a job has.

Deviations. Copies are not sold at Hadar's prices: a copy takes a whole idle node, whose price is
the lowest there is, so all would be let in, and the order above decides. A copy is named after its
node, so that one that keeps its node goes on without a restart; the paper's ids are for display.
Averaging takes the time that parameters need over the link, out of the slot; after a job's last
round it is not counted. A job of unknown size fills its slots. Jobs that are not preemptible get
one copy and keep it. GPU counts of requirement sets mean nothing here: a copy takes all of a node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from hetsched_core.errors import InputError
from hetsched_core.placement import FreeGpus
from hetsched_core.placement.pack import AHEAD, NEVER, NO_ROOM
from hetsched_core.policies.hadare_copies import consolidation_s, split_steps, within_slot
from hetsched_core.policies.hadare_tracker import Tracker
from hetsched_core.policy import PolicyInfo, parameter
from hetsched_core.types import (
    Configuration,
    Diagnostics,
    Entry,
    ExecutionModel,
    Job,
    JobView,
    Knowledge,
    Node,
    Placed,
    Placement,
    Plan,
    Purpose,
    Replan,
    Run,
    Snapshot,
    Trigger,
    Waiting,
)

_CRUMB = 1e-4
"""Part of a step that rounding may leave of a job; copies may do so much more than their steps."""


class Rates(StrEnum):
    """Where throughputs come from: what is known of speeds, or formula (10) until measured."""

    KNOWN = "known"
    MEASURED = "measured"


@dataclass(frozen=True)
class Hadare:
    """Fork every job over the nodes, and divide its steps by their throughputs."""

    copies: int = parameter(0, "most copies of a job; 0 for as many as there are nodes")
    last_nodes: int = parameter(
        0, "nodes of a last round that so few of them can end (beta); 0 for all"
    )
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
        tracker = Tracker.read(snapshot.previous.memory).seen(views)
        slot_s = max(snapshot.round.end_s - snapshot.now, 1.0)
        able = [_Fork.of(snapshot, v, self._rates(snapshot, v, tracker)) for v in views]
        forks = [fork for fork in able if fork.rates and fork.view.blocked is None]
        _choose(snapshot, forks, slot_s, self.copies or len(snapshot.cluster))
        if self.last_nodes and len(forks) == 1:
            forks[0].keep_fastest(self.last_nodes, slot_s)
        placed, assigned = {}, {}
        for fork in forks:
            average_s = consolidation_s(fork.view.job.profile, self.bandwidth_gb_s)
            found = fork.placements(snapshot, slot_s - average_s if len(fork.nodes) > 1 else slot_s)
            if found:
                placed[fork.view.id] = Placed(tuple(p for p, _ in found))
                assigned[fork.view.id] = {str(p.copy): steps for p, steps in found}
        memory = Tracker(tracker.parents, tracker.measured, assigned).as_memory()
        return _revise(snapshot, placed, {fork.view.id for fork in able if fork.ever}, memory)

    def _rates(self, snapshot: Snapshot, view: JobView, tracker: Tracker) -> dict[str, float]:
        """Samples/s of a copy on each node that the job accepts and makes progress on."""
        nodes = [
            node
            for node in snapshot.cluster
            if node.gpus
            and view.job.accepts_type(node.gpu_type)
            and _known(snapshot, view.job, node) > 0
        ]
        if self.rates is Rates.MEASURED:
            return tracker.rates(view.job.profile, nodes)
        return {node.name: _known(snapshot, view.job, node) for node in nodes}


def _known(snapshot: Snapshot, job: Job, node: Node) -> float:
    return snapshot.speeds.speed(job.profile, Configuration(((node.name, node.gpus),)))


@dataclass(slots=True)
class _Fork:
    """A job while its copies are being planned.

    Attributes:
        view: the job.
        rates: samples/s on each node that can hold a copy, whatever is there now.
        left: samples that it has left, infinity where that is not known.
        ever: whether any node could ever hold a copy.
        nodes: the nodes that it has chosen, in that order.
    """

    view: JobView
    rates: Mapping[str, float]
    left: float
    ever: bool
    nodes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, snapshot: Snapshot, view: JobView, rates: Mapping[str, float]) -> _Fork:
        empty = FreeGpus.empty(snapshot.cluster)
        fit = {
            name: rate
            for name, rate in rates.items()
            if empty.fits(view.job, Configuration(((name, snapshot.cluster[name].gpus),)))
        }
        total = view.job.total_samples
        left = math.inf if total is None else total - view.samples_at(snapshot.now)
        # More work than was told is as good as unknown.
        return cls(view, fit, left if left > 0 else math.inf, bool(fit))

    @property
    def remaining_s(self) -> float:
        """Seconds that it has left on the nodes that it has; before the first, infinity."""
        rate = sum(self.rates[name] for name in self.nodes)
        return self.left / rate if rate else math.inf

    @property
    def alone_s(self) -> float:
        """Seconds that it has left on its fastest node."""
        return self.left / max(self.rates.values())

    def keep_fastest(self, most: int, slot_s: float) -> None:
        """Keep the `most` fastest nodes if these end the job in this slot."""
        fastest = sorted(self.nodes, key=lambda name: (-self.rates[name], name))[:most]
        if sum(self.rates[name] for name in fastest) * slot_s >= self.left:
            self.nodes = fastest

    def placements(self, snapshot: Snapshot, slot_s: float) -> list[tuple[Placement, int]]:
        """Return a placement and its steps for each copy that has any; a step is a sample."""
        index = snapshot.cluster.index
        nodes = sorted(self.nodes, key=index)
        runs = _runs(self.view)
        rates = [self.rates[name] for name in nodes]
        if math.isinf(self.left):
            parts = [1 << 60] * len(nodes)
        else:
            parts = split_steps(max(1, math.ceil(self.left - _CRUMB)), rates)
        lasting = [
            slot_s if name in runs else max(slot_s - _start_s(self.view), 0.0) for name in nodes
        ]
        found = []
        for name, part, rate, seconds in zip(nodes, parts, rates, lasting, strict=True):
            (steps,) = within_slot([part], [rate], seconds)
            if steps:
                done = _done(self.view, runs[name], snapshot.now) if name in runs else 0.0
                where = Configuration(((name, snapshot.cluster[name].gpus),))
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
    more = run.speed * max(0.0, now - max(view.observed_s, run.progress_from_s))
    return run.samples + more if run.budget is None else min(run.samples + more, run.budget)


def _start_s(view: JobView) -> float:
    """Seconds that a new copy of the job takes before it makes progress."""
    return 0.0 if view.first_start_s is None else view.restart_cost_s


def _choose(snapshot: Snapshot, forks: Sequence[_Fork], slot_s: float, most: int) -> None:
    """Let jobs choose one node after another, whoever has most time remaining first.

    A job chooses where it gets most done in the slot; what a new copy waits for its start counts.
    """
    free = FreeGpus.of(snapshot)
    taken: set[str] = set()

    def whole(name: str) -> Configuration:
        return Configuration(((name, snapshot.cluster[name].gpus),))

    def take(fork: _Fork, name: str) -> None:
        free.take(fork.view.job, whole(name))
        taken.add(name)
        fork.nodes.append(name)

    for fork in forks:
        if not fork.view.job.preemptible:
            for name in _runs(fork.view):
                if free.fits(fork.view.job, whole(name)):
                    take(fork, name)
    # Most time remaining first; before anybody has a node, on its fastest.
    waiting = sorted(
        (f for f in forks if f.view.job.preemptible or not f.nodes), key=lambda f: -f.alone_s
    )
    while waiting:
        fork = max(waiting, key=lambda f: f.remaining_s)
        runs = _runs(fork.view)
        best, best_done = "", 0.0
        for name, rate in fork.rates.items():
            if name in taken or not free.fits(fork.view.job, whole(name)):
                continue
            if free.closed(whole(name)) and name not in runs:
                continue
            done = rate * (slot_s if name in runs else max(slot_s - _start_s(fork.view), 1e-3))
            if done > best_done:
                best, best_done = name, done
        if best:
            take(fork, best)
        limit = most if fork.view.job.preemptible else 1
        if not best or len(fork.nodes) >= limit:
            waiting.remove(fork)


def _revise(
    snapshot: Snapshot,
    placed: Mapping[str, Placed],
    possible: set[str],
    memory: Mapping[str, object],
) -> Plan:
    before = snapshot.previous.entries
    changes: dict[str, Entry] = {}
    for view in snapshot.by_submission():
        entry: Entry
        if view.id in placed:
            entry = placed[view.id]
        elif view.blocked is not None:
            entry = Waiting(view.blocked)
        elif view.id not in possible:
            entry = NEVER
        else:
            entry = AHEAD if placed else NO_ROOM
        if entry != before.get(view.id):
            changes[view.id] = entry
    return snapshot.previous.revise(
        changes,
        snapshot.gone,
        replan=Replan(on=frozenset({Trigger.ROUND, Trigger.NODE})),
        diagnostics=Diagnostics(method="most time remaining first"),
        memory=memory,
    )
