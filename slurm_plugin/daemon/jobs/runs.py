"""What a job of ours holds: a run, one that drains, or one that is placed and has not begun."""

from __future__ import annotations

from collections.abc import Iterable

from hetsched_core.types import Cluster, Configuration, Placement, Reason, ReasonCode, Run, Speeds
from slurm_plugin.backend import JobState, SlurmJob
from slurm_plugin.daemon.jobs.gangs import complete, is_finishing, nodes_entered, pieces_held
from slurm_plugin.daemon.jobs.kept_back import LIMITS, QUOTA_S, Ban
from slurm_plugin.daemon.jobs.managed import (
    ManagedJob,
    blocked_by,
    configuration_of,
    not_started,
    share_of,
)
from slurm_plugin.daemon.jobs.slurm_order import Line
from slurm_plugin.daemon.jobs.slurm_reasons import code_of
from slurm_plugin.daemon.settings import DaemonSettings

PATIENCE_S = 5.0
"""How long a job that was placed keeps its place when Slurm says that it does not start it there,
and no limit: its word may be of a moment ago."""


def run_of(
    known: ManagedJob,
    seen: SlurmJob,
    cluster: Cluster,
    speeds: Speeds | None,
    settings: DaemonSettings,
    line: Line,
    now: float,
) -> Run | None:
    """Return what a job holds; None for nothing.

    Args:
        known: the job as it was known before; when it was placed, what its run holds on each node
            and why it is not tried again are noted in it.
        seen: the job as Slurm shows it now.
        cluster: the nodes.
        speeds: estimates, for runs that have told nothing.
        settings: times.
        line: what else is placed and has not started.
        now: seconds UTC.
    """
    if seen.state is JobState.PENDING:
        return _starting(known, seen, cluster, speeds, settings, line, now)
    known.placed_s = None
    ends = seen.state is JobState.COMPLETING
    # The clock may have been set back.
    known.ending_s = min(known.ending_s or now, now) if ends else None
    before = known.run
    configuration = _held(known, seen, cluster)
    if configuration is None or known.lingers(now, settings.grace_s):
        # What lingers has its GPUs, and no job is to wait for them.
        return None
    running = seen.state is JobState.RUNNING
    half = bool(seen.array) and configuration.gpus not in known.request.counts
    part = running and (half or not complete(seen))
    known.partial_s = (known.partial_s or now) if part else None
    if late_in_part(known, settings, now) and known.kept_back.everywhere is None:
        # What keeps its other elements back may do so again.
        waited = f"a part of it has not started within {settings.start_timeout_s:g} s"
        why = Reason(ReasonCode.NOT_STARTED, detail=waited)
        known.kept_back.everywhere = Ban(why, now + QUOTA_S)
    if running and half:
        return None
    if running:
        known.share, known.kept_back.failures = share_of(seen, configuration, cluster), 0
    until_s = None if known.ending_s is None else known.ending_s + settings.grace_s
    since_s = seen.start_s if seen.start_s is not None else now
    if until_s is not None and before is not None and before.begun:
        since_s = before.since_s
    number = before.number if before is not None and until_s is not None else seen.restarts
    # A gang runs when all of it does, a job once its nodes are up. Of what is stopped one element
    # may read as queued again before the others: that is of a moment.
    whole = complete(seen) and not seen.configuring
    lacks_s = 0.0 if known.partial_s is None else now - known.partial_s
    begun = not running or whole or (lacks_s <= PATIENCE_S and _had_begun(before, number))
    return as_run(known, number, configuration, since_s, until_s, speeds, settings, begun=begun)


def _had_begun(before: Run | None, number: int) -> bool:
    return before is not None and before.number == number and before.begun


def late_in_part(known: ManagedJob, settings: DaemonSettings, now: float) -> bool:
    """Whether a part of a gang has run for too long without the rest."""
    return known.partial_s is not None and now - known.partial_s > settings.start_timeout_s


def _held(known: ManagedJob, seen: SlurmJob, cluster: Cluster) -> Configuration | None:
    """Return what a job that has begun holds; None for what is no shape of its own.

    A gang whose members end one after another keeps what it has had until its leader ends.
    """
    before = known.run
    configuration = configuration_of(_on_nodes(known, seen, cluster), cluster)
    if configuration is None or before is None or before.number != seen.restarts:
        return configuration
    lost = seen.array and configuration.gpus not in known.request.counts
    return before.configuration if lost and is_finishing(seen) else configuration


def _instead(name: str, seen: SlurmJob, cluster: Cluster) -> str:
    """Return a scheduling node for one that there is no more, on its host; else its own name."""
    if name in cluster:
        return name
    hosts = [host for each in (seen, *seen.members) for host in each.nodes]
    own = [name] if name in hosts else [host for host in hosts if name.startswith(f"{host}-")]
    return next((on_it[0] for host in own if (on_it := cluster.called(host))), name)


def _on_nodes(known: ManagedJob, seen: SlurmJob, cluster: Cluster) -> Iterable[tuple[str, int]]:
    """Return GPUs by scheduling node.

    On a host with several GPU types, of GPUs of which Slurm does not tell the type, as of elements
    that are about to start, it is the one that the job was placed on. GPUs of a type that its host
    has no more are counted with the first that it has. A job that shares no node has all of the
    host, and stands on one.
    """
    found = tuple(pieces_held(seen))
    if any(name not in cluster for name, _ in found):
        placed = known.placement.configuration if known.placement is not None else ()
        meant = {cluster[name].host: name for name, _ in placed if name in cluster}
        found = tuple((meant.get(name) or _instead(name, seen, cluster), n) for name, n in found)
    if known.slurm.exclusive != "node" or known.whole.nodes is None:
        return found
    stands_on, nodes = known.whole.nodes, (cluster.get(name) for name, _ in found)
    return tuple(
        each
        for each, node in zip(found, nodes, strict=True)
        if node is None or node.name == node.host or node.name in stands_on
    )


def _starting(
    known: ManagedJob,
    seen: SlurmJob,
    cluster: Cluster,
    speeds: Speeds | None,
    settings: DaemonSettings,
    line: Line,
    now: float,
) -> Run | None:
    """A placed job holds its GPUs already, until it takes too long to start."""
    known.warned_s = known.partial_s = known.ending_s = None
    configuration = _placed(known, seen, cluster, now)
    if configuration is None:
        known.placed_s = None
        return None
    if known.placed_s is None:
        known.placed_s = now
    # It may never start there: meanwhile others may have what it keeps from them.
    late = _late(known, seen, settings, line, now)
    if late is not None and (first := line.ahead_of(seen)):
        line.blamed.add(first)
        known.placed_s, late = now, None
    # A limit is no matter of where it stands, or of its GPUs' type alone: that is seen elsewhere.
    own = known.kept_back
    if late is not None and own.everywhere is None and code_of(seen.reason) not in LIMITS:
        nodes = [name for name, _ in configuration]
        own.not_started_on(nodes, late, seen.reason, known.placed_s, now)
    if late is not None or blocked_by(seen) is not None:
        return None
    before = known.run
    if before is not None and not before.begun and before.configuration == configuration:
        return before
    return as_run(known, seen.restarts, configuration, now, None, speeds, settings, begun=False)


def _late(
    known: ManagedJob, seen: SlurmJob, settings: DaemonSettings, line: Line, now: float
) -> Reason | None:
    """Return why a job that was placed has not started, and is not likely to."""
    waited_s = now - (now if known.placed_s is None else known.placed_s)
    if waited_s > settings.start_timeout_s:
        words = f"it has not started within {settings.start_timeout_s:g} s"
        return Reason(ReasonCode.NOT_STARTED, detail=f"{words}, Slurm says {seen.reason}")
    if waited_s <= PATIENCE_S:
        return None
    if line.is_blamed(seen):
        words = f"others wait behind it, Slurm says {seen.reason}"
        return Reason(ReasonCode.NOT_STARTED, detail=words)
    return not_started(seen)


def _placed(
    known: ManagedJob, seen: SlurmJob, cluster: Cluster, now: float
) -> Configuration | None:
    """Return where a job was placed, if it still waits to start there.

    What is in the reservation without a place has not been put there by this daemon.
    """
    placement = known.placement
    if seen.begin_s is not None and seen.begin_s > now + 1.0:
        # It was queued again since.
        return None
    if placement is None:
        return None
    nodes = [cluster.get(name) for name, _ in placement.configuration]
    there = {node.host for node in nodes if node is not None}
    whole = None not in nodes and there == nodes_entered(seen)
    return placement.configuration if whole else None


def as_run(
    known: ManagedJob,
    number: int,
    configuration: Configuration,
    since_s: float,
    draining_until_s: float | None,
    speeds: Speeds | None,
    settings: DaemonSettings,
    *,
    begun: bool,
) -> Run:
    """Return a run of a job, as fast as it has told, or else as is estimated."""
    speed, told = 0.0, known.progress
    cost_s = settings.restart_on_s(None, configuration) if known.slurm.restarts else 0.0
    from_s = since_s + cost_s
    if told is not None and told.run == number and told.samples_per_s > 0:
        speed, from_s = told.samples_per_s, min(from_s, told.at_s)
    elif speeds is not None:
        speed = speeds.speed(known.job.profile, configuration)
    asked = known.placement
    if asked is None or asked.configuration != configuration:
        asked = Placement(configuration)
    return Run(
        number=number,
        configuration=configuration,
        since_s=since_s,
        progress_from_s=from_s,
        speed=speed,
        copy=asked.copy,
        purpose=asked.purpose,
        budget=asked.budget,
        draining_until_s=draining_until_s,
        begun=begun,
    )
