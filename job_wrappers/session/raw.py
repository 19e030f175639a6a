"""Tensors as raw bytes in a file: written and read past Python, so that training is not held up.

`torch.save` would hold the interpreter's lock for long stretches. Here it is given up for every
piece, while the disk and the checksum work.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

PIECE = 8 << 20

Layout = list[tuple[int, str, tuple[int, ...], int]]
"""Of each tensor in a file, in order: index, type, shape and bytes."""


class Summing:
    """A file that knows the checksum and size of what went into it."""

    def __init__(self, file: IO[bytes]) -> None:
        """Write to `file`."""
        self._file = file
        self.crc32 = self.size = 0

    def write(self, data: Any) -> int:
        """Write bytes."""
        self.crc32 = zlib.crc32(data, self.crc32)
        size = memoryview(data).nbytes
        self.size += size
        self._file.write(data)
        return size

    def flush(self) -> None:
        """Flush the file."""
        self._file.flush()


def write_tensors(file: Summing, tensors: Mapping[int, Any]) -> Layout:
    """Write tensors that lie in host memory in one piece each; return where each lies."""
    layout: Layout = []
    for index, tensor in tensors.items():
        view = _bytes_of(tensor)
        for at in range(0, len(view), PIECE):
            file.write(view[at : at + PIECE])
        layout.append((index, str(tensor.dtype)[6:], tuple(tensor.shape), len(view)))
    return layout


def read_tensors(torch: Any, path: Path, layout: Layout) -> dict[int, Any]:
    """Read tensors back into host memory.

    Raises:
        OSError: the file ends too early, or cannot be read.
    """
    found = {}
    with path.open("rb", buffering=0) as file:
        for index, kind, shape, size in layout:
            tensor = torch.empty(shape, dtype=getattr(torch, kind))
            view, at = _bytes_of(tensor), 0
            while at < size:
                count = file.readinto(view[at : at + PIECE])
                if not count:
                    raise OSError(f"{path} ends before its last tensor")
                at += count
            found[index] = tensor
    return found


def checksum(path: Path) -> tuple[int, int]:
    """Return CRC-32 and size of a file.

    Raises:
        OSError: it cannot be read.
    """
    crc32 = size = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(PIECE):
            crc32 = zlib.crc32(piece, crc32)
            size += len(piece)
    return crc32, size


def _bytes_of(tensor: Any) -> memoryview:
    """Return the memory of a tensor, which must outlive what is returned."""
    size = tensor.numel() * tensor.element_size()
    if not size:
        return memoryview(b"")
    return memoryview((ctypes.c_ubyte * size).from_address(tensor.data_ptr())).cast("B")
