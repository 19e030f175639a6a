"""Files that are always whole: written beside the old one, flushed to disk, then renamed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any, Callable

PART = ".part"
"""How the name of a file that is still being written ends."""


def write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file; whatever is killed when, it is as it was before or as `write` left it.

    Raises:
        OSError: it cannot be written; what was there before is still there.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}{PART}")
    try:
        with part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
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
