"""Putting jobs on nodes one after another: what was chosen finds room, and what is left is used.

Nodes of one class with equally many free GPUs are in one list, so that the node which a piece fills
best is found at once. The naive twin is in `tests/hetsched_core/choose/naive.py`.
"""

from __future__ import annotations

import numpy as np

from hetsched_core.kernels import Floats, Ints, IntsOut, kernel, scalar

NOBODY = -1

# Class and free GPUs of each node; first node with so many free GPUs of a class, and the nodes
# after and before each node in its list.
Room = tuple[Ints, Ints, Ints, Ints, Ints]

# Class and GPUs of the pieces of one bundle, and on how many nodes each is.
Pieces = tuple[Ints, Ints, Ints]

TRIES = 4
"""After so many offers that do not fit, a job's other offers are put in order at once."""


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
def _change_all(room: Room, pieces: Pieces, nodes: Ints, first: int, sign: int) -> None:
    """Take pieces from the first so many of their nodes (sign -1), or give them back (sign 1)."""
    _, gpus, many = pieces
    at = 0
    for p in range(len(gpus)):
        for _ in range(min(many[p], first - at)):
            _change(room, nodes[at], sign * gpus[p])
            at += 1


@scalar
def _is_among(node: int, nodes: Ints, first: int) -> bool:
    """Whether a node is one of the first so many."""
    found = False
    for i in range(first):
        found = found or nodes[i] == node
    return found


@scalar
def _put(room: Room, pieces: Pieces, nodes: Ints) -> bool:
    """Put pieces on different nodes, each on the one it fills best; all of them or none.

    `nodes` is filled with where they are. Return whether they found room.
    """
    _, _, head, after, _ = room
    of_class, gpus, many = pieces
    at = 0
    for p in range(len(gpus)):
        for _ in range(many[p]):
            found = NOBODY
            for f in range(gpus[p], head.shape[1]):
                node = head[of_class[p], f]
                while node >= 0 and _is_among(node, nodes, at):
                    node = after[node]
                if node >= 0:
                    found = node
                    break
            if found < 0:
                _change_all(room, pieces, nodes, at, 1)
                return False
            nodes[at] = found
            at += 1
            _change(room, found, -gpus[p])
    return True


@scalar
def _pieces_of(bundle: int, bundle_starts: Ints, bought: Pieces) -> Pieces:
    """Return the pieces of a bundle among those of all."""
    of_class, gpus, many = bought
    first, last = bundle_starts[bundle], bundle_starts[bundle + 1]
    return of_class[first:last], gpus[first:last], many[first:last]


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
    piece_nodes: Ints,
    sweeps: int,
    choice: IntsOut,
    free: IntsOut,
    held_starts: Ints,
    held: IntsOut,
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
        piece_nodes: (E,) on how many nodes it is.
        sweeps: how many sweeps there are, at most.
        choice: (J,) in and out, the offer of each job, -1 for none.
        free: (N,) in and out, GPUs left on each node.
        held_starts: (J + 1,) where the nodes of each job begin.
        held: (H,) out, the node of each piece of each job, node by node.
    """
    nodes = len(of_class)
    widest = 0 if nodes == 0 else free.max()
    classes = 0 if nodes == 0 else of_class.max() + 1
    head = np.full((max(classes, 1 + piece_class.max()), widest + 1), NOBODY, np.int64)
    room = (of_class, free, head, np.empty(nodes, np.int64), np.empty(nodes, np.int64))
    for back in range(nodes):
        _link(room, nodes - 1 - back)
    bought = (piece_class, piece_gpus, piece_nodes)

    for j in order:
        if choice[j] >= 0:
            pieces = _pieces_of(bundle[choice[j]], bundle_starts, bought)
            if not _put(room, pieces, held[held_starts[j] : held_starts[j + 1]]):
                choice[j] = NOBODY

    left = free.sum()
    wide = np.zeros(len(cost), np.int64)
    for b in range(len(cost)):
        for e in range(bundle_starts[b], bundle_starts[b + 1]):
            wide[b] += piece_gpus[e] * piece_nodes[e]
    most = (starts[1:] - starts[:-1]).max()
    tried, gain = np.empty(most, np.bool_), np.empty(most)
    # What found no room finds none for any job that has nothing, until another gives up nodes.
    given_up, no_room_at = 0, np.full(len(cost), NOBODY, np.int64)
    for sweep in range(sweeps):
        changed = False
        for j in order:
            if left == 0:
                break
            had = choice[j]
            if had >= 0 and sweep == 0:
                continue
            mine = held[held_starts[j] : held_starts[j + 1]]
            worth, was = 0.0, mine.copy()
            if had >= 0:
                worth = value[had]
                b = bundle[had]
                _change_all(room, _pieces_of(b, bundle_starts, bought), was, len(was), 1)
                left += wide[b]
                choice[j] = NOBODY
            first, offers = starts[j], starts[j + 1] - starts[j]
            untried = 0
            for q in range(first, first + offers):
                b = bundle[q]
                tried[q - first] = (
                    value[q] <= worth or wide[b] > left or (had < 0 and no_room_at[b] == given_up)
                )
                untried += not tried[q - first]
                gain[q - first] = value[q] - cost[b] if sweep == 0 else value[q]
            ranked = np.empty(0, np.int64)
            rank = tries = 0
            while choice[j] < 0 and untried > 0:
                if tries < TRIES:
                    best = NOBODY
                    for i in range(offers):
                        if not tried[i] and (best < 0 or gain[i] > gain[best]):
                            best = i
                else:
                    if tries == TRIES:
                        ranked = np.argsort(-gain[:offers], kind="mergesort")
                    while tried[ranked[rank]]:
                        rank += 1
                    best = ranked[rank]
                tried[best] = True
                untried -= 1
                tries += 1
                b = bundle[first + best]
                if _put(room, _pieces_of(b, bundle_starts, bought), mine):
                    choice[j] = first + best
                    left -= wide[b]
                    changed = True
                    given_up += had >= 0
                elif had < 0:
                    no_room_at[b] = given_up
            if had >= 0 and choice[j] < 0:
                b = bundle[had]
                _change_all(room, _pieces_of(b, bundle_starts, bought), was, len(was), -1)
                left -= wide[b]
                choice[j] = had
                mine[:] = was
        if not changed and sweep > 0:
            break
