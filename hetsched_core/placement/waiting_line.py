"""Waiting jobs in order, with what is asked of each at every pass, at the cost of what changes."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Any

import numpy as np

from hetsched_core.placement.starts import Queue

_LEAST = 64
"""So many places before the first job are not worth giving back."""


class WaitingLine:
    """Waiting jobs in the order of their keys, which are unique, each with a kind and a limit.

    Lists and arrays side by side, since the first of them are wanted as arrays again and again.
    Jobs mostly leave near the front, while new ones come at the end. Taking a row out of a list
    moves all rows behind it; here those before it are moved, which leaves places before the first
    row. They are given back when they are as many as the rows.
    """

    def __init__(self) -> None:
        """Start without jobs."""
        self._order: list[Any] = []
        self._jobs: list[str] = []
        self._kinds, self._limits_s = array("q"), array("d")
        self._keys: dict[str, Any] = {}
        self._begin = 0

    def put(self, key: Any, job: str, kind: int, limit_s: float) -> None:
        """Put a job that is not there into its place."""
        assert job not in self._keys, f"job {job} is in the line already"
        order = self._order
        last = bool(order) and order[-1] < key  # as most are
        at = len(order) if last else bisect_left(order, key, self._begin)
        order.insert(at, key)
        self._jobs.insert(at, job)
        self._kinds.insert(at, kind)
        self._limits_s.insert(at, limit_s)
        self._keys[job] = key

    def remove(self, job: str) -> None:
        """Take a job out, if it is there."""
        if job not in self._keys:
            return
        begin = self._begin
        at = bisect_left(self._order, self._keys.pop(job), begin)
        columns: tuple[Any, ...] = (self._order, self._jobs, self._kinds, self._limits_s)
        for column in columns:
            column[begin + 1 : at + 1] = column[begin:at]
        self._begin = begin = begin + 1
        if begin >= _LEAST and 2 * begin >= len(self._order):
            for column in columns:
                del column[:begin]
            self._begin = 0

    def first(self, most: int) -> Queue:
        """Return the first so many."""
        begin = self._begin
        end = begin + most
        return Queue(
            self._jobs[begin:end],
            np.frombuffer(self._kinds[begin:end], np.int64),
            np.frombuffer(self._limits_s[begin:end], np.float64),
        )
