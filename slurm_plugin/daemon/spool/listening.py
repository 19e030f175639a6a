"""What running jobs tell, taken into the store a bounded piece at a time.

A run is followed from the cycle in which it is seen to a while after it has ended, and the store
knows which ones are: a daemon that comes back goes on where the last one stopped, and takes no
line in twice.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hetsched_core.records.spool import Profile, Progress, SpoolName
from hetsched_core.store import (
    FollowedRun,
    Ingested,
    JobProgress,
    ProfileKey,
    RejectedLines,
    SpoolRun,
    Store,
    StoreError,
)
from slurm_plugin.backend import JobState
from slurm_plugin.daemon.jobs.managed import ManagedJob
from slurm_plugin.daemon.speeds import ASSUMED_PROFILE
from slurm_plugin.daemon.spool.moves import SpoolFolder
from slurm_plugin.daemon.world import LiveWorld

LINGER_S = 60.0
"""How long the files of a run that has ended are still looked at."""

MOST_RANKS = 64
"""Ranks of a job that are listened to."""

FILES_AT_ONCE = 64
"""Most files in one transaction of the store."""

BYTES_AT_ONCE = 256 << 10
"""After so many bytes that are new in them, no more files come into a transaction."""

_HELD = (JobState.RUNNING, JobState.COMPLETING, JobState.SUSPENDED)


@dataclass(frozen=True, slots=True)
class Heard:
    """What one call took in.

    Attributes:
        progress: how far jobs are of which something new was told.
        learned: profiles of which more is known than before.
        bandwidths: GPU types whose bandwidths were measured.
        rejected: what was rejected, by user and reason.
        lines: how many lines were accepted.
        trouble: why nothing could be taken in, or written for jobs to read; "" while it can.
    """

    progress: tuple[JobProgress, ...] = ()
    learned: frozenset[ProfileKey] = frozenset()
    rejected: tuple[RejectedLines, ...] = ()
    lines: int = 0
    trouble: str = ""
    bandwidths: frozenset[str] = frozenset()


NOTHING = Heard()


@dataclass(slots=True)
class _Following:
    """A run whose files are read; `over_s` is since when it has been over, None while it runs.

    `sizes` is how long each file was when it was read; of those that `spoke` then there may be
    more to read.
    """

    run: FollowedRun
    paths: tuple[Path, ...]
    over_s: float | None = None
    sizes: dict[Path, int] = field(default_factory=dict)
    spoke: set[Path] = field(default_factory=set)

    def grown(self) -> Iterator[tuple[Path, int]]:
        """Yield the files in which there is something to read, and how many bytes are new."""
        for path in self.paths:
            size, known = _size(path), self.sizes.get(path)
            if size is not None and (size != known or path in self.spoke):
                yield path, max(0, size - (known or 0))


class Listener:
    """Follows the runs of managed jobs, and reads what their spool files say."""

    def __init__(
        self,
        store: Store,
        folder: SpoolFolder,
        *,
        every_s: float,
        most_s: float,
        stopwatch: Callable[[], float],
    ) -> None:
        """Go on with the runs that the store knows of.

        Args:
            store: what was measured goes there.
            folder: the spool directory.
            every_s: seconds from one look at all files to the next.
            most_s: seconds that one call may take, roughly.
            stopwatch: seconds.
        """
        self._store, self._folder = store, folder
        self.every_s, self.most_s = every_s, most_s
        self._stopwatch = stopwatch
        self._following: dict[tuple[str, int], _Following] = {}
        # All that the store may know something of, though some have told nothing of use.
        self._nonces: set[str] = set()
        for run in store.followed():
            self._add(run)
        self._told = store.progress()
        self._nonces |= self._told.keys()
        self._retell = True
        self.failure: StoreError | None = None
        self._alive: set[str] = set()
        # Users who were not found are not looked for in every cycle.
        self._unknown: set[str] = set()
        self._due: deque[tuple[str, int]] = deque()
        self._next_s = 0.0

    @property
    def folder(self) -> SpoolFolder:
        """The spool directory."""
        return self._folder

    def follow(self, world: LiveWorld, now: float) -> None:
        """Follow the runs that have begun, and see which have ended."""
        new = []
        self._alive = {known.request.mark.nonce for known in world.managed.values()}
        for job_id, known in world.managed.items():
            if not known.request.mark.nonce or known.key != known.request.mark.nonce:
                # Nothing tells its spool files from those of others.
                continue
            run = known.leading.run
            state = known.leading.slurm.state
            if run is None or state not in _HELD or known.slurm.user in self._unknown:
                continue
            following = self._following.get((job_id, run.number))
            if following is None or following.run.run.nonce != known.request.mark.nonce:
                begun = self._begun(world, known, now)
                if begun is not None:
                    new.append(begun)
                else:
                    self._unknown.add(known.slurm.user)
        if new:
            self._store.follow(new)
            for each in new:
                self._add(each)
        for (job_id, number), following in self._following.items():
            if _goes_on(world.managed.get(job_id), following.run, number):
                following.over_s = None
            elif following.over_s is None:
                following.over_s = now

    @property
    def busy(self) -> bool:
        """Whether there are files left that the present look is to read."""
        return bool(self._due)

    def silent(self, job: str, number: int) -> bool:
        """Whether a run that is followed has not begun any spool file."""
        following = self._following.get((job, number))
        return following is not None and all(_size(path) is None for path in following.paths)

    def listen(self, now: float) -> Heard:
        """Read on in the files that have grown, for as long as one call may.

        The first call tells also what the store knew before. What the store cannot take in is read
        again with the next look.
        """
        if not self._due:
            if now < self._next_s <= now + self.every_s:  # else the clock was set back
                return NOTHING
            self._next_s = now + self.every_s
            self._unknown.clear()
            self._due.extend(self._following)
        begun = self._stopwatch()
        progress = dict(self._told) if self._retell else {}
        self._retell = False
        learned: set[ProfileKey] = set()
        rejected: list[RejectedLines] = []
        bandwidths: frozenset[str] = frozenset()
        lines = 0
        self.failure = None
        while grown := self._grown():
            try:
                taken = self._take(grown, now)
            except StoreError as error:
                self.failure = error
                break
            progress |= {each.nonce: each for each in taken.progress}
            learned |= self._learned(taken)
            rejected += taken.rejected
            bandwidths |= taken.bandwidths
            lines += len(taken.lines)
            if self._stopwatch() - begun >= self.most_s:
                break
        self._told |= progress
        trouble = "" if self.failure is None else str(self.failure)
        if not self._due and not trouble:
            self._leave(now)
        told = tuple(progress.values())
        return Heard(told, frozenset(learned), tuple(rejected), lines, trouble, bandwidths)

    # -- runs --------------------------------------------------------------------------------------

    def _begun(self, world: LiveWorld, known: ManagedJob, now: float) -> FollowedRun | None:
        account = self._folder.welcome(known.slurm.user)
        run, cluster = known.leading.run, world.cluster
        if account is None or run is None or cluster is None:
            return None
        profile = None
        if known.job.profile != ASSUMED_PROFILE:
            profile = ProfileKey(known.request.mark.options.profile, known.slurm.user)
        pieces = tuple((cluster[name], gpus) for name, gpus in run.configuration)
        spool_run = SpoolRun(account.uid, known.request.mark.nonce, profile, pieces)
        return FollowedRun(known.slurm.id, run.number, spool_run, now)

    def _add(self, run: FollowedRun) -> None:
        folder = self._folder.path / str(run.run.uid)
        ranks = range(min(run.run.gpus, MOST_RANKS))
        paths = tuple(folder / str(SpoolName(run.job, run.number, rank)) for rank in ranks)
        self._following[run.job, run.number] = _Following(run, paths)
        self._nonces.add(run.run.nonce)

    def _leave(self, now: float) -> None:
        """Let go of runs that ended a while ago, and of what was told of jobs that are gone."""
        gone = [
            key
            for key, each in self._following.items()
            if each.over_s is not None and now - each.over_s > LINGER_S
        ]
        runs = [self._following.pop(key).run for key in gone]
        staying = {each.run.run.nonce for each in self._following.values()}
        left = self._nonces - staying - self._alive
        if runs or left:
            self._store.unfollow(runs, left)
        self._nonces -= left
        for nonce in left:
            self._told.pop(nonce, None)

    # -- files -------------------------------------------------------------------------------------

    def _grown(self) -> list[Path]:
        """Return the next few files in which there is something to read."""
        grown: list[Path] = []
        new_bytes = 0
        while self._due and len(grown) < FILES_AT_ONCE and new_bytes < BYTES_AT_ONCE:
            following = self._following.get(self._due.popleft())
            for path, new in following.grown() if following is not None else ():
                grown.append(path)
                new_bytes += new
        return grown

    def _take(self, paths: Iterable[Path], now: float) -> Ingested:
        runs = {key: each.run.run for key, each in self._following.items()}
        sizes = {path: _size(path) for path in paths}
        taken = self._store.ingest(sizes, runs, now)
        spoke = {str(name) for name, _ in taken.lines}
        for path, size in sizes.items():
            name = SpoolName.parse(path.name)
            if name is not None and size is not None:
                following = self._following[name.job, name.run]
                following.sizes[path] = size
                (following.spoke.add if path.name in spoke else following.spoke.discard)(path)
        return taken

    def _learned(self, taken: Ingested) -> set[ProfileKey]:
        found = set()
        for name, line in taken.lines:
            if isinstance(line, Profile | Progress):
                profile = self._following[name.job, name.run].run.run.profile
                if profile is not None:
                    found.add(profile)
        return found


def _goes_on(known: ManagedJob | None, run: FollowedRun, number: int) -> bool:
    if known is None or known.request.mark.nonce != run.run.nonce or known.leading.run is None:
        return False
    return known.leading.run.number == number and known.leading.slurm.state in _HELD


def _size(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        return path.lstat().st_size
    return None
