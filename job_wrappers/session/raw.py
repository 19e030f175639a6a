"""Tensors as raw bytes in a file: written and read past Python, so that training is not held up.

`torch.save` would hold the interpreter's lock for long stretches. Here it is given up for every
piece, while the disk and the checksum work.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from job_wrappers.files import Piece

PIECE = 8 << 20

Checksum = tuple[int, int]
"""CRC-32 and bytes of a file."""

Layout = list[tuple[int, str, tuple[int, ...], int]]
"""Of each tensor in a file, in order: index, type, shape and bytes."""


class Summed:
    """Pieces of a file, whose checksum is known once all were taken."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        """Hand these on."""
        self._pieces = pieces
        self.crc32 = self.size = 0

    def __iter__(self) -> Iterator[Piece]:
        """Yield each, and count it."""
        for piece in self._pieces:
            self.crc32 = zlib.crc32(piece, self.crc32)
            self.size += len(piece)
            yield piece


def layout_of(tensors: Mapping[int, Any]) -> Layout:
    """Return where each tensor lies in a file of `pieces_of` them."""
    return [
        (index, str(tensor.dtype)[6:], tuple(tensor.shape), tensor.numel() * tensor.element_size())
        for index, tensor in tensors.items()
    ]


def pieces_of(tensors: Mapping[int, Any]) -> Iterator[memoryview]:
    """Yield the bytes of tensors, each of which lies in host memory in one piece."""
    for tensor in tensors.values():
        view = _bytes_of(tensor)
        for at in range(0, len(view), PIECE):
            yield view[at : at + PIECE]


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


def checksum(path: Path) -> Checksum:
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
