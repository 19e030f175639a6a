"""What signals ask a run for, and how it tells its launcher that it was stopped."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

STOPPED = 99
"""Exit code of a run that was stopped; sites that set `RequeueExit` name it there."""

OUTCOME = "HETSCHED_OUTCOME"
"""Names the file in which rank 0 says so: torchrun and srun keep no exit code of their workers."""

_HEARD = ".heard"


@dataclass
class Wishes:
    """What signals asked this process for: TERM and USR2 to stop, USR1 to save and go on."""

    stop: bool = False
    save: bool = False

    def listen(self) -> None:
        """Take the signals from now on; only the main thread may ask for this."""
        for number in (signal.SIGTERM, signal.SIGUSR2):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGUSR1, self._on_save)

    def _on_stop(self, *_: object) -> None:
        self.stop = True

    def _on_save(self, *_: object) -> None:
        self.save = True


def tell_stopped(environment: Mapping[str, str], rank: int) -> int:
    """Say that this run was stopped; return the exit code to end with.

    With a launcher all ranks end with 0, so that none of them counts as failed.
    """
    path = environment.get(OUTCOME)
    if path is None:
        return STOPPED
    if rank == 0:
        try:
            Path(path).write_text("stopped\n")
        except OSError:
            return STOPPED
    return 0


def tell_heard(environment: Mapping[str, str]) -> None:
    """Say that a signal has come to a node: the launcher of all nodes need not have heard it."""
    path = environment.get(OUTCOME)
    if path is not None:
        with contextlib.suppress(OSError):
            Path(path + _HEARD).touch()


def was_heard(path: Path) -> bool:
    """Whether a node said so."""
    return was_stopped(Path(f"{path}{_HEARD}"))


def was_stopped(path: Path) -> bool:
    """Whether the run said so."""
    return os.path.exists(path)  # noqa: PTH110 -- a Path raises where the folder may not be read
