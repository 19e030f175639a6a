"""A keeper runs a member, and on the pool's first GPU its scheduler, and starts them again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

from job_wrappers.guardian import Guardian
from job_wrappers.outcome import STOPPED, Wishes, tell_stopped

MOST_STARTS = 5
"""A process that ended so often within `WITHIN_S` by itself is not started again."""

WITHIN_S = 120.0

_POLL_S = 0.05

_TOLD = (STOPPED, -signal.SIGTERM, -signal.SIGUSR2)
"""How a process ends that was told to stop, perhaps before it could take the signal."""


@dataclass
class Kept:
    """A process that is to be there.

    Attributes:
        name: what to call it.
        command: what it runs.
    """

    name: str
    command: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    _starts: list[float] = field(default_factory=list)

    def start(self, guardian: Guardian) -> None:
        """Start it."""
        self._starts.append(time.monotonic())
        self.process = subprocess.Popen(list(self.command), start_new_session=True)
        guardian.guard(self.process.pid)

    def may_start(self) -> bool:
        """Whether it has not ended too often of late."""
        since = time.monotonic() - WITHIN_S
        self._starts = [at for at in self._starts if at >= since]
        return len(self._starts) < MOST_STARTS

    def stop(self) -> None:
        """Tell it to end."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)


def keep(kept: Sequence[Kept], rank: int) -> int:
    """Keep processes running until one of them ends with 0, for the pool's end, or all must stop.

    A process that fails is started again, unless it says that it cannot be (exit code 2), or that
    it was told to stop: a signal may reach it before it reaches the keeper.

    Returns:
        0 at the pool's end, 1 or 2 where a process cannot be kept, else what a launcher is told of
        a run that was stopped.
    """
    wishes = Wishes()
    wishes.listen()
    code: int | None = None
    with closing(Guardian(kill_after_s=0.0)) as guardian:
        for each in kept:
            each.start(guardian)
        while code is None and not wishes.stop:
            time.sleep(_POLL_S)
            for each in kept:
                ended = each.process.poll() if each.process is not None else 1
                if ended is None:
                    continue
                if ended in _TOLD:
                    wishes.stop = True
                    continue
                if ended in (0, 2) or not each.may_start():
                    code = ended if ended in (0, 2) else 1
                    continue
                sys.stderr.write(f"pool: {each.name} ended with {ended}; it is started again\n")
                each.start(guardian)
        for each in kept:
            each.stop()
        for each in kept:
            if each.process is not None:
                each.process.wait()
    return tell_stopped(os.environ, rank) if code is None else code
