"""GPUs in use, shared out over a tree at each instant, and summed up over time.

The naive twin is in `tests/hetsched_core/measures/naive_accounts.py`.
"""

from __future__ import annotations

import numpy as np

from hetsched_core.kernels import (
    Floats,
    FloatsOut,
    FloatTableOut,
    Ints,
    IntsOut,
    kernel,
    scalar,
)

# First child of each node (those of the last end at the last), parent of each node; the children
# with demand before the others, the place of each node among its siblings, and how many children
# of each node have demand.
Tree = tuple[Ints, Ints, IntsOut, IntsOut, IntsOut]

# Demand and held GPUs of each node, and the GPUs that are due to it now.
State = tuple[IntsOut, IntsOut, FloatsOut]


@scalar
def _swap(tree: Tree, node: int, place: int) -> None:
    """Put a node at this place, and what was there where the node was."""
    _, _, order, place_of, _ = tree
    other, was = order[place], place_of[node]
    order[place], order[was] = node, other
    place_of[node], place_of[other] = place, was


@scalar
def _change(tree: Tree, state: State, leaf: int, wanted: int, held: int) -> None:
    """Change the demand and the held GPUs of a leaf, and of all that it is in."""
    first, parent, _, _, active = tree
    demand, holds, _ = state
    node = leaf
    while True:
        had = demand[node]
        demand[node] += wanted
        holds[node] += held
        if node == 0:
            break
        above = parent[node]
        if had == 0 and demand[node] > 0:
            _swap(tree, node, first[above] + active[above])
            active[above] += 1
        elif had > 0 and demand[node] == 0:
            active[above] -= 1
            _swap(tree, node, first[above] + active[above])
        node = above


@scalar
def _fill(tree: Tree, state: State, shares: Floats, some: IntsOut, node: int) -> None:
    """Share what is due to a node out over its children, nobody more than its demand.

    `some` is room for the children.
    """
    first, _, order, _, active = tree
    demand, _, due = state
    begin, end = first[node], first[node] + active[node]
    if due[node] >= demand[node]:
        for at in range(begin, end):
            due[order[at]] = demand[order[at]]
        return
    left = due[node]
    # What has no shares gets what the others leave, in equal parts.
    for without in (False, True):
        count, whole = 0, 0.0
        for at in range(begin, end):
            child = order[at]
            if (shares[child] == 0.0) == without:
                some[count] = child
                count += 1
                whole += 1.0 if without else shares[child]
        full = True
        while full and count > 0:
            level, full, kept = left / whole, False, 0
            for at in range(count):
                child = some[at]
                share = 1.0 if without else shares[child]
                due[child] = share * level
                if demand[child] <= due[child]:
                    due[child] = demand[child]
                    left = max(0.0, left - demand[child])
                    whole -= share
                    full = True
                else:
                    some[kept] = child
                    kept += 1
            count = kept
        if count > 0:
            left = 0.0


@kernel()
def integrate_due(
    at_s: Floats,
    leaf: Ints,
    wanted: Ints,
    held: Ints,
    first: Ints,
    parent: Ints,
    shares: Floats,
    edges_s: Floats,
    had_gpu_s: FloatTableOut,
    due_gpu_s: FloatTableOut,
) -> None:
    """Sum up what each leaf of a tree holds, and what is due to it of all that is held.

    At each instant the GPUs in use are shared out from the root down, in proportion to shares among
    the children that have demand, none of which is due more than its demand.

    Args:
        at_s: (E,) when something changes, ascending.
        leaf: (E,) what changes.
        wanted: (E,) by how much its demand changes, which is never less than what it holds.
        held: (E,) by how much what it holds changes.
        first: (N + 1,) the children of node n are the nodes from first[n] to first[n + 1]; node 0
            is the root.
        parent: (N,) of each node, a lower number; that of the root is not looked at.
        shares: (N,) of each node among its siblings, whole numbers of at least 0.
        edges_s: (K,) when to look at the sums, ascending.
        had_gpu_s: (K, N) out, what each leaf has held until then; 0 for other nodes.
        due_gpu_s: (K, N) out, what was due to it.
    """
    nodes, events = len(parent), len(at_s)
    tree = (first, parent, np.arange(nodes), np.arange(nodes), np.zeros(nodes, np.int64))
    demand, holds, due = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64), np.zeros(nodes)
    state = (demand, holds, due)
    _, _, order, _, active = tree
    had, summed = np.zeros(nodes), np.zeros(nodes)
    queue, leaves = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    some = np.zeros(nodes, np.int64)
    in_use, event, edge = 0, 0, 0
    now = 0.0 if events == 0 else at_s[0]
    while edge < len(edges_s):
        until = edges_s[edge] if event == events else min(at_s[event], edges_s[edge])
        if until > now:
            for at in range(in_use):
                node = leaves[at]
                had[node] += holds[node] * (until - now)
                summed[node] += due[node] * (until - now)
            now = until
        if event == events or edges_s[edge] <= at_s[event]:
            had_gpu_s[edge], due_gpu_s[edge] = had, summed
            edge += 1
            continue
        while event < events and at_s[event] <= now:
            _change(tree, state, leaf[event], wanted[event], held[event])
            event += 1
        due[0] = holds[0]
        waiting, in_use = 1, 0
        queue[0] = 0
        while waiting > 0:
            waiting -= 1
            node = queue[waiting]
            if first[node] == first[node + 1]:
                leaves[in_use] = node
                in_use += 1
                continue
            _fill(tree, state, shares, some, node)
            for at in range(first[node], first[node] + active[node]):
                queue[waiting] = order[at]
                waiting += 1
