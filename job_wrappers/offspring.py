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
from dataclasses import dataclass
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
    return {each for each, seen in _processes().items() if seen.parent == pid and not seen.ended}


def below(pid: int) -> set[int]:
    """Return those, and what they have started in turn."""
    left = {each: seen for each, seen in _processes().items() if not seen.ended}
    found, new = set[int](), {pid}
    while new:
        new = {each for each, seen in left.items() if seen.parent in new} - found
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
    with suppress(ProcessLookupError, PermissionError):
        # So that it starts nothing more.
        os.kill(pid, signal.SIGSTOP)
        end_below(pid)
        os.kill(pid, signal.SIGKILL)


def reap_adopted() -> None:
    """Wait for those of this process's children that have ended and that it has not started.

    The end of one that it has started is for what started it to learn. A child's session is this
    process's or its own one; in another, another process has started it. A helper that was left
    without a session of its own is not told from a child, and stays until this process ends.
    """
    try:
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
    except ChildProcessError:
        return
    session = os.getsid(0)
    for each, seen in _children().items():
        if seen.ended and seen.session not in (session, each):
            _reap(each)


class Strays:
    """Children of this process that it has not started: what others have left to it."""

    def __init__(self) -> None:
        """Spare those that are there now."""
        self._before = set(_children())
        self._stay = set[int]()

    def end(self, own: Collection[int]) -> None:
        """End all others than these, which this process has started, and wait for them.

        One that does not end, of another user perhaps, is waited for once.
        """
        deadline = time.monotonic() + _END_S
        known = self._before | set(own)
        while True:
            found = {each: seen for each, seen in _children().items() if each not in known}
            for each, seen in found.items():
                if seen.ended:
                    _reap(each)
            # What ends here may leave more.
            left = {each for each, seen in found.items() if not seen.ended} - self._stay
            if not left:
                return
            if time.monotonic() >= deadline:
                self._stay |= left
                return
            for each in left:
                end(each)
            time.sleep(0.001)


def _reap(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


@dataclass(frozen=True)
class _Process:
    """A process as the kernel tells of it.

    Attributes:
        parent: its process id.
        session: its id.
        ended: whether it has ended, and nothing is left of it but its exit code.
    """

    parent: int
    session: int
    ended: bool


def _children() -> dict[int, _Process]:
    own = os.getpid()
    return {each: seen for each, seen in _processes().items() if seen.parent == own}


def _processes() -> dict[int, _Process]:
    """Return all processes by their ids."""
    found = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if not entry.isdecimal():
            continue
        try:
            said = Path(f"/proc/{entry}/stat").read_text(errors="replace")
        except OSError:
            continue
        state, parent, _, session = said.rpartition(")")[2].split()[:4]
        found[int(entry)] = _Process(int(parent), int(session), state in "ZX")
    return found
