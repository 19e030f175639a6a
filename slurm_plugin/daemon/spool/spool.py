"""Both directions of the spool directory: what jobs tell, and what they are told."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path

from hetsched_core.errors import InputError
from hetsched_core.policy import Action, Start
from hetsched_core.store import Store, StoreError
from hetsched_core.types import Configuration, Placed, Placement, Plan, Purpose, Waiting
from slurm_plugin.backend import Change, Enter, Requeue
from slurm_plugin.daemon.jobs.gangs import of_leader
from slurm_plugin.daemon.jobs.managed import ManagedJob
from slurm_plugin.daemon.profiling import ProfilingRuns
from slurm_plugin.daemon.settings import DaemonSettings
from slurm_plugin.daemon.spool.listening import NOTHING, Heard, Listener
from slurm_plugin.daemon.spool.moves import Move, SpoolFolder
from slurm_plugin.daemon.world import LiveWorld

TIDY_S = 86_400.0
"""How often what was told of jobs that are gone is removed, and for how long it stays at least."""

_OF_A_SPOOL = re.compile(r"moves|\d+|\..*|lost\+found")
"""What stands in a spool: moves, users' directories by uid, and what is the file system's own."""


class Spool:
    """Hears what running jobs tell, ends their profiling runs, and notes down their moves."""

    def __init__(self, listener: Listener, folder: SpoolFolder) -> None:
        """Begin with no profiling run."""
        self._listener, self._folder = listener, folder
        self._profiling = ProfilingRuns()
        self._trouble = self._unwritten = ""
        self._tidied_s = -math.inf
        self.failure: StoreError | None = None

    @classmethod
    def open(
        cls, settings: DaemonSettings, store: Store | None, stopwatch: Callable[[], float]
    ) -> Spool | None:
        """Return the spool of these settings; None without a directory or a store.

        Raises:
            InputError: the directory is not there or no spool, or others could write in it.
            StoreError: what was heard before cannot be read.
        """
        if settings.spool is None:
            return None
        folder = SpoolFolder(checked(settings.spool))
        if store is None:
            return None
        listener = Listener(
            store,
            folder,
            every_s=settings.spool_s,
            most_s=settings.spool_most_s,
            stopwatch=stopwatch,
        )
        return cls(listener, folder)

    def hear(self, world: LiveWorld, now: float) -> Heard:
        """Take in what was told since, as far as one cycle may, and let `world` know."""
        if not self._tidied_s <= now < self._tidied_s + TIDY_S:  # the clock may have been set back
            self._tidied_s = now
            odd = (what.removeprefix("job ") for what in world.odd)
            self._folder.tidy({*world.records, *odd}, now - TIDY_S)
        try:
            self._listener.follow(world, now)
            heard = self._listener.listen(now)
            self.failure = self._listener.failure
        except StoreError as error:
            self.failure = error
            heard = Heard(trouble=str(error))
        if self._unwritten and not heard.trouble:
            heard = replace(heard, trouble=self._unwritten)
        if heard is NOTHING:
            return heard
        trouble, self._trouble = self._trouble, heard.trouble
        if heard.trouble == trouble:
            # It has been said.
            heard = replace(heard, trouble="")
        if heard.bandwidths:
            world.estimates.all_learned()
        elif heard.learned:
            world.estimates.learned(heard.learned)
        if heard.progress:
            world.heard(heard.progress, now)
        return heard

    def left(self, world: LiveWorld, plan: Plan, now: float) -> Plan:
        """Return a plan without its profiling runs that are over: the same plan if none is."""
        going_on = self._profiling.going_on(world, plan, now, self._listener.silent)
        return plan if len(going_on) == len(plan.profiles) else replace(plan, profiles=going_on)

    def note(
        self,
        world: LiveWorld,
        plan: Plan,
        actions: Iterable[Action],
        made: Collection[Change],
        now: float,
    ) -> None:
        """Write down for each job that was placed or stopped what was decided about it, and why."""
        starts = {
            action.key.job: action.placement for action in actions if isinstance(action, Start)
        }
        for change in made:
            known = world.job(change.job)
            if known is None or len(known.copies) > 1 or not of_leader(change.job):
                # Copies come and go one by one: of them the journal tells.
                continue
            match change:
                case Enter() if known.slurm.id in starts:
                    self._note(known, _placed(world, known, starts[known.slurm.id], now))
                case Requeue():
                    self._note(known, _stopped(world, known, plan, now))
                case _:
                    pass

    def _note(self, known: ManagedJob, move: Move) -> None:
        try:
            self._folder.note(known.slurm.user, known.slurm.id, known.request.mark.nonce, move)
            self._unwritten = ""
        except OSError as error:
            self._unwritten = f"jobs cannot be told of their moves: {error.strerror}"


def checked(path: Path, users: Collection[int] = ()) -> Path:
    """Return a directory for a spool alone, in which no other user can be in the daemon's way.

    Args:
        path: where.
        users: who may own it beside root and this process's user, by number.

    Raises:
        InputError: it is none.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise InputError(
            f"spool = {path}: {error.strerror}; make it: mkdir -m 755 {path}"
        ) from None
    ours = found.st_uid in (os.geteuid(), 0, *users)
    if not (stat.S_ISDIR(found.st_mode) and ours and found.st_mode & 0o022 == 0):
        raise InputError(
            f"spool = {path} is not a directory of the daemon's user in which nobody else may "
            f"write; make one: mkdir -m 755 {path}"
        )
    names = sorted(each.name for each in path.iterdir())
    if foreign := next((name for name in names if not _OF_A_SPOOL.fullmatch(name)), ""):
        raise InputError(
            f"spool = {path} is no spool: it holds {foreign}; name a directory of its own"
        )
    return path


def _placed(world: LiveWorld, known: ManagedJob, placement: Placement, now: float) -> Move:
    configuration = placement.configuration
    reason = f"{_speed(world, known, configuration)} expected"
    if placement.purpose is Purpose.PROFILE:
        reason = f"its speed on {_types(world, configuration)} is to be measured"
    number = known.slurm.restarts
    return Move(now, number, None, configuration, placement.purpose, reason)


def _stopped(world: LiveWorld, known: ManagedJob, plan: Plan, now: float) -> Move:
    run = known.run
    before = None if run is None else run.configuration
    after = None
    match plan.entries.get(known.slurm.id):
        case Placed(placements=(placement, *_)):
            after = placement.configuration
            reason = f"{_speed(world, known, after)} expected there"
            if before is not None:
                reason += f", {_speed(world, known, before)} here"
        case Waiting(reason=why):
            reason = str(why)
        case _:
            reason = "it has no place in the plan"
    if run is not None and run.purpose is Purpose.PROFILE and before is not None:
        reason = f"its speed on {_types(world, before)} was measured"
    number = known.slurm.restarts if run is None else run.number
    purpose = Purpose.RUN if run is None else run.purpose
    return Move(now, number, before, after, purpose, reason)


def _speed(world: LiveWorld, known: ManagedJob, configuration: Configuration) -> str:
    speeds = world.speeds
    speed = 0.0 if speeds is None else speeds.speed(known.job.profile, configuration)
    return f"{speed:.4g} samples/s"


def _types(world: LiveWorld, configuration: Configuration) -> str:
    cluster = world.cluster
    found = {cluster[name].gpu_type for name, _ in configuration} if cluster is not None else set()
    return " and ".join(sorted(found))
