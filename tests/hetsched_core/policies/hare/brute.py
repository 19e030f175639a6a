"""Best schedules of tiny instances by trying all, and the bound's and theorem's record on many.

    python -m tests.hetsched_core.policies.hare.brute 10000

prints how often LP <= optimum <= schedule holds, and how often Theorem 4's factor.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import numpy as np

from hetsched_core.policies.hare.bound import relax
from hetsched_core.policies.hare.instance import Instance
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
    floats = (np.array(part, np.float64) for part in (arrival_s, weight))
    counts = (np.array(part, np.int64) for part in (rounds, scale))
    times = (np.array(part, np.float64) for part in (train_s, sync_s))
    return Instance.fresh(*floats, *counts, *times)


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


def optimum(instance: Instance) -> float:
    """Return the least sum of w (C - a) over all orders of tasks on all GPUs."""
    jobs, gpus = instance.train_s.shape
    train, sync = instance.train_s.tolist(), instance.sync_s.tolist()
    arrival, weight = instance.arrival_s.tolist(), instance.weight.tolist()
    tasks, scale = instance.tasks.tolist(), instance.scale.tolist()
    quickest = [min(t + s for t, s in zip(*rows, strict=True)) for rows in zip(train, sync)]  # noqa: B905
    best = math.inf
    free = [0.0] * gpus
    begun = [0] * jobs
    opened, in_step = list(arrival), list(arrival)

    def least() -> float:
        """What the jobs come to at least, whatever follows."""
        value = 0.0
        for n in range(jobs):
            rest = tasks[n] - begun[n]
            whole = rest // scale[n] if begun[n] % scale[n] == 0 else -(-rest // scale[n]) - 1
            now = in_step[n] if begun[n] % scale[n] == 0 or not rest else opened[n]
            ends = max(in_step[n], now + quickest[n] * (whole + (begun[n] % scale[n] != 0)))
            value += weight[n] * (ends - arrival[n])
        return value

    def search() -> None:
        nonlocal best
        bound = least()
        if bound >= best - 1e-12:
            return
        if begun == tasks:
            best = bound
            return
        for n in range(jobs):
            if begun[n] == tasks[n]:
                continue
            before = opened[n], in_step[n]
            if begun[n] % scale[n] == 0:
                opened[n] = in_step[n]
            for m in range(gpus):
                if train[n][m] == math.inf:
                    continue
                was = free[m]
                free[m] = max(was, opened[n]) + train[n][m]
                kept = in_step[n]
                in_step[n] = max(kept, free[m] + sync[n][m])
                begun[n] += 1
                search()
                begun[n] -= 1
                free[m], in_step[n] = was, kept
            opened[n], in_step[n] = before

    search()
    return best


@dataclass(frozen=True, slots=True)
class Case:
    """An instance's bound, optimum, and schedule of each choice of GPU in the LP's order."""

    bound: float
    best: float
    schedules: dict[GpuChoice, float]
    alpha: float
    arrivals: float

    @property
    def factor(self) -> float:
        """Theorem 4's alpha (2 + alpha)."""
        return self.alpha * (2.0 + self.alpha)


def case_of(instance: Instance) -> Case:
    """Return what the programme and the list schedules make of an instance, and the best."""
    relaxed = relax(instance, 1.2)
    assert relaxed.bound_s is not None
    orders = (
        by_rounds_around(instance, relaxed.middle_s),
        by_rounds_spread(instance, relaxed.middle_s),
        by_fluid_wspt(instance),
    )
    return Case(
        relaxed.bound_s,
        optimum(instance),
        {
            choice: min(schedule(instance, order, choice).weighted_jct_s for order in orders)
            for choice in GpuChoice
        },
        instance.alpha,
        float(instance.weight @ instance.arrival_s),
    )


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
    # Ratios of sums of w C, as the theorem states them.
    ratios = np.array([(c.best + c.arrivals) / (c.bound + c.arrivals) for c in found])
    out(f"optimum / bound: median {np.median(ratios):.3f}, worst {ratios.max():.3f}\n")
    for choice in GpuChoice:
        below = sum(c.schedules[choice] < c.best - 1e-6 for c in found)
        of_best = np.array(
            [(c.schedules[choice] + c.arrivals) / (c.best + c.arrivals) for c in found]
        )
        of_factor = of_best / np.array([c.factor for c in found])
        out(
            f"{choice}: below the optimum {below}; schedule / optimum mean {of_best.mean():.3f}, "
            f"worst {of_best.max():.3f}; above alpha (2 + alpha) {int((of_factor > 1).sum())}, "
            f"at most {of_factor.max():.0%} of it\n"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
