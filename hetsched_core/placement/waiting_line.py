"""Waiting jobs in order, with what is asked of each at every pass, at the cost of what changes."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from hetsched_core.placement.from_front import FromFront
from hetsched_core.placement.starts import Queue


class WaitingLine:
    """Waiting jobs in the order of their keys, which are unique, each with a kind and a limit.

    Lists and arrays side by side, since the first of them are wanted as arrays again and again.
    """

    def __init__(self) -> None:
        """Start with nobody."""
        self._jobs: list[str] = []
        self._kinds, self._limits_s = array("q"), array("d")
        self._rows = FromFront(self._jobs, self._kinds, self._limits_s)
        self._keys: dict[str, Any] = {}

    def put(self, key: Any, job: str, kind: int, limit_s: float) -> None:
        """Put a job that is not there into its place."""
        assert job not in self._keys, f"job {job} is in the line already"
        self._rows.put(key, job, kind, limit_s)
        self._keys[job] = key

    def remove(self, job: str) -> None:
        """Take a job out, if it is there."""
        if job in self._keys:
            self._rows.remove(self._keys.pop(job))

    def first(self, most: int) -> Queue:
        """Return the first so many."""
        begin = self._rows.begin
        end = begin + most
        return Queue(
            self._jobs[begin:end],
            np.frombuffer(self._kinds[begin:end], np.int64),
            np.frombuffer(self._limits_s[begin:end], np.float64),
        )
