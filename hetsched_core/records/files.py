"""Writing files that are either whole or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from hetsched_core.errors import InputError


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """Open a text file that takes the place of `path` once it is complete and on disk.

    What stood there before stays until then, and for good if the block raises. What is no regular
    file (a pipe, a terminal) is written directly.

    Raises:
        InputError: the file cannot be written.
    """
    path = path.resolve()
    direct = path.exists() and not path.is_file()
    part = path if direct else path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w" if direct else "x", encoding="utf-8", newline="\n") as file:
            try:
                yield file
                file.flush()
                if not direct:
                    os.fsync(file.fileno())
                    part.replace(path)
            except BaseException:
                if not direct:
                    part.unlink(missing_ok=True)
                raise
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise InputError(
            f"cannot write {path}: {error.strerror}; name a file in a folder that you may write to"
        ) from None
