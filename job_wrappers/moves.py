"""Why a job was moved: what the scheduler leaves for it (docs/formats/moves.md)."""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from job_wrappers.allocation import Allocation

SCHEMA = "hetsched-moves/2"

MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Move:
    """One decision about the job.

    Attributes:
        at_s: when it was made, seconds UTC.
        run: number of the run that was placed, or stopped.
        before, after: what the job held and what it was to hold, as `n0:2+n1:2`; "" for nothing.
            Of a run that was placed `before` is "".
        purpose: `run`, or `profile` for a run that measures its speed.
        reason: why, in words.
    """

    at_s: float
    run: int
    before: str
    after: str
    purpose: str
    reason: str

    def __str__(self) -> str:
        """Return for example `2026-11-21T20:15:00Z n0:2 -> n1:4: it runs faster there`."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.at_s))
        return f"{at} {self.before or 'waiting'} -> {self.after or 'waiting'}: {self.reason}"


def read_moves(folder: Path, allocation: Allocation) -> list[Move]:
    """Return the decisions about a job, the latest last; none if there is nothing to read.

    Args:
        folder: the spool directory.
        allocation: a run of the job.
    """
    try:
        with path_of(folder, allocation, os.getuid()).open("rb") as file:
            said = json.loads(file.read(MOST_BYTES))
        if said["schema"] != SCHEMA:
            return []
        return [
            Move(
                float(move["at_s"]),
                int(move["run"]),
                str(move["from"]),
                str(move["to"]),
                str(move["purpose"]),
                str(move["reason"]),
            )
            for move in said["moves"]
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def await_moves(folder: Path, allocation: Allocation, timeout_s: float = 3.0) -> list[Move]:
    """Return the decisions about a job once the one that placed this run is among them.

    A run may begin a little before the scheduler has written it down. Where the scheduler writes
    nothing for this user, there is nothing to wait for.
    """
    if not path_of(folder, allocation, os.getuid()).parent.is_dir():
        return []
    deadline = time.monotonic() + timeout_s
    while True:
        found = read_moves(folder, allocation)
        placed = any(move.run == allocation.run and not move.before for move in found)
        if placed or time.monotonic() >= deadline:
            return found
        time.sleep(0.1)


def path_of(folder: Path, allocation: Allocation, uid: int) -> Path:
    """Return the file that a user's job is told in: nobody finds it who has not the job's nonce."""
    secret = hashlib.sha256(f"{SCHEMA} {allocation.nonce}".encode()).hexdigest()[:32]
    return folder / "moves" / str(uid) / f"{allocation.job}.{secret}.json"
