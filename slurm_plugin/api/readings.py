"""Readings of what went on, for the page: a bounded number, kept in memory, one a minute."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from hetsched_core.report.live_state import CLOSED, LEVELS, UNKNOWN, GpusOverTime, Past
from hetsched_core.types import Cluster, Snapshot
from slurm_plugin.daemon.nodes.gpu_use import GpuUse, gpu_uses

STEP_S = 60.0
"""From one reading to the next."""

KEPT = 1440
"""How many readings are kept: those of a day."""

_NOTHING = GpuUse()


@dataclass(frozen=True, slots=True)
class _Reading:
    """What was so at `at_s`; `levels` has a character for each node of `cluster`."""

    at_s: float
    cluster: Cluster
    gpus: dict[str, GpuUse]
    running: int
    waiting: int
    plan_s: float | None
    levels: str


class Readings:
    """Takes a reading when one is due.

    The readings are replaced as a whole, so that other threads may read them at any time. They are
    lost when the daemon ends: its decisions and measurements are in the database.
    """

    def __init__(self, step_s: float = STEP_S, kept: int = KEPT) -> None:
        """Begin with none."""
        self._step_s, self._kept = step_s, kept
        self._readings: tuple[_Reading, ...] = ()
        self._plan_s: float | None = None

    def note(self, snapshot: Snapshot, plan_s: float | None) -> None:
        """Take in a cycle; `plan_s` is how long a plan took, None if none was made in it."""
        if plan_s is not None:
            self._plan_s = max(plan_s, self._plan_s or 0.0)
        now = snapshot.now
        # On a grid, so that no step goes without one though cycles do not keep time to the second.
        if self._readings and self._step(now) == self._step(self._readings[-1].at_s):
            return
        # The clock may have been set back: what lies in the future now has not been.
        past = tuple(reading for reading in self._readings[-self._kept + 1 :] if reading.at_s < now)
        self._readings = (*past, self._reading(snapshot))
        self._plan_s = None

    def past(self, cluster: Cluster) -> Past:
        """Return the readings, with the nodes that the cluster has now."""
        readings = self._readings
        types = dict.fromkeys(kind for reading in readings for kind in reading.gpus)
        return Past(
            step_s=self._step_s,
            keep_s=self._step_s * self._kept,
            at_s=tuple(reading.at_s for reading in readings),
            gpus={
                kind: _over_time([reading.gpus.get(kind, _NOTHING) for reading in readings])
                for kind in types
            },
            running=tuple(reading.running for reading in readings),
            waiting=tuple(reading.waiting for reading in readings),
            plan_s=tuple(reading.plan_s for reading in readings),
            nodes=_levels(readings, cluster),
        )

    def _step(self, time_s: float) -> int:
        return math.floor(time_s / self._step_s)

    def _reading(self, snapshot: Snapshot) -> _Reading:
        by_type: dict[str, GpuUse] = {}
        levels = []
        for view, _, use in gpu_uses(snapshot):
            kind = view.node.gpu_type
            by_type[kind] = by_type.get(kind, _NOTHING) + use
            levels.append(_level(use))
        running = sum(view.begun for view in snapshot.jobs.values())
        return _Reading(
            snapshot.now,
            snapshot.cluster,
            by_type,
            running,
            len(snapshot.jobs) - running,
            self._plan_s,
            "".join(levels),
        )


def _level(use: GpuUse) -> str:
    taken = use.held + use.foreign
    if not taken and use.closed:
        return CLOSED
    return LEVELS[round((len(LEVELS) - 1) * min(1.0, taken / max(1, use.all)))]


def _levels(readings: Sequence[_Reading], cluster: Cluster) -> dict[str, str]:
    """Return node -> its level in each reading, for the nodes that the cluster has now."""
    pieces: dict[str, list[str]] = {node.name: [] for node in cluster}
    # The nodes seldom change, and looking each up in each reading takes ten times as long.
    for _, group in groupby(readings, key=lambda reading: id(reading.cluster)):
        alike = list(group)
        by_node = zip(*(reading.levels for reading in alike), strict=True)
        then = dict(zip(alike[0].cluster.names, map("".join, by_node), strict=True))
        for name, levels in pieces.items():
            levels.append(then.get(name, UNKNOWN * len(alike)))
    return {name: "".join(levels) for name, levels in pieces.items()}


def _over_time(uses: list[GpuUse]) -> GpusOverTime:
    return GpusOverTime(
        tuple(use.held for use in uses),
        tuple(use.foreign for use in uses),
        tuple(use.closed for use in uses),
        tuple(use.idle for use in uses),
    )
