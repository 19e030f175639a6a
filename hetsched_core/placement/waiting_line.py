"""Waiting jobs in order, with what is asked of each at every pass, at the cost of what changes."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Any

import numpy as np

from hetsched_core.placement.starts import Queue


class WaitingLine:
    """Waiting jobs in the order of their keys, each with a kind and a time limit.

    Lists and arrays side by side, since the first of them are wanted as arrays again and again.
    """

    def __init__(self) -> None:
        """Start with nobody."""
        self._order: list[tuple[Any, str]] = []
        self._jobs: list[str] = []
        self._kinds = array("q")
        self._limits_s = array("d")
        self._keys: dict[str, Any] = {}

    def put(self, key: Any, job: str, kind: int, limit_s: float) -> None:
        """Put a job that is not there into its place."""
        assert job not in self._keys, f"job {job} is in the line already"
        at = bisect_left(self._order, (key, job))
        self._order.insert(at, (key, job))
        self._jobs.insert(at, job)
        self._kinds.insert(at, kind)
        self._limits_s.insert(at, limit_s)
        self._keys[job] = key

    def remove(self, job: str) -> None:
        """Take a job out, if it is there."""
        if job not in self._keys:
            return
        at = bisect_left(self._order, (self._keys.pop(job), job))
        for column in (self._order, self._jobs, self._kinds, self._limits_s):
            del column[at]

    def first(self, most: int) -> Queue:
        """Return the first so many."""
        return Queue(
            self._jobs[:most],
            np.frombuffer(self._kinds[:most], np.int64),
            np.frombuffer(self._limits_s[:most], np.float64),
        )
