"""From a desired state to the next actions: what differs between a plan and what is running.

Works on phases, so it is level-triggered: as long as the state has not caught up with the plan, the
same actions come out again, and once it has, none do. Whoever applies them needs no memory.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from hetsched_core.types import (
    SLACK,
    Cluster,
    Job,
    JobView,
    NodeView,
    Placed,
    Placement,
    Plan,
    Purpose,
    submission_order,
)
from hetsched_core.types.making import cheaply_made, maker


@cheaply_made
@dataclass(frozen=True, slots=True)
class RunKey:
    """Names one run among all that exist at one time."""

    job: str
    purpose: Purpose
    copy: int


class StopCause(StrEnum):
    """Why a run is stopped: its job waits from now on, or goes on without it or elsewhere."""

    PREEMPT = "preempt"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class Stop:
    """Checkpoint a run and give its GPUs back."""

    key: RunKey
    cause: StopCause


@cheaply_made
@dataclass(frozen=True, slots=True)
class Start:
    """Start a placement: now if it is `ready`, else when what is in its way has gone.

    `after` names the runs of ours that are leaving its nodes.
    """

    key: RunKey
    placement: Placement
    ready: bool
    after: tuple[RunKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Grant:
    """Change how many samples a run that stays may do."""

    key: RunKey
    budget: float | None


Action = Stop | Grant | Start

_make_key, _make_start = maker(RunKey), maker(Start)


class PresentState(Protocol):
    """What is true now, as far as actions depend on it; a `Snapshot` is one."""

    @property
    def now(self) -> float:
        """Seconds UTC."""
        ...

    @property
    def cluster(self) -> Cluster:
        """All nodes, whatever their condition."""
        ...

    @property
    def nodes(self) -> Mapping[str, NodeView]:
        """Node name -> how it stands."""
        ...

    @property
    def jobs(self) -> Mapping[str, JobView]:
        """Job id -> what is known of each active job."""
        ...

    @property
    def runs_per_job(self) -> int | None:
        """How many runs of one job there may be at a time; None for any number."""
        ...


def diff(state: PresentState, plan: Plan, among: Iterable[str] | None = None) -> tuple[Action, ...]:
    """Return what leads from `state` to `plan`: stops, then grants, then starts.

    A run that is where the plan wants it is left alone, whatever its phase; one that is draining is
    not stopped again. A start that finds its GPUs taken waits for the runs that are leaving its
    nodes. Starts are in the order of submission.

    Args:
        state: the state now; it may be later than the one the plan was made from.
        plan: the desired state. Entries of jobs that are no longer active are passed over.
        among: the jobs to look at: at least those whose entry or runs changed since the last call,
            and those with a run that drains or a start that waits. None: all.
    """
    profiles: dict[str, list[Placement]] = defaultdict(list)
    for profile in plan.profiles:
        profiles[profile.job].append(profile.placement)
    # Most of those that change only come to wait: nothing of theirs runs, or is to run.
    views = [
        view
        for job_id in (state.jobs if among is None else among)
        if (view := state.jobs.get(job_id)) is not None
        and (view.runs or isinstance(plan.entries.get(job_id), Placed) or job_id in profiles)
    ]
    if not views:
        return ()
    views.sort(key=submission_order)

    stops: list[Stop] = []
    grants: list[Grant] = []
    wanted: list[tuple[JobView, RunKey, Placement]] = []
    leaving: dict[str, list[RunKey]] = defaultdict(list)
    still_there: set[RunKey] = set()
    for view in views:
        job = view.job
        entry = plan.entries.get(job.id)
        placements = entry.placements if isinstance(entry, Placed) else ()
        desired = {(p.purpose, p.copy): p for p in (*placements, *profiles.get(job.id, ()))}
        for run in view.runs:
            key = _make_key(job.id, run.purpose, run.copy)
            target = desired.get((run.purpose, run.copy))
            stays = target is not None and run.configuration == target.configuration
            if target is not None and stays and run.draining_until_s is None:
                del desired[run.purpose, run.copy]
                if run.budget != target.budget:
                    grants.append(Grant(key, target.budget))
                continue
            still_there.add(key)
            for name, _ in run.configuration:
                leaving[name].append(key)
            if run.draining_until_s is None:
                # A copy that is dropped while others go on leaves no job waiting.
                elsewhere = bool(placements) and run.purpose is Purpose.RUN
                stops.append(Stop(key, StopCause.MOVE if elsewhere else StopCause.PREEMPT))
        for (purpose, copy), placement in desired.items():
            # A profiling run that was given up is over, though the plan still names it.
            if placement.until_s is None or state.now < placement.until_s:
                wanted.append((view, _make_key(job.id, purpose, copy), placement))

    room = _Room(state)
    starts = []
    for view, key, placement in wanted:
        own = [key] if key in still_there else []
        if state.runs_per_job is not None and len(view.runs) >= state.runs_per_job:
            own = [_make_key(view.job.id, run.purpose, run.copy) for run in view.runs]
        # A copy goes on elsewhere only when it has left where it was.
        if not own and room.take(view.job, placement):
            starts.append(_make_start(key, placement, ready=True))
            continue
        in_the_way = [k for name, _ in placement.configuration for k in leaving[name]]
        after = tuple(dict.fromkeys(own + in_the_way))
        starts.append(Start(key, placement, ready=False, after=after))
    return (*stops, *grants, *starts)


class _Room:
    """What is free at this instant, less what the starts so far will take."""

    def __init__(self, state: PresentState) -> None:
        self._state = state
        self._gpus: dict[str, int] = {}
        self._cpus: dict[str, float] = {}
        self._memory_mb: dict[str, float] = {}

    def take(self, job: Job, placement: Placement) -> bool:
        """Book the placement if everything that it needs is free now."""
        cluster = self._state.cluster
        by_host: dict[str, int] = defaultdict(int)
        for name, gpus in placement.configuration.pieces:
            self._look_up(name)
            if gpus > self._gpus[name] or name in job.closed:
                return False
            by_host[cluster[name].host] += gpus
        for host, gpus in by_host.items():
            if (
                gpus * job.cpus_per_gpu > self._cpus[host] + SLACK
                or gpus * job.memory_mb_per_gpu > self._memory_mb[host] + SLACK
            ):
                return False
        for name, gpus in placement.configuration.pieces:
            self._gpus[name] -= gpus
        for host, gpus in by_host.items():
            self._cpus[host] -= gpus * job.cpus_per_gpu
            self._memory_mb[host] -= gpus * job.memory_mb_per_gpu
        return True

    def _look_up(self, name: str) -> None:
        if name in self._gpus:
            return
        view = self._state.nodes[name]
        # A node may have closed since the plan was made.
        self._gpus[name] = view.capacity - view.held_gpus if view.open else 0
        host = view.node.host
        if host in self._cpus:
            return
        self._cpus[host] = self._memory_mb[host] = math.inf
        cpus, memory_mb = self._state.cluster.shared_on(host)
        if not (cpus or memory_mb):
            return
        siblings = [self._state.nodes[n] for n in self._state.cluster.on_host(host)]
        # Where others use more than there is, what needs none of it still fits.
        if cpus:
            used = sum(v.held_cpus + v.foreign_cpus for v in siblings)
            self._cpus[host] = max(0.0, cpus - used)
        if memory_mb:
            used_mb = sum(v.held_memory_mb + v.foreign_memory_mb for v in siblings)
            self._memory_mb[host] = max(0.0, memory_mb - used_mb)
