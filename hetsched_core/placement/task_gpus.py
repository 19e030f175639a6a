"""Single GPUs that run training tasks: which job is on which, and what a job has still to do there.

For job-level policies of the `tasks` model: a job that has begun stays on its GPUs to its end, one
job a GPU. Where tasks of many jobs take turns on a GPU (`runs_beside`), it gets a share of its
host's CPUs and memory that holds whatever runs there: all GPUs an equal one, but that a job too
hungry for any equal share has one GPU reserved for it, as far as the host's other GPUs can give
way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from immutables import Map
from numpy.typing import NDArray

from hetsched_core.placement.entries import AHEAD, NEVER
from hetsched_core.placement.free import FreeGpus, PerGpu, host_room, idle_cluster, on_one_node
from hetsched_core.types import (
    SLACK,
    Cluster,
    Configuration,
    Diagnostics,
    Entry,
    Job,
    JobView,
    Placed,
    Plan,
    Reason,
    ReasonCode,
    Replan,
    Snapshot,
    TaskBlock,
    TaskItem,
    TaskProgress,
    TaskSequence,
    TaskTimes,
    Trigger,
    Waiting,
)

AT_EVERY_CHANGE = Replan(on=frozenset({Trigger.ARRIVAL, Trigger.END, Trigger.NODE, Trigger.BUDGET}))
_LAST_TASKS = Waiting(Reason(ReasonCode.NO_ROOM, detail="its last tasks are running"))

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, order=True)
class Gpu:
    """GPU `number` of a node."""

    node: str
    number: int


@dataclass(frozen=True, slots=True)
class Crew:
    """A job that has begun, or begins, and the GPUs that it stays on."""

    view: JobView
    gpus: tuple[Gpu, ...]


def open_task_gpus(snapshot: Snapshot) -> list[Gpu]:
    """Return the GPUs that take new tasks, in the cluster's order."""
    return [
        Gpu(node.node.name, number)
        for node in snapshot.node_views()
        if node.open
        for number in range(max(0, node.capacity))
    ]


def crews(snapshot: Snapshot) -> list[Crew]:
    """Return the jobs that have begun and can go on where they are, by submission.

    A job is on the GPUs that its tasks run on or, between two training rounds, that the plan in
    force has it on. One that has lost a GPU to a closed node may go on elsewhere and is left out.
    """
    usable = set(open_task_gpus(snapshot))
    planned: dict[str, list[Gpu]] = {}
    for sequence in snapshot.previous.sequences:
        for job in {item.job for block in sequence.blocks for item in block.items}:
            planned.setdefault(job, []).append(Gpu(sequence.node, sequence.gpu))
    first = _first_copies(snapshot.cluster)
    found = []
    taken: set[Gpu] = set()
    for view in snapshot.by_submission():
        if view.blocked is not None or not has_begun(view):
            continue
        running = {_gpu_of(run.configuration, run.copy, first) for run in view.runs}
        gpus = running | set(planned.get(view.id, ()))
        if not all(view.job.may_start_on(gpu.node) for gpu in gpus):
            continue
        if gpus and gpus <= usable and gpus.isdisjoint(taken):
            taken |= gpus
            found.append(Crew(view, tuple(sorted(gpus))))
    return found


def busy_gpus(snapshot: Snapshot) -> dict[Gpu, JobView]:
    """Return the GPUs that a training task runs on, and its job."""
    first = _first_copies(snapshot.cluster)
    return {
        _gpu_of(run.configuration, run.copy, first): view
        for view in snapshot.jobs.values()
        for run in view.runs
    }


def has_begun(view: JobView) -> bool:
    """Whether any task of the job has been started."""
    progress = view.progress or TaskProgress()
    return bool(view.runs or progress.rounds_done or progress.tasks_done)


def tasks_left(view: JobView) -> tuple[int, int]:
    """Return how many tasks of the present training round are not begun, and the rounds after."""
    shape, progress = view.job.tasks, view.progress or TaskProgress()
    if shape is None:
        return 0, 0
    rounds = progress.rounds_done + 1 if shape.rounds is None else shape.rounds
    if progress.rounds_done >= rounds:
        return 0, 0
    begun = progress.tasks_done + len(view.runs)
    return max(0, shape.scale - begun), rounds - progress.rounds_done - 1


def sequences(crews: Iterable[Crew]) -> list[TaskSequence]:
    """Return what jobs' GPUs still have to run: their tasks, dealt out evenly in every round."""
    found = []
    for crew in crews:
        view, gpus = crew.view, crew.gpus
        shape, done = view.job.tasks, (view.progress or TaskProgress()).rounds_done
        if shape is None:
            continue
        left, rounds = tasks_left(view)
        now, later = _dealt(left, len(gpus)), _dealt(shape.scale, len(gpus))
        for gpu, this_round, each_round in zip(gpus, now, later, strict=True):
            blocks = []
            if this_round:
                blocks.append(TaskBlock((TaskItem(view.id, done, this_round),)))
            if each_round and rounds:
                item = TaskItem(view.id, done + 1, each_round)
                blocks.append(TaskBlock((item,), times=rounds))
            if blocks:
                found.append(TaskSequence(gpu.node, gpu.number, tuple(blocks)))
    return found


def task_times(snapshot: Snapshot, job: Job, node: str) -> TaskTimes | None:
    """Return the times of one task of a job on a node's GPUs; None where it cannot run."""
    gpu_type = snapshot.cluster[node].gpu_type
    if job.tasks is None or not job.accepts_type(gpu_type) or not job.may_start_on(node):
        return None
    return snapshot.speeds.table(job.profile).tasks.get(gpu_type)


@dataclass(frozen=True, slots=True, eq=False)
class GpuKinds:
    """M GPUs by kind: those of one of the K kinds are alike for each of N jobs.

    Attributes:
        kind: (M,) of each GPU; kinds are numbered in the order of their first GPUs.
        train_s: (N, K) T^c of a task; infinite where it cannot run.
        sync_s: (N, K) T^s.
    """

    kind: Ints
    train_s: Floats
    sync_s: Floats

    @classmethod
    def merged(cls, kind: Ints, train_s: Floats, sync_s: Floats) -> GpuKinds:
        """Return as few kinds as there are.

        Args:
            kind: (M,) of each GPU, numbered in any order.
            train_s: (N, K) of each kind, which may be like another.
            sync_s: (N, K).
        """
        columns = np.ascontiguousarray(np.vstack([train_s, sync_s]).T)
        _, which = np.unique(columns, axis=0, return_inverse=True)
        _, first, alike = np.unique(which.ravel()[kind], return_index=True, return_inverse=True)
        column = kind[np.sort(first)]
        return cls(
            np.argsort(np.argsort(first))[alike],
            np.ascontiguousarray(train_s[:, column]),
            np.ascontiguousarray(sync_s[:, column]),
        )

    def only(self, jobs: Sequence[int]) -> GpuKinds:
        """Return the kinds for some of the jobs, by position."""
        return GpuKinds.merged(self.kind, self.train_s[jobs], self.sync_s[jobs])


def times_on(snapshot: Snapshot, gpus: Sequence[Gpu], jobs: Sequence[Job]) -> GpuKinds:
    """Return T^c and T^s of a task of each job on each GPU."""
    # Nodes of one type on which the same jobs may start.
    limits = {job.nodes for job in jobs if job.nodes is not None} | {job.closed for job in jobs}
    signs: dict[tuple[object, ...], tuple[int, str]] = {}
    kind_of = {}
    for node in dict.fromkeys(gpu.node for gpu in gpus):
        sign = snapshot.cluster[node].gpu_type, *(node in limit for limit in limits)
        kind_of[node], _ = signs.setdefault(sign, (len(signs), node))
    by_job: dict[tuple[object, ...], list[tuple[float, float]]] = {}
    for job in jobs:
        if (key := _timed(job)) not in by_job:
            times = (task_times(snapshot, job, node) for _, node in signs.values())
            by_job[key] = [(t.train_s, t.sync_s) if t else (np.inf, 0.0) for t in times]
    found = np.array([by_job[_timed(job)] for job in jobs]).reshape(len(jobs), len(signs), 2)
    kind = np.array([kind_of[gpu.node] for gpu in gpus], np.int64)
    return GpuKinds.merged(kind, found[:, :, 0], found[:, :, 1])


def _timed(job: Job) -> tuple[object, ...]:
    """Return what the times of a job's tasks depend on."""
    return job.profile, job.tasks is None, job.gpu_types, job.nodes, job.closed


def room_beside(snapshot: Snapshot, present: Sequence[Crew]) -> FreeGpus:
    """Return what is free beside these crews and whatever task still runs of other jobs."""
    free = FreeGpus.of(snapshot)
    for crew in present:
        free.take(crew.view.job, configuration_of(crew.gpus))
    on = {crew.view.id for crew in present}
    for view in snapshot.by_submission():
        if view.id not in on:
            for run in view.runs:
                free.take(view.job, run.configuration)
    return free


def configuration_of(gpus: Sequence[Gpu]) -> Configuration:
    """Return how many GPUs of each node these are."""
    counts: dict[str, int] = {}
    for gpu in gpus:
        counts[gpu.node] = counts.get(gpu.node, 0) + 1
    return Configuration.of(counts)


def not_begun(snapshot: Snapshot, going: Sequence[Crew]) -> list[JobView]:
    """Return the jobs that could begin, or go on elsewhere, by submission."""
    on = {crew.view.id for crew in going}
    return [
        view
        for view in snapshot.by_submission()
        if view.id not in on
        and view.blocked is None
        and any(tasks_left(view))
        and _runs(snapshot, view.job)
    ]


def task_plan(
    snapshot: Snapshot,
    todo: Sequence[TaskSequence],
    replan: Replan = AT_EVERY_CHANGE,
    *,
    memory: Mapping[str, object] | None = None,
    diagnostics: Diagnostics | None = None,
) -> Plan:
    """Return the plan in which these tasks run and all other jobs wait, with the reason for it."""
    running = {item.job for s in todo for block in s.blocks for item in block.items}
    entries: dict[str, Entry] = {}
    for view in snapshot.by_submission():
        if view.id in running:
            entries[view.id] = Placed(())
        elif view.blocked is not None:
            entries[view.id] = Waiting(view.blocked)
        elif not runs_somewhere(snapshot, view.job):
            entries[view.id] = NEVER
        else:
            entries[view.id] = AHEAD if any(tasks_left(view)) else _LAST_TASKS
    return Plan(
        Map(entries),
        sequences=tuple(todo),
        replan=replan,
        diagnostics=diagnostics or Diagnostics(),
        memory=memory or {},
    )


def runs_somewhere(snapshot: Snapshot, job: Job) -> bool:
    """Whether a job of tasks runs on any GPU of the cluster when all is idle, healthy and open."""
    return _runs(snapshot, replace(job, closed=frozenset()) if job.closed else job)


def _runs(snapshot: Snapshot, job: Job) -> bool:
    fitting = _nodes_for(snapshot.cluster, job.cpus_per_gpu, job.memory_mb_per_gpu)
    return any(task_times(snapshot, job, node) is not None for node in fitting)


@lru_cache(maxsize=1 << 12)
def _nodes_for(cluster: Cluster, cpus_per_gpu: float, memory_mb_per_gpu: float) -> tuple[str, ...]:
    """The nodes of which a GPU can serve such a job when all is idle."""
    free, needs = idle_cluster(cluster), PerGpu(cpus_per_gpu, memory_mb_per_gpu)
    return tuple(node.name for node in cluster if free.fits(needs, on_one_node(node.name, 1)))


def _dealt(tasks: int, gpus: int) -> list[int]:
    return [tasks // gpus + (at < tasks % gpus) for at in range(gpus)]


def _first_copies(cluster: Cluster) -> dict[str, int]:
    """The copy number that stands for GPU 0 of each node."""
    first, before = {}, 0
    for node in cluster:
        first[node.name] = before
        before += node.gpus
    return first


def _gpu_of(configuration: Configuration, copy: int, first: Mapping[str, int]) -> Gpu:
    name = configuration.pieces[0][0]
    return Gpu(name, copy - first[name])


# Shares of hosts ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Host:
    """What a host has, which of the GPUs are its own, and what some of them have reserved."""

    has: Floats
    gpus: list[int]
    reserved: dict[int, Floats]

    def shares(self) -> Floats:
        """(GPUs, 2) CPUs and MiB of each: what it has reserved, or an equal part of the rest."""
        equal = self._equal_share()
        return np.array([self.reserved.get(m, equal) for m in self.gpus])

    def _equal_share(self) -> Floats:
        """(2,) CPUs and MiB of each GPU that has nothing reserved."""
        rest = self.has - sum(self.reserved.values(), np.zeros(2))
        others = len(self.gpus) - len(self.reserved)
        with np.errstate(invalid="ignore"):
            return np.maximum(rest, 0.0) / others if others else np.zeros(2)

    def reserve(self, gpu: int, needs: Floats) -> bool:
        """Reserve for a GPU what a job needs, and what it had before; False if there is none."""
        wanted = {**self.reserved, gpu: np.maximum(needs, self.reserved.get(gpu, 0.0))}
        if np.any(sum(wanted.values(), np.zeros(2)) > self.has + SLACK):
            return False
        self.reserved = wanted
        return True


def runs_beside(snapshot: Snapshot, gpus: Sequence[Gpu], jobs: Sequence[Job]) -> GpuKinds:
    """Return which jobs' tasks may take turns on which GPUs, whatever else runs then.

    Args:
        snapshot: the nodes as they stand.
        gpus: the M GPUs that take tasks.
        jobs: the N jobs, those that are to be served first in front.

    Returns:
        Their times. A job that runs on no kind cannot be served along with those before it.
    """
    hosts = _hosts(snapshot, gpus)
    host_of = [hosts[snapshot.cluster[gpu.node].host] for gpu in gpus]
    shares = np.empty((len(gpus), 2))
    for host in hosts.values():
        shares[host.gpus] = host.shares()
    times = times_on(snapshot, gpus, jobs)
    needs = np.array([(j.cpus_per_gpu, j.memory_mb_per_gpu) for j in jobs]).reshape(-1, 2)
    hungry = np.flatnonzero(needs.any(axis=1))
    if not len(hungry):
        return times
    for n in hungry.tolist():
        able = np.isfinite(times.train_s[n])[times.kind]
        if not (able & _fits(shares, needs[n])).any():
            for m in np.flatnonzero(able).tolist():
                host = host_of[m]
                if host.reserve(m, needs[n]):
                    shares[host.gpus] = host.shares()
                    break
    both = np.column_stack([times.kind, shares])
    _, first, kind = np.unique(both, axis=0, return_index=True, return_inverse=True)
    train_s, sync_s = times.train_s[:, times.kind[first]], times.sync_s[:, times.kind[first]]
    for n in hungry.tolist():
        barred = ~_fits(shares[first], needs[n])
        train_s[n, barred], sync_s[n, barred] = np.inf, 0.0
    return GpuKinds.merged(kind.ravel(), train_s, sync_s)


def _fits(shares: Floats, needs: Floats) -> NDArray[np.bool_]:
    """(M,) whether each GPU's share holds what a job needs."""
    return np.asarray(np.all(needs <= shares + SLACK, axis=1), np.bool_)


def _hosts(snapshot: Snapshot, gpus: Sequence[Gpu]) -> dict[str, _Host]:
    cpus, memory_mb = host_room(snapshot.cluster, snapshot.node_views())
    hosts: dict[str, _Host] = {}
    for m, gpu in enumerate(gpus):
        name = snapshot.cluster[gpu.node].host
        if name not in hosts:
            hosts[name] = _Host(np.array([cpus[name], memory_mb[name]]), [], {})
        hosts[name].gpus.append(m)
    return hosts
