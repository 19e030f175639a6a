"""How long tasks take, by their training's key and the GPU type: estimated, then learned.

Hare's T^c is the median of the tasks that ran of late, T^s that of the rounds: from the end of a
round's last task to the state of the next one. Where a key has not run on a type, its T^c there is
that on the types where it has, by the published rates of both; where it has run nowhere, a second
on a GPU of one TFLOP/s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from hetsched_core.throughput.gpus import match_gpu
from hetsched_core.types import Cluster, Layer, Speeds, SpeedTable, TaskTimes

LATE = 20
"""So many of the last tasks count."""

CHANGED = 0.2
"""Times that differ by less from what policies were told are no news."""

LONGEST_SYNC_S = 600.0

_SHORTEST_S = 1e-6


@dataclass
class LearnedTimes:
    """What was measured."""

    _train_s: dict[tuple[str, str], deque[float]] = field(default_factory=dict)
    _sync_s: dict[str, deque[float]] = field(default_factory=dict)

    def trained(self, key: str, gpu_type: str, train_s: float) -> None:
        """Note a task."""
        kept = self._train_s.setdefault((key, gpu_type), deque(maxlen=LATE))
        kept.append(max(_SHORTEST_S, train_s))

    def synchronised(self, key: str, sync_s: float) -> None:
        """Note a round; what is too long comes of clocks that differ."""
        if not 0.0 <= sync_s <= LONGEST_SYNC_S:
            return
        self._sync_s.setdefault(key, deque(maxlen=LATE)).append(sync_s)

    def measured(self, key: str, gpu_type: str) -> bool:
        """Whether a task of this key has run on the type."""
        return (key, gpu_type) in self._train_s

    def of(self, key: str, gpu_type: str) -> TaskTimes:
        """Return the times of a task."""
        own = self._train_s.get((key, gpu_type))
        if own:
            train_s = median(own)
        else:
            # What a GPU of one TFLOP/s would take.
            found = [
                median(times) * _rate(other)
                for (k, other), times in sorted(self._train_s.items())
                if k == key
            ]
            train_s = (sum(found) / len(found) if found else 1.0) / _rate(gpu_type)
        sync_s = median(self._sync_s.get(key) or (0.0,))
        return TaskTimes(train_s, sync_s)

    def speeds(self, cluster: Cluster, keys: Iterable[str], told: Speeds | None) -> Speeds:
        """Return the times as speeds; `told` itself where it holds nothing else.

        Args:
            cluster: the GPUs of the pool.
            keys: of the trainings.
            told: what policies were shown last, of the same cluster.
        """
        tables = {}
        wanted = sorted(set(keys))
        for key in wanted:
            known = told.table(key) if told is not None and key in told.profiles else None
            times = {each: self.of(key, each) for each in cluster.gpu_types}
            if known is None or any(_differ(known.tasks.get(t), new) for t, new in times.items()):
                tables[key] = _table(self, key, times)
        if told is None:
            return Speeds(cluster, tables)
        return told.revised(tables) if tables else told


def _rate(gpu_type: str) -> float:
    return match_gpu(gpu_type).spec.single_tflops


def _differ(old: TaskTimes | None, new: TaskTimes) -> bool:
    if old is None:
        return True
    longest = max(old.train_s + old.sync_s, new.train_s + new.sync_s)
    return (
        abs(old.train_s - new.train_s) > CHANGED * longest
        or abs(old.sync_s - new.sync_s) > CHANGED * longest
    )


def _table(learned: LearnedTimes, key: str, times: dict[str, TaskTimes]) -> SpeedTable:
    speeds = np.array([[1.0 / (t.train_s + t.sync_s)] for t in times.values()])
    layers = [
        [Layer.GPU_TYPE if learned.measured(key, each) else Layer.FIRST_ESTIMATE] for each in times
    ]
    return SpeedTable(
        gpu_types=tuple(times),
        counts=np.array([1]),
        one_node=speeds,
        several_nodes=speeds,
        layers=np.array(layers, np.int8),
        tasks=times,
    )
