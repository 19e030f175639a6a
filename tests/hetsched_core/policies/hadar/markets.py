"""Small markets for tests of Hadar's queue."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

from hetsched_core.kernels.payoff import Market
from hetsched_core.policies.hadar.queue import PLENTY, Nodes


def nodes_of(sorts: Sequence[int], capacity: Sequence[int], used: Sequence[int] = ()) -> Nodes:
    """Build nodes without CPUs or memory to count."""
    size = len(sorts)
    return Nodes(
        np.array(sorts, np.int64),
        np.array(capacity, np.int64),
        np.array(used or [0] * size, np.int64),
        np.full(size, PLENTY),
        np.full(size, PLENTY),
    )


def market_of(
    gpus: Sequence[int],
    utility: Sequence[Sequence[float]],
    *,
    lowest: Sequence[float],
    highest: Sequence[float],
    extra: float = 0.1,
    spread: float = 1.0,
    needs: Sequence[tuple[float, float]] = (),
    mixed: bool = True,
    even: bool = False,
) -> Market:
    """Build a market of jobs with `utility` (J, S) on one node and `spread` times it on several.

    Every sort is a GPU type of its own; jobs spread over each, then over their best 2, 3, ....
    """
    one_node = np.array(utility, np.float64)
    jobs, sorts = one_node.shape
    pools = np.zeros((jobs, 2 * sorts - 1), np.int64)
    for job in range(jobs):
        fastest = [int(s) for s in np.argsort(-one_node[job], kind="stable") if one_node[job, s]]
        mine = [1 << s for s in fastest]
        if mixed:
            mine += [sum(1 << s for s in fastest[:n]) for n in range(2, len(fastest) + 1)]
        pools[job, : len(mine)] = mine
    return Market(
        demand=np.column_stack(
            (np.array(gpus, np.int64), np.tile([0, 0, 1], (jobs, 1)), np.array(gpus, np.int64))
        ),
        needs=np.array([(*(needs[j] if needs else (0.0, 0.0)), extra) for j in range(jobs)]),
        one_node=one_node,
        several=spread * one_node,
        pools=pools,
        stays=np.zeros((0, 2), np.int64),
        stay_utility=np.zeros(jobs),
        type_of_sort=np.arange(sorts),
        lowest=np.array(lowest, np.float64),
        highest=np.array(highest, np.float64),
        even=even,
    )


def random_market(rng: Random, jobs: int, nodes: int, **options: bool) -> tuple[Nodes, Market]:
    """Draw a small market in which no two GPU types cost the same.

    Nodes of one type are of one size, so that no two different nodes ever cost the same.
    """
    sorts = rng.randint(1, 3)
    size = [rng.choice((1, 2, 3, 4)) for _ in range(sorts)]
    sort = [rng.randrange(sorts) for _ in range(nodes)]
    used = [rng.choice((0, 0, rng.randint(0, size[s]))) for s in sort]
    lowest = [rng.uniform(0.01, 1.0) for _ in range(sorts)]
    utility = [[rng.uniform(1.0, 20.0) for _ in range(sorts)] for _ in range(jobs)]
    for row in utility:
        if sorts > 1 and rng.random() < 0.2:
            row[rng.randrange(sorts)] = 0.0
    market = market_of(
        [rng.choice((1, 1, 2, 3, 4)) for _ in range(jobs)],
        utility,
        lowest=lowest,
        highest=[low * rng.uniform(1.0, 1000.0) for low in lowest],
        extra=rng.choice((0.0, 0.1, 0.4)),
        spread=rng.uniform(0.6, 1.0),
        needs=[(rng.choice((0.0, 1.5)), rng.choice((0.0, 0.0, 8.0)))] * jobs,
        **options,
    )
    # Often too little for all GPUs of a node.
    cpus, memory_mb = (
        np.array([rng.choice((0.6, 1.0, 2.5)) * share * size[s] for s in range(sorts)])[sort]
        for share in (1.5, 8.0)
    )
    return Nodes(np.array(sort), np.array(size)[sort], np.array(used), cpus, memory_mb), market
