"""Best schedules of tiny instances by trying all, and the bound's and theorem's record on many.

    python -m tests.hetsched_core.policies.hare.brute 10000

prints how often LP <= optimum <= schedule holds, and how often Theorem 4's factor.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from random import Random

import numpy as np

from hetsched_core.policies.hare.bound import relax
from hetsched_core.policies.hare.instance import Floats, Instance
from hetsched_core.policies.hare.order import by_fluid_wspt, by_rounds_around, by_rounds_spread
from hetsched_core.policies.hare.schedule import GpuChoice, schedule


def instance_of(
    arrival_s: list[float],
    weight: list[float],
    rounds: list[int],
    scale: list[int],
    train_s: list[list[float]],
    sync_s: list[list[float]],
) -> Instance:
    """Build an instance of which nothing has begun from a list for each field."""
    return Instance.fresh(
        np.array(arrival_s, np.float64),
        np.array(weight, np.float64),
        np.array(rounds, np.int64),
        np.array(scale, np.int64),
        np.array(train_s, np.float64),
        np.array(sync_s, np.float64),
    )


def by_gpu(instance: Instance) -> tuple[Floats, Floats]:
    """Return (N, M) T^c and T^s on each GPU."""
    times = instance.times
    return times.train_s[:, times.kind], times.sync_s[:, times.kind]


def alpha_of(instance: Instance) -> float:
    """The spread of task times over GPUs (Theorem 4): max_i of T^c, and of T^s; 0/0 is 1."""
    spread = 1.0
    for train_s, sync_s in zip(*map(np.ndarray.tolist, by_gpu(instance)), strict=True):
        able = [m for m, seconds in enumerate(train_s) if seconds < math.inf]
        for times in ([row[m] for m in able] for row in (train_s, sync_s)):
            if max(times) > 0:
                spread = max(spread, max(times) / min(times) if min(times) > 0 else math.inf)
    return spread


R1 = instance_of([0, 0], [1, 1], [2, 1], [2, 2], [[2, 4], [3, 3]], [[1, 1], [0.5, 0.5]])
R2 = instance_of([1, 0], [3, 1], [2, 1], [1, 3], [[1, 2], [2, 2]], [[0.5, 0.5], [0, 0]])


def random_instance(rng: Random, most_tasks: int = 6, most_gpus: int = 3) -> Instance:
    """Draw an instance of few tasks; some jobs do not run on some GPUs."""
    gpus = rng.randint(1, most_gpus)
    shapes: list[tuple[int, int]] = []
    left = rng.randint(1, most_tasks)
    while left:
        scale = rng.randint(1, min(3, left))
        rounds = rng.randint(1, left // scale)
        shapes.append((rounds, scale))
        left -= rounds * scale
    jobs = len(shapes)
    train = [[float(rng.randint(1, 6)) for _ in range(gpus)] for _ in range(jobs)]
    for row in train:
        if rng.random() < 0.15:
            keep = rng.randrange(gpus)
            row[:] = [t if m == keep else math.inf for m, t in enumerate(row)]
    sync = [[rng.choice((0.0, 0.5, 1.0, 2.0)) for _ in range(gpus)] for _ in range(jobs)]
    return instance_of(
        [float(rng.randint(0, 3)) for _ in range(jobs)],
        [float(rng.randint(1, 5)) for _ in range(jobs)],
        [rounds for rounds, _ in shapes],
        [scale for _, scale in shapes],
        train,
        sync,
    )


def put(row: tuple[float, ...], at: int, value: float) -> tuple[float, ...]:
    """Return the row with another value at one place."""
    return (*row[:at], value, *row[at + 1 :])


def optimum(instance: Instance) -> float:
    """Return the least sum of w (C - a) over all orders of tasks on all GPUs."""
    train, sync = map(np.ndarray.tolist, by_gpu(instance))
    arrival, weight = tuple(instance.arrival_s.tolist()), instance.weight.tolist()
    tasks, scale = instance.tasks.tolist(), instance.scale.tolist()

    @cache
    def least(
        free: tuple[float, ...],
        begun: tuple[float, ...],
        opened: tuple[float, ...],
        in_step: tuple[float, ...],
    ) -> float:
        """What is still to come, of jobs that have not begun all of their tasks."""
        best = 0.0 if list(begun) == tasks else math.inf
        for n, done in enumerate(begun):
            opens = in_step[n] if done % scale[n] == 0 else opened[n]
            for m, train_s in enumerate(train[n]):
                if done == tasks[n] or train_s == math.inf:
                    continue
                end = max(free[m], opens) + train_s
                ends, cost = max(in_step[n], end + sync[n][m]), 0.0
                if done + 1 == tasks[n]:
                    ends, cost = 0.0, weight[n] * (ends - arrival[n])
                later = put(begun, n, done + 1), put(opened, n, opens), put(in_step, n, ends)
                best = min(best, cost + least(put(free, m, end), *later))
        return best

    return least((0.0,) * len(train[0]), (0,) * len(train), arrival, arrival)


@dataclass(frozen=True, slots=True)
class Case:
    """Sums of w C of an instance: bound, optimum, schedule of each choice of GPU; the factor.

    The schedules are the best in the orders of the relaxation. The factor is Theorem 4's.
    """

    bound: float
    best: float
    schedules: dict[GpuChoice, float]
    factor: float


def case_of(instance: Instance) -> Case:
    """Return what the programme and the list schedules make of an instance, and the best."""
    relaxed = relax(instance, 1.2)
    assert relaxed.bound_s is not None
    orders = (
        by_rounds_around(instance, relaxed.middle_s),
        by_rounds_spread(instance, relaxed.middle_s),
        by_fluid_wspt(instance),
    )
    arrivals = float(instance.weight @ instance.arrival_s)
    schedules = {
        choice: min(schedule(instance, order, choice).weighted_jct_s for order in orders) + arrivals
        for choice in GpuChoice
    }
    factor = alpha_of(instance) * (2.0 + alpha_of(instance))
    return Case(relaxed.bound_s + arrivals, optimum(instance) + arrivals, schedules, factor)


def cases(count: int, seed: int = 0) -> Iterator[Case]:
    """Yield cases of random instances."""
    rng = Random(seed)
    for _ in range(count):
        yield case_of(random_instance(rng))


def main(count: int) -> None:
    """Print the record."""
    found = list(cases(count))
    out = sys.stdout.write
    out(f"{count} instances\n")
    out(f"bound above the optimum: {sum(c.bound > c.best + 1e-6 for c in found)}\n")
    ratios = np.array([c.best / c.bound for c in found])
    out(f"optimum / bound: median {np.median(ratios):.3f}, worst {ratios.max():.3f}\n")
    for choice in GpuChoice:
        below = sum(c.schedules[choice] < c.best - 1e-6 for c in found)
        of_best = np.array([c.schedules[choice] / c.best for c in found])
        of_factor = of_best / np.array([c.factor for c in found])
        out(
            f"{choice}: below the optimum {below}; schedule / optimum mean {of_best.mean():.3f}, "
            f"worst {of_best.max():.3f}; above alpha (2 + alpha) {int((of_factor > 1).sum())}, "
            f"at most {of_factor.max():.0%} of it\n"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
