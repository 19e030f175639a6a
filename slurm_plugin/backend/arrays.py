"""Which elements of an array a record of Slurm's stands for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

MOST = 1000
"""So many elements of one record are looked at: more than a job of ours has."""

_PIECE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


class RecordElements(NamedTuple):
    """The elements that a record stands for.

    `id` is that under which Slurm changes the record, `element` the first of them, and `unsplit`
    all of them where Slurm keeps several as one, else ().
    """

    id: str
    element: int
    unsplit: tuple[int, ...]


def elements_of(job_id: str, array: str, task: int | None, waiting: str) -> RecordElements:
    """Return the elements that a record stands for.

    Args:
        job_id: the record's own number.
        array: the array's; "" for a job that is of none.
        task: the number of the element, if it is one that Slurm has split off.
        waiting: those that Slurm still keeps as one, such as `0-2,5%3`; "" for none.
    """
    if not array:
        return RecordElements(job_id, 0, ())
    if task is None:
        kept = unsplit_elements(waiting)
        if len(kept) > 1:
            return RecordElements(job_id, kept[0], kept)
        if not kept:
            # So pyslurm shows element 0, and Slurm what was cancelled before it was split.
            return RecordElements(f"{array}_0", 0, ())
        # Once all others are split off, the last one stands for itself, under the array's number.
        task = kept[0]
    return RecordElements(f"{array}_{task}", task, ())


@lru_cache(maxsize=4096)
def unsplit_elements(text: str) -> tuple[int, ...]:
    """Read `0-2,5` or `0-20:4`, with a `%throttle` or without, in order, the first of many only."""
    return tuple(islice(_numbers(text.partition("%")[0]), MOST))


def _numbers(text: str) -> Iterator[int]:
    for piece in text.split(","):
        # Slurm cuts off what is too long, with dots in its place.
        if found := _PIECE.fullmatch(piece):
            low, high, step = found.groups()
            yield from range(int(low), int(high or low) + 1, int(step or 1) or 1)
