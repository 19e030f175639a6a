"""From the actions of `diff` to calls: what has to change in Slurm for the plan to hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hetsched_core.policy import Action, Start, Stop
from slurm_plugin.backend import Change, JobState, Park, Place, Push, Requeue
from slurm_plugin.daemon.settings import DaemonSettings
from slurm_plugin.daemon.world import LiveWorld, Managed


def changes_for(
    world: LiveWorld, actions: Iterable[Action], settings: DaemonSettings, now: float
) -> tuple[Change, ...]:
    """Return what to do to Slurm's jobs.

    Level-triggered: it looks at what Slurm shows and at nothing that was done before. A pending job
    that is not being placed, or was and has not started in time, is kept parked: unpinned, in the
    shape of its default count, behind a begin time that stays ahead of the clock.
    """
    changes: list[Change] = []
    placed: set[str] = set()
    for action in actions:
        job = action.key.job
        known = world.managed.get(job)
        match action:
            case Stop() if known is not None and known.slurm.state is JobState.RUNNING:
                changes.append(Requeue(job))
            case Start(_, placement, True) if (
                known is not None and known.slurm.state is JobState.PENDING and not known.overdue
            ):
                counts = {gpus for _, gpus in placement.configuration}
                nodes = tuple(name for name, _ in placement.configuration)
                changes.append(Place(job, nodes, counts.pop(), known.mark.default_count))
                placed.add(job)
            case _:
                pass
    stopped = {action.key.job for action in actions if isinstance(action, Stop)}
    for job, known in world.managed.items():
        waits = known.run is None or job in stopped
        if known.slurm.state is JobState.PENDING and waits and job not in placed:
            changes.extend(_kept_back(job, known, settings, now))
    return tuple(changes)


def _kept_back(job: str, known: Managed, settings: DaemonSettings, now: float) -> Iterator[Change]:
    seen, count = known.slurm, known.mark.default_count
    if seen.held:
        return
    if seen.pinned or seen.gpus_per_node != count or seen.gpu_type:
        yield Park(job, count, settings.slack_s)
    elif seen.begin_s is None or seen.begin_s < now + settings.slack_s / 2:
        yield Push(job, settings.slack_s)
