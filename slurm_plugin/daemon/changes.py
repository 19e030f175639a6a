"""From the actions of `diff` to calls: what has to change in Slurm for the plan to hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hetsched_core.policy import Action, Start, Stop
from hetsched_core.types import Configuration, JobView
from slurm_plugin.backend import (
    Change,
    Enter,
    JobState,
    Leave,
    Requeue,
    Resources,
    Signal,
    SlurmJob,
    Together,
)
from slurm_plugin.backend.gres import gpus_per_node
from slurm_plugin.daemon.jobs.checkpoint import warning_for
from slurm_plugin.daemon.jobs.copies import aims
from slurm_plugin.daemon.jobs.gangs import (
    complete,
    element_id,
    gang_end,
    is_finishing,
    member_changes,
    stopped_as,
    together,
)
from slurm_plugin.daemon.jobs.managed import ManagedJob
from slurm_plugin.daemon.jobs.runs import late_in_part
from slurm_plugin.daemon.jobs.terms import terms_for
from slurm_plugin.daemon.nodes.managed_nodes import ManagedNodes
from slurm_plugin.daemon.settings import DaemonSettings, round_of
from slurm_plugin.daemon.world import LiveWorld


def changes_for(
    world: LiveWorld, actions: Iterable[Action], settings: DaemonSettings, now: float
) -> tuple[Change, ...]:
    """Return what to do to Slurm's jobs.

    Level-triggered: it looks at what Slurm shows and at nothing that was done before. A pending job
    that is not being placed, or was and has not started in time, gives its place back.
    """
    changes: list[Change] = []
    placed: dict[str, Enter | Together] = {}
    stopped: set[str] = set()
    for known, action in aims(world.managed, actions, round_of(now, settings).start_s):
        if isinstance(action, Stop):
            stopped.add(known.slurm.id)
        match action:
            case Stop() if known.slurm.state is JobState.RUNNING and (
                known.job.preemptible or known.job.gives_way
            ):
                if change := _stop(known, settings, now):
                    changes.append(change)
            case Start(_, placement, True) if (
                # The plan may be older than what keeps the job back now.
                known.slurm.state is JobState.PENDING
                and known.blocked is None
                and not known.overdue
            ):
                change = _enter(world, known, placement.configuration)
                on_each = {
                    host: gpus * known.job.cpus_per_gpu
                    for name, gpus in placement.configuration
                    for host in world.managed_nodes.hosts_of((name,))
                }
                if change is not None and world.comers.take(known.slurm, on_each):
                    changes.append(change)
                    placed[known.slurm.id] = change
            case _:
                pass
    for known in world.units():
        job = known.slurm.id
        # A controller that died has forgotten that it stopped this run, which is over.
        forgotten = known.slurm.state is JobState.RUNNING and known.stopped == known.slurm.restarts
        half = not forgotten and job not in stopped and _is_half(known, settings, now)
        if forgotten or half:
            changes.append(Requeue(stopped_as(known.slurm)))
        if known.slurm.array:
            stops = forgotten or half or job in stopped
            starting = known.run is not None and not stops
            changes += member_changes(known.slurm, placed.get(job), starting)
            changes += gang_end(known.slurm, now, settings.grace_s)
        waits = known.run is None or job in stopped
        waits = waits and known.slurm.state is JobState.PENDING and job not in placed
        if waits and known.request.placed(known.slurm):
            changes.append(_leave(world, known))
    changes += world.forgotten
    return (*changes, *world.let_go(), *world.leaderless, *world.intake.intruders)


def alone_on(world: LiveWorld, changes: Iterable[Change]) -> frozenset[str]:
    """Return the nodes that jobs are about to enter which share no node."""
    steps = (
        step for each in changes for step in (each.steps if isinstance(each, Together) else (each,))
    )
    entering = ((world.unit(each.job), each.nodes) for each in steps if isinstance(each, Enter))
    return frozenset(
        name for known, nodes in entering if known and known.slurm.exclusive for name in nodes
    )


def leave_changes(world: LiveWorld) -> Iterator[Leave]:
    """Yield what takes jobs out of the reservation that have not begun, so that Slurm does."""
    for known in world.units():
        if known.request.placed(known.slurm):
            yield _leave(world, known)
        for member in known.slurm.members:
            if member.entered:
                yield Leave(element_id(known.slurm, member.element))
    yield from world.intake.intruders


def _is_half(known: ManagedJob, settings: DaemonSettings, now: float) -> bool:
    """Whether a part of a gang runs that does not become whole, or not in time: all or none."""
    if known.partial_s is None:
        return False
    # Of what has ended long ago Slurm tells nothing any more.
    known_whole = len(known.slurm.members) == known.request.mark.elements - 1
    hopeless = known_whole and complete(known.slurm) and not is_finishing(known.slurm)
    return hopeless or late_in_part(known, settings, now)


def _enter(
    world: LiveWorld, known: ManagedJob, configuration: Configuration
) -> Enter | Together | None:
    """Return how a job is placed: an element for each count of GPUs on a node, most GPUs first."""
    seen, request = known.slurm, known.request
    job = element_id(seen)
    managed = world.managed_nodes
    hosts = managed.hosts_of(name for name, _ in configuration)
    partitions = managed.partitions_for(seen, hosts)
    typed = managed.writes_type(seen, request)
    otherwise = request.leave(job, partitions or seen.partitions, typed=typed)
    # What was queued again waits for a while else.
    entry = Enter(job, world.hold, hosts, otherwise, due=seen.restarts > 0, partitions=partitions)
    if request.rigid:
        exactly = Resources((len(hosts), len(hosts))) if request.nodes_range else None
        resources = _typed(seen, configuration, managed) if typed else exactly
        return replace(entry, resources=resources)
    limit = world.limit_min(known, configuration)
    entries = []
    for gpus in sorted({gpus for _, gpus in configuration}, reverse=True):
        nodes = tuple(name for name, count in configuration if count == gpus)
        on_each = gpus_per_node(gpus, managed.gpu_type(nodes))
        tasks = len(nodes) * request.tasks_on(gpus)
        entries.append(
            replace(
                entry,
                nodes=managed.hosts_of(nodes),
                resources=seen.resources.placed(len(nodes), on_each, tasks),
                terms=terms_for(request, gpus, len(nodes), limit),
            )
        )
    return together(seen, entries)


def _typed(seen: SlurmJob, configuration: Configuration, managed: ManagedNodes) -> Resources:
    """Return what to change of a job that runs as it was submitted, so that it has one GPU type.

    srun goes on with what its user has asked for, and Slurm then takes no type from GPUs on each
    node; one for the GPUs in all it takes whatever that was.
    """
    gpu_type = managed.gpu_type(name for name, _ in configuration)
    nodes, on_each = len(configuration), configuration.pieces[0][1]
    even = on_each * nodes == configuration.gpus
    placed = seen.resources.placed(
        nodes, gpus_per_node(on_each, gpu_type), seen.resources.tasks or 1
    )
    if nodes > 1 and even and seen.batch:
        return placed
    return replace(placed, per_job=gpus_per_node(configuration.gpus, gpu_type), per_node="")


def _leave(world: LiveWorld, known: ManagedJob) -> Leave:
    """Return what lets a job wait again, in the shape in which it was submitted."""
    seen, request = known.slurm, known.request
    typed = world.managed_nodes.writes_type(seen, request)
    return request.leave(element_id(seen), seen.partitions, typed=typed)


def warned_jobs(world: LiveWorld, settings: DaemonSettings) -> dict[str, JobView]:
    """Return the jobs that have been told to save their state, with runs that are on their way out.

    So policies see them until then, as in a replay; one that places such a job where it runs takes
    its stop back.
    """
    found = {}
    for job_id, known in world.managed.items():
        if known.warned_s is None or not known.job.preemptible or job_id not in world.jobs:
            continue
        warning = warning_for(known.request.mark, known.slurm.submit_line, settings)
        if warning is None:
            continue
        free_s = known.warned_s + warning.wait_s + settings.grace_s
        view = world.jobs[job_id]
        runs = tuple(
            run if run.draining_until_s is not None else replace(run, draining_until_s=free_s)
            for run in view.runs
        )
        found[job_id] = replace(view, runs=runs)
    return found


def _stop(known: ManagedJob, settings: DaemonSettings, now: float) -> Change | None:
    """Return how a running job is stopped: warned first if it is to be, and given its time.

    That time is over when the job tells that it has saved its state.
    """
    job = stopped_as(known.slurm)
    warning = warning_for(known.request.mark, known.slurm.submit_line, settings)
    if warning is None or not known.job.preemptible:
        return Requeue(job)
    if known.warned_s is None:
        return Signal(job, warning.signal, warning.to)
    told = known.progress
    saved = told is not None and told.checkpoint_s >= known.warned_s
    return Requeue(job) if saved or now >= known.warned_s + warning.wait_s else None
