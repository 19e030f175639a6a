"""What offline Hare schedules: jobs of equal training rounds on unlike GPUs, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hetsched_core.placement.task_gpus import GpuKinds

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Instance:
    """N jobs and M GPUs. Seconds count from the present instant.

    Attributes:
        arrival_s: (N,) when the job's first round may begin.
        weight: (N,) w_n.
        rounds: (N,) R_n, one that has begun included.
        scale: (N,) tasks of a round.
        first: (N,) tasks of the first round that have not begun, `scale` for a whole round.
        times: T^c and T^s on the K kinds of GPUs; every job runs somewhere.
        free_s: (M,) when each GPU is free.
        in_step_s: (N,) before when the first round does not end, whatever is left of it.
    """

    arrival_s: Floats
    weight: Floats
    rounds: Ints
    scale: Ints
    first: Ints
    times: GpuKinds
    free_s: Floats
    in_step_s: Floats

    @classmethod
    def fresh(
        cls,
        arrival_s: Floats,
        weight: Floats,
        rounds: Ints,
        scale: Ints,
        train_s: Floats,
        sync_s: Floats,
    ) -> Instance:
        """Return an instance of which nothing has begun, of (N, M) times on each GPU."""
        gpus = train_s.shape[1]
        times = GpuKinds.merged(np.arange(gpus), train_s, sync_s)
        free_s, in_step_s = np.zeros(gpus), np.zeros(len(arrival_s))
        return cls(arrival_s, weight, rounds, scale, scale, times, free_s, in_step_s)

    @property
    def whole(self) -> bool:
        """Whether nothing has begun, so that a bound on the instance is one on the jobs."""
        return bool(
            (self.first == self.scale).all()
            and not self.free_s.any()
            and (self.in_step_s <= self.arrival_s).all()
        )

    @cached_property
    def tasks(self) -> Ints:
        """(N,) tasks that have not begun."""
        return self.first + (self.rounds - 1) * self.scale

    @cached_property
    def gpus(self) -> Ints:
        """(K,) GPUs of each kind."""
        return np.bincount(self.times.kind)

    @cached_property
    def shortest_round_s(self) -> Floats:
        """(N,) L_n: the shortest that a whole round takes alone on all GPUs.

        The least D in {T^s + q T^c} at which the GPUs together train `scale` tasks in time.
        """
        lengths = np.empty(len(self.scale))
        for n, scale in enumerate(self.scale.tolist()):
            train, sync = self.times.train_s[n], self.times.sync_s[n]
            able = np.isfinite(train)
            train, sync, gpus = train[able], sync[able], self.gpus[able]
            in_a_row = np.arange(1, scale + 1)
            ends = np.unique(sync[:, None] + in_a_row * train[:, None])
            fit = np.floor((ends[:, None] - sync) / train + 1e-9)
            enough = (np.maximum(fit, 0.0) * gpus).sum(axis=1) >= scale
            lengths[n] = ends[np.argmax(enough)]
        return lengths
