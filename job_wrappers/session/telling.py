"""Tells the scheduler from a thread of its own: a spool that hangs or is full stops no training."""

from __future__ import annotations

import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

from job_wrappers.allocation import Allocation
from job_wrappers.spool import SpoolWriter

MOST_WAITING = 1000
"""Lines that may wait to be written; more are dropped."""

CLOSE_S = 5.0
"""How long the end of a run may wait for the spool."""


class Telling:
    """The spool file of this rank, written beside training.

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
