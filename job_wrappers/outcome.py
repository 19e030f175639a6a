"""How a run tells its launcher that it was stopped, and wants to be resumed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

STOPPED = 99
"""Exit code of a run that was stopped; sites that set `RequeueExit` name it there."""

OUTCOME = "HETSCHED_OUTCOME"
"""Names the file in which rank 0 says so: torchrun and srun keep no exit code of their workers."""

_HEARD = ".heard"


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
