"""Making a choice better: a few nodes at a time are shared out anew, by dynamic programming.

Given prices, a choice falls short of their bound by what is lost job by job (an option that is not
a job's best) and node by node (GPUs idle, or sold below what the best cut is worth). Emptying a few
nodes and filling them in the best way finds the losses that can be avoided there. So that two of
them can be traded against each other over several nodes, chains begin with steps in which prices
stand for what happens elsewhere: a job may be taken from other nodes, and leave GPUs idle, for a
part of what those are worth. A chain that leads to nothing better is taken back.

The naive twin is in `tests/hetsched_core/choose/naive.py`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetsched_core.kernels import Floats, FloatTable, Ints, IntsOut, IntTableOut, kernel, scalar

Words = NDArray[np.uint64]

NOBODY = -1

MOST_STATES = 1000
"""Combinations of GPUs in use on the nodes that are shared out together."""

MOST_NODES = 3
"""Nodes shared out together, where they have few enough GPUs."""

MOST_WAYS = 30_000
"""Ways to place jobs on them; once there are so many, only jobs that are there already get more."""

STRICT_STEPS, LOOSE_STEPS = 4, 3
"""Steps of a chain without and, before them, with prices standing for what is elsewhere."""

ELSEWHERE = 0.95
"""What part of a price counts in loose steps."""

_LEAST = 1e-12

# Where the options of each job begin, value and bundle of each option; where the pieces of each
# bundle begin, class and GPUs of each piece.
Offers = tuple[Ints, Floats, Ints, Ints, Ints, Ints]

# Cost of each bundle, what each job gains at the prices, and what so many idle GPUs of a node of a
# class are worth.
Prices = tuple[Floats, Floats, Floats]

# Option of each job, nodes of its pieces; GPUs left on each node, the jobs on it and how many.
Standing = tuple[Ints, Ints, Ints, Ints, Ints]

# Where the nodes of each job on more than two begin; the nodes, and its GPUs there.
Wide = tuple[Ints, Ints, Ints]


@scalar
def _take_off(offers: Offers, standing: Standing, wide: Wide, j: int) -> None:
    """Take a job off its nodes."""
    _, _, bundle, bundle_starts, _, piece_gpus = offers
    choice, held, free, jobs, many = standing
    first, last = bundle_starts[bundle[choice[j]]], bundle_starts[bundle[choice[j]] + 1]
    if last - first > 2:
        starts, nodes, gpus = wide
        for p in range(starts[j], starts[j + 1]):
            free[nodes[p]] += gpus[p]
        last = first
    for e in range(first, last):
        n = held[j, e - first]
        free[n] += piece_gpus[e]
        kept = 0
        for i in range(many[n]):
            if jobs[n, i] != j:
                jobs[n, kept] = jobs[n, i]
                kept += 1
        many[n] = kept
    choice[j] = NOBODY


@scalar
def _place_of(nodes: Ints, node: int) -> int:
    """Return where a node is among others, -1 if it is not."""
    for i in range(len(nodes)):
        if nodes[i] == node:
            return i
    return NOBODY


@scalar
def _share_out(
    offers: Offers,
    prices: Prices,
    standing: Standing,
    on_many: Wide,
    of_class: Ints,
    nodes: Ints,
    asking: Ints,
    open_starts: Ints,
    opened: Ints,
    elsewhere: float,
) -> float:
    """Give the jobs on some nodes, and others, the options there that are worth the most together.

    Jobs with a piece on another node stay. Return by how much the choice is worth more.
    """
    _, value, bundle, bundle_starts, piece_class, piece_gpus = offers
    cost, gain, idle_worth = prices
    choice, held, free, jobs, many = standing
    wide = len(nodes)
    loose = np.zeros(len(choice), np.bool_)
    room = np.empty(wide, np.int64)
    for i in range(wide):
        room[i] = free[nodes[i]]
    for i in range(wide):
        for a in range(many[nodes[i]]):
            j = jobs[nodes[i], a]
            first, last = bundle_starts[bundle[choice[j]]], bundle_starts[bundle[choice[j]] + 1]
            inside = last - first <= 2
            for e in range(first, last):
                inside = inside and _place_of(nodes, held[j, e - first]) >= 0
            if inside and not loose[j]:
                loose[j] = True
                for e in range(first, last):
                    room[_place_of(nodes, held[j, e - first])] += piece_gpus[e]
    stride = np.ones(wide, np.int64)
    for i in range(wide - 2, -1, -1):
        stride[i] = stride[i + 1] * (room[i + 1] + 1)
    states = stride[0] * (room[0] + 1)
    used = np.empty((states, wide), np.int64)
    for s in range(states):
        rest = s
        for i in range(wide):
            used[s, i] = rest // stride[i]
            rest %= stride[i]

    # Ways to place an option: worth, its pieces' nodes and GPUs, and what it adds to the state.
    ways = 0
    way_option = np.empty(64, np.int64)
    way_worth = np.empty(64)
    way_place = np.empty((64, 4), np.int64)
    way_step = np.empty(64, np.int64)
    # Of each job that could be placed, what it takes in each state.
    placed = 0
    whose = np.empty(len(asking), np.int64)
    taken = np.empty((len(asking), states), np.int32)
    most = np.zeros(states)
    first_way = 0
    for j in asking:
        if ways >= MOST_WAYS and not loose[j]:
            continue
        if choice[j] >= 0 and not loose[j]:
            if elsewhere == 0.0:
                continue
            has = value[choice[j]] - elsewhere * cost[bundle[choice[j]]]
        else:
            has = elsewhere * gain[j]
        first_way = ways
        own = choice[j] if loose[j] else NOBODY
        for at in range(open_starts[j], open_starts[j + 1] + 1):
            if at < open_starts[j + 1]:
                q = opened[at]
                if q == own:
                    own = NOBODY
            else:
                q = own
            if q < 0 or (q == choice[j] and not loose[j]) or value[q] <= has:
                continue
            e = bundle_starts[bundle[q]]
            pieces = bundle_starts[bundle[q] + 1] - e
            if pieces > 2:
                continue
            for i in range(wide):
                if of_class[nodes[i]] != piece_class[e] or room[i] < piece_gpus[e]:
                    continue
                for k in range(wide if pieces == 2 else 1):
                    if pieces == 2 and (
                        k == i
                        or of_class[nodes[k]] != piece_class[e + 1]
                        or room[k] < piece_gpus[e + 1]
                    ):
                        continue
                    if ways == len(way_option):
                        way_option = np.append(way_option, np.empty(ways, np.int64))
                        way_worth = np.append(way_worth, np.empty(ways))
                        way_step = np.append(way_step, np.empty(ways, np.int64))
                        longer = np.empty((2 * ways, 4), np.int64)
                        longer[:ways] = way_place
                        way_place = longer
                    way_option[ways], way_worth[ways] = q, value[q] - has
                    way_place[ways, 0], way_place[ways, 1] = i, piece_gpus[e]
                    way_place[ways, 2], way_place[ways, 3] = k, 0
                    way_step[ways] = stride[i] * piece_gpus[e]
                    if pieces == 2:
                        way_place[ways, 3] = piece_gpus[e + 1]
                        way_step[ways] += stride[k] * piece_gpus[e + 1]
                    ways += 1
        if ways == first_way:
            continue
        whose[placed] = j
        for s in range(states - 1, -1, -1):
            best, way = most[s], NOBODY
            for w in range(first_way, ways):
                if (
                    used[s, way_place[w, 0]] >= way_place[w, 1]
                    and used[s, way_place[w, 2]] >= way_place[w, 3]
                    and most[s - way_step[w]] + way_worth[w] > best + _LEAST
                ):
                    best, way = most[s - way_step[w]] + way_worth[w], w
            most[s], taken[placed, s] = best, way
        placed += 1

    s = states - 1
    if elsewhere > 0.0:
        top = -1.0
        for end in range(states):
            worth = most[end]
            for i in range(wide):
                worth += elsewhere * idle_worth[of_class[nodes[i]], room[i] - used[end, i]]
            if worth > top + _LEAST:
                top, s = worth, end
    better = 0.0
    for i in range(wide):
        for a in range(many[nodes[i]] - 1, -1, -1):
            j = jobs[nodes[i], a]
            if loose[j] and choice[j] >= 0:
                better -= value[choice[j]]
                _take_off(offers, standing, on_many, j)
    for at in range(placed - 1, -1, -1):
        w = taken[at, s]
        if w < 0:
            continue
        j = whose[at]
        if choice[j] >= 0:
            better -= value[choice[j]]
            _take_off(offers, standing, on_many, j)
        choice[j] = way_option[w]
        better += value[choice[j]]
        for p in range(2):
            if way_place[w, 2 * p + 1] > 0:
                n = nodes[way_place[w, 2 * p]]
                held[j, p] = n
                free[n] -= way_place[w, 2 * p + 1]
                jobs[n, many[n]] = j
                many[n] += 1
        s -= way_step[w]
    return better


@scalar
def _draw(state: Words, below: int) -> int:
    """Return a number from 0 to `below` - 1, the next one of a fixed sequence."""
    state[0] = state[0] * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
    return int((state[0] >> np.uint64(33)) % np.uint64(below))


@scalar
def _draw_nodes(state: Words, free: Ints, idle_first: bool, nodes: Ints) -> None:
    """Fill `nodes` with different ones, the first of them one with idle GPUs if that is asked."""
    drawn = 0
    if idle_first:
        start = _draw(state, len(free))
        for i in range(len(free)):
            if free[(start + i) % len(free)] > 0:
                nodes[0] = (start + i) % len(free)
                drawn = 1
                break
    while drawn < len(nodes):
        n = _draw(state, len(free))
        if _place_of(nodes[:drawn], n) < 0:
            nodes[drawn] = n
            drawn += 1


@kernel()
def exchange(
    of_class: Ints,
    starts: Ints,
    value: Floats,
    bundle: Ints,
    bundle_starts: Ints,
    piece_class: Ints,
    piece_gpus: Ints,
    cost: Floats,
    gain: Floats,
    idle_worth: FloatTable,
    asking: Ints,
    open_starts: Ints,
    opened: Ints,
    enough: float,
    steps: int,
    chains: int,
    choice: IntsOut,
    free: IntsOut,
    held: IntTableOut,
    wide_starts: Ints,
    wide_nodes: Ints,
    wide_gpus: Ints,
) -> None:
    """Make a choice better; what comes out is worth at least as much.

    First some nodes at a time are shared out anew, then chains of such steps follow. Only jobs on
    up to two nodes are moved. Nodes are drawn from a fixed sequence.

    Args:
        of_class: (N,) class of each node.
        starts: (J + 1,) where the options of each job begin.
        value: (Q,) of each option.
        bundle: (Q,) its bundle.
        bundle_starts: (B + 1,) where the pieces of each bundle begin, one for each node; of more
            than two it is enough that there are three.
        piece_class: (E,) class of a piece.
        piece_gpus: (E,) its GPUs.
        cost: (B,) of each bundle.
        gain: (J,) what each job gains beyond the prices with its best option.
        idle_worth: (C, G + 1) what the best cut of so many GPUs of a node of a class is worth.
        asking: (A,) the jobs that have something or have options to be tried.
        open_starts: (J + 1,) where the options of each job that are to be tried begin.
        opened: (O,) those options.
        enough: stop when the choice is worth so much.
        steps: how often nodes are shared out before the chains.
        chains: how many chains there are.
        choice: (J,) in and out, the option of each job, -1 for none.
        free: (N,) in and out, GPUs left on each node.
        held: (J, 2) in and out, node of each piece of the jobs on up to two nodes.
        wide_starts: (J + 1,) where the nodes of each job on more than two begin.
        wide_nodes: (H,) those nodes.
        wide_gpus: (H,) its GPUs there.
    """
    offers = (starts, value, bundle, bundle_starts, piece_class, piece_gpus)
    prices = (cost, gain, idle_worth)
    nodes = len(of_class)
    jobs = np.empty((nodes, idle_worth.shape[1]), np.int64)
    many = np.zeros(nodes, np.int64)
    total = 0.0
    for j in range(len(choice)):
        if choice[j] >= 0:
            total += value[choice[j]]
            pieces = bundle_starts[bundle[choice[j]] + 1] - bundle_starts[bundle[choice[j]]]
            for p in range(pieces if pieces <= 2 else 0):
                jobs[held[j, p], many[held[j, p]]] = j
                many[held[j, p]] += 1
    standing = (choice, held, free, jobs, many)
    on_many = (wide_starts, wide_nodes, wide_gpus)
    wide, states = 0, 1
    while wide < min(MOST_NODES, nodes) and (
        wide == 0 or states * idle_worth.shape[1] <= MOST_STATES
    ):
        wide += 1
        states *= idle_worth.shape[1]
    chosen = np.empty(wide, np.int64)
    state = np.ones(1, np.uint64)
    for _ in range(steps):
        if total >= enough:
            return
        _draw_nodes(state, free, False, chosen)
        total += _share_out(
            offers, prices, standing, on_many, of_class, chosen, asking, open_starts, opened, 0.0
        )
    for _ in range(chains):
        if total >= enough:
            return
        before = (choice.copy(), held.copy(), free.copy(), jobs.copy(), many.copy())
        worth = total
        for step in range(LOOSE_STEPS + STRICT_STEPS):
            _draw_nodes(state, free, step > 0, chosen)
            elsewhere = ELSEWHERE if step < LOOSE_STEPS else 0.0
            if step == LOOSE_STEPS and (choice == before[0]).all():
                break
            total += _share_out(
                offers,
                prices,
                standing,
                on_many,
                of_class,
                chosen,
                asking,
                open_starts,
                opened,
                elsewhere,
            )
        if total < worth:
            choice[:], held[:], free[:], jobs[:], many[:] = before
            total = worth
