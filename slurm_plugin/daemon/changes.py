"""From the actions of `diff` to calls: what has to change in Slurm for the plan to hold."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice

from hetsched_core.policy import Action, Start, Stop
from hetsched_core.types import Configuration
from slurm_plugin.backend import (
    Change,
    JobState,
    Park,
    Place,
    Push,
    Release,
    Requeue,
    SetAside,
    Signal,
    Together,
)
from slurm_plugin.daemon.checkpoint import warning_for
from slurm_plugin.daemon.copies import aims, astray
from slurm_plugin.daemon.gangs import (
    broken,
    complete,
    element_id,
    finishing,
    stopped_as,
    tidied,
    together,
)
from slurm_plugin.daemon.managed import Managed
from slurm_plugin.daemon.runs import late_in_part
from slurm_plugin.daemon.settings import DaemonSettings, round_of
from slurm_plugin.daemon.world import LiveWorld

MOST_PUSHES = 100
"""How many begin times a cycle moves on before they are urgent."""


TOO_FAR = 1.5
"""Times its slack: a job that is kept back for longer is brought back."""


def changes_for(
    world: LiveWorld, actions: Iterable[Action], settings: DaemonSettings, now: float
) -> tuple[Change, ...]:
    """Return what to do to Slurm's jobs.

    Level-triggered: it looks at what Slurm shows and at nothing that was done before. A pending job
    that is not being placed, or was and has not started in time, is kept parked: unpinned, in the
    shape of its default count, behind a begin time that stays ahead of the clock.
    """
    changes: list[Change] = []
    placed: dict[str, Place | Together] = {}
    stopped: set[str] = set()
    for known, action in aims(world.managed, actions, round_of(now, settings).start_s):
        if isinstance(action, Stop):
            stopped.add(known.slurm.id)
        match action:
            case Stop() if known.slurm.state is JobState.RUNNING:
                if change := _stop(known, settings, now):
                    changes.append(change)
            case Start(_, placement, True) if (
                # The plan may be older than what keeps the job back now.
                known.slurm.state is JobState.PENDING
                and known.blocked is None
                and not known.overdue
            ):
                change = _place(world, known, placement.configuration, settings)
                if change is not None:
                    changes.append(change)
                    placed[known.slurm.id] = change
            case _:
                pass
    kept: list[Managed] = []
    for known in world.units():
        job = known.slurm.id
        if known.slurm.state is JobState.RUNNING and known.stopped == known.slurm.restarts:
            # A controller that died has forgotten that it stopped this run, which is over.
            changes.append(Requeue(stopped_as(known.slurm)))
        elif job not in stopped and _is_half(known, settings, now):
            changes.append(Requeue(stopped_as(known.slurm)))
        tidy: tuple[Change, ...] = ()
        if known.slurm.array:
            starting = known.run is not None and job not in stopped
            tidy = tuple(tidied(known.slurm, placed.get(job), starting))
            changes += broken(known.slurm, now, settings.grace_s)
        waits = known.run is None or job in stopped
        if known.slurm.state is JobState.PENDING and waits and job not in placed:
            if known.slurm.held_by_slurm:
                # Nobody else would let go of it; how often Slurm tries is Slurm's MaxBatchRequeue.
                changes += [_back(known, settings), Release(element_id(known.slurm))]
            elif _astray(known):
                changes.append(_parked(_back(known, settings), tidy))
                continue
            elif not known.leader:
                # Those that are held, too: Slurm starts at once what is released and due.
                kept.append(known)
        changes += tidy
    return (*changes, *world.leaderless, *_pushes(kept, settings, now))


def _is_half(known: Managed, settings: DaemonSettings, now: float) -> bool:
    """Whether a part of a gang runs that does not become whole, or not in time: all or none."""
    if known.partial_s is None:
        return False
    # Of what has ended long ago Slurm tells nothing any more.
    known_whole = len(known.slurm.members) == known.mark.elements - 1
    hopeless = known_whole and complete(known.slurm) and not finishing(known.slurm)
    return hopeless or late_in_part(known, settings, now)


def _place(
    world: LiveWorld, known: Managed, configuration: Configuration, settings: DaemonSettings
) -> Place | Together | None:
    """Return how a job is placed: an element for each count of GPUs on a node, most GPUs first."""
    limit = world.limit_min(known, configuration)
    places = []
    for gpus in sorted({gpus for _, gpus in configuration}, reverse=True):
        nodes = tuple(name for name, count in configuration if count == gpus)
        places.append((nodes, gpus, world.gpu_type(nodes), known.needs.terms(gpus, limit)))
    if not known.leader:
        return together(known.slurm, places, _park(known, settings))
    ((nodes, gpus, gpu_type, terms),) = places
    aside = SetAside(known.slurm.id, known.leader)
    return Place(known.slurm.id, nodes, gpus, aside, gpu_type, terms, dependency="")


def _stop(known: Managed, settings: DaemonSettings, now: float) -> Change | None:
    """Return how a running job is stopped: warned first if it is to be, and given its time.

    That time is over when the job tells that it has saved its state.
    """
    job = stopped_as(known.slurm)
    warning = warning_for(known.mark, known.slurm.submit_line, settings)
    if warning is None:
        return Requeue(job)
    if known.warned_s is None:
        return Signal(job, warning.signal, warning.to)
    told = known.progress
    saved = told is not None and told.checkpoint_s >= known.warned_s
    return Requeue(job) if saved or now >= known.warned_s + warning.wait_s else None


def _park(known: Managed, settings: DaemonSettings) -> Park:
    mark = known.mark
    limit = None if known.limit_s is None else math.ceil(known.limit_s / 60.0)
    return Park(
        element_id(known.slurm),
        mark.default_gpus_per_node,
        settings.slack_s,
        mark.default_nodes,
        mark.default_type,
        known.needs.terms(mark.default_gpus_per_node, limit),
    )


def _back(known: Managed, settings: DaemonSettings) -> Park | SetAside:
    """Return what brings a job back to how it waits: behind a begin time, or as a spare."""
    leader = known.leader
    return SetAside(known.slurm.id, leader) if leader else _park(known, settings)


def _parked(park: Park | SetAside, tidy: tuple[Change, ...]) -> Change:
    """Return a parking; of a gang members are set aside only if the leader has not begun since."""
    aside = tuple(change for change in tidy if isinstance(change, SetAside))
    return Together(park.job, (park, *aside)) if aside else park


def _astray(known: Managed) -> bool:
    """Whether a waiting job carries a pin, or another shape than that of its default count."""
    seen = known.slurm
    if known.leader:
        return not seen.held and astray(known)
    shape = (known.mark.default_gpus_per_node, known.mark.default_type)
    return not seen.held and bool(seen.pinned or (seen.gpus_per_node, seen.gpu_type) != shape)


def _pushes(kept: list[Managed], settings: DaemonSettings, now: float) -> list[Push]:
    """Return the begin times to move on: those that come near, spread over the cycles.

    A job in the first half of its slack is left alone, one in the last quarter is pushed without
    fail, and of those between the nearest few are. One that is much too far ahead is brought back:
    the clock was set back, or Slurm has queued the job again, or it has just been submitted; if the
    daemon went away now, it would wait for too long.
    """
    due = sorted(
        (known.slurm.begin_s or 0.0, element_id(known.slurm))
        for known in kept
        if (known.slurm.begin_s or 0.0) < now + settings.slack_s / 2
    )
    urgent = sum(begin_s < now + settings.slack_s / 4 for begin_s, _ in due)
    far = (
        element_id(known.slurm)
        for known in kept
        if (known.slurm.begin_s or 0.0) > now + TOO_FAR * settings.slack_s
    )
    pushed = [*(job for _, job in due[: max(urgent, MOST_PUSHES)]), *islice(far, MOST_PUSHES)]
    return [Push(job, settings.slack_s) for job in pushed]
