"""Contracts on what happened: told from the run log alone, whatever `check_plan` thought."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

from hetsched_core.contract.feasibility import Feasibility, feasibility
from hetsched_core.contract.trial import Trial
from hetsched_core.records.runlog import RunEnd, RunLog, RunRecord, each
from hetsched_core.simulate import NodeLost
from hetsched_core.types import (
    SLACK,
    Cluster,
    Configuration,
    ExecutionModel,
    Job,
    NodeCondition,
    Purpose,
)


def nothing_is_held_twice(trial: Trial, log: RunLog) -> Iterator[str]:
    """At no instant is a GPU, a CPU or memory held twice, or anything begun on a closed node."""
    jobs = {record.job.id: record.job for record in log.jobs}
    held = [run for run in each(log.runs) if run.since_s < run.freed_s]
    for at_s in sorted({run.since_s for run in held}):
        now = [run for run in held if run.since_s <= at_s < run.freed_s]
        found = over_allocated(
            trial.scenario.cluster, [(jobs[run.job], run.configuration) for run in now]
        )
        if found:
            yield f"t={at_s:.3f} s: {found}"
    yield from _held_where_closed(log, held)


def over_allocated(cluster: Cluster, holders: Iterable[tuple[Job, Configuration]]) -> str:
    """Return what these jobs together hold beyond what the cluster has, or ""."""
    gpus: dict[str, int] = defaultdict(int)
    cpus: dict[str, float] = defaultdict(float)
    memory_mb: dict[str, float] = defaultdict(float)
    for job, configuration in holders:
        for name, count in configuration:
            gpus[name] += count
            cpus[cluster[name].host] += count * job.cpus_per_gpu
            memory_mb[cluster[name].host] += count * job.memory_mb_per_gpu
    for node in cluster:
        if gpus[node.name] > node.gpus:
            return f"{gpus[node.name]} GPUs held on {node.name}, which has {node.gpus}"
        for what, used, most in (
            ("CPUs", cpus[node.host], node.cpus),
            ("MiB", memory_mb[node.host], node.memory_mb),
        ):
            if most and used > most + SLACK:
                return f"{used:g} {what} held on {node.host}, which has {most}"
    return ""


def _held_where_closed(log: RunLog, held: list[RunRecord]) -> Iterator[str]:
    changes: dict[str, list[tuple[float, NodeCondition]]] = defaultdict(list)
    for record in log.nodes:
        changes[record.node].append((record.at_s, record.condition))
    for run in held:
        for name, _ in run.configuration:
            was = NodeCondition.UP
            for at_s, condition in changes[name]:
                if at_s <= run.since_s:
                    was = condition
                elif condition is NodeCondition.DOWN and at_s < run.freed_s:
                    yield f"job {run.job} holds {name} at {run.freed_s:.3f} s, lost at {at_s:.3f} s"
            if was is not NodeCondition.UP:
                yield f"job {run.job} starts at {run.since_s:.3f} s on {name}, which is {was.value}"


def gangs_are_whole(trial: Trial, log: RunLog) -> Iterator[str]:
    """Gangs hold an accepted number of GPUs at once, copies a whole node each, tasks one GPU."""
    cluster, model = trial.scenario.cluster, trial.policy.info.model
    jobs = {record.job.id: record.job for record in log.jobs}
    last: dict[tuple[str, int], RunRecord] = {}
    for run in sorted(each(log.runs), key=lambda run: (run.since_s, run.number)):
        if run.purpose is not Purpose.RUN:
            continue
        where = f"job {run.job} at {run.since_s:.3f} s on {run.configuration}"
        requirements = jobs[run.job].requirements
        match model:
            case ExecutionModel.GANG:
                if run.configuration.gpus not in requirements:
                    yield f"{where}: accepts {requirements} GPUs"
                if run.copy != 0:
                    yield f"{where}: copy {run.copy} of a gang"
            case ExecutionModel.COPIES:
                ((name, gpus), *more) = run.configuration
                if more or gpus != cluster[name].gpus:
                    yield f"{where}: not one whole node"
            case ExecutionModel.TASKS:
                if run.configuration.gpus != 1:
                    yield f"{where}: a task has one GPU"
        before = last.get((run.job, run.copy))
        if before is not None and before.freed_s > run.since_s:
            yield f"{where}: still holds {before.configuration} until {before.freed_s:.3f} s"
        last[run.job, run.copy] = run


def gpu_types_are_accepted(trial: Trial, log: RunLog) -> Iterator[str]:
    """No job holds a GPU of a type that it does not accept."""
    accepted = {record.job.id: record.job.gpu_types for record in log.jobs}
    for run in log.runs:
        types = accepted[run.job]
        for name, _ in run.configuration:
            gpu_type = trial.scenario.cluster[name].gpu_type
            if types is not None and gpu_type not in types:
                yield f"job {run.job} holds {gpu_type} ({name}) and accepts {sorted(types)}"


def nodes_are_accepted(trial: Trial, log: RunLog) -> Iterator[str]:
    """No job holds a GPU of a node that is none of its nodes."""
    del trial
    nodes = {record.job.id: record.job.nodes for record in log.jobs}
    for run in log.runs:
        mine = nodes[run.job]
        for name, _ in run.configuration:
            if mine is not None and name not in mine:
                yield f"job {run.job} holds {name} at {run.since_s:.3f} s; it is none of its nodes"


def node_counts_are_kept(trial: Trial, log: RunLog) -> Iterator[str]:
    """No job is on more or fewer nodes than it asks for."""
    if trial.scenario.model is ExecutionModel.TASKS:
        return
    jobs = {record.job.id: record.job for record in log.jobs}
    runs = [run for run in log.runs if run.purpose is Purpose.RUN and run.since_s < run.freed_s]
    # A copy that saves its state on one node may have been begun on another.
    grace_s = trial.scenario.settings.grace_s
    for run in runs:
        if not jobs[run.job].accepts_spread(run.configuration):
            yield f"job {run.job} at {run.since_s:.3f} s on {run.configuration}"
        most = jobs[run.job].max_nodes
        others = {
            name
            for other in runs
            if other.job == run.job and other.since_s <= run.since_s < other.freed_s - grace_s
            for name, _ in other.configuration
        }
        if most is not None and len(others) > most:
            yield f"job {run.job} at {run.since_s:.3f} s on {len(others)} nodes of {most}"


def windows_are_kept(trial: Trial, log: RunLog) -> Iterator[str]:
    """No run reaches into a window: what cannot end before it is not placed, or moved in time."""
    jobs = {record.job.id: record.job for record in log.jobs}
    lost = {(i.at_s, i.node) for i in trial.scenario.incidents if isinstance(i, NodeLost)}
    for window in trial.scenario.settings.windows:
        for run in each(log.runs):
            names = [name for name, _ in run.configuration if name in window.nodes]
            where, job = f"job {run.job} from {run.since_s:.3f} s on {names}", jobs[run.job]
            if not names or run.since_s >= min(window.until_s, run.freed_s):
                continue
            limit_s = math.inf if job.time_limit_s is None else job.time_limit_s
            in_time = run.since_s + limit_s <= window.from_s and not job.preemptible
            if run.freed_s > window.from_s and not in_time:
                yield f"{where} reaches into window {window.name} from {window.from_s:.3f} s"
            if trial.scenario.model is ExecutionModel.TASKS:
                # A task is over in a moment, and begun anew elsewhere.
                continue
            fell = run.ended_by is RunEnd.NODE_LOST and run.freed_s == window.from_s
            if fell and not any((run.freed_s, name) in lost for name, _ in run.configuration):
                yield f"{where} is lost when window {window.name} begins: it was not told to leave"


def what_may_not_be_stopped_is_not(_: Trial, log: RunLog) -> Iterator[str]:
    """A job that is not preemptible keeps its GPUs until it ends, crashes or loses a node."""
    fixed = {record.job.id for record in log.jobs if not record.job.preemptible}
    for run in log.runs:
        stopped = run.ended_by in (RunEnd.PREEMPTED, RunEnd.MOVED)
        if run.job in fixed and run.purpose is Purpose.RUN and stopped:
            yield f"job {run.job}, not preemptible, is {run.ended_by.value} at {run.freed_s:.3f} s"


def every_job_that_fits_ends(trial: Trial, log: RunLog) -> Iterator[str]:
    """Every job that the healthy cluster could hold comes to its end; no other ever starts."""
    scenario = trial.scenario
    for record in log.jobs:
        fits = feasibility(
            record.job, scenario.cluster, scenario.truth, scenario.settings.shapes, scenario.model
        )
        if fits is Feasibility.YES and record.end_s is None:
            yield f"job {record.job.id} fits and has not ended when nothing more happens"
        if fits is Feasibility.NO and record.first_start_s is not None:
            yield f"job {record.job.id} started, though it fits nowhere"
