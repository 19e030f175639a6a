"""Putting jobs on nodes one after another: what was chosen finds room, and what is left is used.

Nodes of one class with equally many free GPUs are in one list, so that the node which a piece fills
best is found at once. The naive twin is in `tests/hetsched_core/choose/naive.py`.
"""

from __future__ import annotations

import numpy as np

from hetsched_core.kernels import Floats, Ints, IntsOut, IntTableOut, kernel, scalar

NOBODY = -1

# Class and free GPUs of each node; first node with so many free GPUs of a class, and the nodes
# after and before each node in its list.
Room = tuple[Ints, Ints, Ints, Ints, Ints]

# Class and GPUs of the pieces of one bundle.
Pieces = tuple[Ints, Ints]


@scalar
def _link(room: Room, node: int) -> None:
    """Put a node at the head of the list that it belongs to."""
    of_class, free, head, after, before = room
    next_one = head[of_class[node], free[node]]
    after[node], before[node] = next_one, NOBODY
    if next_one >= 0:
        before[next_one] = node
    head[of_class[node], free[node]] = node


@scalar
def _change(room: Room, node: int, by: int) -> None:
    """Change the free GPUs of a node."""
    of_class, free, head, after, before = room
    if before[node] >= 0:
        after[before[node]] = after[node]
    else:
        head[of_class[node], free[node]] = after[node]
    if after[node] >= 0:
        before[after[node]] = before[node]
    free[node] += by
    _link(room, node)


@scalar
def _change_all(room: Room, pieces: Pieces, nodes: Ints, sign: int) -> None:
    """Take pieces from their nodes (sign -1), or give them back (sign 1)."""
    for p in range(len(pieces[1])):
        _change(room, nodes[p], sign * pieces[1][p])


@scalar
def _put(room: Room, pieces: Pieces, nodes: Ints) -> bool:
    """Put pieces on different nodes, each on the one it fills best; all of them or none.

    `nodes` is filled with where they are. Return whether they found room.
    """
    _, _, head, after, _ = room
    of_class, gpus = pieces
    for p in range(len(gpus)):
        found = NOBODY
        for f in range(gpus[p], head.shape[1]):
            node = head[of_class[p], f]
            while node >= 0 and (nodes[:p] == node).any():
                node = after[node]
            if node >= 0:
                found = node
                break
        if found < 0:
            for put in range(p):
                _change(room, nodes[put], gpus[put])
            return False
        nodes[p] = found
        _change(room, found, -gpus[p])
    return True


@kernel()
def fill(
    of_class: Ints,
    order: Ints,
    starts: Ints,
    value: Floats,
    bundle: Ints,
    cost: Floats,
    bundle_starts: Ints,
    piece_class: Ints,
    piece_gpus: Ints,
    sweeps: int,
    choice: IntsOut,
    free: IntsOut,
    held: IntTableOut,
) -> None:
    """Give jobs what was chosen for them where it fits, then use what is left.

    First the jobs that have a choice get it, in their order, if all pieces find a node. Then come
    the sweeps. In the first, jobs without anything take the offer that fits with the most value
    less cost; in the others, every job takes the most valuable offer that fits and is worth more
    than what it has, until none finds any.

    Args:
        of_class: (N,) class of each node.
        order: (J,) jobs, the first to be served first.
        starts: (J + 1,) where the offers of each job begin.
        value: (Q,) of each offer.
        bundle: (Q,) its bundle.
        cost: (B,) cost of each bundle.
        bundle_starts: (B + 1,) where the pieces of each bundle begin.
        piece_class: (E,) class of a piece; the widest pieces of a bundle come first.
        piece_gpus: (E,) its GPUs.
        sweeps: how many sweeps there are, at most.
        choice: (J,) in and out, the offer of each job, -1 for none.
        free: (N,) in and out, GPUs left on each node.
        held: (J, M) out, node of each piece of each job.
    """
    nodes = len(of_class)
    widest = 0 if nodes == 0 else free.max()
    classes = 0 if nodes == 0 else of_class.max() + 1
    head = np.full((max(classes, 1 + piece_class.max()), widest + 1), NOBODY, np.int64)
    room = (of_class, free, head, np.empty(nodes, np.int64), np.empty(nodes, np.int64))
    for back in range(nodes):
        _link(room, nodes - 1 - back)

    for j in order:
        if choice[j] >= 0:
            first, last = bundle_starts[bundle[choice[j]]], bundle_starts[bundle[choice[j]] + 1]
            if not _put(room, (piece_class[first:last], piece_gpus[first:last]), held[j]):
                choice[j] = NOBODY

    left = free.sum()
    wide = np.zeros(len(cost), np.int64)
    for b in range(len(cost)):
        wide[b] = piece_gpus[bundle_starts[b] : bundle_starts[b + 1]].sum()
    tried = np.empty(1 + (starts[1:] - starts[:-1]).max(), np.bool_)
    for sweep in range(sweeps):
        changed = False
        for j in order:
            if left == 0:
                break
            had = choice[j]
            if had >= 0 and sweep == 0:
                continue
            worth, was = 0.0, held[j].copy()
            if had >= 0:
                worth = value[had]
                first, last = bundle_starts[bundle[had]], bundle_starts[bundle[had] + 1]
                _change_all(room, (piece_class[first:last], piece_gpus[first:last]), was, 1)
                left += piece_gpus[first:last].sum()
                choice[j] = NOBODY
            for q in range(starts[j], starts[j + 1]):
                tried[q - starts[j]] = value[q] <= worth or wide[bundle[q]] > left
            while choice[j] < 0:
                best, most = NOBODY, -np.inf
                for q in range(starts[j], starts[j + 1]):
                    gain = value[q] - cost[bundle[q]] if sweep == 0 else value[q]
                    if gain > most and not tried[q - starts[j]]:
                        best, most = q, gain
                if best < 0:
                    break
                tried[best - starts[j]] = True
                first, last = bundle_starts[bundle[best]], bundle_starts[bundle[best] + 1]
                if _put(room, (piece_class[first:last], piece_gpus[first:last]), held[j]):
                    choice[j] = best
                    left -= piece_gpus[first:last].sum()
                    changed = True
            if had >= 0 and choice[j] < 0:
                first, last = bundle_starts[bundle[had]], bundle_starts[bundle[had] + 1]
                _change_all(room, (piece_class[first:last], piece_gpus[first:last]), was, -1)
                left -= piece_gpus[first:last].sum()
                choice[j], held[j] = had, was
        if not changed and sweep > 0:
            break
