"""Groups of GPUs that are equally fast for every job (Hare, TCC section IV).

    min over groupings of max_n (p_n^max - p_n^min)

with p_n the summed speeds of a group's GPUs for job n. GPUs that are alike for all jobs count by
their type: a group is a number of GPUs of each. Small cases are solved as a mixed-integer
programme, larger ones by annealing, whose spread is what it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from hetsched_core.optimize import Limits, Program, Rows, SolverStatus, solve

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EXACT_CELLS = 20
"""Groups × types up to which the programme is solved: it is symmetric, and hard beyond."""

_MOST_NODES = 20_000
_STEPS = 6_000


@dataclass(frozen=True, slots=True)
class GpuGrouping:
    """GPUs in groups, none empty.

    Attributes:
        groups: the GPUs of each group, by number.
        spread: the largest difference of two groups' speeds for one job.
        proven: whether no grouping has a smaller one.
        mean_speed: (N,) mean summed speed of a group, absolute, for each job.
    """

    groups: tuple[tuple[int, ...], ...]
    spread: float
    proven: bool
    mean_speed: tuple[float, ...]


def group_gpus(
    speeds: Floats, groups: int, *, normalised: bool = False, seed: int = 0
) -> GpuGrouping:
    """Return groups of similar total speed for every job.

    Args:
        speeds: (N, M) rounds' tasks per second of each job on each GPU, 1 / (T^c + T^s); 0 where it
            cannot run.
        groups: how many; as many as there are GPUs at most.
        normalised: speeds count in parts of the job's mean group speed, else one fast job decides.
        seed: of the annealing.
    """
    jobs, gpus = speeds.shape
    groups = max(1, min(groups, gpus))
    mean = speeds.sum(axis=1) / groups
    scaled = speeds / np.where(mean > 0, mean, 1.0)[:, None] if normalised else speeds
    types, kind = np.unique(scaled, axis=1, return_inverse=True)
    kind = kind.ravel()
    counts = np.bincount(kind)
    found = annealed(types, counts, groups, seed)
    proven = jobs == 0 or groups == 1
    if not proven and groups * len(counts) <= EXACT_CELLS:
        found, proven = solved(types, counts, found)
    dealt = [np.flatnonzero(kind == k).tolist() for k in range(len(counts))]
    members = []
    for row in found.tolist():
        mine = [dealt[k].pop(0) for k, number in enumerate(row) for _ in range(number)]
        members.append(tuple(sorted(mine)))
    return GpuGrouping(
        tuple(sorted(members)), spread_of(types, found), proven, tuple(mean.tolist())
    )


def spread_of(types: Floats, found: Ints) -> float:
    """Return the objective of a grouping: (N, K) speeds by type, (J, K) GPUs of each group."""
    if types.shape[0] == 0:
        return 0.0
    return float(np.ptp(types @ found.T, axis=1).max())


def annealed(types: Floats, counts: Ints, groups: int, seed: int) -> Ints:
    """Deal the types round-robin, then shift and swap GPUs where it helps, or at first nearly does.

    Returns:
        (J, K) GPUs of each type in each group.
    """
    rng = Random(seed)
    kinds = len(counts)
    found = np.zeros((groups, kinds), np.int64)
    at = 0
    for k in range(kinds):
        for _ in range(int(counts[k])):
            found[at % groups, k] += 1
            at += 1
    sums = types @ found.T
    value = spread_of(types, found)
    best, best_value = found.copy(), value
    heat = value / 4.0
    for _ in range(_STEPS if groups > 1 and types.shape[0] else 0):
        heat *= 0.999
        one, other = rng.sample(range(groups), 2)
        gives = [k for k in range(kinds) if found[one, k]]
        give = rng.choice(gives)
        takes = [-1] * int(found[one].sum() > 1) + [k for k in range(kinds) if found[other, k]]
        take = rng.choice(takes)
        change = types[:, give] - (types[:, take] if take >= 0 else 0.0)
        sums[:, one] -= change
        sums[:, other] += change
        new = float(np.ptp(sums, axis=1).max())
        if new <= value or (heat > 0 and rng.random() < math.exp((value - new) / heat)):
            found[one, give] -= 1
            found[other, give] += 1
            if take >= 0:
                found[other, take] -= 1
                found[one, take] += 1
            value = new
            if value < best_value:
                best, best_value = found.copy(), value
        else:
            sums[:, one] += change
            sums[:, other] -= change
    return best


def solved(types: Floats, counts: Ints, known: Ints) -> tuple[Ints, bool]:
    """Return the best grouping, and whether that is proven; `known` where the limit strikes first.

    Columns: c_jk GPUs of type k in group j, then the least and greatest speed of each job, then the
    spread D.
    """
    jobs, kinds = types.shape
    groups = len(known)
    cells = groups * kinds
    lo, hi, d = cells + np.arange(jobs), cells + jobs + np.arange(jobs), cells + 2 * jobs
    rows = Rows()
    for k in range(kinds):
        rows.add(0, np.arange(groups) * kinds + k, 1.0, counts[k], counts[k])
    for j in range(groups):
        mine = j * kinds + np.arange(kinds)
        rows.add(0, mine, 1.0, 1.0, np.inf)
        for n in range(jobs):
            speed = np.append(types[n], -1.0)
            rows.add(0, np.append(mine, lo[n]), speed, 0.0, np.inf)
            rows.add(0, np.append(mine, hi[n]), speed, -np.inf, 0.0)
    for n in range(jobs):
        rows.add(0, [hi[n], lo[n], d], [1.0, -1.0, -1.0], -np.inf, 0.0)
    size = d + 1
    program = Program(
        cost=np.eye(1, size, d).ravel(),
        lower=np.zeros(size),
        upper=np.concatenate([np.tile(counts, groups), np.full(2 * jobs + 1, np.inf)]),
        matrix=rows.matrix(),
        row_lower=rows.lower,
        row_upper=rows.upper,
        integer=np.arange(size) < cells,
    )
    solution = solve(program, limits=Limits(nodes=_MOST_NODES))
    if solution.x is None:
        return known, False
    found = np.rint(solution.x[:cells]).astype(np.int64).reshape(groups, kinds)
    proven = solution.status is SolverStatus.OPTIMAL
    if spread_of(types, known) <= spread_of(types, found):
        found = known
    return found, proven
