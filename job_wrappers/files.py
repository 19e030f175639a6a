"""Files that are always whole: written beside their place, flushed to disk, then named."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, TypeVar, Union

PART = ".part"
"""How the name of a file that is still being written ends."""

Piece = Union[bytes, memoryview]

AWAY = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT})
"""Of a file system that is full or away: it may take or give the same file a moment later."""

_FIRST_PAUSE_S = 0.1

_LONGEST_PAUSE_S = 5.0

_Made = TypeVar("_Made")


def patiently(path: Path, act: Callable[[], _Made]) -> _Made:
    """Write or read something, again after pauses for as long as its file system is full or away.

    Args:
        path: what is written or read, for the words on stderr.
        act: does it.

    Raises:
        OSError: it cannot be done for another reason.
    """
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return act()
        except OSError as error:
            if error.errno not in AWAY:
                raise
            if pause_s == _FIRST_PAUSE_S:
                sys.stderr.write(f"{path}: {error.strerror}; it is tried again until it can be\n")
        time.sleep(pause_s)
        pause_s = min(_LONGEST_PAUSE_S, 2.0 * pause_s)


def is_there(path: Path) -> bool:
    """Whether a file or folder is there, once its file system can tell.

    Raises:
        OSError: that cannot be told for another reason.
    """

    def look() -> bool:
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    return patiently(path, look)


def write_whole(path: Path, pieces: Iterable[Piece]) -> None:
    """Write a file, over one that may be there.

    Whatever is killed when, and whatever reads meanwhile, on whatever node: the file is as it was
    before, or all of the new one.

    Raises:
        OSError: it cannot be written; what was there before is still there.
    """
    with _beside(path, pieces) as part:
        part.replace(path)


def write_once(path: Path, pieces: Iterable[Piece]) -> bool:
    """Write a file whose name is not taken; of several that try at once one succeeds.

    Returns:
        Whether this call wrote it.

    Raises:
        OSError: it cannot be written.
    """
    with _beside(path, pieces) as part:
        try:
            # Unlike a rename, a link fails where the name is taken, on NFS too.
            os.link(part, path)
        except FileExistsError:
            return False
    return True


@contextmanager
def _beside(path: Path, pieces: Iterable[Piece]) -> Iterator[Path]:
    """Write a file beside its place, for the caller to give it its name; then sync the folder."""
    part = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}{PART}")
    try:
        with part.open("wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        yield part
    finally:
        part.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk: a rename counts only after that."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
