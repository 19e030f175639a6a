"""Files that are always whole: written beside their place, flushed to disk, then named."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Union

PART = ".part"
"""How the name of a file that is still being written ends."""

Piece = Union[bytes, memoryview]


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
