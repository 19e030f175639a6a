"""Writes checkpoints beside training, which stands still only for the copy to host memory."""

from __future__ import annotations

import io
import json
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable

from job_wrappers.files import write_whole
from job_wrappers.session.errors import SessionError
from job_wrappers.session.folder import CheckpointFolder, FoundCheckpoint
from job_wrappers.session.peers import Peers
from job_wrappers.session.raw import Layout, Summing, checksum, read_tensors, write_tensors
from job_wrappers.session.state import Split

SHARD_BYTES = 256 << 20
"""A state at least this large is written by all ranks, each a part of what they have in common."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint that counts: the samples it holds, and how long training stood still for it."""

    samples: float
    stopped_s: float


class Saver:
    """Copies the state of training and writes it, one checkpoint at a time."""

    def __init__(
        self,
        torch: Any,
        folder: CheckpointFolder,
        peers: Peers,
        on_saved: Callable[[Saved], None],
    ) -> None:
        """Write to `folder` as one of some ranks; rank 0 says what counts by `on_saved`."""
        self._torch = torch
        self._folder = folder
        self._peers = peers
        self._rank, self._size = peers.rank, peers.size
        self._on_saved = on_saved
        self._buffers: dict[int, Any] = {}
        self._thread: threading.Thread | None = None
        self.why_not = ""

    @property
    def busy(self) -> bool:
        """Whether one is still being written."""
        return self._thread is not None and self._thread.is_alive()

    def prepare(self, split: Split) -> None:
        """Get the memory for copies of such a state beside training, and touch each page of it."""
        if self._thread is not None:
            return
        mine = self._shares(split)[self._rank]

        def get() -> None:
            for index in mine:
                self._memory(index, split.tensors[index]).zero_()

        self._thread = threading.Thread(target=get, name="hetsched-memory", daemon=True)
        self._thread.start()

    def save(
        self, step: int, split: Split, local: Mapping[str, Any], progress: Mapping[str, Any]
    ) -> None:
        """Copy a state and begin to write it; waits for the one before, which uses the same memory.

        Args:
            step: the optimiser's steps so far; names the checkpoint.
            split: the state that the ranks have in common.
            local: what this rank has of its own.
            progress: how far training is, as JSON.
        """
        begun = time.perf_counter()
        self.wait()
        mine = self._shares(split)[self._rank]
        copies = {index: self._memory(index, split.tensors[index]) for index in mine}
        for index, copy in copies.items():
            copy.copy_(split.tensors[index], non_blocking=True)
        if any(split.tensors[index].is_cuda for index in mine):
            self._torch.cuda.synchronize()
        text = io.BytesIO()
        self._torch.save(
            {"skeleton": split.skeleton if self._rank == 0 else None, "local": local}, text
        )
        stopped_s = time.perf_counter() - begun
        saved = Saved(float(progress["samples"]), stopped_s)
        self._thread = threading.Thread(
            target=self._write_or_say,
            args=(step, copies, text.getvalue(), progress, saved),
            name="hetsched-checkpoint",
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until what was begun is on disk, or has failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _shares(self, split: Split) -> list[list[int]]:
        """Return which tensors each rank writes: the same answer on all of them."""
        shares: list[list[int]] = [[] for _ in range(self._size)]
        sizes = [tensor.numel() * tensor.element_size() for tensor in split.tensors]
        if self._size == 1 or sum(sizes) < SHARD_BYTES:
            shares[0] = list(range(len(sizes)))
            return shares
        loads = [0] * self._size
        for index, size in enumerate(sizes):
            rank = loads.index(min(loads)) if index in split.shared else 0
            shares[rank].append(index)
            loads[rank] += size
        return shares

    def _memory(self, index: int, tensor: Any) -> Any:
        """Return memory for a copy of a tensor, each time the same: new memory takes longer."""
        kept = self._buffers.get(index)
        if kept is None or kept.shape != tensor.shape or kept.dtype != tensor.dtype:
            kept = self._torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            self._buffers[index] = kept
        return kept

    def _write_or_say(
        self,
        step: int,
        copies: Mapping[int, Any],
        text: bytes,
        progress: Mapping[str, Any],
        saved: Saved,
    ) -> None:
        try:
            self.why_not = self._write_together(step, copies, text, progress)
        except Exception as error:  # a rank is gone
            self.why_not = _said(error)
        if self._rank != 0:
            return
        if not self.why_not:
            self._on_saved(saved)
            return
        # Whatever it is, nothing was saved.
        shutil.rmtree(self._folder.part_of(step), ignore_errors=True)
        sys.stderr.write(
            f"hetsched: the checkpoint of step {step} could not be written: {self.why_not}; "
            f"{self._what_counts()}\n"
        )

    def _what_counts(self) -> str:
        try:
            none = self._folder.empty
        except OSError:
            return "what is there cannot be looked at"
        return "there is none: a restart begins anew" if none else "the one before still counts"

    def _write_together(
        self, step: int, copies: Mapping[int, Any], text: bytes, progress: Mapping[str, Any]
    ) -> str:
        """Write what this rank has, and make the checkpoint count if all could; return why not.

        The ranks tell each other what came of it, so that none waits for one that has failed.
        """
        files: dict[str, tuple[int, int]] = {}
        why_not = ""
        try:
            files = self._write(step, copies, text)
        except Exception as error:
            why_not = f"rank {self._rank}: {_said(error)}" if self._size > 1 else _said(error)
        told = self._peers.from_all((files, why_not))
        why_not = "; ".join(why for _, why in told if why)
        if self._rank == 0 and not why_not:
            try:
                all_files = {name: each for files, _ in told for name, each in files.items()}
                self._folder.finish(step, self._size, progress, all_files)
            except Exception as error:
                why_not = _said(error)
        return str(self._peers.from_all(why_not)[0])

    def _write(
        self, step: int, copies: Mapping[int, Any], text: bytes
    ) -> dict[str, tuple[int, int]]:
        """Write this rank's files; return checksum and size of each."""
        part = self._folder.part_of(step)
        part.mkdir(exist_ok=True)
        name = f"rank-{self._rank}"
        files: dict[str, tuple[int, int]] = {}
        layout: Layout = []

        def write_raw(file: Any) -> None:
            summing = Summing(file)
            layout.extend(write_tensors(summing, copies))
            files[f"{name}.tensors"] = (summing.crc32, summing.size)

        write_whole(part / f"{name}.tensors", write_raw)
        write_whole(part / f"{name}.pt", lambda file: file.write(text))
        said = json.dumps({"layout": layout}).encode()
        write_whole(part / f"{name}.json", lambda file: file.write(said))
        for last in (f"{name}.pt", f"{name}.json"):
            files[last] = checksum(part / last)
        return files


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def load(torch: Any, found: FoundCheckpoint, rank: int) -> tuple[Any, dict[int, Any], Any]:
    """Return skeleton, tensors, and what a rank had of its own; None if it was not there.

    Raises:
        SessionError: it cannot be read.
    """
    try:
        skeleton, own = None, None
        tensors: dict[int, Any] = {}
        for number in range(found.ranks):
            stem = found.path / f"rank-{number}"
            layout = json.loads(stem.with_suffix(".json").read_text())["layout"]
            tensors.update(read_tensors(torch, stem.with_suffix(".tensors"), layout))
            if number in (0, rank):
                # What the user's own job has written, and its checksums were right.
                parts = torch.load(stem.with_suffix(".pt"), map_location="cpu", weights_only=False)
                skeleton = parts["skeleton"] if number == 0 else skeleton
                own = parts["local"] if number == rank else own
    except (OSError, ValueError, KeyError) as error:
        raise SessionError(f"{found.path} cannot be read: {error}") from error
    return skeleton, tensors, own
