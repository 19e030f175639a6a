"""List scheduling of training tasks (Hare, HPDC '22, Algorithm 1)."""

from __future__ import annotations

import numpy as np

from hetsched_core.kernels import Floats, FloatsOut, FloatTable, Ints, IntsOut, kernel


@kernel()
def list_schedule(
    order: Ints,
    scale: Ints,
    first: Ints,
    opens_s: Floats,
    train_s: FloatTable,
    sync_s: FloatTable,
    by_finish: bool,
    free_s: FloatsOut,
    gpu: IntsOut,
    start_s: FloatsOut,
    complete_s: FloatsOut,
) -> None:
    """Give each task of an order its GPU and its start; ties go to the lower GPU.

    A task is available when the round before is trained and in step, the first ones at `opens_s`.
    A GPU is taken for T^c: synchronisation overlaps the next task.

    Args:
        order: (I,) the job of each task; the tasks of a job are its rounds in order.
        scale: (N,) tasks of a round.
        first: (N,) tasks of the job's first round: fewer than `scale` where some have begun.
        opens_s: (N,) when the first round may begin.
        train_s: (N, M) T^c; infinite where the job cannot run.
        sync_s: (N, M) T^s.
        by_finish: take the GPU on which the task is in step first, else the one that is free first.
        free_s: (M,) when each GPU is free; left as it is after the last task.
        gpu: (I,) the result.
        start_s: (I,) the result.
        complete_s: (N,) when the job's last task so far is in step; holds, to begin with, before
            when no round ends.
    """
    gpus = train_s.shape[1]
    opened = opens_s.copy()
    left = first.copy()
    for i in range(len(order)):
        job = order[i]
        if left[job] == 0:
            opened[job] = complete_s[job]
            left[job] = scale[job]
        best, best_key = -1, np.inf
        for m in range(gpus):
            if train_s[job, m] == np.inf:
                continue
            key = free_s[m]
            if by_finish:
                key = max(free_s[m], opened[job]) + train_s[job, m] + sync_s[job, m]
            if best < 0 or key < best_key:
                best, best_key = m, key
        begin = max(free_s[best], opened[job])
        trained = begin + train_s[job, best]
        free_s[best] = trained
        gpu[i] = best
        start_s[i] = begin
        complete_s[job] = max(complete_s[job], trained + sync_s[job, best])
        left[job] -= 1
