"""Gavel's programmes: how large a share of its time each job gets on each GPU type.

Source: Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
Workloads", OSDI '20, sections 4.1 and 4.2. All objectives have the constraints of section 3.1,

    0 <= x_ij,   sum_j x_ij <= 1 for every job i,   sum_i c_i x_ij <= N_j for every type j,

where c_i is the number of GPUs of job i and N_j that of type j. Jobs that look alike to a programme
are one group in it and share equally, which leaves the optimum as it is and the programme small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from hetsched_core.optimize import Point, Program, Rows, Solution, SolverStatus, solve

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_CLOSE = 1e-5
_MOST_STEPS = 60


@dataclass(frozen=True, slots=True, eq=False)
class GavelDemand:
    """What competes, for I jobs and J GPU types.

    Where jobs are limited to some nodes, what stands for J types are J pools of GPUs, each the
    nodes of one type that some jobs may use (`hetsched_core.placement.pools`).

    Attributes:
        speeds: (I, J) samples/s of the whole job; 0 where it cannot run. Every job runs somewhere.
        counts: (I,) GPUs.
        capacity: (J,) GPUs.
        inside: (J, J) whether all of a pool (row) is in another (column).
        own: (I, J) whether a pool is the job's own of its type.
    """

    speeds: Floats
    counts: Floats
    capacity: Floats
    inside: Bools | None = None
    own: Bools | None = None

    def portions(self) -> Floats:
        """Return (I, J) or (J,) the parts that pools have of all GPUs that a job may use."""
        if self.own is None:
            return np.asarray(self.capacity / self.capacity.sum())
        gpus = np.where(self.own, self.capacity, 0.0)
        return np.asarray(gpus / np.maximum(gpus.sum(axis=1, keepdims=True), 1e-9))


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """The answer of a programme.

    Attributes:
        time: (I, J) share of its time that each job is to run on each type.
        objective: what was optimised, in the objective's own terms.
        prices: (J,) what one more GPU of each type would add to the programme's optimum.
    """

    time: Floats
    objective: float
    prices: Floats


def max_min_fairness(demand: GavelDemand, weights: Floats, point: Point) -> Shares:
    """Maximise the least normalised effective throughput (section 4.1).

    min_i (c_i / w_i) sum_j T_ij x_ij / throughput_i(X_equal), where X_equal gives every job each
    type in proportion to its number of GPUs. `weights`: (I,) positive.
    """
    portions = demand.portions()
    equal = demand.speeds @ portions if portions.ndim == 1 else (demand.speeds * portions).sum(1)
    normal = demand.speeds * (demand.counts / (weights * equal))[:, None]
    return _largest_ratio(demand, normal, np.ones(len(weights)), point)[0]


def total_throughput(demand: GavelDemand, point: Point) -> Shares:
    """Maximise the sum of all jobs' samples/s (section 4.2, "maximize throughput")."""
    groups = _Groups.of(demand.speeds, demand.counts[:, None])
    speeds = demand.speeds[groups.first]
    scale = speeds.max()
    layout = _Layout.of(speeds, demand, groups)
    solution = solve(layout.program(speeds.ravel()[layout.pairs] / scale), point, presolve=False)
    return layout.shares(solution, groups, scale)


def makespan(demand: GavelDemand, remaining: Floats, point: Point) -> Shares:
    """Minimise the time until the last of the present jobs ends (section 4.2).

    The least T with sum_j T_ij x_ij >= remaining_i / T, as a maximum of 1/T; the objective is T in
    seconds. `remaining`: (I,) samples, positive.
    """
    found, _ = _largest_ratio(demand, demand.speeds, remaining, point)
    return Shares(found.time, 1.0 / found.objective, found.prices)


def finish_time_fairness(
    demand: GavelDemand, remaining: Floats, elapsed_s: Floats, isolated_s: Floats, point: Point
) -> Shares:
    """Minimise the worst ratio of finish times, shared to isolated (section 4.2, after Themis).

    rho_i = (elapsed_i + remaining_i / sum_j T_ij x_ij)
            / (isolated_i + remaining_i / throughput_i(X_isolated)).

    rho is not linear in x, but "rho at most r for everybody" is, for a given r: it needs a speed of
    every job. With theta(r) the largest multiple of these speeds that all can have at once, the
    least r has theta = 1. The duals at one r bound theta at every other, and no r can do at which
    the bound is below 1. So r starts too small and rises to where the bound is 1, until the shares
    that were found are proven to be within 1e-5 of the best.

    Args:
        demand: the jobs and the types.
        remaining: (I,) samples left, positive.
        elapsed_s: (I,) seconds since submission.
        isolated_s: (I,) seconds that the samples done so far would have taken in isolation.
        point: which of several optimal points.
    """
    alone = isolated_s + remaining / isolated_speeds(demand)

    def excess(ratio: float, weights: Floats, theta: float) -> float:
        return float((weights / (ratio * alone - elapsed_s)).sum()) - theta

    # Nobody does better than always on its fastest type.
    ratio = float(((elapsed_s + remaining / demand.speeds.max(axis=1)) / alone).max())
    best, high = None, np.inf
    for _ in range(_MOST_STEPS):
        slack = ratio * alone - elapsed_s
        found, pull = _largest_ratio(demand, demand.speeds, remaining / slack, point)
        # The programme's tolerance may take all its time from a job that needs next to none.
        speeds = np.maximum(
            (demand.speeds * found.time).sum(axis=1), found.objective * remaining / slack
        )
        reached = float(((elapsed_s + remaining / speeds) / alone).max())
        if best is None or reached < high:
            best, high = found, reached
        bound = pull * slack, found.objective
        if high - ratio <= _CLOSE * high or not excess(high, *bound) < 0.0 < excess(ratio, *bound):
            break
        ratio = brentq(excess, ratio, high, args=bound)
    assert best is not None
    return Shares(best.time, high, best.prices)


def isolated_speeds(demand: GavelDemand) -> Floats:
    """Return (I,) samples/s of each job on 1/I of every type (X_isolated)."""
    jobs = len(demand.counts)
    time = demand.capacity[None, :] / jobs / demand.counts[:, None]
    if demand.own is not None:
        time = np.where(demand.own, time, 0.0)
    time /= np.maximum(time.sum(axis=1), 1.0)[:, None]
    return np.asarray((demand.speeds * time).sum(axis=1))


def _largest_ratio(
    demand: GavelDemand, gains: Floats, needs: Floats, point: Point
) -> tuple[Shares, Floats]:
    """Maximise z with sum_j gains_ij x_ij >= needs_i z for every job; z is the objective.

    Also returns (I,) by what share of itself each job's need weighs on z; they sum to 1.
    """
    # Every row is scaled to a largest gain of 1, and z to a largest need of 1.
    most = gains.max(axis=1)
    relative = gains / most[:, None]
    needs = needs / most
    scale = needs.max()
    needs = needs / scale
    groups = _Groups.of(relative, needs[:, None], demand.counts[:, None])
    relative, needs = relative[groups.first], needs[groups.first]
    layout = _Layout.of(relative, demand, groups)
    solution = solve(layout.ratio_program(relative, needs), point, presolve=False)
    shares = layout.shares(solution, groups, 1.0 / scale)
    assert solution.row_duals is not None
    pull = np.abs(solution.row_duals[-len(needs) :]) * needs
    return shares, pull[groups.of_job]


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """Jobs with equal rows: `first` job of each of G groups, `sizes` (G,), and `of_job` (I,)."""

    first: NDArray[np.intp]
    sizes: Floats
    of_job: NDArray[np.intp]

    @classmethod
    def of(cls, *columns: Floats) -> _Groups:
        _, first, of_job, sizes = np.unique(
            np.hstack(columns), axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        return cls(first, sizes.astype(np.float64), of_job.reshape(-1))


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """Columns and rows of a programme over G groups and J types.

    Column p is the summed time share of a group on a type where it runs (`group`, `gpu_type`);
    `pairs` are their places in a flat (G, J) array. Rows: a group has as much time as jobs, a type
    as many GPUs as it has. `uses` are the (column, type) pairs in which a column takes GPUs.
    """

    shape: tuple[int, int]
    pairs: NDArray[np.intp]
    group: NDArray[np.intp]
    gpu_type: NDArray[np.intp]
    counts: Floats
    sizes: Floats
    capacity: Floats
    uses: tuple[NDArray[np.intp], NDArray[np.intp]]

    @classmethod
    def of(cls, gains: Floats, demand: GavelDemand, groups: _Groups) -> _Layout:
        pairs = np.flatnonzero(gains.ravel() > 0)
        group, gpu_type = np.divmod(pairs, gains.shape[1])
        user, used = np.arange(len(pairs)), gpu_type
        if demand.inside is not None:
            user, used = np.nonzero(demand.inside[gpu_type])
        counts = demand.counts[groups.first]
        return cls(
            gains.shape, pairs, group, gpu_type, counts, groups.sizes, demand.capacity, (user, used)
        )

    def rows(self) -> Rows:
        """Return the rows of a programme over columns x and others behind them."""
        user, used = self.uses
        rows = Rows()
        rows.add(self.group, np.arange(len(self.pairs)), 1.0, -np.inf, self.sizes)
        rows.add(used, user, self.counts[self.group[user]], -np.inf, self.capacity)
        return rows

    def program(self, gains: Floats) -> Program:
        """Maximise `gains` @ x, (P,) per column."""
        return _largest(gains, self.rows())

    def ratio_program(self, gains: Floats, needs: Floats) -> Program:
        """Maximise z, the last column, where each group gains `needs` x its size x z."""
        groups, columns = np.arange(self.shape[0]), np.arange(len(self.pairs))
        cost = np.zeros(len(columns) + 1)
        cost[-1] = 1.0
        rows = self.rows()
        rows.add(
            np.concatenate([self.group, groups]),
            np.concatenate([columns, np.full(len(groups), len(columns))]),
            np.concatenate([gains.ravel()[self.pairs], -needs * self.sizes]),
            np.zeros(len(groups)),
            np.inf,
        )
        return _largest(cost, rows)

    def shares(self, solution: Solution, groups: _Groups, scale: float) -> Shares:
        """Return the shares of each job; `scale` turns the programme's units into the objective's.

        Idle time is feasible and everything is bounded, so an optimum exists.
        """
        if (
            solution.status is not SolverStatus.OPTIMAL
            or solution.x is None
            or solution.objective is None
            or solution.row_duals is None
        ):
            raise AssertionError(f"a programme with an optimum was solved as {solution.status}")
        time = np.zeros(self.shape)
        time.ravel()[self.pairs] = np.clip(solution.x[: len(self.pairs)], 0.0, None)
        time /= self.sizes[:, None]
        first = self.shape[0]
        return Shares(
            np.minimum(time, 1.0)[groups.of_job],
            solution.objective * scale,
            solution.row_duals[first : first + self.shape[1]] * scale,
        )


def _largest(cost: Floats, rows: Rows) -> Program:
    """The programme that maximises `cost` @ x over x >= 0."""
    return Program(
        cost=cost,
        lower=np.zeros(len(cost)),
        upper=np.full(len(cost), np.inf),
        matrix=rows.matrix(),
        row_lower=rows.lower,
        row_upper=rows.upper,
        maximise=True,
    )
