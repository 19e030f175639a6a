"""The lock of a pool's scheduler, of which there is one at a time."""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOOK_S = 0.5

# A lock of an open file: of a process it would be lost with any other descriptor of the file.
_WHOLE = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


@contextmanager
def only_one(
    path: Path, give_up: Callable[[], bool], say: Callable[[str], object] = lambda _: None
) -> Iterator[bool]:
    """Hold the lock of the pool's scheduler, once no other one does.

    NFS keeps the lock of a node that is gone for a minute and more.

    Args:
        path: the pool's folder.
        give_up: whether to wait no longer.
        say: is told what is waited for.

    Yields:
        Whether it is held.
    """
    with (path / "scheduler.lock").open("a") as file:
        told = False
        while not (held := _taken(file.fileno())) and not give_up():
            if not told:
                say(f"another scheduler runs the pool {path}; this one waits for its lock")
                told = True
            time.sleep(LOOK_S)
        if held:
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
        yield held


def scheduled(path: Path) -> bool:
    """Whether a scheduler holds the lock of the pool now, which is asked and not tried."""
    try:
        with (path / "scheduler.lock").open() as file:
            found = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _WHOLE)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False
    return bool(struct.unpack_from("h", found)[0] != fcntl.F_UNLCK)


def _taken(file: int) -> bool:
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _WHOLE)
    except (BlockingIOError, PermissionError):
        return False
    return True
