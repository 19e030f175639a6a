"""A lower bound on the weighted completion times of an instance: an interval-indexed LP.

The relaxation that the paper prints is a quadratic mixed-integer programme (HPDC '22, section 5).
This one is linear. GPUs of one type count together; z_nkq is the fraction of job n's tasks that are
processed on type k in the interval q of a grid that grows geometrically.

    min  sum w_n C_n
    (1)  sum_kq z_nkq = 1
    (2)  sum_n W_n T^c_nk z_nkq <= G_k D_q                    capacity
    (3)  sum_k W_n T^c_nk z_nkq <= d_n e_nq                   one round at a time
    (4)  sum_k W_n z_nkq <= d_n (e_nq / L_n + 2)              rounds start L_n apart
    (5)  C_n >= sum_kq z_nkq (l_nq + T^c_nk / 2 + T^s_nk) + (R_n - 1) L_n / 2
    (6)  C_n >= a_n + R_n sum_kq z_nkq (T^c_nk + T^s_nk)

with W_n the job's tasks, d_n its scale, L_n its shortest round, G_k the type's GPUs, D_q the length
of an interval, e_nq that after the arrival a_n, and l_nq its begin, or the arrival if later. Where
the grid makes the programme too large, a coarser one takes its place, which bounds less tightly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsched_core.optimize import (
    Limits,
    Point,
    Program,
    Rows,
    Solution,
    SolverError,
    SolverStatus,
    solve,
)
from hetsched_core.policies.hare.instance import Floats, Instance, Ints
from hetsched_core.policies.hare.order import by_fluid_wspt
from hetsched_core.policies.hare.schedule import GpuChoice, schedule

FIRST_STEP = 0.01
"""The first interval, as a part of the shortest job."""

AS_EXACT = 1e-6
"""Times that differ by less than this part are equal: so much may differ between processors."""

MOST_ITERATIONS = 500
"""Interior-point iterations; an instance takes 20 to 60."""

MOST_COLUMNS = 40_000
"""Variables z of a programme, of which it takes some 3 s: with more, the grid is made coarser.

Those of docs/reproduction/hare.md have up to 21,000.
"""


_SHORTEST = 3
"""Points of a grid that no growth makes any shorter."""

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Relaxation:
    """What the programme says of an instance.

    Attributes:
        bound_s: proven: no schedule has a smaller sum of w (C - a). None where the programme was
            not solved to the end, or would be too large on any grid.
        middle_s: (N,) S_n, when each job is in the middle of its work.
    """

    bound_s: float | None
    middle_s: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """The z of a programme: job, type and interval of each; after them come the N columns C."""

    job: Ints
    kind: Ints
    interval: Ints


def relax(instance: Instance, growth: float) -> Relaxation:
    """Solve the programme and prove its value from the row duals.

    Args:
        instance: of which nothing has begun; what has is taken for whole rounds, and then the
            value is no bound.
        growth: the ratio of the grid's intervals; smaller is tighter and slower. Where it makes
            more than `MOST_COLUMNS`, every two intervals are one, and again.
    """
    arrival = instance.arrival_s
    alone = instance.rounds * instance.shortest_round_s
    latest = _latest_completions(instance)
    least = arrival + (instance.rounds - 1) * instance.shortest_round_s / 2.0
    grid = _grid(float(alone.min()), float(latest.max()), growth)
    while _count(instance, grid, latest) > MOST_COLUMNS:
        if len(grid) <= _SHORTEST:
            return Relaxation(None, least)
        growth *= growth
        grid = _grid(float(alone.min()), float(latest.max()), growth)
    columns = _columns(instance, grid, latest)
    program = _program(instance, grid, columns, latest)
    try:
        found = solve(program, Point.INTERIOR, Limits(iterations=MOST_ITERATIONS))
    except SolverError:
        # Weights or times too far apart for its arithmetic: there is a schedule all the same.
        found = Solution(status=SolverStatus.NOT_FOUND)
    if found.status is not SolverStatus.OPTIMAL or found.x is None:
        return Relaxation(None, least)
    z = np.clip(found.x[: len(columns.job)], 0.0, 1.0)
    begins = np.maximum(grid[columns.interval], arrival[columns.job])
    middle = np.bincount(columns.job, z * begins, minlength=len(arrival))
    bound = certified(program, found) - float(instance.weight @ arrival)
    # A job that nothing delays is in the middle of its work at the least, or just beside it.
    delayed = middle > least * (1.0 + AS_EXACT)
    return Relaxation(bound if instance.whole else None, np.where(delayed, middle, least))


def certified(program: Program, solution: Solution) -> float:
    """Return a proven lower bound on a minimisation whose columns all have finite bounds.

    The Lagrangian of the row duals: any duals prove a bound, those of the solver a good one.

    Raises:
        ValueError: the solution has no row duals.
    """
    if solution.row_duals is None:
        raise ValueError("a solution without row duals proves nothing")
    y = solution.row_duals.copy()
    y[(y > 0) & ~np.isfinite(program.row_lower)] = 0.0
    y[(y < 0) & ~np.isfinite(program.row_upper)] = 0.0
    with np.errstate(invalid="ignore"):
        rows = np.where(y > 0, y * program.row_lower, np.where(y < 0, y * program.row_upper, 0.0))
    matrix = program.matrix
    of_row = np.repeat(y, np.diff(matrix.starts))
    reduced = program.cost - np.bincount(
        matrix.columns, of_row * matrix.values, minlength=len(program.cost)
    )
    columns = np.where(reduced > 0, reduced * program.lower, reduced * program.upper)
    return float(rows.sum() + columns.sum())


def _latest_completions(instance: Instance) -> Floats:
    """(N,) when each job is complete at the latest, in any best schedule.

    All other jobs at their earliest, one has what is left of the value of a schedule that is known;
    and in a schedule without needless idle time some task trains or synchronises at any time.
    """
    arrival, weight = instance.arrival_s, instance.weight
    alone = instance.rounds * instance.shortest_round_s
    order = by_fluid_wspt(instance)
    known = schedule(instance, order, GpuChoice.EARLIEST_FINISH)
    spare = known.weighted_jct_s - float(weight @ alone)
    with np.errstate(divide="ignore"):
        by_value = arrival + alone + max(spare, 0.0) / weight
    times = instance.times
    able = np.isfinite(times.train_s)
    longest = np.where(able, times.train_s + times.sync_s, 0.0).max(axis=1)
    one_by_one = float(arrival.max() + instance.tasks @ longest)
    latest = np.minimum(by_value, one_by_one)
    return np.maximum(latest, known.complete_s) * (1.0 + 1e-9)


def _grid(shortest_s: float, latest_s: float, growth: float) -> Floats:
    """(Q + 1,) 0, and then a geometric series that ends after `latest_s`."""
    first = FIRST_STEP * shortest_s
    steps = max(1, int(np.ceil(np.log(max(latest_s / first, 1.0)) / np.log(growth))) + 1)
    # Products are the same on every processor; powers differ in the last bit.
    return np.concatenate([[0.0], np.cumprod([first, *[growth] * (steps - 1)])])


def _open(instance: Instance, grid: Floats, latest: Floats) -> Bools:
    """(N, Q) whether a job may run in an interval."""
    open_: Bools = (grid[1:] > instance.arrival_s[:, None]) & (grid[:-1] < latest[:, None])
    return open_


def _count(instance: Instance, grid: Floats, latest: Floats) -> int:
    """Return how many columns there are."""
    kinds, intervals = (
        np.isfinite(instance.times.train_s).sum(axis=1),
        _open(instance, grid, latest).sum(axis=1),
    )
    return int(kinds @ intervals)


def _columns(instance: Instance, grid: Floats, latest: Floats) -> _Columns:
    able, open_ = np.isfinite(instance.times.train_s), _open(instance, grid, latest)
    job, kind, interval = np.nonzero(able[:, :, None] & open_[:, None, :])
    return _Columns(job.astype(np.int64), kind.astype(np.int64), interval.astype(np.int64))


def _program(instance: Instance, grid: Floats, columns: _Columns, latest: Floats) -> Program:
    jobs, intervals = len(latest), len(grid) - 1
    n, k, q = columns.job, columns.kind, columns.interval
    count = len(n)
    train = instance.times.train_s[n, k]
    sync = instance.times.sync_s[n, k]
    tasks = instance.tasks.astype(np.float64)
    arrival, rounds, short = instance.arrival_s, instance.rounds, instance.shortest_round_s
    length = np.diff(grid)
    begins = np.maximum(grid[q], arrival[n])
    rest = np.clip(grid[1:] - np.maximum(grid[:-1], arrival[:, None]), 0.0, None)
    z, c = np.arange(count), count + np.arange(jobs)

    rows = Rows()
    rows.add(n, z, 1.0, np.ones(jobs), 1.0)
    load = tasks[n] * train
    gpus = instance.gpus.astype(np.float64)
    room = (gpus[:, None] * length).ravel()
    # Both sides by what is there: rows of long intervals and of short ones alike.
    at = k * intervals + q
    rows.add(at, z, load / room[at], -np.inf, np.ones(len(room)))
    own = (instance.scale[:, None] * rest).ravel()
    at = n * intervals + q
    full = np.where(own > 0, own, 1.0)
    rows.add(at, z, load / full[at], -np.inf, np.ones(len(own)))
    most = (instance.scale[:, None] * (rest / short[:, None] + 2.0)).ravel() / np.repeat(
        tasks, intervals
    )
    binding = most < 1.0
    where = np.cumsum(binding) - 1
    chosen = binding[at]
    rows.add(where[at[chosen]], z[chosen], 1.0, -np.inf, most[binding])
    after = (rounds - 1) * short / 2.0
    with_c = np.concatenate([n, np.arange(jobs)]), np.concatenate([z, c])
    middle = np.concatenate([-(begins + train / 2.0 + sync), np.ones(jobs)])
    rows.add(*with_c, middle, after, np.inf)
    alone = np.concatenate([-rounds[n] * (train + sync), np.ones(jobs)])
    rows.add(*with_c, alone, arrival, np.inf)
    return Program(
        cost=np.concatenate([np.zeros(count), instance.weight]),
        lower=np.concatenate([np.zeros(count), arrival + rounds * short]),
        upper=np.concatenate([np.ones(count), latest]),
        matrix=rows.matrix(),
        row_lower=rows.lower,
        row_upper=rows.upper,
    )
