"""Sia: each round an integer programme over (GPU type, count) for all jobs.

Source: Jayaram Subramanya, Arfeen, Lin, Qiao, Jia, Ganger, "Sia: Heterogeneity-aware,
goodput-optimized ML-cluster scheduling", SOSP '23, section 3.4, with the parameters of the
published code. With G_ij the goodput of job i under configuration j, relative to the job's least
and times its fewest GPUs, the choice A of a round minimises, for p < 0,

    sum_i [ sum_j A_ij ((r_ij G_ij)^p + change_ij) + lambda (1 - sum_j A_ij) ]

with at most one configuration for each job and no more GPUs of a type than there are. Where j is
not what a running job has, r_ij is its restart factor (T - restarts x S) / (T + S), T seconds after
its first start with S seconds for a restart, and change_ij is 0.01; else they are 1 and 0.

It knows speeds by GPU type and count, and no sizes.

Deviations. Goodput is throughput here: batch sizes are the users'. Configurations are the counts of
the requirement set, on one type, where the paper has powers of two up to a node and then whole
nodes; a job that finds no room on the nodes for its choice waits, or takes other room that is left.
Estimates are used as given; Sia starts every job on one GPU to learn them. S is the restart cost of
the job; the published code has a constant for each model. That code sets change_ij aside and rounds
each term to two digits; here it is as described. Jobs that are not preemptible keep what they have.
The solver's work is limited; where it runs out, what runs stays and others come in turn, if that is
better than what it has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hetsched_core.errors import InputError
from hetsched_core.optimize import Limits, Program, Rows, Solution, SolverStatus, solve
from hetsched_core.placement.entries import behind, plan_placing
from hetsched_core.placement.keep import immovable, present
from hetsched_core.placement.one_type import OneTypeChoice, assign
from hetsched_core.placement.pools import Pools
from hetsched_core.placement.ways import Way, type_speeds, ways_to_fit
from hetsched_core.policy import PolicyInfo, parameter
from hetsched_core.site import wanted_gpus, weights
from hetsched_core.types import (
    Configuration,
    Diagnostics,
    Job,
    JobView,
    Plan,
    Replan,
    Snapshot,
    Trigger,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LEAST = {"change": 0, "gap": 0, "nodes": 1}

MOST_WORK = 1_000_000
"""Work of the solver in a plan, as in `Limits`: some 1 s, and 3 s with 6,000 configurations.

A programme for 2,048 jobs without a like would take it many times that.
"""

_FEW_COLUMNS = 100
"""Below it the solver's presolve is worth its time; above, it finds nothing to leave out."""


@dataclass(frozen=True, slots=True, eq=False)
class SiaOptions:
    """The K configurations that a job could get.

    Attributes:
        gain: (K,) goodput, 1 or more.
        use: (K, P) GPUs that it takes of each of P pools: GPU types, say.
    """

    gain: Floats
    use: Ints


@dataclass(frozen=True, slots=True, eq=False)
class PricedOptions:
    """Configurations (`use`, (K, P)) and what each adds to the objective (`cost`, (K,)).

    `stays` is the one that the job has; None if that is none of them.
    """

    cost: Floats
    use: Ints
    stays: int | None = None


@dataclass(frozen=True)
class Sia:
    """The best configurations for all jobs together, chosen anew each round."""

    p: float = parameter(-0.5, "fairness power, below 0: nearer to 0 favours the sum of goodputs")
    leave_out: float = parameter(1.1, "cost of leaving a job out (lambda)")
    change: float = parameter(0.01, "cost of changing what a running job has")
    gap: float = parameter(1e-4, "relative gap at which a solution is good enough")
    nodes: int = parameter(
        1000, "branch-and-bound nodes after which the best solution found counts"
    )

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="sia",
        summary="an integer programme over GPU types and counts of all jobs, in rounds",
        paper="Sia (Jayaram Subramanya et al., SOSP '23, section 3.4)",
    )

    def __post_init__(self) -> None:
        """Refuse numbers that leave the programme, or the solver, without a meaning."""
        if not -math.inf < self.p < 0:
            raise InputError(f"sia.p={self.p} is not a number below 0; for example -0.5")
        if not 0 < self.leave_out < math.inf:
            raise InputError(f"sia.leave_out={self.leave_out} is not a number above 0; say 1.1")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not least <= value < math.inf:
                raise InputError(f"sia.{name}={value} is not a number of at least {least}")

    def plan(self, snapshot: Snapshot) -> Plan:
        """Solve the round's programme and find nodes for what it chose."""
        fixed = immovable(snapshot)
        types = snapshot.cluster.gpu_types
        views: list[JobView] = []
        priced: list[PricedOptions] = []
        kinds: dict[tuple[int, frozenset[str]], tuple[tuple[Way, ...], SiaOptions]] = {}
        able = [
            view
            for view in snapshot.by_submission()
            if view.blocked is None and view.id not in fixed
        ]
        pools = Pools.of(snapshot, fixed, (view.job for view in able))
        for view in able:
            ways = ways_to_fit(view.job, snapshot.cluster, snapshot.speeds, snapshot.shapes)
            # Jobs of one kind get the same object.
            kind = id(ways), view.job.closed
            if kind not in kinds:
                kinds[kind] = ways, options_of(snapshot, view.job, ways, pools)
            options = kinds[kind][1]
            if len(options.gain):
                views.append(view)
                priced.append(self._price(snapshot, pools, view, options))
        priced = self._weighted(snapshot, views, priced)
        chosen, diagnostics = choose(
            priced, pools.capacity, self.leave_out, Limits(self.gap, self.nodes, work=MOST_WORK)
        )

        def choice(job: int, option: int) -> OneTypeChoice:
            # Its pool and others that have it in them, of which the type itself comes first.
            pool = int(priced[job].use[option].argmax())
            return OneTypeChoice(views[job], types[pool], int(priced[job].use[option, pool]))

        placed = assign(
            snapshot,
            fixed,
            [choice(job, k) for job, k in enumerate(chosen) if k is not None],
            (choice(job, int(k)) for job, mine in enumerate(priced) for k in np.argsort(mine.cost)),
        )
        return plan_placing(
            snapshot,
            placed,
            behind,
            Replan(on=frozenset({Trigger.ROUND, Trigger.NODE})),
            diagnostics=diagnostics,
        )

    def _weighted(
        self, snapshot: Snapshot, views: Sequence[JobView], priced: Sequence[PricedOptions]
    ) -> list[PricedOptions]:
        """Return the options by the site's word: jobs beyond what is due to a user gain less.

        Within it those come first of which the programme has most for a GPU.
        """
        types = len(snapshot.cluster.gpu_types)
        gpus = [each.use[:, :types].sum(axis=1) for each in priced]
        worth = [(self.leave_out - each.cost) / n for each, n in zip(priced, gpus, strict=True)]
        best = [int(each.argmax()) for each in worth]
        wanted = {view.id: float(n[k]) for view, n, k in zip(views, gpus, best, strict=True)}
        order = sorted(range(len(views)), key=lambda at: -worth[at][best[at]])
        due = weights(
            snapshot,
            [views[at] for at in order],
            wanted=lambda view: wanted.get(view.id, wanted_gpus(view)),
        )
        found = list(priced)
        for at, weight in zip(order, due.tolist(), strict=True):
            if weight != 1.0:
                cost = self.leave_out - weight * (self.leave_out - priced[at].cost)
                found[at] = replace(priced[at], cost=cost)
        return found

    def _price(
        self, snapshot: Snapshot, pools: Pools, view: JobView, options: SiaOptions
    ) -> PricedOptions:
        """Return what each configuration adds to the objective for this job."""
        cost = options.gain**self.p
        has = present(snapshot, view)
        if has is None:
            return PricedOptions(cost, options.use)
        moved = np.full(len(cost), math.inf)
        factor = restart_factor(view, snapshot.now)
        if factor > 0:
            moved = (factor * options.gain) ** self.p
        types = len(pools.gpu_types)
        stays = (options.use[:, :types] == _held(snapshot, pools.gpu_types, has)).all(axis=1)
        # To be left out is a change, too: what is spared by staying, beside all other choices.
        at = int(stays.argmax()) if stays.any() else None
        return PricedOptions(np.where(stays, cost - self.change, moved), options.use, at)


def restart_factor(view: JobView, now: float) -> float:
    """Return r_i = max(0, T - restarts x S) / (T + S) of a job that has run for T seconds or less.

    Time since the first start counts, whether the job ran or waited.
    """
    started_s, cost_s = view.started_at(now), view.restart_cost_s
    if started_s is None:
        return 1.0
    lived_s = now - started_s
    if lived_s + cost_s <= 0:
        return 1.0
    return max(0.0, lived_s - view.restarts * cost_s) / (lived_s + cost_s)


def options_of(snapshot: Snapshot, job: Job, ways: Sequence[Way], pools: Pools) -> SiaOptions:
    """Return the configurations of one GPU type: each count on each type that holds it."""
    own = pools.own(job)
    goodputs, counts, taken = [], [], []
    for way in ways:
        speeds = type_speeds(snapshot.cluster, snapshot.speeds, job, way)
        for gpu_type in way.types if not way.mixed else ():
            at = pools.gpu_types.index(gpu_type)
            if own[at] >= 0:
                goodputs.append(speeds[at])
                counts.append(way.count)
                taken.append(own[at])
    if not goodputs:
        return SiaOptions(np.zeros(0), np.zeros((0, len(pools.capacity)), np.int64))
    fewest = min(way.count for way in ways if not way.mixed)
    use = np.array(counts, np.int64)[:, None] * pools.inside[taken]
    return SiaOptions(fewest * np.array(goodputs) / min(goodputs), use)


def choose(
    priced: Sequence[PricedOptions], capacity: Floats, leave_out: float, limits: Limits
) -> tuple[list[int | None], Diagnostics]:
    """Choose at most one configuration for each job so that the costs add up to the least.

    Args:
        priced: what each job could get and at what cost.
        capacity: (P,) GPUs of each pool.
        leave_out: the cost of giving a job nothing.
        limits: how far to solve.

    Returns:
        The configuration of each job, None for none, and how they were found.
    """
    groups: dict[tuple[bytes, bytes], list[int]] = {}
    for job, mine in enumerate(priced):
        groups.setdefault((mine.cost.tobytes(), mine.use.tobytes()), []).append(job)
    members = list(groups.values())
    # Columns: a group's configuration, as many times as the group has jobs to take it.
    columns = [
        (at, k)
        for at, jobs in enumerate(members)
        for k in _worthwhile(priced[jobs[0]], capacity, leave_out)
    ]
    worst = leave_out * len(priced)
    if not columns:
        found = Solution(status=SolverStatus.OPTIMAL, objective=0.0, bound=0.0, gap=0.0)
        times = np.zeros(0, np.int64)
    else:
        program = _program(priced, members, columns, capacity, leave_out)
        found = solve(program, limits=limits, presolve=len(columns) < _FEW_COLUMNS)
        if found.x is None or "work" in found.limits:
            times = in_turn(priced, members, columns, program.cost, capacity)
            found = _no_worse(found, program, times)
        assert found.x is not None
        times = np.rint(found.x).astype(int)
    configurations: list[int | None] = [None] * len(priced)
    # Those that came first get the better ones of equal claims.
    taken: list[list[int]] = [[] for _ in members]
    for (at, k), many in zip(columns, times.tolist(), strict=True):
        taken[at] += [k] * many
    for jobs, ks in zip(members, taken, strict=True):
        by_cost = sorted(ks, key=lambda k, mine=priced[jobs[0]]: (mine.cost[k], k))  # type: ignore[misc]
        for job, k in zip(jobs, by_cost, strict=False):
            configurations[job] = k
    return configurations, Diagnostics(
        method="integer programme",
        objective=None if found.objective is None else worst + found.objective,
        bound=None if found.bound is None else worst + found.bound,
        gap=found.gap,
        limits=found.limits,
    )


def in_turn(
    priced: Sequence[PricedOptions],
    members: Sequence[Sequence[int]],
    columns: Sequence[tuple[int, int]],
    cost: Floats,
    capacity: Floats,
) -> Ints:
    """Return how often each column is taken where what runs stays and others come in turn.

    The job that gains most for a GPU comes first. Then jobs take more, where more is left.

    Args:
        priced: what each job could get.
        members: the jobs of each group, which have the same options.
        columns: group and option of each of C columns, group by group.
        cost: (C,) what each adds to the objective, below 0.
        capacity: (P,) GPUs of each pool.
    """
    group = np.array([at for at, _ in columns])
    first = np.searchsorted(group, np.arange(len(members) + 1))
    use = np.array([priced[members[at][0]].use[k] for at, k in columns])
    times, waiting = np.zeros(len(columns), np.int64), np.array([len(jobs) for jobs in members])
    left = capacity.astype(np.int64)

    def fit(more: Ints, jobs: int) -> int:
        """How many of these jobs can have so much more."""
        need = more > 0
        return int(np.append(left[need] // more[need], jobs).clip(0, jobs).min())

    def take(column: int, many: int) -> None:
        times[column] += many
        waiting[group[column]] -= many
        left[:] -= many * use[column]

    for at, jobs in enumerate(members):
        own = np.arange(first[at], first[at + 1])
        for job in jobs:
            stays = priced[job].stays
            if stays is None:
                continue
            # Its own column is left out where one that takes no more costs less.
            alike = own[(use[own] <= priced[job].use[stays]).all(axis=1)]
            if len(alike):
                best = int(alike[cost[alike].argmin()])
                take(best, fit(use[best], 1))
    for column in np.argsort(cost / use.max(axis=1), kind="stable").tolist():
        take(column, fit(use[column], int(waiting[group[column]])))
    for column in np.argsort(cost, kind="stable").tolist():
        own = np.arange(first[group[column]], first[group[column] + 1])
        for less in own[(cost[own] > cost[column]) & (times[own] > 0)].tolist():
            many = fit(use[column] - use[less], int(times[less]))
            take(less, -many)
            take(column, many)
    return times


def _no_worse(found: Solution, program: Program, times: Ints) -> Solution:
    """Return a solution of a programme to which there was a limit, or another if that is better."""
    objective = float(program.cost @ times)
    # A last digit decides nothing: it may be another one on another processor.
    if found.objective is not None and found.objective <= objective + 1e-9 * abs(objective):
        return found
    gap = None
    if found.bound is not None:
        gap = abs(objective - found.bound) / max(abs(objective), 1e-9)
    x = times.astype(np.float64)
    return replace(found, status=SolverStatus.FEASIBLE, x=x, objective=objective, gap=gap)


def _worthwhile(mine: PricedOptions, capacity: Floats, leave_out: float) -> list[int]:
    """Configurations that fit, cost less than being left out, and that no other beats outright."""
    able = np.flatnonzero((mine.cost < leave_out) & (mine.use <= capacity).all(axis=1))
    # In this order no job is beaten by one that comes later.
    able = able[np.lexsort((mine.use[able].sum(axis=1), mine.cost[able]))]
    use = mine.use[able]
    beaten = (use[None, :, :] <= use[:, None, :]).all(axis=2)
    return sorted(able[~np.tril(beaten, -1).any(axis=1)].tolist())


def _program(
    priced: Sequence[PricedOptions],
    members: Sequence[Sequence[int]],
    columns: Sequence[tuple[int, int]],
    capacity: Floats,
    leave_out: float,
) -> Program:
    sizes = np.array([len(jobs) for jobs in members], np.float64)
    group = np.array([at for at, _ in columns])
    use = np.array([priced[members[at][0]].use[k] for at, k in columns], np.float64)
    column, pool = np.nonzero(use)
    rows = Rows()
    rows.add(group, np.arange(len(columns)), 1.0, -np.inf, sizes)
    rows.add(pool, column, use[column, pool], -np.inf, capacity)
    return Program(
        cost=np.array([priced[members[at][0]].cost[k] for at, k in columns]) - leave_out,
        lower=np.zeros(len(columns)),
        upper=sizes[group],
        matrix=rows.matrix(),
        row_lower=rows.lower,
        row_upper=rows.upper,
        integer=np.ones(len(columns), np.bool_),
    )


def _held(snapshot: Snapshot, types: Sequence[str], has: Configuration) -> list[int]:
    """GPUs of each type in a configuration."""
    held = dict.fromkeys(types, 0)
    for name, gpus in has:
        held[snapshot.cluster[name].gpu_type] += gpus
    return list(held.values())
