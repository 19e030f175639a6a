"""Jobs without GPUs on the managed nodes: they pass in Slurm's own order.

No policy is asked about them. They leave the CPUs and the memory alone that idle GPUs need. One
that would never start so takes those of GPUs that no job waits for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from hetsched_core.throughput import match_gpu
from hetsched_core.types import Job, Node, NodeView
from slurm_plugin.backend import Enter, JobState, Leave, Release, SlurmJob
from slurm_plugin.daemon.quotas import IN_VAIN, Kind, kind_of
from slurm_plugin.daemon.request import Request
from slurm_plugin.daemon.slurm_reasons import keeps_back, of_job, partition_is_closed
from slurm_plugin.daemon.tenants import Comers

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
    """What is left on a node: CPUs and MiB."""

    cpus: float
    memory_mb: float

    def fits(self, cpus: float, memory_mb: float) -> bool:
        return cpus <= self.cpus and memory_mb <= self.memory_mb

    def lacks(self, cpus: float, memory_mb: float) -> float:
        """Return what is missing as a share of what is asked for; below 0 there is more."""
        return max(
            (cpus - self.cpus) / max(1.0, cpus),
            (memory_mb - self.memory_mb) / max(1.0, memory_mb),
        )


class CpuJobs:
    """Places jobs without GPUs, and remembers when it did.

    Attributes:
        beyond: those that the last cycle left waiting, and idle GPUs would keep from ever starting.
    """

    def __init__(self) -> None:
        """Begin with none placed."""
        self.beyond: set[str] = set()
        self._placed: dict[str, tuple[float, Kind]] = {}
        # How many of a kind Slurm has not started since it last started one.
        self._in_vain: Counter[Kind] = Counter()
        self._not_before: dict[str, float] = {}
        # Whose jobs have met a limit: when one of them is tried again.
        self._limited: dict[tuple[str, str, str], float] = {}

    def changes(
        self,
        waiting: Collection[CpuJob],
        others: Iterable[SlurmJob],
        nodes: Mapping[str, NodeView],
        needs: tuple[float, float],
        kept: Collection[str],
        wanted: Callable[[str], bool],
        comers: Comers,
        hold: str,
        partitions_for: Callable[[SlurmJob, Collection[str]], tuple[str, ...]],
        start_timeout_s: float,
        now: float,
    ) -> Iterator[Enter | Leave | Release]:
        """Yield which of them start now, which give their places back, and which are let go.

        Args:
            waiting: jobs without GPUs that wait.
            others: all jobs as Slurm shows them; of those that run it is asked when they end.
            nodes: the managed nodes.
            needs: the CPUs and MiB that jobs of GPUs ask for, for each GPU, at the most.
            kept: nodes that are kept free of more of them.
            wanted: whether a job waits for GPUs that could use those of a node.
            comers: what is on the nodes, and enters them in this cycle.
            hold: the reservation that they enter.
            partitions_for: a job's partitions, that of some nodes first; () where they are so.
            start_timeout_s: one that has not started by then gives its place back.
            now: seconds UTC.
        """
        rooms = {name: _room(view, needs) for name, view in nodes.items() if view.open}
        rooms = {name: room for name, room in rooms.items() if name not in kept}
        empty = {name: _room(NodeView(nodes[name].node), needs) for name in rooms}
        # The same with what idle GPUs need.
        all_of = {name: _room(nodes[name], _NOTHING) for name in rooms}
        whole = {name: _room(NodeView(nodes[name].node), _NOTHING) for name in rooms}
        self.beyond.clear()
        there = {each.job.id for each in waiting}
        for started in self._placed.keys() - there:
            _, kind = self._placed.pop(started)
            self._in_vain.pop(kind, None)
        self._not_before = {job: s for job, s in self._not_before.items() if s > now}
        self._limited = {peers: s for peers, s in self._limited.items() if s > now}
        trying: set[Kind] = set()
        for each in waiting:
            job = each.job
            if job.held_by_slurm:
                # Nothing else would let go of it; how often Slurm tries is its MaxBatchRequeue.
                yield Release(job.id)
            if not job.entered:
                if each.request.placed(job):
                    yield each.leave
                continue
            met = _stays(job)
            since_s, kind = self._placed.get(job.id, (now, kind_of(job)))
            if met and now - since_s > _LOOKED_AT_S:
                # It takes nothing of the node, nor would its like.
                self._limited[_peers(job)] = now + _PROBE_S
                yield each.leave
                continue
            for name in job.pinned:
                _take(rooms.get(name), *job.on_each)
                _take(all_of.get(name), *job.on_each)
            if job.id not in self._placed:
                # An earlier daemon has placed it, or it has run and was queued again.
                yield each.leave
                continue
            trying.add(kind)
            if now - since_s > start_timeout_s:
                self._not_before[job.id] = now + _AGAIN_S
                self._in_vain[kind] += 1
                yield each.leave
        # What there is no room for, and whether idle GPUs would keep it from ever starting.
        full: dict[tuple[object, ...], bool] = {}
        # For which sets of nodes a job keeps what there is, what was there before, and until when
        # that job could not start anyway.
        keepers: set[frozenset[str] | None] = set()
        before: dict[str, _Room] = {}
        until_s: dict[str, float] = {}
        for job, request, where in _in_order(waiting):
            if job.entered or self._not_before.get(job.id, now) > now:
                continue
            if _stays(job):
                if _peers(job) in self._limited:
                    continue
                self._limited[_peers(job)] = now + _PROBE_S
            its_kind = kind_of(job)
            if self._in_vain[its_kind] >= IN_VAIN and its_kind in trying:
                continue
            share, many = job.on_each, job.least_nodes
            ends_s = now + (math.inf if job.time_limit_s is None else job.time_limit_s)
            kind = share, many, where, job.partitions, ends_s if before else 0.0
            if kind in full:
                # Its turn comes after that of its like, which keeps what there is.
                if full[kind]:
                    self.beyond.add(job.id)
                continue
            # Backfill: what has ended before a job can start that keeps a node is in no one's way.
            passing = {name for name in before if ends_s <= until_s[name]}
            open_to_it = {**rooms, **{name: before[name] for name in passing}} if passing else rooms
            may = [
                name
                for name in rooms
                if (where is None or name in where) and comers.admits(job, name, share[0])
            ]
            could = [
                name for name in may if open_to_it[name].fits(*share) or empty[name].fits(*share)
            ]
            beyond = len(could) < many <= sum(whole[name].fits(*share) for name in may)
            left = all_of if beyond else open_to_it
            if beyond:
                could = [
                    name
                    for name in may
                    if rooms[name].fits(*share) or (whole[name].fits(*share) and not wanted(name))
                ]
            # Where there is room, and idle GPUs lose the least: few GPUs before many, slow first.
            could.sort(
                key=lambda name: (
                    not left[name].fits(*share),
                    open_to_it[name].lacks(*share),
                    match_gpu(nodes[name].node.gpu_type).spec.single_tflops,
                    name,
                )
            )
            chosen = could[:many]
            fits = len(chosen) == many and all(left[name].fits(*share) for name in chosen)
            if not fits:
                full[kind] = beyond
                if beyond:
                    self.beyond.add(job.id)
            if len(chosen) < many or (not fits and where in keepers):
                continue
            # The first for which there is no room keeps what there is, so that its turn comes. Did
            # all do so, a few large ones would close every node to small ones.
            if not fits:
                keepers.add(where)
                free_s = [_room_at(left[name], share, _ends(others, name, now)) for name in chosen]
                at_s = max(free_s)
                for name in chosen:
                    before.setdefault(name, replace(rooms[name]))
                    until_s[name] = min(until_s.get(name, math.inf), at_s)
            for name in chosen:
                _take(rooms[name], *share)
                _take(all_of[name], *share)
                _take(before.get(name) if fits else None, *share)
            if fits:
                comers.take(job, dict.fromkeys(chosen, share[0]))
                first = partitions_for(job, chosen)
                self._placed[job.id] = now, its_kind
                trying.add(its_kind)
                yield Enter(
                    job.id,
                    hold,
                    tuple(sorted(chosen)),
                    request.leave(job.id, first or job.partitions),
                    due=job.restarts > 0,
                    partitions=first,
                )

    def refused(self, job: str, now: float) -> None:
        """Note that Slurm has not taken a placement: it is not to be asked in every cycle."""
        self._not_before[job] = now + _AGAIN_S


def could_use(job: Job, node: Node) -> bool:
    """Whether a job may start on a node, and GPUs there have CPUs and memory enough for it."""
    accepts = job.accepts_type(node.gpu_type) and job.may_start_on(node.name)
    return accepts and _most_gpus(job, node) > 0


def kept_for(waiting: Iterable[Job], nodes: Iterable[NodeView]) -> frozenset[str]:
    """Return the nodes kept for the first job that needs more of a node than its GPUs' part.

    All memory beside one GPU (`--mem=0`), for example: what idle GPUs keep is too little for it,
    and on each node there would always be jobs without GPUs that came after it.

    Args:
        waiting: the jobs of GPUs that may start.
        nodes: the managed nodes.
    """
    views = sorted((view for view in nodes if view.open), key=_in_use)
    cpus = min((view.node.cpus / view.node.gpus for view in views), default=math.inf)
    memory_mb = min((view.node.memory_mb / view.node.gpus for view in views), default=math.inf)
    more = (job for job in waiting if job.cpus_per_gpu > cpus or job.memory_mb_per_gpu > memory_mb)
    for job in sorted(more, key=lambda job: (job.submit_s, job.id)):
        on = {view.node: _most_gpus(job, view.node) for view in views if could_use(job, view.node)}
        if on and all(most < node.gpus for node, most in on.items()):
            many = max(job.min_nodes, math.ceil(job.requirements.smallest / max(on.values())))
            return frozenset(node.name for node in islice(on, many))
    return frozenset()


def _in_use(view: NodeView) -> float:
    """Return the share of a node's memory that is in use."""
    return (view.held_memory_mb + view.foreign_memory_mb) / max(1.0, view.node.memory_mb)


def _most_gpus(job: Job, node: Node) -> int:
    """Return how many GPUs of an empty node a job can use."""
    by_cpus = node.cpus / job.cpus_per_gpu if job.cpus_per_gpu else math.inf
    by_memory = node.memory_mb / job.memory_mb_per_gpu if job.memory_mb_per_gpu else math.inf
    return int(min(node.gpus, by_cpus, by_memory))


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
    return keeps_back(job.reason) or of_job(job.reason)


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
    )


def _ends(jobs: Iterable[SlurmJob], node: str, now: float) -> list[tuple[float, float, float]]:
    """Return when jobs on a node end at the latest, and the CPUs and MiB that they leave then."""
    return sorted(
        (max(now, job.start_s + job.time_limit_s), *job.on_each)
        for job in jobs
        if job.state is JobState.RUNNING
        and node in job.nodes
        and job.start_s is not None
        and job.time_limit_s is not None
    )


def _room_at(
    room: _Room, share: tuple[float, float], ends: Iterable[tuple[float, float, float]]
) -> float:
    """Return from when on there is room for a share; -inf, any moment, where nothing tells."""
    room, at_s = replace(room), -math.inf
    for end_s, cpus, memory_mb in ends:
        if room.fits(*share):
            break
        _take(room, -cpus, -memory_mb)
        at_s = end_s
    return at_s if room.fits(*share) else -math.inf


def _take(room: _Room | None, cpus: float, memory_mb: float) -> None:
    if room is not None:
        room.cpus -= cpus
        room.memory_mb -= memory_mb
