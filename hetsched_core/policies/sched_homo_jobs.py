"""Sched_Homo for gangs: batches of whole jobs, each on all of its GPUs at once.

Source: Zhang et al., MobiHoc '20, as in `sched_homo`: jobs that have not begun are gathered into
one batch after another, each the set of greatest weight that the GPUs could finish within its
length, and each twice as long as the one before. GPUs are taken to be alike. A job runs on all its
GPUs, unstopped.

It plans with sizes as `sjf` and `srtf` have them: samples where a job tells them, else the mean of
past runs or the time limit, and of a job's times on the GPU types it sees the mean.

Deviations are those of `sched_homo`, but that no job passes a larger one ahead of it that does not
fit. Besides, jobs that could use no node of those of the batch do not wait for it. At a site users
take turns, each with its jobs of the batch first, and what a batch leaves idle goes to others.
Trace: docs/policies/sched-homo.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from hetsched_core.placement.entries import behind, plan_placing
from hetsched_core.placement.free import FreeGpus
from hetsched_core.placement.keep import staying
from hetsched_core.placement.one_type import Line, one_type_way
from hetsched_core.placement.pack import fastest_fit, nodes_down, open_nodes_hold
from hetsched_core.placement.ways import Way, reach
from hetsched_core.policies.job_size import expected_left_s
from hetsched_core.policies.sched_homo import Batch, BatchItem
from hetsched_core.policy import PolicyInfo
from hetsched_core.site import in_turn
from hetsched_core.types import (
    Configuration,
    Job,
    JobView,
    Knowledge,
    Plan,
    Replan,
    Snapshot,
    Waiting,
)


@dataclass(frozen=True)
class SchedHomoJobs:
    """Serve batches of greatest weight, each twice as long as the one before."""

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="sched-homo-jobs",
        summary="sched-homo with gangs in the place of tasks: runs live",
        paper="Zhang et al., MobiHoc '20, as in Hare (HPDC '22, section 7.1)",
        knows=frozenset({Knowledge.TOTAL_SAMPLES, Knowledge.TIME_LIMIT}),
    )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Let go on what runs; begin what is in the batch, or form the next one."""
        stay, ways = staying(snapshot), _ways(snapshot)
        waiting = {view.id: view for view in _waiting(snapshot, ways) if view.id not in stay}
        batch = Batch.read(snapshot.previous.memory)
        if waiting and not any(job in stay or job in waiting for job in batch.jobs):
            claims = [
                BatchItem(view.job.weight, ways[job].count, expected_left_s(view, snapshot))
                for job, view in waiting.items()
            ]
            batch = batch.next(tuple(waiting), claims, snapshot.cluster.gpus)
        of_batch = [job for job in batch.jobs if job in stay or job in waiting]
        members = [waiting.pop(job) for job in of_batch if job in waiting]
        others = list(waiting.values())
        if snapshot.site is None:
            nodes = _reach(snapshot, ways, of_batch)
            others = [view for view in others if not nodes & _reach(snapshot, ways, [view.id])]
        line = Line(snapshot, stay)
        for view in in_turn(snapshot, [*members, *others], running_stay=True):
            line.serve(view, ways[view.id], _first_type)

        def waits(snapshot: Snapshot, view: JobView) -> Waiting:
            return line.waits.get(view.id) or behind(snapshot, view)

        return plan_placing(snapshot, line.placed, waits, Replan(), memory=batch.as_memory())


def _ways(snapshot: Snapshot) -> dict[str, Way]:
    """Return how each job could run on GPUs of one type, of those that could."""
    every = ((view.id, one_type_way(view, snapshot)) for view in snapshot.by_submission())
    return {job: way for job, way in every if way is not None}


def _waiting(snapshot: Snapshot, ways: Mapping[str, Way]) -> Iterator[JobView]:
    """Yield the jobs that may run and that the open nodes would hold if no other were there."""
    down = nodes_down(snapshot)
    for job, way in ways.items():
        view = snapshot.jobs[job]
        if view.blocked is None and open_nodes_hold(snapshot, down, view.job, way):
            yield view


def _reach(snapshot: Snapshot, ways: Mapping[str, Way], jobs: Iterable[str]) -> int:
    """Return the nodes that any of these jobs could be on, a bit each."""
    nodes = 0
    for job in jobs:
        if job in ways:
            nodes |= reach(snapshot.jobs[job].job, ways[job], snapshot.cluster)
    return nodes


def _first_type(
    snapshot: Snapshot, free: FreeGpus, job: Job, way: Way, types: tuple[str, ...]
) -> Configuration | None:
    """Return a place on the first of the cluster's GPU types that has room: they are all alike."""
    for gpu_type in snapshot.cluster.gpu_types:
        if gpu_type in types:
            found = fastest_fit(snapshot, free, job, way, (gpu_type,))
            if found is not None:
                return found
    return None
