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
from job_wrappers.session.raw import Layout, Summing, checksum, read_tensors, write_tensors
from job_wrappers.session.state import Split

SHARD_BYTES = 256 << 20
"""A state at least this large is written by all ranks, each a part of what they have in common."""

PEERS_S = 600.0
"""How long a rank waits for the others to have written their parts."""

_POLL_S = 0.02


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
        *,
        rank: int,
        size: int,
        on_saved: Callable[[Saved], None],
    ) -> None:
        """Write to `folder` as one of `size` ranks; rank 0 says what counts by `on_saved`."""
        self._torch = torch
        self._folder = folder
        self._rank, self._size = rank, size
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
            self._write(step, copies, text, progress)
        except Exception as error:
            # Whatever it is, nothing was saved. The other ranks see by this that there is nothing
            # to wait for.
            shutil.rmtree(self._folder.part_of(step), ignore_errors=True)
            self.why_not = f"the checkpoint of step {step} could not be written: {error}"
            sys.stderr.write(f"hetsched: {self.why_not}; {self._what_counts()}\n")
            return
        self.why_not = ""
        if self._rank == 0:
            self._on_saved(saved)

    def _what_counts(self) -> str:
        try:
            none = self._folder.empty
        except OSError:
            return "what is there cannot be looked at"
        return "there is none: a restart begins anew" if none else "the one before still counts"

    def _write(
        self, step: int, copies: Mapping[int, Any], text: bytes, progress: Mapping[str, Any]
    ) -> None:
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
        files[f"{name}.pt"] = checksum(part / f"{name}.pt")
        # The last of a rank's files: with it, its part is on disk.
        said = json.dumps({"files": files, "layout": layout}).encode()
        write_whole(part / f"{name}.json", lambda file: file.write(said))
        if self._rank == 0:
            self._finish(step, progress)
            return
        self._await(lambda: not part.exists(), "rank 0 to finish it")
        if not self._folder.path_of(step).exists():
            raise OSError("another rank could not write its part")

    def _finish(self, step: int, progress: Mapping[str, Any]) -> None:
        part = self._folder.part_of(step)
        told = [part / f"rank-{rank}.json" for rank in range(self._size)]
        self._await(
            lambda: all(path.exists() for path in told) or not part.exists(),
            "the other ranks' parts",
        )
        if not part.exists():
            raise OSError("another rank could not write its part")
        files = {}
        for path in told:
            files.update(json.loads(path.read_text())["files"])
            files[path.name] = checksum(path)
        self._folder.finish(step, self._size, progress, files)

    def _await(self, there: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PEERS_S
        while not there():
            if time.monotonic() >= deadline:
                raise TimeoutError(f"waited {PEERS_S:g} s for {what}")
            time.sleep(_POLL_S)


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
