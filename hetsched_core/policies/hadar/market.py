"""A snapshot as the arrays that Hadar's queue is planned from: which jobs bid, for which nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsched_core.kernels.payoff import MOST_LOST, Market
from hetsched_core.placement import Way
from hetsched_core.placement.pools import set_order
from hetsched_core.policies.hadar.prices import PricedJobs, UtilityOf, price_bounds
from hetsched_core.policies.hadar.queue import PLENTY, Nodes
from hetsched_core.types import Configuration, Job, JobView, Placed, Shape, Snapshot

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class OpenNodes:
    """The nodes that take new work, and how fast each is.

    Attributes:
        nodes: their state.
        names: (N,) their names.
        gpu_types: the cluster's GPU types.
        type_of_sort: (S,) the type of each sort of node.
        factors: for each sort, profile -> speed relative to its type, where that is not 1.
        example: for each sort, the name of one of its nodes.
    """

    nodes: Nodes
    names: tuple[str, ...]
    gpu_types: tuple[str, ...]
    type_of_sort: Ints
    factors: tuple[Mapping[str, float], ...]
    example: tuple[str, ...]

    @classmethod
    def of(cls, snapshot: Snapshot, kept: Mapping[str, Placed], jobs: Sequence[Job]) -> OpenNodes:
        """Return the nodes that are open and have a GPU, less what is `kept`.

        Nodes of one type on which a profile of the jobs has a speed of its own, or of which not the
        same jobs may have GPUs, are sorts of their own.
        """
        profiles = sorted({job.profile for job in jobs})
        limited = sorted({(job.nodes, job.closed) for job in jobs}, key=set_order)
        masks = [snapshot.cluster.mask(*which) for which in limited]
        types = snapshot.cluster.gpu_types
        used = _used(snapshot, kept)
        factor: dict[str, dict[str, float]] = {}
        for profile in profiles:
            for name, value in snapshot.speeds.table(profile).node_factor.items():
                if value != 1.0:
                    factor.setdefault(name, {})[profile] = value
        sorts: dict[tuple[int, tuple[tuple[str, float], ...], tuple[int, ...]], int] = {}
        rows, names = [], []
        example: list[str] = []
        for at, view in enumerate(snapshot.node_views()):
            node = view.node
            if not view.open or view.capacity < 1:
                continue
            own = tuple(sorted(factor.get(node.name, {}).items()))
            held_by = tuple(mask >> at & 1 for mask in masks)
            sort = sorts.setdefault((types.index(node.gpu_type), own, held_by), len(sorts))
            if sort == len(example):
                example.append(node.name)
            gpus, cpus, memory_mb = used.get(node.name, (0, 0.0, 0.0))
            names.append(node.name)
            rows.append(
                (
                    sort,
                    view.capacity,
                    gpus,
                    node.cpus - view.foreign_cpus - cpus if node.cpus else PLENTY,
                    node.memory_mb - view.foreign_memory_mb - memory_mb
                    if node.memory_mb
                    else PLENTY,
                )
            )
        columns = np.array(rows, np.float64).reshape(-1, 5).T
        sort_, capacity, used_ = columns[:3].astype(np.int64)
        return cls(
            Nodes(sort_, capacity, np.minimum(used_, capacity), columns[3], columns[4]),
            tuple(names),
            types,
            np.array([at for at, _, _ in sorts], np.int64),
            tuple(dict(own) for _, own, _ in sorts),
            tuple(example),
        )


def _used(snapshot: Snapshot, kept: Mapping[str, Placed]) -> dict[str, tuple[int, float, float]]:
    """GPUs, CPUs and MiB of each node that stay with their jobs."""
    used: dict[str, tuple[int, float, float]] = {}
    for job_id, placed in kept.items():
        job = snapshot.jobs[job_id].job
        for name, gpus in placed.placements[0].configuration:
            before = used.get(name, (0, 0.0, 0.0))
            used[name] = (
                before[0] + gpus,
                before[1] + gpus * job.cpus_per_gpu,
                before[2] + gpus * job.memory_mb_per_gpu,
            )
    return used


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """What jobs of one kind (profile, GPUs, types, needs) have in common: K kinds.

    Attributes:
        rates: (K, R) samples/s per GPU by type.
        one_node: (K, S) samples/s per GPU with all GPUs on one node of each sort.
        several: (K, S) the same over several nodes.
        pools: (K, P) sets of GPU types to spread over, as bits.
        extra: (K,) share of utility that each further node costs.
    """

    rates: Floats
    one_node: Floats
    several: Floats
    pools: Ints
    extra: Floats

    @classmethod
    def of(
        cls, snapshot: Snapshot, nodes: OpenNodes, jobs: Sequence[tuple[Job, Way]], lost: float
    ) -> Kinds:
        """Return the kinds of these jobs; where speeds say nothing, a node more costs `lost`."""
        types = nodes.gpu_types
        most_pools = max(1, 2 * len(types) - 1)
        rates = np.zeros((len(jobs), len(types)))
        far = np.zeros_like(rates)
        pools = np.zeros((len(jobs), most_pools), np.int64)
        for at, (job, way) in enumerate(jobs):
            for column, gpu_type in enumerate(types):
                if job.accepts_type(gpu_type) and (job.nodes is None or gpu_type in way.types):
                    rates[at, column] = snapshot.speeds.per_gpu(job.profile, gpu_type, way.count)
                    far[at, column] = snapshot.speeds.per_gpu(
                        job.profile, gpu_type, way.count, nodes=2
                    )
            mine = _pools(far[at], snapshot.shapes_for(job), way.count)
            pools[at, : len(mine)] = mine
        near = rates[:, nodes.type_of_sort]
        several = far[:, nodes.type_of_sort]
        for at, (job, _) in enumerate(jobs):
            own = [factor.get(job.profile, 1.0) for factor in nodes.factors]
            own = [
                factor if job.may_start_on(name) else 0.0
                for factor, name in zip(own, nodes.example, strict=True)
            ]
            near[at] *= own
            several[at] *= own
        silent = (rates == far).all(axis=1)
        return cls(rates, near, several, pools, np.where(silent, lost, 0.0))


def _pools(rates: Floats, shapes: frozenset[Shape], count: int) -> list[int]:
    """Sets of GPU types to spread over: each alone, then the fastest 2, 3, ... together."""
    if count < 2 or Shape.EVEN not in shapes:
        return []
    fastest = [int(t) for t in np.argsort(-rates, kind="stable") if rates[t] > 0]
    pools = [1 << t for t in fastest]
    if Shape.MIXED_TYPES in shapes:
        together = pools[0] if pools else 0
        for single in pools[1 : len(fastest)]:
            together |= single
            pools = [*pools, together]
    return pools


def bids(
    snapshot: Snapshot,
    nodes: OpenNodes,
    jobs: Sequence[tuple[JobView, Way]],
    has: Mapping[int, Configuration],
    utility: UtilityOf,
    communication: float,
) -> Market:
    """Return what the active jobs that can run want of the open nodes, a row for each job.

    All that can run, since prices depend on those that run, too.

    Args:
        snapshot: the state.
        nodes: the open nodes.
        jobs: at least one job, and the way in which it runs.
        has: what jobs have that they may keep without a restart, by their place in `jobs`.
        utility: what a job is worth.
        communication: share of utility that each further node costs where speeds say nothing.
    """
    kind_of: dict[tuple[int, frozenset[str]], int] = {}
    examples: list[tuple[Job, Way]] = []
    for view, way in jobs:
        # Jobs of one kind share the way.
        which = id(way), view.job.closed
        if kind_of.setdefault(which, len(examples)) == len(examples):
            examples.append((view.job, way))
    kinds = Kinds.of(snapshot, nodes, examples, communication)
    kind = np.array([kind_of[id(way), view.job.closed] for view, way in jobs], np.int64)
    gpus = np.array([way.count for _, way in jobs], np.int64)
    fastest = (kinds.rates.max(axis=1)[kind] * gpus).tolist()
    work, left, aged_s, delay_s = np.array(
        [_size(view, fast, snapshot) for (view, _), fast in zip(jobs, fastest, strict=True)]
    ).T
    priced = PricedJobs(work, gpus.astype(np.float64), kinds.rates[kind])
    # Within it all of them would end at their slowest, those that do not fit beside others too.
    horizon_s = float((priced.longest_s * gpus).sum()) / snapshot.cluster.gpus
    horizon_s += float(priced.longest_s.max())
    # Below one slot U_min could be above what any job is worth, and no job would ever run.
    slot_s = snapshot.round.end_s - snapshot.round.start_s
    horizon_s = max(horizon_s, slot_s)
    bounds = price_bounds(
        priced,
        utility,
        gpus=snapshot.cluster.gpus,
        horizon_s=horizon_s,
        until_horizon_s=aged_s + horizon_s,
        slot_s=slot_s,
    )

    def worth(rates: Floats, delay_s: Floats) -> Floats:
        """Utilities, (J, S), at these rates per GPU after this delay."""
        with np.errstate(divide="ignore"):
            run_s = left[:, None] / (rates * gpus[:, None])
        return np.where(rates > 0, utility(priced, aged_s[:, None] + delay_s + run_s), 0.0)

    stays, stay_from, present = _stays(snapshot, nodes, jobs, has)
    extra = kinds.extra[kind]
    stay_utility = worth((present[:, 0] / gpus)[:, None], np.zeros((len(jobs), 1)))[:, 0]
    stay_utility *= 1.0 - np.minimum(extra * present[:, 1], MOST_LOST)
    types = nodes.type_of_sort
    return Market(
        demand=np.column_stack(
            (
                gpus,
                stay_from[:-1],
                stay_from[1:],
                [view.job.min_nodes for view, _ in jobs],
                [view.job.max_nodes or way.count for view, way in jobs],
            )
        ),
        needs=np.array(
            [
                (view.job.cpus_per_gpu, view.job.memory_mb_per_gpu, lost)
                for (view, _), lost in zip(jobs, extra.tolist(), strict=True)
            ]
        ),
        one_node=worth(kinds.one_node[kind], delay_s[:, None]),
        several=worth(kinds.several[kind], delay_s[:, None]),
        pools=kinds.pools[kind],
        stays=stays,
        stay_utility=stay_utility,
        type_of_sort=types,
        lowest=bounds.lowest[types],
        highest=bounds.highest[types],
        even=Shape.UNEVEN not in snapshot.shapes,
    )


def _size(view: JobView, fastest: float, snapshot: Snapshot) -> tuple[float, float, float, float]:
    """Samples in all and left, seconds since submission, and what a start costs.

    A job of unknown size lasts at its fastest for as long as past runs of its profile, else for its
    time limit, else as long as it has run.
    """
    done, total = view.samples_at(snapshot.now), view.job.total_samples
    if total is None:
        run_s = snapshot.ended.mean_run_s(view.job.profile)
        run_s = view.job.time_limit_s if run_s is None else run_s
        total = None if run_s is None else run_s * fastest
    # What takes less than a second at its fastest makes no difference.
    left = max(done if total is None else total - done, fastest)
    delay_s = 0.0 if view.started_at(snapshot.now) is None else view.restart_cost_s
    return max(done + left, total or 0.0), left, snapshot.now - view.job.submit_s, delay_s


def _stays(
    snapshot: Snapshot,
    nodes: OpenNodes,
    jobs: Sequence[tuple[JobView, Way]],
    has: Mapping[int, Configuration],
) -> tuple[Ints, Ints, Floats]:
    """(node, GPUs) of what jobs have; where each job's begin; its speed there and further nodes."""
    at_node = {name: at for at, name in enumerate(nodes.names)}
    stays: list[tuple[int, int]] = []
    begin = [0]
    present = np.zeros((len(jobs), 2))
    for at, (view, _) in enumerate(jobs):
        configuration = has.get(at)
        if configuration is not None:
            stays += [(at_node[name], gpus) for name, gpus in configuration]
            speed = snapshot.speeds.speed(view.job.profile, configuration)
            present[at] = speed, len(configuration) - 1
        begin.append(len(stays))
    return np.array(stays, np.int64).reshape(-1, 2), np.array(begin, np.int64), present
