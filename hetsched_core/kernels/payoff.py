"""Hadar's prices, the placement that pays a job most, and which jobs of a queue get one.

Free room is kept by node class: nodes of one sort (GPU type and speed), capacity, load and free
CPUs and memory are one row, with the number of such nodes. A node that is loaded moves to the row
of its new class. The naive twin, node by node, is `tests/hetsched_core/kernels/naive_payoff.py`.

"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hetsched_core.kernels import (
    BytesOut,
    Floats,
    FloatsOut,
    FloatTableOut,
    Ints,
    IntsOut,
    IntTableOut,
    kernel,
    scalar,
)

SORT, CAPACITY, USED, COUNT, NODE = range(5)
CPUS, MEMORY, PRICE = range(3)
GPUS, STAY_FROM, STAY_TO, LEAST, MOST = range(5)
EXTRA = 2
ROWS, HASH = range(2)

SLACK = 1e-6
"""Slack for CPUs and MiB, which are products of fractions per GPU."""

MOST_LOST = 0.9
"""No spread costs a job more of its utility, so that one that only many nodes hold can pay."""


class State(NamedTuple):
    """What is free, by node class.

    Attributes:
        grid: (rows, 5) the columns SORT to NODE. COUNT nodes are alike; a row with a NODE of 0 or
            more stands for that node alone and never joins another.
        room: (rows, 3) the columns CPUS, MEMORY (MiB), both free, and PRICE of a GPU.
        head: (2,) the number of rows in use, and a hash of all nodes' classes.
    """

    grid: IntTableOut
    room: FloatTableOut
    head: IntsOut


class Market(NamedTuple):
    """What J jobs want of nodes of S sorts. A utility of 0 means that a job cannot run there.

    Attributes:
        demand: (J, 5) the columns GPUS, STAY_FROM to STAY_TO, its places in `stays`, and LEAST and
            MOST, on how many nodes it has to be and may be; with a LEAST above 1 in equal parts.
        needs: (J, 3) CPUs and MiB per GPU, and EXTRA, the share of its utility that each node after
            the first costs a job.
        one_node: (J, S) utility on one node of each sort.
        several: (J, S) utility on several nodes of which the slowest is of each sort.
        pools: (J, P) the sets of GPU types to spread over, as bits; 0 after the last.
        stays: (Y, 2) row and GPUs of what jobs have.
        stay_utility: (J,) utility of keeping that.
        type_of_sort: (S,) GPU type.
        lowest: (S,) U_min of that type.
        highest: (S,) U_max of that type.
        even: whether the nodes of a job must give it equally many GPUs.
    """

    demand: IntTableOut
    needs: FloatTableOut
    one_node: FloatTableOut
    several: FloatTableOut
    pools: IntTableOut
    stays: IntTableOut
    stay_utility: FloatsOut
    type_of_sort: IntsOut
    lowest: FloatsOut
    highest: FloatsOut
    even: bool


@scalar
def unit_price(lowest: float, highest: float, used: float, capacity: float) -> float:
    """Return k(g) = U_min (U_max / U_min)^(g / c) of Hadar, equation (5)."""
    return lowest * math.pow(highest / lowest, used / capacity)


@scalar
def _usable(state: State, market: Market, job: int, row: int) -> int:
    """GPUs of a node of this row that a job can use."""
    usable = state.grid[row, CAPACITY] - state.grid[row, USED]
    cpus, memory_mb = market.needs[job, CPUS], market.needs[job, MEMORY]
    if cpus > 0.0 and usable * cpus > state.room[row, CPUS] + SLACK:
        usable = int((state.room[row, CPUS] + SLACK) / cpus)
    if memory_mb > 0.0 and usable * memory_mb > state.room[row, MEMORY] + SLACK:
        usable = int((state.room[row, MEMORY] + SLACK) / memory_mb)
    return int(usable)


@scalar
def _fill(
    state: State, market: Market, job: int, pool: int, by_price: bool, trial: Ints, picked: Ints
) -> tuple[float, float, int]:
    """Put a job on several nodes of these types; return (utility, cost, pieces), 0 pieces if none.

    On as few nodes as possible, or on the cheapest GPUs.
    """
    grid, room, several = state.grid, state.room, market.several
    count, rows = market.demand[job, GPUS], state.head[ROWS]
    left, pieces, cost, utility = count, 0, 0.0, np.inf
    picked[:rows] = 0
    while left > 0:
        best, best_gpus, best_price = -1, 0, np.inf
        for row in range(rows):
            sort, price = grid[row, SORT], room[row, PRICE]
            if (
                grid[row, COUNT] <= picked[row]
                or grid[row, USED] >= grid[row, CAPACITY]
                or several[job, sort] <= 0.0
                or not (pool >> market.type_of_sort[sort]) & 1
            ):
                continue
            gpus = min(left, _usable(state, market, job, row))
            if gpus < 1:
                continue
            if by_price:
                better = price < best_price or (price == best_price and gpus > best_gpus)
            else:
                better = gpus > best_gpus or (gpus == best_gpus and price < best_price)
            if better:
                best, best_gpus, best_price = row, gpus, price
        # One node that holds all is another candidate.
        if best < 0 or best_gpus == count or pieces == market.demand[job, MOST]:
            return 0.0, 0.0, 0
        trial[pieces, 0], trial[pieces, 1] = best, best_gpus
        picked[best] += 1
        pieces += 1
        left -= best_gpus
        cost += best_gpus * best_price
        utility = min(utility, several[job, grid[best, SORT]])
    return utility, cost, pieces


@scalar
def _fill_evenly(
    state: State, market: Market, job: int, pool: int, trial: Ints, picked: Ints
) -> tuple[float, float, int]:
    """Put a job on the fewest nodes that each give the same, the cheapest of such."""
    grid, room, several = state.grid, state.room, market.several
    count, rows = market.demand[job, GPUS], state.head[ROWS]
    least, most = max(2, market.demand[job, LEAST]), min(count, market.demand[job, MOST])
    for nodes in range(least, most + 1):
        if count % nodes != 0:
            continue
        each, pieces, cost, utility = count // nodes, 0, 0.0, np.inf
        picked[:rows] = 0
        while pieces < nodes:
            best, best_price = -1, np.inf
            for row in range(rows):
                sort = grid[row, SORT]
                if (
                    grid[row, COUNT] > picked[row]
                    and several[job, sort] > 0.0
                    and (pool >> market.type_of_sort[sort]) & 1
                    and room[row, PRICE] < best_price
                    and _usable(state, market, job, row) >= each
                ):
                    best, best_price = row, room[row, PRICE]
            if best < 0:
                break
            trial[pieces, 0], trial[pieces, 1] = best, each
            picked[best] += 1
            pieces += 1
            cost += each * best_price
            utility = min(utility, several[job, grid[best, SORT]])
        if pieces == nodes:
            return utility, cost, pieces
    return 0.0, 0.0, 0


@scalar
def _find(
    state: State, market: Market, job: int, found: Ints, trial: Ints, picked: Ints
) -> tuple[float, float, int]:
    """FIND_ALLOC of Hadar's Algorithm 2: the placement with the largest payoff, ties the cheaper.

    Returns (payoff, cost, pieces) with (row, GPUs) pieces in `found`; no pieces where no room is.
    """
    grid, room = state.grid, state.room
    count, rows = market.demand[job, GPUS], state.head[ROWS]
    best, best_cost, best_pieces = -np.inf, np.inf, 0

    begin, end = market.demand[job, STAY_FROM], market.demand[job, STAY_TO]
    if end > begin:
        cost, fits = 0.0, True
        for at in range(begin, end):
            row, gpus = market.stays[at, 0], market.stays[at, 1]
            fits &= _usable(state, market, job, row) >= gpus
            cost += gpus * room[row, PRICE]
        if fits:
            best, best_cost, best_pieces = market.stay_utility[job] - cost, cost, end - begin
            found[:best_pieces] = market.stays[begin:end]

    for row in range(rows):
        if grid[row, COUNT] < 1 or grid[row, CAPACITY] - grid[row, USED] < count:
            continue
        if market.demand[job, LEAST] > 1:
            break
        utility, cost = market.one_node[job, grid[row, SORT]], count * room[row, PRICE]
        payoff = utility - cost
        if utility <= 0.0 or payoff < best or (payoff == best and cost >= best_cost):
            continue
        if _usable(state, market, job, row) >= count:
            best, best_cost, best_pieces = payoff, cost, 1
            found[0, 0], found[0, 1] = row, count

    if count == 1:
        return best, best_cost, best_pieces
    for at in range(market.pools.shape[1]):
        pool = market.pools[job, at]
        if pool == 0:
            break
        for by_price in range(2):
            if market.even or market.demand[job, LEAST] > 1:
                utility, cost, pieces = _fill_evenly(state, market, job, pool, trial, picked)
            else:
                utility, cost, pieces = _fill(
                    state, market, job, pool, by_price == 1, trial, picked
                )
            if pieces > 0:
                lost = min(market.needs[job, EXTRA] * (pieces - 1), MOST_LOST)
                payoff = utility * (1.0 - lost) - cost
                if payoff > best or (payoff == best and cost < best_cost):
                    best, best_cost, best_pieces = payoff, cost, pieces
                    found[:pieces] = trial[:pieces]
    return best, best_cost, best_pieces


@scalar
def _hash(state: State, row: int) -> int:
    """A hash of one node of a row."""
    h = np.int64(1469598103934665603)
    for column in (SORT, CAPACITY, USED, NODE):
        h = (h ^ (state.grid[row, column] + 1)) * np.int64(1099511628211)
        h ^= h >> np.int64(29)
    for column in (CPUS, MEMORY):
        h = (h ^ np.int64(state.room[row, column] * 1024.0)) * np.int64(1099511628211)
        h ^= h >> np.int64(31)
    return h  # type: ignore[return-value]


@scalar
def _class_of(state: State, row: int, used: int, cpus: float, memory_mb: float) -> int:
    """Return the row of nodes like one of this row but with this left; -1 if there is none."""
    grid, room = state.grid, state.room
    if grid[row, NODE] >= 0:
        return -1
    for other in range(state.head[ROWS]):
        if (
            grid[other, COUNT] > 0
            and grid[other, NODE] < 0
            and grid[other, SORT] == grid[row, SORT]
            and grid[other, USED] == used
            and grid[other, CAPACITY] == grid[row, CAPACITY]
            and room[other, CPUS] == cpus
            and room[other, MEMORY] == memory_mb
        ):
            return other
    return -1


@scalar
def _take(state: State, market: Market, job: int, row: int, gpus: int) -> int:
    """Give a job GPUs of one node of a row; return the row that the node is in from then on."""
    grid, room, head = state.grid, state.room, state.head
    sort, capacity, used = grid[row, SORT], grid[row, CAPACITY], grid[row, USED] + gpus
    cpus = room[row, CPUS] - gpus * market.needs[job, CPUS]
    memory_mb = room[row, MEMORY] - gpus * market.needs[job, MEMORY]
    node = grid[row, NODE]
    head[HASH] -= _hash(state, row)
    to = _class_of(state, row, used, cpus, memory_mb)
    grid[row, COUNT] -= 1
    if to < 0:
        # A new class: in the first row that stands for no node, its own if that is one.
        to = row
        if grid[row, COUNT] > 0:
            to = 0
            while to < head[ROWS] and grid[to, COUNT] > 0:
                to += 1
            head[ROWS] = max(head[ROWS], to + 1)
        grid[to, SORT], grid[to, CAPACITY], grid[to, USED] = sort, capacity, used
        grid[to, COUNT], grid[to, NODE] = 0, node
        room[to, CPUS], room[to, MEMORY] = cpus, memory_mb
        room[to, PRICE] = unit_price(
            market.lowest[sort], market.highest[sort], float(used), float(capacity)
        )
    grid[to, COUNT] += 1
    head[HASH] += _hash(state, to)
    return int(to)


@kernel()
def serve(
    state: State,
    market: Market,
    order: Ints,
    pieces_from: IntsOut,
    pieces: IntTableOut,
    payoff: FloatsOut,
    cost: FloatsOut,
) -> None:
    """Give each job in turn the placement that pays it most, if one pays; the state changes.

    Args:
        state: what is free.
        market: the jobs.
        order: (K,) the jobs to serve.
        pieces_from: (K+1,) filled with where the pieces of each begin.
        pieces: filled with (row of the node before, row after, GPUs).
        payoff: (K,) filled; 0 or less where no placement pays, -inf where there is no room.
        cost: (K,) filled with what the GPUs cost.
    """
    found = np.empty((len(state.grid), 2), np.int64)
    trial = np.empty_like(found)
    picked = np.empty(len(state.grid), np.int64)
    used = 0
    pieces_from[0] = 0
    for at in range(len(order)):
        job = order[at]
        payoff[at], cost[at], n = _find(state, market, job, found, trial, picked)
        if payoff[at] > 0.0:
            for i in range(n):
                row, gpus = found[i, 0], found[i, 1]
                to = _take(state, market, job, row, gpus)
                pieces[used, 0], pieces[used, 1], pieces[used, 2] = row, to, gpus
                used += 1
        pieces_from[at + 1] = used


@kernel()
def greedy(state: State, market: Market, queue: Ints, bound: FloatsOut, order: IntsOut) -> None:
    """Serve the job of the largest payoff per GPU, again and again; the state changes.

    Lazy: while GPUs are given away prices rise and room shrinks, so an old payoff is a bound.

    Args:
        state: what is free.
        market: the jobs.
        queue: (K,) the jobs; equals are served in its order.
        bound: (K,) for this function's own use.
        order: (K+1,) filled with the number of jobs served and then these, the first first.
    """
    found = np.empty((len(state.grid), 2), np.int64)
    trial = np.empty_like(found)
    picked = np.empty(len(state.grid), np.int64)
    seen = np.full(len(queue), -1, np.int64)
    bound[:] = np.inf
    served = 0
    while len(queue) > 0:
        at = np.argmax(bound)
        if bound[at] <= 0.0:
            break
        job = queue[at]
        payoff, _, n = _find(state, market, job, found, trial, picked)
        if seen[at] == served:
            for i in range(n):
                _take(state, market, job, found[i, 0], found[i, 1])
            bound[at] = -np.inf
            served += 1
            order[served] = job
        else:
            bound[at] = payoff / market.demand[job, GPUS]
            seen[at] = served
    order[0] = served


@scalar
def _best_first(payoff: Floats, cost: Floats, hashes: Ints) -> tuple[Ints, Ints]:
    """Return the states best first, and 1 for each that is the best of its equals.

    Of equal payoffs the cheaper is better, then the first.
    """
    by_cost = np.argsort(cost, kind="mergesort")
    order = by_cost[np.argsort(-payoff[by_cost], kind="mergesort")]
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    by_hash = np.argsort(hashes, kind="mergesort")
    distinct = np.zeros_like(order)
    begin = 0
    while begin < len(order):
        best, end = by_hash[begin], begin + 1
        while end < len(order) and hashes[by_hash[end]] == hashes[best]:
            if place[by_hash[end]] < place[best]:
                best = by_hash[end]
            end += 1
        distinct[best] = 1
        begin = end
    return order, distinct


@kernel()
def search(
    state: State, market: Market, queue: Ints, width: int, taken: BytesOut, out: FloatsOut
) -> None:
    """Take or leave each job in turn so that the payoffs add up to the most, ties the cheaper.

    The dynamic programme of Hadar's Algorithm 2, forwards: after each job, of the states with equal
    residual capacities the best is kept, and of all states the best `width`. It is exact if none
    had to be dropped.

    Args:
        state: what is free, which stays as it is.
        market: the jobs.
        queue: (K,) the jobs.
        width: how many states are kept after each job.
        taken: (K,) filled with 1 for those that are taken.
        out: (3,) filled with the sum of payoffs, of costs, and the number of states dropped.
    """
    rows, slots_in_all = len(state.grid), 2 * width
    found = np.empty((rows, 2), np.int64)
    trial = np.empty_like(found)
    picked = np.empty(rows, np.int64)
    # A job left keeps its parent's slot; one taken gets a slot that is not in use.
    grids = np.empty((slots_in_all, rows, 5), np.int64)
    rooms = np.empty((slots_in_all, rows, 3))
    heads = np.empty((slots_in_all, 2), np.int64)
    unused = np.arange(slots_in_all)
    free = slots_in_all - 1
    slots = np.empty(slots_in_all, np.int64)
    slots[0] = unused[free]
    grids[slots[0]], rooms[slots[0]], heads[slots[0]] = state.grid, state.room, state.head
    payoff, cost = np.zeros(slots_in_all), np.zeros(slots_in_all)
    origin = np.empty(slots_in_all, np.int64)
    parent = np.empty((len(queue), width), np.int64)
    took = np.zeros((len(queue), width), np.int8)
    states, dropped = 1, 0
    for at in range(len(queue)):
        job, children = queue[at], states
        for i in range(states):
            slot = slots[i]
            before = State(grids[slot], rooms[slot], heads[slot])
            gain, price, n = _find(before, market, job, found, trial, picked)
            if gain > 0.0:
                free -= 1
                to, used = unused[free], heads[slot, ROWS]
                grids[to, :used], rooms[to, :used] = grids[slot, :used], rooms[slot, :used]
                heads[to] = heads[slot]
                after = State(grids[to], rooms[to], heads[to])
                for k in range(n):
                    _take(after, market, job, found[k, 0], found[k, 1])
                slots[children], origin[children] = to, i
                payoff[children], cost[children] = payoff[i] + gain, cost[i] + price
                children += 1
        if children == states:
            parent[at, :states] = np.arange(states)
            continue
        order, distinct = _best_first(
            payoff[:children], cost[:children], heads[:, HASH][slots[:children]]
        )
        old_slots, old_payoff, old_cost = slots.copy(), payoff.copy(), cost.copy()
        kept = 0
        for child in order:
            if distinct[child] == 1 and kept < width:
                slots[kept] = old_slots[child]
                payoff[kept], cost[kept] = old_payoff[child], old_cost[child]
                took[at, kept] = child >= states
                parent[at, kept] = origin[child] if child >= states else child
                kept += 1
            else:
                dropped += distinct[child]
                unused[free] = old_slots[child]
                free += 1
        states = kept
    # The best state is the first: each layer that changed was sorted.
    out[0], out[1], out[2] = payoff[0], cost[0], dropped
    best = 0
    for at in range(len(queue) - 1, -1, -1):
        taken[at] = took[at, best]
        best = parent[at, best]
