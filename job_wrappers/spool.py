"""What a run tells the scheduler: a spool file, `hetsched-spool/1` (docs/formats/spool.md)."""

from __future__ import annotations

import errno
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Callable

from job_wrappers.allocation import Allocation

SCHEMA = "hetsched-spool/1"

MOST_BYTES = 15 << 20
"""Nothing but the end is written beyond this; the scheduler reads 16 MiB of a file."""

MOST_WAITING = 1000
"""Lines that may wait to be written beside training; more are dropped."""

CLOSE_S = 5.0
"""How long the end of a run may wait for the spool."""


class SpoolWriter:
    """The spool file of one rank of one run.

    It never stops a job: where the file cannot be begun, `why_not` says so and nothing more is
    tried. Where a line cannot be written whole, say on a full disk, it is left out as a whole, and
    the next one is tried again. A file that somebody has removed meanwhile is put back as it was,
    as soon as that can be done: the scheduler goes on where it has read to.

    Attributes:
        path: the file.
        why_not: why nothing is written; "" while all is well.
    """

    def __init__(
        self,
        folder: Path,
        allocation: Allocation,
        *,
        rank: int = 0,
        world_size: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin the file in the spool directory `folder`.

        A file of this name that is there already is of a job that had the same id once, and gives
        way; one of this very run means that another process writes it.
        """
        self.why_not = ""
        self._clock = clock
        self._since = clock()
        self._bytes = 0
        self._start: Mapping[str, object] | None = None
        self._file: IO[bytes] | None = None
        own = folder / str(os.getuid())
        self.path = own / f"{allocation.job}.{allocation.run}.{rank}.jsonl"
        if not allocation.nonce:
            self.why_not = "HETSCHED_NONCE is not set: hetsched does not know this job"
            return
        try:
            own.mkdir(mode=0o750, exist_ok=True)
            if self.path.exists() and allocation.nonce.encode() in self._first_line():
                self.why_not = f"{self.path} is written by another process of this run"
                return
            self.path.unlink(missing_ok=True)
            self._file = self.path.open("x+b", buffering=0)
            # Whatever the user's umask: the daemon may have to read through the folder's group.
            os.fchmod(self._file.fileno(), 0o640)
        except OSError as error:
            self.why_not = f"{self.path}: {error.strerror}"
            return
        self._begin(
            {
                "schema": SCHEMA,
                "job": allocation.job,
                "run": allocation.run,
                "rank": rank,
                "world_size": allocation.gpus if world_size is None else world_size,
                "nonce": allocation.nonce,
                "host": allocation.host,
                "pid": os.getpid(),
                "at_s": time.time(),
            }
        )

    def tell(self, kind: str, when: float | None = None, /, **values: object) -> None:
        """Add a line of a kind (`profile`, `progress`, ...) with its keys but `t_s`.

        It holds for the instant `when` of the clock; for now without.
        """
        if not self._in_place():
            return
        if self._start is not None:
            self._begin(self._start)
        if self._start is None and (self._bytes < MOST_BYTES or kind == "end"):
            at = self._clock() if when is None else when
            self._write(kind, {"t_s": max(0.0, at - self._since), **values})

    def close(self) -> None:
        """Close the file; nothing follows."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _in_place(self) -> bool:
        """Whether the file is where it belongs; puts it back if it was removed."""
        if self._file is None:
            return False
        try:
            mine = os.fstat(self._file.fileno())
            try:
                there = self.path.stat()
            except FileNotFoundError:
                self._put_back()
                return True
            if not os.path.samestat(mine, there):
                self.why_not = f"{self.path} is written by another process by now"
                return False
        except OSError as error:
            self.why_not = f"{self.path} was removed, and cannot be put back: {error.strerror}"
            return False
        return True

    def _put_back(self) -> None:
        assert self._file is not None
        told = os.pread(self._file.fileno(), self._bytes, 0)
        part = self.path.with_name(f".{self.path.name}.part")
        self.path.parent.mkdir(mode=0o750, exist_ok=True)
        part.unlink(missing_ok=True)
        anew = part.open("x+b", buffering=0)
        try:
            os.fchmod(anew.fileno(), 0o640)
            if (anew.write(told) or 0) < len(told):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            part.rename(self.path)
        except BaseException:
            anew.close()
            part.unlink(missing_ok=True)
            raise
        self._file.close()
        self._file = anew

    def _begin(self, start: Mapping[str, object]) -> None:
        """Write the first line, or keep it for the next try."""
        self._start = None if self._write("start", start) else start

    def _first_line(self) -> bytes:
        with self.path.open("rb") as file:
            return file.readline(4096)

    def _write(self, kind: str, values: Mapping[str, object]) -> bool:
        """Write a line; return whether it is there as a whole."""
        if self._file is None:
            return False
        line = json.dumps({"type": kind, **values}, allow_nan=False).encode() + b"\n"
        try:
            # In one piece, so that a reader sees whole lines.
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self.why_not = f"{self.path}: {error.strerror}"
            self._take_back()
            return False
        self.why_not = ""
        self._bytes += len(line)
        return True

    def _take_back(self) -> None:
        """Remove what there is of a line, so that the next one does not go on from it."""
        if self._file is None:
            return
        try:
            self._file.truncate(self._bytes)
            self._file.seek(self._bytes)
        except OSError:
            self.close()


class Telling:
    """The spool file of this rank, written beside training by a thread of its own.

    A spool that hangs or is full stops no training.

    Attributes:
        dropped: lines that there was no room for.
    """

    def __init__(self, folder: Path, allocation: Allocation, rank: int, world_size: int) -> None:
        """Begin the file in the spool directory `folder`."""
        self.dropped = 0
        self._waiting: queue.Queue[tuple[str, float, dict[str, Any]] | None] = queue.Queue(
            MOST_WAITING
        )
        self._thread = threading.Thread(
            target=self._write,
            args=(folder, allocation, rank, world_size),
            name="hetsched-spool",
            daemon=True,
        )
        self._thread.start()

    def tell(self, kind: str, **values: Any) -> None:
        """Add a line; never waits."""
        try:
            self._waiting.put_nowait((kind, time.monotonic(), values))
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Write what waits, for `CLOSE_S` at most."""
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(CLOSE_S)

    def _write(self, folder: Path, allocation: Allocation, rank: int, world_size: int) -> None:
        spool = SpoolWriter(folder, allocation, rank=rank, world_size=world_size)
        said = ""
        while True:
            if spool.why_not != said:
                said = spool.why_not
                sys.stderr.write(
                    f"hetsched: the scheduler is told nothing: {said}\n"
                    if said
                    else "hetsched: the scheduler is told again\n"
                )
            item = self._waiting.get()
            if item is None:
                break
            kind, when, values = item
            spool.tell(kind, when, **values)
        spool.close()
