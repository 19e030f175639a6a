"""What a process has started, and what that has: all of it ends with it.

A process that leaves its group and its parent (a daemon of a logger) is found by no group. Where an
ancestor adopts, the kernel makes it that one's child, so that it is found by its parents (Linux).
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_SET_CHILD_SUBREAPER = 36
"""Of prctl(2)."""

_END_S = 2.0
"""So long killed processes are waited for: one in the kernel's hands may take its time."""


def adopt() -> None:
    """Have this process be given what its descendants leave behind."""
    with suppress(OSError, AttributeError):
        zero = ctypes.c_ulong(0)
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), zero, zero, zero)


def children(pid: int) -> set[int]:
    """Return the processes that a process has started or adopted, and that have not ended."""
    return {child for child, parent in _parents().items() if parent == pid}


def below(pid: int) -> set[int]:
    """Return those, and what they have started in turn."""
    parents, found, new = _parents(), set[int](), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


def end_below(pid: int) -> None:
    """End all that a process has started, and what that has."""
    deadline = time.monotonic() + _END_S
    while (found := below(pid)) and time.monotonic() < deadline:
        for each in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGKILL)
        time.sleep(0.001)


def end(pid: int) -> None:
    """End a process, which is a child and not yet waited for, and all that it has started."""
    with suppress(ProcessLookupError):
        # So that it starts nothing more.
        os.kill(pid, signal.SIGSTOP)
        end_below(pid)
        os.kill(pid, signal.SIGKILL)


class Strays:
    """Children of this process that it has not started: what others have left to it."""

    def __init__(self) -> None:
        """Spare those that are there now."""
        self._before = children(os.getpid())

    def end(self, own: Collection[int]) -> None:
        """End all others than these, which this process has started."""
        deadline = time.monotonic() + _END_S
        known, ended = self._before | set(own), set[int]()
        # What ends here may leave more.
        while (found := children(os.getpid()) - known) and time.monotonic() < deadline:
            for each in found:
                end(each)
            ended |= found
        for each in ended:
            with suppress(ChildProcessError):
                os.waitpid(each, os.WNOHANG)


def _parents() -> dict[int, int]:
    """Return the parent of each process that has not ended."""
    found = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if not entry.isdecimal():
            continue
        try:
            said = Path(f"/proc/{entry}/stat").read_text(errors="replace")
        except OSError:
            continue
        state, parent = said.rpartition(")")[2].split()[:2]
        if state not in "ZX":
            found[int(entry)] = int(parent)
    return found
