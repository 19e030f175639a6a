"""Lines of a text file, as it is or compressed with gzip."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from hetsched_core.errors import InputError

GZIP = b"\x1f\x8b"

MAX_LINE = 1 << 26
"""Longest line that is read, in characters: a table of speeds may be one line."""


def read_head(file: BinaryIO, size: int) -> str:
    """Return how a seekable file begins, as text; nothing where that cannot be read."""
    try:
        return unpacked(file).read(size).decode("utf-8-sig", "replace")
    except (EOFError, zlib.error, OSError):
        return ""
    finally:
        file.seek(0)


def first_line(head: str) -> str:
    """Return the first line with anything in it of a text, as `read_lines` yields it."""
    return next((line.rstrip("\r") for line in head.split("\n") if line.strip()), "")


def read_lines(file: BinaryIO, source: str) -> Iterator[str]:
    """Yield the lines of a file in UTF-8 from its start, without their line breaks.

    Args:
        file: A seekable file; it is left open.
        source: Names it in messages.

    Raises:
        InputError: The file cannot be read, or no further; the message names the line.
    """
    number = 0
    with readable(source, lambda: f"line {number}"):
        text = io.TextIOWrapper(unpacked(file), encoding="utf-8-sig", newline="\n")
        while line := text.readline(MAX_LINE):
            if len(line) == MAX_LINE:
                raise InputError(
                    f"{source}: line {number + 1} is longer than {MAX_LINE >> 20} MiB, or has no "
                    "end; give a file of lines"
                )
            if "\0" in line:
                raise InputError(f"{source}: line {number + 1}: a binary file, not text")
            yield line.rstrip("\r\n")
            number += 1
        text.detach()


@contextmanager
def readable(source: str, reached: Callable[[], str]) -> Iterator[None]:
    """Turn what goes wrong in reading a file into an InputError that says how far it got."""
    try:
        yield
    except UnicodeDecodeError:
        raise InputError(f"{source}: after {reached()}: not text in UTF-8") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"{source}: the compressed file is damaged or cut off after {reached()} ({error}); "
            "copy it again, or read what there is of it with zcat"
        ) from None
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error.strerror}") from None


def unpacked(file: BinaryIO) -> BinaryIO:
    """Return a file from its start, unpacked where it is compressed."""
    file.seek(0)
    packed = file.read(len(GZIP)) == GZIP
    file.seek(0)
    return cast("BinaryIO", gzip.GzipFile(fileobj=file)) if packed else file
