"""A pool as a policy is shown it: each member a node of one GPU, each training a job of tasks."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cache

from immutables import Map

from hetsched_core.policy import News
from hetsched_core.types import (
    Cluster,
    Configuration,
    Job,
    JobView,
    Knowledge,
    Node,
    NodeView,
    Plan,
    RequirementSet,
    Round,
    Run,
    Snapshot,
    Speeds,
    TaskProgress,
    TaskShape,
    Trigger,
)
from slurm_plugin.pool.records import Training
from slurm_plugin.pool.standing import Standing
from slurm_plugin.pool.state import PoolState

STALLED_S = 2.0
"""With nothing running anywhere for so long, a policy is asked, whatever it waits for."""

_ONE = RequirementSet((1,))


@dataclass
class Showing:
    """The pool as the planner observes it (`hetsched_core.policy.planner`), and snapshots of it.

    Attributes:
        news, jobs, nodes, cluster, sited: as there.
    """

    state: PoolState
    knows: frozenset[Knowledge]
    news: News = field(default_factory=lambda: News(nodes_changed=True))
    jobs: Map[str, JobView] = field(default_factory=Map)
    nodes: Map[str, NodeView] = field(default_factory=Map)
    cluster: Cluster | None = None
    sited: bool = False
    _speeds: Speeds | None = None
    _planned_s: float = 0.0

    def look(self, now_s: float) -> None:
        """Bring all of it up to date with the state."""
        serving = self.state.serving()
        members = tuple(sorted(serving))
        if self.cluster is None or self.cluster.names != members:
            self._join(members)
            self.news.triggers.add(Trigger.NODE)
        keys = [standing.training.key for standing in self.state.active.values()]
        if self.cluster is not None:
            speeds = self.state.times.speeds(self.cluster, keys, self._speeds)
            if speeds is not self._speeds:
                self._speeds = speeds
                self.news.triggers.add(Trigger.PROFILE)
        views = {}
        for name, standing in self.state.active.items():
            if standing.over:
                continue
            view, before = self._view(standing, now_s), self.jobs.get(name)
            if before is None or (before.runs, before.progress) != (view.runs, view.progress):
                self.news.changed.add(name)
                views[name] = view
            else:
                views[name] = before
        self.jobs = Map(views)
        self.news.triggers |= self.state.triggers
        self.state.triggers.clear()
        waits = any(not s.running and not s.todo for s in serving.values())
        if self.state.moved and waits:
            self.news.triggers.add(Trigger.BUDGET)
        if not any(s.running for s in serving.values()) and now_s > self._planned_s + STALLED_S:
            self.news.triggers.add(Trigger.TIMER)

    def snapshot(self, now_s: float, previous: Plan) -> Snapshot:
        """Return what a policy is told now."""
        assert self.cluster is not None
        assert self._speeds is not None
        return Snapshot(
            now=now_s,
            triggers=frozenset(self.news.triggers),
            round=Round(0, now_s, now_s),
            cluster=self.cluster,
            nodes=self.nodes,
            jobs=self.jobs,
            speeds=self._speeds,
            effective_s=now_s,
            previous=previous,
            changed=frozenset(self.news.changed & set(self.jobs)),
            gone=frozenset(set(previous.entries) - set(self.jobs)),
            nodes_changed=self.news.nodes_changed,
        )

    def planned(self) -> None:
        """Begin anew to note what changes."""
        self.news, self.state.moved = News(), False
        self._planned_s = self.state.now_s

    def _join(self, members: tuple[str, ...]) -> None:
        places = [self.state.stations[id_].member for id_ in members]
        nodes = tuple(Node(each.id, each.gpu_type, 1, host=each.node) for each in places)
        self.cluster = Cluster(nodes, name="pool") if nodes else None
        self.nodes = Map({node.name: NodeView(node) for node in nodes})
        self.news.nodes_changed, self._speeds = True, None
        # Where a run is follows from the place of its node.
        self.news.changed |= set(self.jobs)

    def _view(self, standing: Standing, now_s: float) -> JobView:
        name = standing.training.name
        running = {s.running for s in self.state.runs(name)}
        present = standing.done(standing.rounds) - {task[2] for task in running if task}
        progress = TaskProgress(standing.rounds, len(present), standing.loss())
        return JobView(
            self._job(standing.training),
            observed_s=now_s,
            runs=tuple(self._runs(name)),
            progress=progress,
        )

    def _runs(self, name: str) -> list[Run]:
        found = []
        for station in self.state.runs(name):
            id_ = station.member.id
            assert self.cluster is not None
            at = self.cluster.index(id_)
            where = Configuration(((id_, 1),))
            since_s = station.since_s
            found.append(Run(at, where, since_s, since_s, 1.0, copy=at))
        return found

    def _job(self, training: Training) -> Job:
        return _job(training.name, self.knows, _Told.of(training))


@dataclass(frozen=True)
class _Told:
    submit_s: float
    key: str
    rounds: int
    scale: int
    group: str
    weight: float
    function: str

    @classmethod
    def of(cls, training: Training) -> _Told:
        shape = training.rounds, training.scale, training.group
        function = training.make.rpartition(":")[2]
        return cls(training.submit_s, training.key, *shape, training.weight, function)


@cache
def _job(name: str, knows: frozenset[Knowledge], told: _Told) -> Job:
    job = Job(
        name,
        told.submit_s,
        _ONE,
        told.key,
        total_samples=float(told.rounds * told.scale),
        name=told.group or told.function,
        user=str(os.getuid()),
        weight=told.weight,
        tasks=TaskShape(told.scale, told.rounds, told.group),
    )
    return job.hidden_from(knows)
