"""The checkpoints of a session: its directory, the lock on it, what is found there and written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable

from job_wrappers.session.errors import SessionError
from job_wrappers.session.folder import CheckpointFolder
from job_wrappers.session.lock import FolderLock, lock_for_job
from job_wrappers.session.peers import Peers
from job_wrappers.session.saver import Saved, Saver, load
from job_wrappers.session.state import TrainedParts, random_state


@dataclass(frozen=True)
class Place:
    """How far a training is.

    Attributes:
        epoch: that is being trained, from 0.
        position: in the epoch: samples of all ranks, or batches of a loader with its own order.
        steps: of the optimiser, over all runs.
        samples: over all runs.
        seed: of the order of samples.
        ranks: on how many it was trained.
        global_batch: of all ranks, where it is kept whatever their number.
    """

    epoch: int
    position: int
    steps: int
    samples: int
    seed: int
    ranks: int
    global_batch: int | None


class Checkpoints:
    """Restores and saves the parts of a training.

    Attributes:
        place: how far the training is that was restored; None if it begins.
        random: the random state of this rank then; None if there was no such rank.
    """

    def __init__(
        self,
        torch: Any,
        peers: Peers,
        parts: TrainedParts,
        path: str | os.PathLike[str],
        keep: int,
        on_saved: Callable[[Saved], None],
    ) -> None:
        """Take the directory, and restore the newest checkpoint in it.

        Raises:
            SessionError: the directory is in use or cannot be written, or the checkpoint does not
                fit.
        """
        self._torch, self._peers, self._parts = torch, peers, parts
        self._lock: FolderLock | None = None
        self.place: Place | None = None
        self.random: Any = None
        folder = CheckpointFolder(Path(path).absolute(), keep)
        self._saver = Saver(torch, folder, peers, on_saved)

        def prepare() -> Any:
            self._lock = lock_for_job(folder.path)
            folder.prepare()
            return folder.newest()

        try:
            found = peers.from_first(prepare)
            if found is not None:
                skeleton, tensors, own = load(torch, found, peers.rank)
                parts.restore(skeleton, tensors)
                self.place = _place_of(found.progress)
                self.random = None if own is None else own["random"]
        except SessionError:
            self.release()
            raise

    @property
    def saving(self) -> bool:
        """Whether one is still being written."""
        return self._saver.busy

    @property
    def saved(self) -> bool:
        """Whether the last one that was begun is not known to have failed."""
        return not self._saver.why_not

    def prepare(self) -> None:
        """Get the memory for copies beside training."""
        self._saver.prepare(self._parts.split())

    def save(self, place: Place) -> None:
        """Copy the state, and write it beside training."""
        local = {"random": random_state(self._torch)}
        self._saver.save(place.steps, self._parts.split(), local, asdict(place))

    def wait(self) -> None:
        """Wait until what was begun is on disk, or has failed."""
        self._saver.wait()

    def release(self) -> None:
        """Leave the directory to others."""
        if self._lock is not None:
            self._lock.release()


def _place_of(progress: Mapping[str, Any]) -> Place:
    try:
        return Place(**progress)
    except TypeError as error:
        raise SessionError(f"the checkpoint is of another version of hetsched: {error}") from None
