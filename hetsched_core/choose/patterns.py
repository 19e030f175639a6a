"""The ways to cut a node into pieces."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@lru_cache(maxsize=1 << 10)
def patterns(capacity: int, sizes: tuple[int, ...], most: int) -> Ints | None:
    """Return (Z, S) how many pieces of each size a cut has: all cuts that leave no room for more.

    Args:
        capacity: GPUs of the node.
        sizes: the S sizes of pieces, ascending.
        most: return None if there are more cuts than this.
    """
    found: list[tuple[int, ...]] = []
    if not _cut(capacity, sizes, (), found, most):
        return None
    cuts = np.array(found, np.int64).reshape(len(found), len(sizes))
    cuts.flags.writeable = False
    return cuts


def _cut(
    rest: int,
    sizes: Sequence[int],
    larger: tuple[int, ...],
    found: list[tuple[int, ...]],
    most: int,
) -> bool:
    """Add the cuts with these numbers of `larger` pieces; return False if they are too many."""
    if not sizes:
        found.append(larger)
        return True
    if len(sizes) == 1:
        found.append((rest // sizes[0], *larger))
        return len(found) <= most
    size = sizes[-1]
    return all(
        _cut(rest - size * times, sizes[:-1], (times, *larger), found, most)
        for times in range(rest // size, -1, -1)
    )
