"""Sound policies of the two execution models that no list policy uses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from immutables import Map

from hetsched_core.policy import PolicyInfo
from hetsched_core.types import (
    Configuration,
    Entry,
    ExecutionModel,
    JobView,
    Node,
    Placed,
    Placement,
    Plan,
    Reason,
    ReasonCode,
    Replan,
    Snapshot,
    TaskBlock,
    TaskItem,
    TaskSequence,
    Trigger,
    Waiting,
)

NEVER = Waiting(Reason(ReasonCode.NEVER_FITS))
NO_ROOM = Waiting(Reason(ReasonCode.NO_ROOM))
ALL_TRIGGERS = Replan(on=frozenset(Trigger))


@dataclass(frozen=True)
class WholeNodes:
    """Give every job a whole node, and what is left as second copies with little to do each."""

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="whole-nodes",
        summary="copies on the nodes that are free",
        paper="",
        model=ExecutionModel.COPIES,
        replay_only="it heeds no shares",
    )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Keep copies where they run and have something to do, then deal out what is left."""
        # Only one node of a host is used at a time: the others want the same CPUs.
        free = [view for view in snapshot.node_views() if view.capacity == view.node.gpus > 0]
        queue = [view for view in snapshot.by_submission() if view.blocked is None]
        copies: dict[str, list[Placement]] = {view.id: [] for view in queue}
        for view in queue:
            for kept in _running_or_due(snapshot, view):
                name = kept.configuration.pieces[0][0]
                if view.job.may_start_on(name) and any(node.node.name == name for node in free):
                    copies[view.id].append(kept)
                    free = [node for node in free if node.node.host != snapshot.cluster[name].host]
        for most, budget in ((1, None), (2, 40.0)):
            for view in queue:
                found = next(
                    (
                        f.node
                        for f in free
                        if f.open
                        and view.job.may_start_on(f.node.name)
                        and _holds(snapshot, view, f.node)
                    ),
                    None,
                )
                if found is None or len(copies[view.id]) >= min(most, view.job.max_nodes or most):
                    continue
                free = [f for f in free if f.node.host != found.host]
                whole = Configuration(((found.name, found.gpus),))
                number = snapshot.cluster.index(found.name)
                copies[view.id].append(Placement(whole, number, budget=budget))
        entries: dict[str, Entry] = {}
        for view in snapshot.by_submission():
            never = not any(_holds(snapshot, view, node) for node in snapshot.cluster)
            waits = Waiting(view.blocked) if view.blocked else NEVER if never else NO_ROOM
            entries[view.id] = Placed(tuple(mine)) if (mine := copies.get(view.id)) else waits
        return Plan(Map(entries), replan=ALL_TRIGGERS)


def _running_or_due(snapshot: Snapshot, view: JobView) -> Iterator[Placement]:
    """The copies that have something left to do, and those that the plan in force will start."""
    for run in view.runs:
        if run.draining_until_s is None and (run.budget is None or run.samples < run.budget):
            yield Placement(run.configuration, run.copy, budget=run.budget)
    entry = snapshot.previous.entries.get(view.id)
    for placement in entry.placements if isinstance(entry, Placed) else ():
        (name, _), *_ = placement.configuration
        if snapshot.nodes[name].open and all(run.copy != placement.copy for run in view.runs):
            yield placement


def _holds(snapshot: Snapshot, view: JobView, node: Node) -> bool:
    """Whether the job runs on all GPUs of a node."""
    job, gpus = view.job, node.gpus
    return (
        gpus > 0
        and job.min_nodes < 2
        and (job.nodes is None or node.name in job.nodes)
        and job.accepts_type(node.gpu_type)
        and snapshot.speeds.table(job.profile).runs_on(node.gpu_type)
        and (not node.cpus or gpus * job.cpus_per_gpu <= node.cpus)
        and (not node.memory_mb or gpus * job.memory_mb_per_gpu <= node.memory_mb)
    )


@dataclass(frozen=True)
class RoundByRound:
    """Deal out the tasks of each job's next two training rounds over the GPUs that it accepts."""

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="round-by-round",
        summary="the tasks of two training rounds, job after job",
        paper="",
        model=ExecutionModel.TASKS,
    )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Deal out what is left of the present rounds, then the next ones."""
        floor = _Floor(snapshot)
        queue = [view for view in snapshot.by_submission() if view.blocked is None]
        for ahead in (0, 1):
            for view in queue:
                if view.job.tasks is None or view.progress is None:
                    continue
                begun = 0 if ahead else view.progress.tasks_done + len(view.runs)
                for _ in range(view.job.tasks.scale - begun):
                    floor.deal(view, view.progress.rounds_done + ahead)
        entries: dict[str, Entry] = {}
        for view in snapshot.by_submission():
            never = not any(_holds_one(view, node) for node in snapshot.cluster)
            waits = Waiting(view.blocked) if view.blocked else NEVER if never else NO_ROOM
            entries[view.id] = Placed(()) if view.id in floor.placed else waits
        return Plan(Map(entries), sequences=floor.sequences(), replan=ALL_TRIGGERS)


def _holds_one(view: JobView, node: Node) -> bool:
    job = view.job
    return (
        node.gpus > 0
        and (job.nodes is None or node.name in job.nodes)
        and job.accepts_type(node.gpu_type)
        and (not node.cpus or job.cpus_per_gpu <= node.cpus)
        and (not node.memory_mb or job.memory_mb_per_gpu <= node.memory_mb)
    )


@dataclass
class _Floor:
    """The tasks dealt to each GPU, and the CPUs and memory that the hungriest of them need."""

    snapshot: Snapshot
    dealt: dict[tuple[str, int], list[TaskItem]] = field(default_factory=lambda: defaultdict(list))
    needs: dict[tuple[str, int], tuple[float, float]] = field(default_factory=dict)
    placed: set[str] = field(default_factory=set)

    def deal(self, view: JobView, training_round: int) -> None:
        """Give a task to the GPU with the fewest that has room for it, if there is one."""
        gpus = [
            (len(self.dealt.get((node.node.name, gpu), ())), at, gpu)
            for at, node in enumerate(self.snapshot.node_views())
            for gpu in range(node.capacity)
            if node.open
            and view.job.may_start_on(node.node.name)
            and view.job.accepts_type(node.node.gpu_type)
        ]
        for _, at, gpu in sorted(gpus):
            node = self.snapshot.cluster.nodes[at]
            before = self.needs.get((node.name, gpu), (0.0, 0.0))
            job = view.job
            self.needs[node.name, gpu] = (
                max(before[0], job.cpus_per_gpu),
                max(before[1], job.memory_mb_per_gpu),
            )
            if self._fits(node):
                self.dealt[node.name, gpu].append(TaskItem(view.id, training_round))
                self.placed.add(view.id)
                return
            self.needs[node.name, gpu] = before

    def sequences(self) -> tuple[TaskSequence, ...]:
        """What each GPU runs, a block for each task."""
        return tuple(
            TaskSequence(name, gpu, tuple(TaskBlock((item,)) for item in items))
            for (name, gpu), items in sorted(self.dealt.items())
        )

    def _fits(self, node: Node) -> bool:
        siblings = self.snapshot.cluster.on_host(node.host)
        here = [needs for (name, _), needs in self.needs.items() if name in siblings]
        cpus, memory_mb = (sum(column) for column in zip(*here, strict=True))
        return (not node.cpus or cpus <= node.cpus) and (
            not node.memory_mb or memory_mb <= node.memory_mb
        )
