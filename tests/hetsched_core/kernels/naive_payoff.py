"""Hadar's FIND_ALLOC and its queue, node by node and vector by vector: the twin of the kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from hetsched_core.kernels.payoff import EXTRA, GPUS, Market
from hetsched_core.policies.hadar.queue import PLENTY, Nodes


@dataclass(frozen=True)
class NaiveNode:
    """One node and what is free on it."""

    sort: int
    capacity: int
    used: int
    cpus: float = PLENTY
    memory_mb: float = PLENTY

    def price(self, market: Market) -> float:
        low, high = float(market.lowest[self.sort]), float(market.highest[self.sort])
        return float(low * (high / low) ** (self.used / self.capacity))

    def usable(self, market: Market, job: int) -> int:
        cpus, memory_mb = market.needs[job, 0], market.needs[job, 1]
        return max(
            n
            for n in range(self.capacity - self.used + 1)
            if n * cpus <= self.cpus + 1e-6 and n * memory_mb <= self.memory_mb + 1e-6
        )

    def loaded(self, market: Market, job: int, gpus: int) -> NaiveNode:
        return replace(
            self,
            used=self.used + gpus,
            cpus=self.cpus - gpus * market.needs[job, 0],
            memory_mb=self.memory_mb - gpus * market.needs[job, 1],
        )


@dataclass(frozen=True)
class NaivePlacement:
    payoff: float
    cost: float
    pieces: tuple[tuple[int, int], ...]


def naive_nodes(nodes: Nodes) -> list[NaiveNode]:
    columns = (nodes.sort, nodes.capacity, nodes.used, nodes.cpus, nodes.memory_mb)
    return [NaiveNode(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]


def value(
    nodes: Sequence[NaiveNode], market: Market, job: int, pieces: Sequence[tuple[int, int]]
) -> NaivePlacement:
    """What a placement pays."""
    cost = sum(gpus * nodes[at].price(market) for at, gpus in pieces)
    table = market.one_node if len(pieces) == 1 else market.several
    utility = min(float(table[job, nodes[at].sort]) for at, _ in pieces)
    lost = min(0.9, float(market.needs[job, EXTRA]) * (len(pieces) - 1))
    return NaivePlacement(utility * (1 - lost) - cost, cost, tuple(pieces))


def candidates(
    nodes: Sequence[NaiveNode], market: Market, job: int
) -> Iterator[tuple[tuple[int, int], ...]]:
    """Every placement that FIND_ALLOC looks at."""
    count = int(market.demand[job, GPUS])
    room = [node.usable(market, job) for node in nodes]
    for at, node in enumerate(nodes):
        if room[at] >= count and market.one_node[job, node.sort] > 0:
            yield ((at, count),)
    for pool in market.pools[job].tolist():
        able = [
            at
            for at, node in enumerate(nodes)
            if room[at] > 0
            and market.several[job, node.sort] > 0
            and pool >> int(market.type_of_sort[node.sort]) & 1
        ]
        if market.even:
            yield from _even(nodes, market, able, room, count)
            continue
        for cheapest in (False, True):
            pieces: list[tuple[int, int]] = []
            left = count
            rest = list(able)
            while left and rest:

                def key(at: int, left: int = left, cheapest: bool = cheapest) -> tuple[float, ...]:
                    gpus, price = min(left, room[at]), nodes[at].price(market)
                    return (price, -gpus, at) if cheapest else (-gpus, price, at)

                best = min(rest, key=key)
                rest.remove(best)
                pieces.append((best, min(left, room[best])))
                left -= pieces[-1][1]
            if not left and len(pieces) > 1:
                yield tuple(pieces)


def _even(
    nodes: Sequence[NaiveNode], market: Market, able: list[int], room: list[int], count: int
) -> Iterator[tuple[tuple[int, int], ...]]:
    for many in range(2, count + 1):
        each, rest = divmod(count, many)
        fit = sorted((at for at in able if room[at] >= each), key=lambda a: nodes[a].price(market))
        if not rest and len(fit) >= many:
            yield tuple((at, each) for at in fit[:many])
            return


def find(nodes: Sequence[NaiveNode], market: Market, job: int) -> NaivePlacement | None:
    """The placement with the largest payoff, ties the cheaper; None where no room is."""
    found = [value(nodes, market, job, pieces) for pieces in candidates(nodes, market, job)]
    return max(found, key=lambda p: (p.payoff, -p.cost), default=None)


def serve_naively(
    nodes: Sequence[NaiveNode], market: Market, order: Sequence[int]
) -> list[NaivePlacement | None]:
    """Give each job in turn the placement that pays it most, if one pays."""
    now, served = list(nodes), []
    for job in order:
        best = find(now, market, job)
        served.append(best)
        if best is not None and best.payoff > 0:
            for at, gpus in best.pieces:
                now[at] = now[at].loaded(market, job, gpus)
    return served


def best_vector(
    nodes: Sequence[NaiveNode], market: Market, queue: Sequence[int]
) -> tuple[float, float]:
    """The largest sum of payoffs, and its least cost, over all vectors of take and leave."""
    best = (0.0, 0.0)
    for vector in product((False, True), repeat=len(queue)):
        order = [job for job, taken in zip(queue, vector, strict=True) if taken]
        served = serve_naively(nodes, market, order)
        if all(p is not None and p.payoff > 0 for p in served):
            total = float(np.sum([p.payoff for p in served if p]))
            cost = float(np.sum([p.cost for p in served if p]))
            if total > best[0] + 1e-12 or (total > best[0] - 1e-12 and cost < best[1]):
                best = (total, cost)
    return best
