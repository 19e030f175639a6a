"""Checkpoints of a session: restored, and written beside training.

Training stands still only for the copy to host memory.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable

from job_wrappers.files import Piece, write_whole
from job_wrappers.session.errors import SessionError
from job_wrappers.session.folder import CheckpointFolder, FolderLock, FoundCheckpoint
from job_wrappers.session.peers import Peers
from job_wrappers.session.raw import Checksum, Summed, layout_of, pieces_of, read_tensors
from job_wrappers.session.state import Split, TrainedParts, random_state

SHARD_BYTES = 256 << 20
"""A state at least this large is written by all ranks, each a part of what they have in common."""


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
    """Restores the parts of a training and writes them, one checkpoint at a time.

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
        on_saved: Callable[[float, float], object],
    ) -> None:
        """Take the directory, and restore the newest checkpoint in it.

        Args:
            torch: the module.
            peers: all ranks, of which rank 0 says what counts.
            parts: what is restored and saved.
            path: the directory.
            keep: how many checkpoints stay in it.
            on_saved: is told by rank 0 of a checkpoint that counts: the samples it holds, and for
                how many seconds training stood still for it.

        Raises:
            SessionError: the directory is in use or cannot be written, or the checkpoint does not
                fit.
        """
        self._torch, self._peers, self._parts = torch, peers, parts
        self._on_saved = on_saved
        self._folder = folder = CheckpointFolder(Path(path).absolute(), keep)
        self._lock: FolderLock | None = None
        self._memory: dict[int, Any] = {}
        self._thread: threading.Thread | None = None
        self._why_not = ""
        self.place: Place | None = None
        self.random: Any = None

        def prepare() -> FoundCheckpoint | None:
            self._lock = FolderLock(folder.path)
            folder.prepare()
            return folder.newest()

        try:
            found = peers.from_first(prepare)
            if found is not None:
                self._restore(found)
        except SessionError:
            self.release()
            raise

    @property
    def saving(self) -> bool:
        """Whether one is still being written."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def saved(self) -> bool:
        """Whether the last one that was begun is not known to have failed."""
        return not self._why_not

    def prepare(self) -> None:
        """Get the memory for copies beside training, and touch each page of it."""
        if self._thread is not None:
            return
        split = self._parts.split()
        mine = self._shares(split)[self._peers.rank]

        def get() -> None:
            for index in mine:
                self._copy_of(index, split.tensors[index]).zero_()

        self._thread = threading.Thread(target=get, name="hetsched-memory", daemon=True)
        self._thread.start()

    def save(self, place: Place) -> None:
        """Copy the state and begin to write it; waits for the one before, which has its memory."""
        local = {"random": random_state(self._torch)}
        split = self._parts.split()
        begun = time.perf_counter()
        self.wait()
        rank = self._peers.rank
        live = {index: split.tensors[index] for index in self._shares(split)[rank]}
        copies = {index: self._copy_of(index, tensor) for index, tensor in live.items()}
        for index, copy in copies.items():
            copy.copy_(live[index], non_blocking=True)
        if any(tensor.is_cuda for tensor in live.values()):
            self._torch.cuda.synchronize()
        rest = io.BytesIO()
        self._torch.save({"skeleton": split.skeleton if rank == 0 else None, "local": local}, rest)
        self._thread = threading.Thread(
            target=self._write_or_say,
            args=(place, copies, rest.getvalue(), time.perf_counter() - begun),
            name="hetsched-checkpoint",
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until what was begun is on disk, or has failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def release(self) -> None:
        """Leave the directory to others."""
        if self._lock is not None:
            self._lock.release()

    def _restore(self, found: FoundCheckpoint) -> None:
        rank, tensors = self._peers.rank, {}
        skeleton, own = None, None
        try:
            for number in range(found.ranks):
                stem = found.path / f"rank-{number}"
                layout = json.loads(stem.with_suffix(".json").read_text())["layout"]
                tensors.update(read_tensors(self._torch, stem.with_suffix(".tensors"), layout))
                if number in (0, rank):
                    # What the user's own job has written, and its checksums were right.
                    rest = stem.with_suffix(".pt")
                    parts = self._torch.load(rest, map_location="cpu", weights_only=False)
                    skeleton = parts["skeleton"] if number == 0 else skeleton
                    own = parts["local"] if number == rank else own
        except (OSError, ValueError, KeyError) as error:
            raise SessionError(f"{found.path} cannot be read: {error}") from error
        self._parts.restore(skeleton, tensors)
        try:
            self.place = Place(**found.progress)
        except TypeError as error:
            raise SessionError(
                f"the checkpoint is of another version of hetsched: {error}"
            ) from None
        self.random = None if own is None else own["random"]

    def _shares(self, split: Split) -> list[list[int]]:
        """Return which tensors each rank writes: the same answer on all of them."""
        shares: list[list[int]] = [[] for _ in range(self._peers.size)]
        sizes = [tensor.numel() * tensor.element_size() for tensor in split.tensors]
        if self._peers.size == 1 or sum(sizes) < SHARD_BYTES:
            shares[0] = list(range(len(sizes)))
            return shares
        loads = [0] * self._peers.size
        for index, size in enumerate(sizes):
            rank = loads.index(min(loads)) if index in split.shared else 0
            shares[rank].append(index)
            loads[rank] += size
        return shares

    def _copy_of(self, index: int, tensor: Any) -> Any:
        """Return memory for a copy of a tensor, each time the same: new memory takes longer."""
        kept = self._memory.get(index)
        if kept is None or kept.shape != tensor.shape or kept.dtype != tensor.dtype:
            kept = self._torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            self._memory[index] = kept
        return kept

    def _write_or_say(
        self, place: Place, copies: Mapping[int, Any], rest: bytes, stopped_s: float
    ) -> None:
        try:
            self._why_not = self._write_together(place, copies, rest)
        except Exception as error:  # a rank is gone
            self._why_not = _said(error)
        if self._peers.rank != 0:
            return
        if not self._why_not:
            self._on_saved(float(place.samples), stopped_s)
            return
        # Whatever it is, nothing was saved.
        shutil.rmtree(self._folder.part_of(place.steps), ignore_errors=True)
        sys.stderr.write(
            f"hetsched: the checkpoint of step {place.steps} could not be written: "
            f"{self._why_not}; {self._what_counts()}\n"
        )

    def _what_counts(self) -> str:
        try:
            none = self._folder.empty
        except OSError:
            return "what is there cannot be looked at"
        return "there is none: a restart begins anew" if none else "the one before still counts"

    def _write_together(self, place: Place, copies: Mapping[int, Any], rest: bytes) -> str:
        """Write what this rank has, and make the checkpoint count if all could; return why not.

        The ranks tell each other what came of it, so that none waits for one that has failed.
        """
        rank, size = self._peers.rank, self._peers.size
        files: dict[str, Checksum] = {}
        why_not = ""
        try:
            files = self._write(place.steps, copies, rest)
        except Exception as error:
            why_not = f"rank {rank}: {_said(error)}" if size > 1 else _said(error)
        told = self._peers.from_all((files, why_not))
        why_not = "; ".join(why for _, why in told if why)
        if rank == 0 and not why_not:
            try:
                all_files = {name: each for files, _ in told for name, each in files.items()}
                self._folder.finish(place.steps, size, asdict(place), all_files)
            except Exception as error:
                why_not = _said(error)
        return str(self._peers.from_all(why_not)[0])

    def _write(self, step: int, copies: Mapping[int, Any], rest: bytes) -> dict[str, Checksum]:
        """Write this rank's files; return checksum and size of each."""
        part = self._folder.part_of(step)
        part.mkdir(exist_ok=True)
        layout = json.dumps({"layout": layout_of(copies)}).encode()
        contents: dict[str, Iterable[Piece]] = {
            "tensors": pieces_of(copies),
            "pt": [rest],
            "json": [layout],
        }
        found = {}
        for suffix, pieces in contents.items():
            name, summed = f"rank-{self._peers.rank}.{suffix}", Summed(pieces)
            write_whole(part / name, summed)
            found[name] = (summed.crc32, summed.size)
        return found


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
