"""A stream of bytes as lines, in bounded memory whatever is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

CHUNK = 1 << 18
MAX_LINE = 1 << 20
"""Longest line that is read, in bytes (give or take a chunk)."""

OVERLONG = b"\n"
"""Stands for a line that is longer than that; no line holds a line break."""


def split_lines(read: Callable[[int], bytes]) -> Iterator[tuple[list[bytes], bool]]:
    """Yield batches of lines without their line breaks.

    The flag is False for what follows the last line break of the stream, which comes in a batch of
    its own: such a line may be cut off.
    """
    tail = b""
    overlong = False
    while chunk := read(CHUNK):
        lines = chunk.split(b"\n")
        if len(lines) > 1:
            lines[0] = OVERLONG if overlong else tail + lines[0]
            tail, overlong = lines.pop(), False
            yield lines, True
        elif not overlong:
            tail += chunk
        if len(tail) > MAX_LINE:
            tail, overlong = b"", True
    if tail or overlong:
        yield [OVERLONG if overlong else tail], False
