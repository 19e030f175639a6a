"""In which order tasks are placed: by H_i = x_i + T^c_i / 2 (HPDC '22, Algorithm 1).

The relaxation says when a job is in the middle of its work, not when each task starts; the rounds
are laid out around that. None of three ways is best everywhere, and a list schedule costs little.
"""

from __future__ import annotations

import numpy as np

from hetsched_core.kernels.task_list import fluid
from hetsched_core.policies.hare.instance import Floats, Instance, Ints


def by_rounds_around(instance: Instance, middle_s: Floats) -> Ints:
    """Order tasks as if each job ran its rounds at full speed around its middle.

    x_nr = S_n + (r - (R + 1) / 2) L_n.
    """
    half_s = (instance.rounds - 1) * instance.shortest_round_s / 2.0
    return _ordered(instance, middle_s - half_s, middle_s + half_s)


def by_rounds_spread(instance: Instance, middle_s: Floats) -> Ints:
    """Order tasks as if each job's rounds were spread evenly from its arrival to 2 S - a."""
    return _ordered(instance, instance.arrival_s, 2.0 * middle_s - instance.arrival_s)


def by_fluid_wspt(instance: Instance) -> Ints:
    """Order tasks as a fluid would be served, most weight for its work first, without any LP.

    The GPUs are one server of rate 1; a job takes at most the share at which its rounds follow
    each other in L_n, and what is left goes to the next.
    """
    times = instance.times
    # Row by row: all jobs on all GPUs at once would be large.
    speed = np.array([(1.0 / row)[times.kind].sum() for row in times.train_s])
    work = instance.tasks / speed
    most = np.minimum(1.0, work / (instance.rounds * instance.shortest_round_s))
    preference = np.lexsort((np.arange(len(work)), -instance.weight / work))
    begin, end = np.full((2, len(work)), np.inf)
    fluid(instance.arrival_s, work, most, preference, begin, end)
    return _ordered(instance, begin, end - (end - begin) / instance.rounds)


def _ordered(instance: Instance, first_s: Floats, last_s: Floats) -> Ints:
    """Order tasks by H, the rounds' x going from `first_s` to `last_s`; ties by job, round, task.

    Returns:
        (I,) the job of each task.
    """
    job = np.repeat(np.arange(len(instance.rounds)), instance.rounds)
    begins = np.cumsum(instance.rounds) - instance.rounds
    nth = np.arange(len(job)) - np.repeat(begins, instance.rounds)
    step_s = (last_s - first_s) / np.maximum(1, instance.rounds - 1)
    train_s = instance.times.train_s
    longest = np.where(np.isfinite(train_s), train_s, 0.0).max(axis=1)
    h = (first_s + longest / 2.0)[job] + nth * np.maximum(step_s, 0.0)[job]
    rounds = np.lexsort((nth, job, h))
    tasks = np.where(nth == 0, instance.first[job], instance.scale[job])
    return np.repeat(job[rounds], tasks[rounds]).astype(np.int64)
