"""AlloX: jobs matched to places in the GPUs' queues, so that they wait least in total.

Source: Le, Sun, Chowdhury, Liu, "AlloX: Compute Allocation in Hybrid Clusters", EuroSys '20,
section 4.1; used as a rival by Hare (HPDC '22, section 7.1; TCC 2024, section VI). A job that is
the k-th from the end of a GPU's queue adds k times its processing time there to the sum of
completion times, so the least sum is a matching of least cost between jobs and (GPU, k). At every
arrival and end the jobs that have not begun are matched anew, and the first in each idle GPU's
queue begins. It is not stopped again, and has the GPU to itself.

It knows task times by GPU type and, but with `unit_size`, the number of training rounds.

Deviations. A job's tasks run one after another on one GPU: AlloX is about whole jobs, and
parallelism inside them is not used. A GPU that is busy counts from when it will be free, and one
whose node lacks the CPUs or memory for a job is no place for it, as if of a wrong type. AlloX's
fairness knob (matching only the users that have had least) is left at full efficiency. Of more than
300 waiting jobs the shortest are matched first, then the next behind them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from hetsched_core.placement.free import FreeGpus, PerGpu, on_one_node
from hetsched_core.placement.task_gpus import (
    Crew,
    Gpu,
    busy_gpus,
    crews,
    not_begun,
    open_task_gpus,
    room_beside,
    sequences,
    task_plan,
    task_times,
    tasks_left,
    times_on,
)
from hetsched_core.policy import PolicyInfo, parameter
from hetsched_core.types import (
    ExecutionModel,
    JobView,
    Knowledge,
    Plan,
    Snapshot,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_TOGETHER = 300
"""Jobs that are matched together, some 2 s on 2,048 GPUs; the time grows with their square."""


@dataclass(frozen=True)
class Allox:
    """Match whole jobs to single GPUs so that the sum of completion times is least."""

    unit_size: bool = parameter(
        False, "take every job for one training round long, as where sizes are unknown"
    )

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="allox",
        summary="whole jobs matched to places in the GPUs' queues, least sum of completion times",
        paper="AlloX (Le et al., EuroSys '20, section 4.1)",
        model=ExecutionModel.TASKS,
        knows=frozenset({Knowledge.TOTAL_SAMPLES}),
        replay_only="it plans training tasks, for `hetsched pool`; allox-jobs runs live",
    )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Let go on what has begun, and begin what the matching puts first on idle GPUs."""
        going = crews(snapshot)
        on_gpu = {gpu: crew.view for crew in going for gpu in crew.gpus}
        gpus, busy = open_task_gpus(snapshot), busy_gpus(snapshot)
        waiting = not_begun(snapshot, going)
        durations, kind = self._durations(snapshot, waiting, gpus)
        free_in_s = np.array([self._free_in_s(snapshot, gpu, on_gpu, busy) for gpu in gpus])
        queues = match_in_turn(durations, free_in_s, kind)
        free, begin = room_beside(snapshot, going), []
        for gpu, queue in zip(gpus, queues, strict=True):
            if gpu not in on_gpu and gpu not in busy:
                first = _first_that_fits(free, [waiting[job] for job in queue], gpu)
                if first is not None:
                    begin.append(Crew(first, (gpu,)))
        return task_plan(snapshot, sequences([*going, *begin]))

    def _free_in_s(
        self,
        snapshot: Snapshot,
        gpu: Gpu,
        on_gpu: Mapping[Gpu, JobView],
        busy: Mapping[Gpu, JobView],
    ) -> float:
        """Seconds until the job on a GPU has ended, or the task of one that does not stay."""
        if gpu in on_gpu:
            view = on_gpu[gpu]
            # One of unknown size counts as a whole round, in which its present task is.
            begun_s = 0.0 if self.unit_size else _training_s(snapshot, view, gpu.node)
            return begun_s + self._duration(snapshot, view, gpu.node)
        return _training_s(snapshot, busy[gpu], gpu.node) if gpu in busy else 0.0

    def _durations(
        self, snapshot: Snapshot, waiting: Sequence[JobView], gpus: Sequence[Gpu]
    ) -> tuple[Floats, Ints]:
        """Return (N, K) seconds of each job on each kind of GPU, and (G,) the kinds of the GPUs.

        Infinite where a host, all idle, has too few CPUs or memory.
        """
        times = times_on(snapshot, gpus, [view.job for view in waiting])
        tasks = np.array([self._tasks(view) for view in waiting]).reshape(-1, 2)
        able = np.isfinite(times.train_s)
        durations = tasks[:, :1] * np.where(able, times.train_s, 0.0) + tasks[:, 1:] * times.sync_s
        durations[~able] = math.inf
        whole = FreeGpus.of(snapshot)
        nodes = dict.fromkeys(gpu.node for gpu in gpus)
        held: dict[PerGpu, list[bool]] = {}
        for view in waiting:
            if (view.job.cpus_per_gpu or view.job.memory_mb_per_gpu) and (
                needs := PerGpu.of(view.job)
            ) not in held:
                fits = {node: _fits(whole, view, node) for node in nodes}
                held[needs] = [fits[gpu.node] for gpu in gpus]
        columns = np.array([times.kind, *held.values()]).T
        _, first, kind = np.unique(columns, axis=0, return_index=True, return_inverse=True)
        durations = durations[:, times.kind[first]]
        for job, view in enumerate(waiting):
            if (needs := PerGpu.of(view.job)) in held:
                durations[job, ~np.array(held[needs], np.bool_)[first]] = math.inf
        return durations, kind.ravel()

    def _duration(self, snapshot: Snapshot, view: JobView, node: str) -> float:
        """Seconds that the tasks of a job not begun take alone on a GPU, all rounds in step.

        Infinite if it cannot run there.
        """
        times = task_times(snapshot, view.job, node)
        if times is None:
            return math.inf
        tasks, rounds = self._tasks(view)
        return tasks * times.train_s + rounds * times.sync_s

    def _tasks(self, view: JobView) -> tuple[int, int]:
        """Return how many tasks of a job are to come, and rounds that are to synchronise."""
        shape = view.job.tasks
        if shape is None:
            return 0, 0
        left, rounds = (shape.scale, 0) if self.unit_size else tasks_left(view)
        # The present round is still to synchronise, also where its last task runs already.
        return left + rounds * shape.scale, 1 + rounds


def match_in_turn(durations: Floats, free_in_s: Floats, kind: Ints) -> list[list[int]]:
    """Return what `match` does where there are few jobs; of many, the shortest are matched first.

    The next are matched behind them, as long as an idle GPU has no job that one of them could be.
    Others are in no queue.

    Args:
        durations: (N, K) seconds of each job on each kind of GPU, infinite where it cannot run.
        free_in_s: (G,) seconds until each GPU is free.
        kind: (G,) of each GPU.
    """
    queues: list[list[int]] = [[] for _ in kind]
    order = np.arange(len(durations))
    if len(order) > MOST_TOGETHER:
        order = np.argsort(durations.min(axis=1, initial=math.inf), kind="stable")
    free_s = free_in_s.astype(np.float64)
    for begin in range(0, len(order), MOST_TOGETHER):
        some = order[begin : begin + MOST_TOGETHER]
        for gpu, queue in enumerate(match(durations[some][:, kind], free_s)):
            if queue:
                queues[gpu] += (jobs := some[queue].tolist())
                free_s[gpu] += durations[jobs, kind[gpu]].sum()
        bare = {kind[at] for at, queue in enumerate(queues) if not queue and free_in_s[at] == 0}
        if not np.isfinite(durations[order[begin + MOST_TOGETHER :]][:, sorted(bare)]).any():
            break
    return queues


def match(durations: Floats, free_in_s: Floats, delays: Floats | None = None) -> list[list[int]]:
    """Return the order of the jobs on each GPU that makes the sum of completion times least.

    A matching of jobs to (GPU, k-th from the end) of least cost: the job's own duration, k - 1
    times the delay that it is to those behind it, and the GPU's. Places far from the end are left
    out at first: where the farthest on a GPU is not taken, no cheaper matching takes one farther
    still there. So there are never many more places than GPUs and jobs together need. Of GPUs that
    are alike only as many are looked at as there are jobs, those that are free first.

    Args:
        durations: (N, G) seconds of each job on each GPU, infinite where it cannot run.
        free_in_s: (G,) seconds until each GPU is free; (N, G) where that depends on the job.
        delays: (N, G) seconds by which it holds up each of those behind it; its duration if not
            given, as in the paper.

    Returns:
        G lists of jobs, first to run first. Jobs that run nowhere are in none.
    """
    queues: list[list[int]] = [[] for _ in range(durations.shape[1])]
    able = np.flatnonzero(np.isfinite(durations).any(axis=1)) if queues else np.zeros(0, np.intp)
    if able.size == 0:
        return queues
    delays = durations if delays is None else delays
    waits = np.broadcast_to(free_in_s, durations.shape)
    which = _looked_at(durations[able], delays[able], waits[able])
    some = np.ix_(able, which)
    times, many = durations[some], len(able)
    barred = ~np.isfinite(times)
    times = np.where(barred, 0.0, times)
    held_up, waits = np.where(barred, 0.0, delays[some]), waits[some]
    places = np.full(len(which), min(many, -(-many // len(which)) + 1))
    while True:
        of = np.repeat(np.arange(len(which)), places)
        k = np.arange(1, len(of) + 1) - np.repeat(np.cumsum(places) - places, places)
        cost = held_up[:, of] * k
        cost += (times - held_up + waits)[:, of]
        cost[barred[:, of]] = np.inf
        try:
            _, slots = linear_sum_assignment(cost)
        except ValueError:
            # Too few places for jobs that run on few GPUs; each left over finds all of its taken.
            job, slots = linear_sum_assignment(barred[:, of].astype(np.float64))
            able_there = slots[~barred[job, of[slots]]]
            full = np.bincount(of[able_there], minlength=len(which)) == places
        else:
            gpu = of[slots]
            farthest = slots[k[slots] == places[gpu]]
            full = (np.bincount(of[farthest], minlength=len(which)) > 0) & (places < many)
            if not full.any():
                break
        places[full] = np.minimum(many, 2 * places[full])
    for job, at in zip(able.tolist(), which[gpu].tolist(), strict=True):
        queues[at].append(job)
    # A matching of least cost puts the shortest first; of equals, the first is to go first.
    return [
        [queue[k] for k in np.argsort(delays[queue, at], kind="stable")] if queue else queue
        for at, queue in enumerate(queues)
    ]


def _looked_at(durations: Floats, delays: Floats, waits: Floats) -> Ints:
    """Return the GPUs, of those alike as many as there are jobs: of (N, G), those free first.

    With more, one would have no job, and could as well be the one that is free last.
    """
    jobs, gpus = durations.shape
    if gpus <= jobs:
        return np.arange(gpus)
    last_s = waits.max(axis=0)
    # Where jobs wait unlike times for one GPU, which is free first is not to be told.
    unlike = np.flatnonzero(last_s > waits.min(axis=0))
    columns = [durations, delays]
    if len(unlike):
        columns.append(np.where(np.isin(np.arange(gpus), unlike), waits, -1.0))
    seen: dict[bytes, int] = {}
    rows = np.ascontiguousarray(np.vstack(columns).T)
    kind = np.array([seen.setdefault(row.tobytes(), len(seen)) for row in rows])
    order = np.lexsort((last_s, kind))
    nth = np.arange(gpus) - np.searchsorted(kind[order], kind[order])
    return np.sort(order[nth < jobs])


def _training_s(snapshot: Snapshot, view: JobView, node: str) -> float:
    """Seconds for which a task of a job still trains on a node; 0 if none does."""
    times = task_times(snapshot, view.job, node)
    if times is None:
        return 0.0
    here = (run for run in view.runs if run.configuration.pieces[0][0] == node)
    ends_s = (run.progress_from_s + times.train_s for run in here)
    return max(0.0, max(ends_s, default=snapshot.now) - snapshot.now)


def _first_that_fits(free: FreeGpus, queue: Sequence[JobView], gpu: Gpu) -> JobView | None:
    """Take the first job of a queue that the CPUs and memory beside the GPU allow."""
    for view in queue:
        if _fits(free, view, gpu.node):
            free.take(view.job, on_one_node(gpu.node, 1))
            return view
    return None


def _fits(free: FreeGpus, view: JobView, node: str) -> bool:
    return free.fits(view.job, on_one_node(node, 1))
