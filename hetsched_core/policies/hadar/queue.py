"""What of Hadar's queue is placed in a round, and on which nodes: Algorithm 2 over arrays.

Each job in turn is taken, on the placement that pays it most, or left. The branch with the larger
sum of payoffs wins; ties go to the cheaper. As printed (lines 16 to 21) the branch of least cost
wins, which never schedules anything, since costs are only added. All of it is found while the
states are few; beyond that, the better of two heuristics counts and the method says so.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsched_core.kernels.payoff import (
    CAPACITY,
    COUNT,
    GPUS,
    PRICE,
    ROWS,
    USED,
    Market,
    State,
    greedy,
    search,
    serve,
    unit_price,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PLENTY = 1e9
"""CPUs or MiB of a node on which they are not counted."""


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """N nodes that take new work.

    Attributes:
        sort: (N,) GPU type and speed.
        capacity: (N,) GPUs that managed jobs may hold, 1 or more.
        used: (N,) GPUs that stay with their jobs.
        cpus: (N,) free CPUs.
        memory_mb: (N,) free MiB.
    """

    sort: Ints
    capacity: Ints
    used: Ints
    cpus: Floats
    memory_mb: Floats


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """How far the dynamic programme goes.

    `states` are kept for the whole queue, at least `beam` of them after each job.
    """

    states: int = 4096
    beam: int = 8

    def width(self, jobs: int) -> int:
        """Return how many states are kept after each of so many jobs."""
        most = 1 << min(jobs, 30)
        return max(1, min(most, max(self.beam, self.states // max(1, jobs))))


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """What becomes of a queue.

    Attributes:
        chosen: the jobs that the programme takes, in the order in which they were placed.
        payoff: sum of their payoffs.
        placed: job -> (node, GPUs) pieces: those chosen, then those left that pay all the same.
        method: how they were chosen.
        exact: whether no better choice of jobs to take, in the queue's order, exists.
        left: job -> payoff of its best placement at its turn, 0 or less; -inf where no room was.
        prices: (sort, capacity, GPUs in use) -> price of a GPU afterwards.
    """

    chosen: tuple[int, ...]
    payoff: float
    placed: dict[int, tuple[tuple[int, int], ...]]
    method: str
    exact: bool
    left: dict[int, float]
    prices: dict[tuple[int, int, int], float]


def node_classes(
    nodes: Nodes, market: Market, *, apart: bool = False
) -> tuple[State, list[list[int]]]:
    """Return what is free by node class, and the nodes of each class in ascending order.

    With `apart` every node is a class of its own, in the order of the nodes.
    """
    size = len(nodes.sort)
    number = np.arange(size) if apart else np.full(size, -1)
    columns = (nodes.sort, nodes.capacity, nodes.used, number, nodes.cpus, nodes.memory_mb)
    keys = np.column_stack(columns).astype(np.float64)
    _, first, row_of = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    # Rows in the order of their first nodes, so that ties follow the cluster's order.
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    members: list[list[int]] = [[] for _ in first]
    for node, row in enumerate(rank[row_of.ravel()].tolist()):
        members[row].append(node)
    # Each GPU given away may make a class, and there are no more classes than nodes.
    rows = max(1, min(size, len(first) + int(market.demand[:, GPUS].sum())))
    grid, room = np.zeros((rows, 5), np.int64), np.zeros((rows, 3))
    for row, here in enumerate(members):
        node = here[0]
        sort, capacity, load = nodes.sort[node], nodes.capacity[node], nodes.used[node]
        grid[row] = sort, capacity, load, len(here), number[node]
        price = unit_price(market.lowest[sort], market.highest[sort], load, capacity)
        room[row] = nodes.cpus[node], nodes.memory_mb[node], price
    return State(grid, room, np.array([len(members), 0], np.int64)), members


def plan_queue(
    nodes: Nodes,
    market: Market,
    queue: Sequence[int],
    limits: SearchLimits | None = None,
    *,
    apart: bool = False,
) -> QueueOutcome:
    """Choose which jobs to take and where they go.

    To give a good node to a job behind, the programme can only leave those ahead, which would take
    it; in the end these get what still pays them, in the queue's order.

    Args:
        nodes: the nodes that take new work.
        market: what the jobs want.
        queue: the jobs, the first first.
        limits: how far the dynamic programme goes.
        apart: whether nodes are told apart although they are alike; needed where `market` knows
            who is where.
    """
    limits = limits or SearchLimits()
    state, members = node_classes(nodes, market, apart=apart)
    jobs = np.array(queue, np.int64)
    taken, found = np.zeros(len(jobs), np.int8), np.zeros(3)
    search(state, market, jobs, limits.width(len(jobs)), taken, found)
    order, method, exact = jobs[taken == 1], "dynamic programme", found[2] == 0
    if not exact:
        method = f"beam of {limits.width(len(jobs))} states"
        lazily = np.zeros(len(jobs) + 1, np.int64)
        greedy(_copy(state), market, jobs, np.empty(len(jobs)), lazily)
        rival = lazily[1 : lazily[0] + 1].copy()
        if float(_serve(_copy(state), market, rival).payoff.sum()) > found[0]:
            order, method = rival, "lazy greedy"
    chosen = set(order.tolist())
    rest = np.array([job for job in queue if job not in chosen], np.int64)
    served = _serve(state, market, np.concatenate((order, rest)))
    used = state.head[ROWS]
    return QueueOutcome(
        chosen=tuple(order.tolist()),
        payoff=float(served.payoff[: len(order)].sum()),
        placed=served.on_nodes(members),
        method=method,
        exact=bool(exact),
        left={
            job: payoff
            for job, payoff in zip(rest.tolist(), served.payoff[len(order) :].tolist(), strict=True)
            if payoff <= 0.0
        },
        prices={
            (sort, capacity, used): price
            for (sort, capacity, used, count, _), price in zip(
                state.grid[:used].tolist(), state.room[:used, PRICE].tolist(), strict=True
            )
            if count
        },
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Served:
    """What was served in turn: (K,) payoffs, and (row before, row after, GPUs) of all pieces."""

    order: Ints
    payoff: Floats
    pieces_from: Ints
    pieces: Ints

    def on_nodes(self, members: list[list[int]]) -> dict[int, tuple[tuple[int, int], ...]]:
        """Return the pieces as nodes, the first of each class; `members` follows the state."""
        pieces = self.pieces.tolist()
        placed = {}
        for at, job in enumerate(self.order.tolist()):
            mine = [
                (heapq.heappop(members[before]), after, gpus)
                for before, after, gpus in pieces[self.pieces_from[at] : self.pieces_from[at + 1]]
            ]
            # Not before all are found: a node must not be found again in its new class.
            for node, after, _ in mine:
                while len(members) <= after:
                    members.append([])
                heapq.heappush(members[after], node)
            if mine:
                placed[job] = tuple((node, gpus) for node, _, gpus in mine)
        return placed


def _serve(state: State, market: Market, order: Ints) -> _Served:
    free = int(((state.grid[:, CAPACITY] - state.grid[:, USED]) * state.grid[:, COUNT]).sum())
    most = min(free, int(market.demand[order, GPUS].sum()))
    payoff, cost = np.zeros(len(order)), np.zeros(len(order))
    pieces_from, pieces = np.zeros(len(order) + 1, np.int64), np.zeros((most, 3), np.int64)
    serve(state, market, order, pieces_from, pieces, payoff, cost)
    return _Served(order, payoff, pieces_from, pieces)


def _copy(state: State) -> State:
    return State(state.grid.copy(), state.room.copy(), state.head.copy())
