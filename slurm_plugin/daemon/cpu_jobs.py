"""Jobs without GPUs on the managed nodes: they pass in Slurm's own order.

No policy is asked about them. They leave the CPUs and the memory alone that idle GPUs need. One
that would never start so takes those of GPUs that no job waits for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from hetsched_core.throughput import match_gpu
from hetsched_core.types import NodeView, ReasonCode
from slurm_plugin.backend import Enter, JobState, Leave, SlurmJob
from slurm_plugin.daemon.jobs.attempts import Attempts, Kind, kind_of
from slurm_plugin.daemon.jobs.request import Request
from slurm_plugin.daemon.jobs.slurm_reasons import code_of, keeps_back, of_job, partition_is_closed
from slurm_plugin.daemon.nodes.kept_for_gpus import Kept
from slurm_plugin.daemon.nodes.tenants import Comers

_AGAIN_S = 60.0
"""How long one is not placed again that Slurm did not start."""

_PROBE_S = 10.0
"""How often one of the jobs under a limit is tried, of which Slurm says that they have met it."""

_LOOKED_AT_S = 5.0
"""How long after a placement Slurm's word of a job may be from before it."""

BEYOND = (
    "it asks for no GPUs, and for more cores or memory than its nodes have beside what idle GPUs "
    "need; it starts where there is room, once no job waits that could use the GPUs there"
)
"""Why one waits that idle GPUs would keep from ever starting."""

_NOTHING = (0.0, 0.0)

_NO_NODES: frozenset[str] = frozenset()

_UNLIMITED_S = 365 * 86_400.0
"""How long a job without a time limit lasts, as in Slurm's backfill."""


class CpuJob(NamedTuple):
    """A waiting job without GPUs, what it asks for, and the nodes that it may run on."""

    job: SlurmJob
    request: Request
    where: frozenset[str] | None

    @property
    def leave(self) -> Leave:
        """What lets it wait again as it was submitted."""
        return self.request.leave(self.job.id, self.job.partitions)


@dataclass(slots=True)
class _Room:
    """What is left on a node: CPUs, MiB and GPUs."""

    cpus: float
    memory_mb: float
    gpus: float = 0.0

    def fits(self, cpus: float, memory_mb: float, gpus: float = 0.0) -> bool:
        return cpus <= self.cpus and memory_mb <= self.memory_mb and gpus <= self.gpus

    def lacks(self, cpus: float, memory_mb: float) -> float:
        """Return what is missing as a share of what is asked for; below 0 there is more."""
        return max(
            (cpus - self.cpus) / max(1.0, cpus),
            (memory_mb - self.memory_mb) / max(1.0, memory_mb),
        )


@dataclass(frozen=True, slots=True)
class CpuCycle:
    """What jobs without GPUs find in one cycle.

    Attributes:
        waiting: those that wait.
        others: all jobs as Slurm shows them; of those that run it is asked when they end.
        nodes: the managed nodes, by Slurm's names.
        asleep: those of them that are powered down.
        needs: the CPUs and MiB that jobs of GPUs ask for, for each GPU, at the most.
        kept: what is kept for a job of GPUs: only what ends before that could start passes there.
        closed: nodes that none of them may enter now.
        wanted: whether a job waits for GPUs that could use those of a node.
        comers: what is on the nodes, and enters them in this cycle.
        hold: the reservation that they enter.
        partitions_for: a job's partitions, that of some nodes first; () where they are so.
        start_timeout_s: one that has not started by then gives its place back.
        now: seconds UTC.
    """

    waiting: Collection[CpuJob]
    others: Iterable[SlurmJob]
    nodes: Mapping[str, NodeView]
    asleep: Collection[str]
    needs: tuple[float, float]
    kept: Kept
    closed: Collection[str]
    wanted: Callable[[str], bool]
    comers: Comers
    hold: str
    partitions_for: Callable[[SlurmJob, Collection[str]], tuple[str, ...]]
    start_timeout_s: float
    now: float


class CpuJobs:
    """Places jobs without GPUs, and remembers when it did.

    Attributes:
        beyond: those that the last cycle left waiting, and idle GPUs would keep from ever starting.
    """

    def __init__(self) -> None:
        """Begin with none placed."""
        self.beyond: set[str] = set()
        self._placed: dict[str, tuple[float, Kind, list[str]]] = {}
        self._attempts = Attempts()
        # Until when a job is placed nowhere, and on which nodes Slurm has not started it.
        self._not_before: dict[str, float] = {}
        self._shunned: dict[str, frozenset[str]] = {}
        # Whose jobs have met a limit: when one of them is tried again.
        self._limited: dict[tuple[str, str, str], float] = {}

    def changes(self, cycle: CpuCycle) -> Iterator[Enter | Leave]:
        """Yield which of them start now, and which give their places back."""
        rooms, now = _Rooms(cycle), cycle.now
        self.beyond.clear()
        there = {each.job.id for each in cycle.waiting}
        for started in self._placed.keys() - there:
            _, kind, nodes = self._placed.pop(started)
            self._attempts.started(kind, nodes, now)
        self._not_before = {job: s for job, s in self._not_before.items() if s > now}
        self._shunned = {job: nodes for job, nodes in self._shunned.items() if job in there}
        self._limited = {peers: s for peers, s in self._limited.items() if s > now}
        self._attempts.forget(now)
        for each in cycle.waiting:
            if not each.job.entered:
                if each.request.placed(each.job):
                    yield each.leave
            elif not self._keeps_its_place(each, rooms, cycle):
                yield each.leave
        for each in _in_order(cycle.waiting):
            if each.job.entered or not cycle.comers.has_licenses(each.job):
                continue
            if not self._is_tried(each, now):
                continue
            elsewhere = self._elsewhere(each, cycle)
            if elsewhere is None:
                self._shunned.pop(each.job.id, None)
            nodes = rooms.for_job(elsewhere or each, self.beyond)
            if nodes:
                self._placed[each.job.id] = now, kind_of(each.job, each.request), nodes
                yield _enter(each, nodes, cycle)

    def refused(self, job: str, now: float) -> None:
        """Note that Slurm has not taken a placement: it is not to be asked in every cycle."""
        self._not_before[job] = now + _AGAIN_S

    def _keeps_its_place(self, each: CpuJob, rooms: _Rooms, cycle: CpuCycle) -> bool:
        """Whether one that was placed, and has not started, stays there; what it has is taken."""
        job = each.job
        since_s, kind, nodes = self._placed.get(job.id, (cycle.now, Kind(""), []))
        if _stays(job) and cycle.now - since_s > _LOOKED_AT_S:
            # It takes nothing of the node, nor would its like.
            self._limited[_peers(job)] = cycle.now + _PROBE_S
            return False
        if not all(cycle.nodes[name].open for name in job.pinned if name in cycle.nodes):
            # Slurm starts nothing there any more: it is drained, for example.
            return False
        rooms.hold(job.pinned, job.on_each)
        if job.id not in self._placed:
            # An earlier daemon has placed it, or it has run and was queued again.
            return False
        if cycle.now - since_s <= cycle.start_timeout_s:
            return True
        before = self._shunned.get(job.id, _NO_NODES)
        self._shunned[job.id] = before.union(nodes)
        self._attempts.failed(kind, nodes, cycle.now, since_s)
        if before or self._elsewhere(each, cycle) is None:
            self._not_before[job.id] = cycle.now + _AGAIN_S
        return False

    def _elsewhere(self, each: CpuJob, cycle: CpuCycle) -> CpuJob | None:
        """Return a job without the nodes on which Slurm has not started its like.

        None if it has too few others.
        """
        bad = self._attempts.bad_nodes(kind_of(each.job, each.request), each.job.id, cycle.now)
        shunned = self._shunned.get(each.job.id, _NO_NODES) | bad
        if not shunned:
            return each
        names = frozenset(cycle.nodes)
        others = (names if each.where is None else each.where & names) - shunned
        return None if len(others) < each.job.least_nodes else each._replace(where=others)

    def _is_tried(self, each: CpuJob, now: float) -> bool:
        """Whether there is any use in placing a job now, as far as Slurm has told and shown."""
        job = each.job
        if self._not_before.get(job.id, now) > now:
            return False
        if _stays(job):
            if _peers(job) in self._limited:
                return False
            self._limited[_peers(job)] = now + _PROBE_S
        if not self._attempts:
            return True
        return self._attempts.may_try(kind_of(job, each.request), job.id, now)


class _Rooms:
    """What is left on the nodes for jobs without GPUs, as they are placed one after the other."""

    def __init__(self, cycle: CpuCycle) -> None:
        self._cycle = cycle
        views = {
            name: view
            for name, view in cycle.nodes.items()
            if view.open and name not in cycle.closed
        }
        bare = {name: NodeView(view.node) for name, view in views.items()}
        # Beside what idle GPUs need, now and on an empty node; then with that.
        self._beside = {name: _room(view, cycle.needs) for name, view in views.items()}
        self._empty = {name: _room(view, cycle.needs) for name, view in bare.items()}
        self._all_of = {name: _room(view, _NOTHING) for name, view in views.items()}
        self._whole = {name: _room(view, _NOTHING) for name, view in bare.items()}
        # What there is no room for, and whether idle GPUs would keep it from ever starting.
        self._full: dict[tuple[object, ...], bool] = {}
        # For which sets of nodes a job keeps what there is, what was there before, and until when
        # that job could not start anyway.
        self._keepers: set[frozenset[str] | None] = set()
        self._before: dict[str, _Room] = {}
        self._until_s: dict[str, float] = {}
        kept = cycle.kept
        at_s = self._starts_at(kept.nodes, self._all_of, kept.share)
        for name in kept.nodes & views.keys():
            self._before[name] = _room(views[name], kept.needs)
            self._until_s[name] = at_s
            self._beside[name], self._empty[name] = _Room(0.0, 0.0), _Room(0.0, 0.0)

    def hold(self, nodes: Collection[str], share: tuple[float, float]) -> None:
        """Take a share of each of these nodes for a job that is, or starts, there."""
        self._take(nodes, share)
        for name in nodes:
            _take(self._before.get(name), *share)

    def _take(self, nodes: Iterable[str], share: tuple[float, float]) -> None:
        for name in nodes:
            _take(self._beside.get(name), *share)
            _take(self._all_of.get(name), *share)

    def for_job(self, each: CpuJob, beyond_idle_gpus: set[str]) -> list[str]:
        """Return the nodes on which a job starts, and take its share of them; [] for none.

        One for which there is no room may keep what there is. What idle GPUs would keep from ever
        starting is added to `beyond_idle_gpus` while it has to wait.
        """
        job, share, many = each.job, each.job.on_each, each.job.least_nodes
        ends_s = self._cycle.now + _lasts_s(job)
        kind = share, many, each.where, job.partitions, ends_s if self._before else 0.0
        if kind in self._full:
            # Its turn comes after that of its like, which keeps what there is.
            if self._full[kind]:
                beyond_idle_gpus.add(job.id)
            return []
        # Backfill: what has ended before a job can start that keeps a node is in no job's way.
        passing = {
            name: self._before[name] for name in self._before if ends_s <= self._until_s[name]
        }
        open_to_it = {**self._beside, **passing} if passing else self._beside
        may = [
            name
            for name in self._beside
            if (each.where is None or name in each.where)
            and self._cycle.comers.admits(job, name, share[0])
        ]
        could = [n for n in may if open_to_it[n].fits(*share) or self._empty[n].fits(*share)]
        beyond = len(could) < many <= sum(self._whole[name].fits(*share) for name in may)
        left = self._all_of if beyond else open_to_it
        if beyond:
            could = [name for name in may if self._without_idle_gpus(name, share)]
        chosen = self._best(could, left, open_to_it, share)[:many]
        fits = len(chosen) == many and all(left[name].fits(*share) for name in chosen)
        if not fits:
            self._full[kind] = beyond
            if beyond:
                beyond_idle_gpus.add(job.id)
        if len(chosen) < many or (not fits and each.where in self._keepers):
            return []
        if not fits:
            # The first for which there is no room keeps what there is, so that its turn comes. Did
            # all do so, a few large ones would close every node to small ones.
            self._keepers.add(each.where)
            self._keep(chosen, left, share)
            self._take(chosen, share)
            return []
        self.hold(chosen, share)
        return chosen

    def _without_idle_gpus(self, name: str, share: tuple[float, float]) -> bool:
        """Whether a node may have room once no job waits for the GPUs that are idle there."""
        free = self._whole[name].fits(*share) and not self._cycle.wanted(name)
        return free or self._beside[name].fits(*share)

    def _best(
        self,
        could: Iterable[str],
        left: Mapping[str, _Room],
        open_to_it: Mapping[str, _Room],
        share: tuple[float, float],
    ) -> list[str]:
        """Order nodes: where there is room, those awake, and where idle GPUs lose the least.

        Those have few GPUs left, or slow ones.
        """

        def key(name: str) -> tuple[bool, bool, float, float, str]:
            speed = match_gpu(self._cycle.nodes[name].node.gpu_type).spec.single_tflops
            rests = name in self._cycle.asleep
            return not left[name].fits(*share), rests, open_to_it[name].lacks(*share), speed, name

        return sorted(could, key=key)

    def _keep(
        self, nodes: Iterable[str], left: Mapping[str, _Room], share: tuple[float, float]
    ) -> None:
        """Remember what is there before a job keeps it, and until when that could not start."""
        at_s = self._starts_at(nodes, left, share)
        for name in nodes:
            self._before.setdefault(name, replace(self._beside[name]))
            self._until_s[name] = min(self._until_s.get(name, math.inf), at_s)

    def _starts_at(
        self, nodes: Iterable[str], left: Mapping[str, _Room], share: tuple[float, ...]
    ) -> float:
        """Return from when on there is room for a share on each of some nodes."""
        cycle = self._cycle
        running = [job for job in cycle.others if job.state is JobState.RUNNING]
        return max(
            (
                _room_at(left[name], share, _ends(running, name, cycle.now))
                for name in nodes
                if name in left
            ),
            default=-math.inf,
        )


def _enter(each: CpuJob, nodes: Collection[str], cycle: CpuCycle) -> Enter:
    job = each.job
    cycle.comers.take(job, dict.fromkeys(nodes, job.on_each[0]))
    first = cycle.partitions_for(job, nodes)
    return Enter(
        job.id,
        cycle.hold,
        tuple(sorted(nodes)),
        each.request.leave(job.id, first or job.partitions),
        due=job.restarts > 0,
        partitions=first,
    )


def _in_order(waiting: Iterable[CpuJob]) -> list[CpuJob]:
    """Return jobs in Slurm's order; those that are held or wait for others are left out."""
    free = [
        each
        for each in waiting
        if each.job.state is JobState.PENDING
        and not each.job.held
        and not partition_is_closed(each.job.reason)
        and not each.job.dependency
        and not each.job.reason.startswith("Dependency")
    ]
    return sorted(free, key=lambda each: (-each.job.priority, each.job.submit_s, each.job.id))


def _stays(job: SlurmJob) -> bool:
    """Whether Slurm says that it would start a job nowhere now."""
    lacks = job.entered and code_of(job.reason) is ReasonCode.LICENSES
    return lacks or keeps_back(job.reason) or of_job(job.reason)


def _peers(job: SlurmJob) -> tuple[str, str, str]:
    """Return with whose jobs one comes under the same limits."""
    return job.user, job.account, job.qos


def _room(view: NodeView, needs: tuple[float, float]) -> _Room:
    """Return what a node has beside what is in use, and what its idle GPUs need."""
    node = view.node
    idle = max(0, node.gpus - view.held_gpus - view.foreign_gpus)
    cpus = min(needs[0], node.cpus / node.gpus)
    memory_mb = min(needs[1], node.memory_mb / node.gpus)
    return _Room(
        node.cpus - view.held_cpus - view.foreign_cpus - idle * cpus,
        node.memory_mb - view.held_memory_mb - view.foreign_memory_mb - idle * memory_mb,
        idle,
    )


def _ends(running: Iterable[SlurmJob], node: str, now: float) -> list[tuple[float, ...]]:
    """Return when jobs on a node end at the latest, and the CPUs, MiB and GPUs that they leave."""
    return sorted(
        (
            max(now, job.start_s + _lasts_s(job)),
            *job.on_each,
            job.gpus / len(job.nodes),
        )
        for job in running
        if node in job.nodes and job.start_s is not None
    )


def _lasts_s(job: SlurmJob) -> float:
    return _UNLIMITED_S if job.time_limit_s is None else job.time_limit_s


def _room_at(room: _Room, share: tuple[float, ...], ends: Iterable[tuple[float, ...]]) -> float:
    """Return from when on there is room for a share; -inf, any moment, where nothing tells."""
    room, at_s = replace(room), -math.inf
    for end_s, *left in ends:
        if room.fits(*share):
            break
        _take(room, *(-each for each in left))
        at_s = end_s
    return at_s if room.fits(*share) else -math.inf


def _take(room: _Room | None, cpus: float, memory_mb: float, gpus: float = 0.0) -> None:
    if room is not None:
        room.cpus -= cpus
        room.memory_mb -= memory_mb
        room.gpus -= gpus
