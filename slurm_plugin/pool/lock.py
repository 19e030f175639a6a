"""The lock of a pool's scheduler, of which there is one at a time."""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
    file = (path / "scheduler.lock").open("a")
    try:
        told = False
        while not (held := _taken(file.fileno())) or lock_file(path) != _inode(file.fileno()):
            if held:
                # The lock that counts is that of the file which has the name now.
                file.close()
                file = (path / "scheduler.lock").open("a")
                continue
            if give_up():
                break
            if not told:
                say(f"another scheduler runs the pool {path}; this one waits for its lock")
                told = True
            time.sleep(LOOK_S)
        if held:
            # Who holds it is only for people to read, and a disk may be full.
            with suppress(OSError):
                os.ftruncate(file.fileno(), 0)
                os.write(file.fileno(), f"{os.getpid()}\n".encode())
        yield held
    finally:
        file.close()


def lock_file(path: Path) -> int | None:
    """Return which file the pool's lock is now, by its inode; None where there is none.

    Raises:
        OSError: the pool's folder cannot be seen just now.
    """
    try:
        return (path / "scheduler.lock").stat().st_ino
    except FileNotFoundError:
        (path / "pool.json").stat()
        return None


def scheduled(path: Path) -> bool:
    """Whether a scheduler holds the lock of the pool now, which is asked and not tried."""
    try:
        with (path / "scheduler.lock").open() as file:
            found = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _WHOLE)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False
    return bool(struct.unpack_from("h", found)[0] != fcntl.F_UNLCK)


def _inode(file: int) -> int:
    return os.fstat(file).st_ino


def _taken(file: int) -> bool:
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _WHOLE)
    except (BlockingIOError, PermissionError):
        return False
    return True
