"""A keeper runs a member, and on the pool's first GPU its scheduler, and starts them again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Callable

from job_wrappers import offspring
from job_wrappers.guardian import Guardian
from job_wrappers.outcome import STOPPED, Wishes, tell_stopped

MOST_ENDS = 10
"""A process that ended so often in succession by itself is not started again."""

LASTS_S = 120.0
"""One that was there for so long begins a succession anew."""

LONGEST_PAUSE_S = 60.0
"""Between two starts."""

UNFIT = 2
"""Exit code of a process that cannot work: its command is wrong, or its device cannot be used."""

_POLL_S = 0.05

_TOLD = (STOPPED, -signal.SIGTERM, -signal.SIGUSR2)
"""How a process ends that was told to stop, perhaps before it could take the signal."""


@dataclass
class Kept:
    """A process that is to be there.

    Attributes:
        name: what to call it.
        command: what it runs.
        process: the one that was started last.
        ends: how often it has ended by itself in succession.
        due_s: when it is started again (monotonic), if it has ended.
    """

    name: str
    command: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    ends: int = 0
    due_s: float | None = None
    _since_s: float = 0.0

    def start(self, guardian: Guardian) -> None:
        """Start it."""
        self._since_s, self.due_s = time.monotonic(), None
        self.process = subprocess.Popen(list(self.command), start_new_session=True)
        guardian.guard(self.process.pid)

    def pause(self, code: int, now_s: float) -> float | None:
        """Note that it has ended; return after how many seconds to start it, None for never."""
        if code == 0 or (code == UNFIT and not self.ends):
            return None
        self.ends = 1 if now_s - self._since_s >= LASTS_S else self.ends + 1
        # A GPU that has worked may do so again, and others of the pool must not end with it.
        if code != UNFIT and self.ends >= MOST_ENDS:
            return None
        return 0.0 if self.ends == 1 else min(LONGEST_PAUSE_S, 2.0 ** (self.ends - 2))

    def stop(self) -> None:
        """Tell it to end."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it, whatever it is doing, and all that it has started."""
        if self.process is not None and self.process.poll() is None:
            offspring.end(self.process.pid)
            self.process.wait()


def keep(kept: Sequence[Kept], rank: int, over: Callable[[], bool]) -> int:
    """Keep processes running until one of them ends with 0, for the pool's end, or all must stop.

    A process that fails is started again after a pause that grows, unless it says at its first
    start that it cannot work, or that it was told to stop: a signal may reach it before it reaches
    the keeper.

    Args:
        kept: the processes.
        rank: of this keeper.
        over: whether the pool has ended: nothing is started then.

    Returns:
        0 at the pool's end, 1 or 2 where a process cannot be kept, else what a launcher is told of
        a run that was stopped.
    """
    for each in kept:
        program = each.command[0]
        if shutil.which(program) is None:
            sys.stderr.write(
                f"pool: {program!r}, the program of its {each.name}, is not on PATH; activate the "
                "environment that it is installed in, or name it by --scheduler COMMAND\n"
            )
            return UNFIT
    wishes = Wishes()
    wishes.listen()
    strays = offspring.Strays()
    with closing(Guardian(kill_after_s=0.0)) as guardian:
        try:
            code = _keep(kept, guardian, wishes, over, strays)
        finally:
            for each in kept:
                each.kill()
            strays.end({guardian.pid})
    return tell_stopped(os.environ, rank) if code is None else code


def _keep(
    kept: Sequence[Kept],
    guardian: Guardian,
    wishes: Wishes,
    over: Callable[[], bool],
    strays: offspring.Strays,
) -> int | None:
    """Keep them running, and wait for them; return the exit code, None where all must stop."""
    code: int | None = None
    for each in kept:
        each.start(guardian)
    while code is None and not wishes.stop:
        time.sleep(_POLL_S)
        for each in kept:
            now_s = time.monotonic()
            if each.due_s is not None:
                if over():
                    code = 0
                elif now_s >= each.due_s:
                    each.start(guardian)
                continue
            ended = each.process.poll() if each.process is not None else 1
            if ended is None:
                continue
            if each.process is not None:
                guardian.release(each.process.pid)
            # What its own processes have started is for no other to end.
            strays.end({guardian.pid, *(k.process.pid for k in kept if k.process)})
            if ended in _TOLD:
                wishes.stop = True
                continue
            pause_s = each.pause(ended, now_s)
            if pause_s is None:
                code = ended if ended in (0, UNFIT) else 1
                continue
            again = f"again in {pause_s:g} s" if pause_s else "again"
            sys.stderr.write(f"pool: {each.name} ended with {ended}; it is started {again}\n")
            each.due_s = now_s + pause_s
    told = False
    while any(each.process is not None and each.process.poll() is None for each in kept):
        # At the pool's end the scheduler waits for what members of other hosts finish.
        if not told and (code != 0 or wishes.stop):
            told = True
            for each in kept:
                each.stop()
        time.sleep(_POLL_S)
    return code
