"""Which jobs of Hops's queue are planned for at all (SoCC '24, section 3.6)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def service_window(smallest: Ints, gpus: float) -> int:
    """Return how many jobs from the head of the queue are in the service window.

    Args:
        smallest: (J,) the smallest requirement of each job, in queue order.
        gpus: GPUs of the cluster; the job with which the sum reaches them is the last one in.
    """
    reached = np.cumsum(smallest) >= gpus
    return int(np.argmax(reached)) + 1 if reached.any() else len(smallest)


def sensitivity_adjustment(
    sensitivity: Floats, smallest: Ints, window: int, idle_gpus: int
) -> Ints:
    """Return the positions of jobs behind the window that may be planned for with it.

    While the jobs let in are on average more sensitive to being spread than the queue, jobs less
    sensitive than the queue are let in, in queue order, if the idle GPUs hold them. What is let in
    does not count against the idle GPUs.

    Args:
        sensitivity: (J,) of each job, in queue order.
        smallest: (J,) its smallest requirement.
        window: how many jobs at the head are in the window.
        idle_gpus: idle GPUs of the cluster.
    """
    admitted: list[int] = []
    if 0 < window < len(sensitivity):
        queue = float(sensitivity.mean())
        total, members = float(sensitivity[:window].sum()), window
        able = (sensitivity[window:] < queue) & (smallest[window:] <= idle_gpus)
        for at in (window + np.flatnonzero(able)).tolist():
            if total / members <= queue:
                break
            admitted.append(at)
            total, members = total + float(sensitivity[at]), members + 1
    return np.array(admitted, np.int64)
