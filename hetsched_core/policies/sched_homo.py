"""Sched_Homo: batches of greatest weight, for GPUs that are taken to be alike.

Source: Zhang, Zhou, Wu, Jiao, Li, "Online Scheduling of Heterogeneous Distributed Machine Learning
Jobs", MobiHoc '20; used as a rival by Hare (HPDC '22, section 7.1; TCC 2024, section VI). Jobs that
have not begun are gathered into one batch after another. A batch is the set of greatest weight that
the GPUs could finish within the batch's length, and each batch is twice as long as the one before.
A job uses as many GPUs at once as its training rounds have tasks, and is not stopped. All to make
the weighted sum of completion times small.

It knows task times and, but with `unit_size`, the number of training rounds; of a task's times on
the GPUs it sees the mean, since it takes them to be alike.

Deviations. The paper chooses workers and parameter servers of several kinds for each job; here a
job's scale is fixed and there are none of the latter. Whether a batch can be finished in time is
judged by its GPU seconds and each job's own length, and its jobs begin in the order of weight per
GPU second as GPUs come free, larger ones being passed by smaller ones only where they do not fit.
The first batch is as long as the shortest job, and none is longer than all that waits would take
one by one. A job of more tasks than there are GPUs for it runs on all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetsched_core.optimize import Limits, Program, Rows, solve
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
)
from hetsched_core.policy import PolicyInfo, parameter
from hetsched_core.types import (
    ExecutionModel,
    Job,
    JobView,
    Knowledge,
    Plan,
    Snapshot,
)

Floats = NDArray[np.float64]

_VERSION = 1
_MOST_NODES = 1000


@dataclass(frozen=True)
class SchedHomo:
    """Serve batches of greatest weight, each twice as long as the one before."""

    unit_size: bool = parameter(
        False, "take every job for one training round long, as where sizes are unknown"
    )

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="sched-homo",
        summary="batches of greatest weight, jobs in parallel on their tasks, blind to GPU types",
        paper="Zhang et al., MobiHoc '20, as in Hare (HPDC '22, section 7.1)",
        model=ExecutionModel.TASKS,
        knows=frozenset({Knowledge.TOTAL_SAMPLES}),
        replay_only="it plans training tasks, for `hetsched pool`; sched-homo-jobs runs live",
    )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Let go on what has begun; begin what is in the batch, or form the next one."""
        going = crews(snapshot)
        batch = Batch.read(snapshot.previous.memory)
        waiting = not_begun(snapshot, going)
        if waiting and batch.over(snapshot):
            batch = batch.next(
                [view.id for view in waiting],
                [self._claim(snapshot, view) for view in waiting],
                snapshot.cluster.gpus,
            )
        place = {job: at for at, job in enumerate(batch.jobs)}
        members = sorted(
            (view for view in waiting if view.id in place), key=lambda view: place[view.id]
        )
        begin = _begin(snapshot, going, members)
        todo = sequences([*going, *begin])
        return task_plan(snapshot, todo, memory=batch.as_memory())

    def _claim(self, snapshot: Snapshot, view: JobView) -> BatchItem:
        """What a job would take of a cluster whose GPUs are all like their mean."""
        shape = view.job.tasks
        scale = 1 if shape is None else shape.scale
        times = [
            times
            for node in snapshot.cluster
            if (times := task_times(snapshot, view.job, node.name)) is not None
            for _ in range(node.gpus)
        ]
        train_s = sum(t.train_s for t in times) / len(times)
        sync_s = sum(t.sync_s for t in times) / len(times)
        gpus = min(scale, len(times))
        left, rounds = tasks_left(view)
        all_rounds = 1 if self.unit_size else (left > 0) + rounds
        seconds = all_rounds * (-(-scale // gpus) * train_s + sync_s)
        return BatchItem(view.job.weight, gpus, max(seconds, 1e-9))


@dataclass(frozen=True, slots=True)
class BatchItem:
    """What a job is worth and takes: its weight, GPUs at once, and seconds."""

    weight: float
    gpus: int
    seconds: float

    @property
    def gpu_s(self) -> float:
        """GPU seconds."""
        return self.gpus * self.seconds


@dataclass(frozen=True, slots=True)
class Batch:
    """The jobs being served, in order, and how long their batch was meant to take."""

    length_s: float = 0.0
    jobs: tuple[str, ...] = ()

    @classmethod
    def read(cls, memory: Mapping[str, Any]) -> Batch:
        """Return the batch that a plan remembers; an empty one if it is lost."""
        if memory.get("version") != _VERSION:
            return cls()
        return cls(memory["length_s"], tuple(memory["jobs"]))

    def as_memory(self) -> dict[str, object]:
        """Return the batch as JSON values."""
        return {"version": _VERSION, "length_s": self.length_s, "jobs": list(self.jobs)}

    def next(self, jobs: Sequence[str], claims: Sequence[BatchItem], gpus: int) -> Batch:
        """Return the batch that follows, of jobs that have not begun, with their claims.

        It is twice as long as this one, at least as long as the shortest job, and no longer than
        all of them take one by one. Its jobs begin by weight per GPU second.
        """
        shortest = min(claim.seconds for claim in claims)
        # Beyond the time that all of them take one by one, a longer batch is no different.
        longest = max(shortest, sum(claim.seconds for claim in claims))
        length_s = min(max(2.0 * self.length_s, shortest), longest)
        chosen = heaviest(claims, gpus, length_s)
        order = sorted(chosen, key=lambda at: -claims[at].weight / claims[at].gpu_s)
        return Batch(length_s, tuple(jobs[at] for at in order))

    def over(self, snapshot: Snapshot) -> bool:
        """Whether all jobs of the batch have ended; one that is held back holds no other up."""
        here = (snapshot.jobs.get(job) for job in self.jobs)
        return all(view is None or view.blocked is not None for view in here)


def heaviest(claims: Sequence[BatchItem], gpus: int, length_s: float) -> list[int]:
    """Return the claims of greatest total weight that fit into a batch.

    A claim fits if it is no longer than the batch, and all do if they take no more GPU seconds than
    `gpus` GPUs have in `length_s`: a knapsack, solved to optimality. If no claim fits, the
    shortest is returned, so that a batch is never empty.
    """
    able = [at for at, claim in enumerate(claims) if claim.seconds <= length_s]
    room = gpus * length_s
    if sum(claims[at].gpu_s for at in able) > room:
        rows = Rows()
        parts = [claims[at].gpu_s / room for at in able]
        rows.add(0, np.arange(len(able)), parts, -np.inf, 1.0)
        program = Program(
            cost=np.array([claims[at].weight for at in able]),
            lower=np.zeros(len(able)),
            upper=np.ones(len(able)),
            matrix=rows.matrix(),
            row_lower=rows.lower,
            row_upper=rows.upper,
            maximise=True,
            integer=np.ones(len(able), np.bool_),
        )
        found = solve(program, limits=Limits(nodes=_MOST_NODES))
        able = [] if found.x is None else [able[at] for at in np.flatnonzero(found.x > 0.5)]
    return able or [min(range(len(claims)), key=lambda at: (claims[at].seconds, at))]


def _begin(snapshot: Snapshot, going: Sequence[Crew], members: Sequence[JobView]) -> list[Crew]:
    """Begin the jobs that find their GPUs idle, in order."""
    gpus = open_task_gpus(snapshot)
    free, whole = room_beside(snapshot, going), FreeGpus.of(snapshot)
    taken = {*busy_gpus(snapshot), *(gpu for crew in going for gpu in crew.gpus)}
    begun = []
    most: dict[tuple[object, ...], int] = {}
    for view in members:
        job, shape = view.job, view.job.tasks
        if shape is None:
            continue
        kind = job.profile, job.gpu_types, PerGpu.of(job)
        if kind not in most:
            most[kind] = len(_first_that_fit(snapshot, whole.copy(), job, gpus, len(gpus)))
        wanted = min(shape.scale, most[kind])
        room = free.copy()
        idle = [gpu for gpu in gpus if gpu not in taken]
        found = _first_that_fit(snapshot, room, job, idle, wanted)
        if wanted and len(found) == wanted:
            free = room
            taken.update(found)
            begun.append(Crew(view, found))
    return begun


def _first_that_fit(
    snapshot: Snapshot, free: FreeGpus, job: Job, gpus: Sequence[Gpu], most: int
) -> tuple[Gpu, ...]:
    """Take up to `most` of these GPUs for a job, in order."""
    found: list[Gpu] = []
    for gpu in gpus:
        if len(found) == most:
            break
        one = on_one_node(gpu.node, 1)
        if task_times(snapshot, job, gpu.node) is not None and free.fits(job, one):
            free.take(job, one)
            found.append(gpu)
    return tuple(found)
