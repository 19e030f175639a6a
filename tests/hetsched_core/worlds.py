"""Small clusters, speeds, jobs, snapshots and plans for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from immutables import Map

from hetsched_core.types import (
    ALL_SHAPES,
    EMPTY_PLAN,
    Cluster,
    Configuration,
    EndedJob,
    EndedJobs,
    EndState,
    Entry,
    Job,
    JobView,
    Layer,
    Node,
    NodeView,
    Placed,
    Placement,
    Plan,
    ProfilePlacement,
    Purpose,
    Reason,
    ReasonCode,
    RequirementSet,
    Round,
    Run,
    Shape,
    Snapshot,
    Speeds,
    SpeedTable,
    Submission,
    TaskProgress,
    TaskSequence,
    TaskTimes,
    Trigger,
    Waiting,
)

NO_ROOM = Waiting(Reason(ReasonCode.NO_ROOM))


def cluster_of(**nodes: tuple[str, int]) -> Cluster:
    """Build a cluster from name=(GPU type, GPUs)."""
    return Cluster(tuple(Node(name, gpu_type, gpus) for name, (gpu_type, gpus) in nodes.items()))


def linear_speeds(
    cluster: Cluster,
    per_gpu: Mapping[str, Mapping[str, float]],
    several_nodes: float = 1.0,
    tasks: Mapping[str, Mapping[str, TaskTimes]] | None = None,
) -> Speeds:
    """Build speeds that grow linearly with the GPUs, from {profile: {GPU type: samples/s per GPU}}.

    Over several nodes each GPU is `several_nodes` times as fast as on one.
    """
    tables = {}
    for profile, by_type in per_gpu.items():
        one_node = np.array([[speed] for speed in by_type.values()], dtype=np.float64)
        tables[profile] = SpeedTable(
            gpu_types=tuple(by_type),
            counts=np.array([1], dtype=np.int64),
            one_node=one_node,
            several_nodes=one_node * several_nodes,
            layers=np.full(one_node.shape, Layer.TRUTH, dtype=np.int8),
            tasks=(tasks or {}).get(profile, {}),
        )
    return Speeds(cluster, tables)


def submission(
    job_id: str,
    samples: float,
    counts: tuple[int, ...] = (1,),
    *,
    submit_s: float = 0.0,
    profile: str = "m",
    ends_as: EndState = EndState.COMPLETED,
    cancel_s: float | None = None,
    **job: Any,
) -> Submission:
    """Build a job with its true size; the rest are fields of the job."""
    return Submission(
        Job(job_id, submit_s, RequirementSet(counts), profile, total_samples=samples, **job),
        samples=samples,
        ends_as=ends_as,
        cancel_s=cancel_s,
    )


def on(**pieces: int) -> Configuration:
    """Build a configuration from node=GPUs."""
    return Configuration.of(pieces)


def placed(**pieces: int) -> Placed:
    """Build the entry of a gang on node=GPUs."""
    return Placed((Placement(on(**pieces)),))


def where(plan: Plan) -> dict[str, str]:
    """Return where each gang is placed, as text, by job."""
    return {
        job: str(entry.placements[0].configuration)
        for job, entry in sorted(plan.entries.items())
        if isinstance(entry, Placed)
    }


def held(configuration: Configuration, *, number: int = 0, **more: object) -> Run:
    """Build a run that has been making progress at 1 sample/s since time 0."""
    run = Run(number, configuration, since_s=0.0, progress_from_s=0.0, speed=1.0)
    return replace(run, **more)  # type: ignore[arg-type]


def view(
    job_id: str,
    *runs: Run,
    counts: tuple[int, ...] = (1,),
    progress: TaskProgress | None = None,
    blocked: Reason | None = None,
    **job: Any,
) -> JobView:
    """Build what is known of an active job of profile `m` that holds `runs`."""
    bare = submission(job_id, 1.0, counts, **job).job
    return JobView(bare, observed_s=0.0, runs=runs, progress=progress, blocked=blocked)


def running(job_id: str, **pieces: int) -> JobView:
    """Build a job that runs on node=GPUs and accepts no other number of them."""
    return view(job_id, held(on(**pieces)), counts=(sum(pieces.values()),))


def sized(
    job_id: str, samples: float, *runs: Run, counts: tuple[int, ...] = (1,), **more: object
) -> JobView:
    """Build what is known of an active job of known size; `more` are fields of the view."""
    bare = view(job_id, *runs, counts=counts)
    return replace(bare, job=replace(bare.job, total_samples=samples), **more)  # type: ignore[arg-type]


def ended(run_s: Mapping[str, float]) -> EndedJobs:
    """A job of each profile that has ended, after so many seconds."""
    return EndedJobs.of(EndedJob("", profile, seconds) for profile, seconds in run_s.items())


def snapshot_of(
    cluster: Cluster,
    views: Iterable[JobView],
    *,
    now: float = 0.0,
    speeds: Speeds | None = None,
    shapes: frozenset[Shape] = ALL_SHAPES,
    triggers: frozenset[Trigger] = frozenset({Trigger.ARRIVAL}),
    previous: Plan = EMPTY_PLAN,
    changed: frozenset[str] | None = None,
    nodes_changed: bool = True,
    nodes: Mapping[str, Mapping[str, object]] | None = None,
) -> Snapshot:
    """Build a snapshot in which the nodes hold what the jobs' runs hold.

    Every job counts as changed unless said otherwise; `nodes` overrides fields of single nodes;
    speeds are 1 sample/s per GPU of every type unless given.
    """
    jobs = {view.id: view for view in views}
    states = {node.name: NodeView(node) for node in cluster}
    for job_view in jobs.values():
        for run in job_view.runs:
            for name, gpus in run.configuration:
                state = states[name]
                states[name] = replace(
                    state,
                    held_gpus=state.held_gpus + gpus,
                    held_cpus=state.held_cpus + gpus * job_view.job.cpus_per_gpu,
                    held_memory_mb=state.held_memory_mb + gpus * job_view.job.memory_mb_per_gpu,
                )
    for name, fields in (nodes or {}).items():
        states[name] = replace(states[name], **fields)  # type: ignore[arg-type]
    return Snapshot(
        now=now,
        triggers=triggers,
        round=Round(0, 0.0, 360.0),
        cluster=cluster,
        nodes=Map(states),
        jobs=Map(jobs),
        speeds=speeds or linear_speeds(cluster, {"m": dict.fromkeys(cluster.gpu_types, 1.0)}),
        effective_s=now,
        shapes=shapes,
        previous=previous,
        changed=frozenset(jobs) if changed is None else changed,
        gone=frozenset(previous.entries) - frozenset(jobs),
        nodes_changed=nodes_changed,
    )


def plan_of(
    entries: Mapping[str, Entry],
    *,
    profiles: Mapping[str, Placement] | None = None,
    sequences: tuple[TaskSequence, ...] = (),
) -> Plan:
    """Build a plan made afresh; `profiles` gives at most one profiling run to each job."""
    return Plan(
        Map(entries),
        profiles=tuple(ProfilePlacement(job, p) for job, p in (profiles or {}).items()),
        sequences=sequences,
    )


def profiling(configuration: Configuration, until_s: float | None = 60.0) -> Placement:
    """Build a profiling run that is given up at `until_s`."""
    return Placement(configuration, purpose=Purpose.PROFILE, until_s=until_s)
