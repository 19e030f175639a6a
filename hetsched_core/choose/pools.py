"""Classes that differ only in where their nodes are: chosen for as one, then told apart.

With topology groups every option on one node comes once for each group, at the same value, so that
no price tells them apart. So classes of one kind are merged first: what is chosen among the merged
ones bounds what can be chosen, since it forgets only which nodes are together. Then the nodes that
jobs hold together are put into one pool, the largest such sets first, and the rest anywhere. A job
to which one of its classes is worth more, because it is there already, pins its nodes to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsched_core.choose.nodes import place
from hetsched_core.choose.offers import SWEEPS, Offers, serve
from hetsched_core.choose.problem import (
    ChooseProblem,
    JobPieces,
    NodeClasses,
    OptionColumns,
    bundle_codes,
    in_order,
)

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class MergedKinds:
    """A problem over K kinds of nodes instead of C classes.

    Attributes:
        problem: that problem.
        kind: (C,) the kind of each class.
        best: (Q,) of each of its options, that of the problem itself which is worth the most.
        favoured: (Q,) whether that is worth more than any other.
    """

    problem: ChooseProblem
    kind: Ints
    best: Ints
    favoured: NDArray[np.bool_]


def merge_kinds(problem: ChooseProblem) -> MergedKinds | None:
    """Return the problem over kinds; None where each class is one."""
    classes, options = problem.classes, problem.options
    if classes.kind is None:
        return None
    _, first, kind = np.unique(classes.kind, return_index=True, return_inverse=True)
    if len(first) == len(classes):
        return None
    count = np.bincount(kind, weights=classes.count).astype(np.int64)
    label = tuple(classes.label[c] for c in first.tolist())
    # What each bundle takes, sorted: one number a piece, of its bundle and its slot.
    width = int(classes.capacity.max(initial=0)) + 1
    slots = len(count) * width
    piece = np.repeat(np.arange(len(options.starts) - 1) * slots, np.diff(options.starts))
    piece += kind[options.piece_class] * width
    piece += options.piece_gpus
    piece, at = np.unique(piece, return_inverse=True)
    nodes = np.zeros(len(piece), np.int64)
    np.add.at(nodes, at, options.piece_nodes)
    starts = np.searchsorted(piece, np.arange(len(options.starts)) * slots)
    pieces = piece % slots // width, piece % width, nodes
    bundle, takes = in_order(bundle_codes(starts, *pieces), options.bundle)
    # Of a job's options that take the same, the one of the most value.
    best = np.lexsort((-options.value, bundle, options.job))
    same = np.append((np.diff(options.job[best]) == 0) & (np.diff(bundle[best]) == 0), False)
    new = ~np.roll(same, 1)
    favoured = ~same | (np.diff(options.value[best], append=0.0) < 0)
    kept, favoured = best[new], favoured[new]
    columns = OptionColumns(
        options.job[kept], options.value[kept], takes[bundle[kept]], starts, *pieces
    )
    return MergedKinds(
        ChooseProblem(NodeClasses(classes.capacity[first], count, label), columns, problem.jobs),
        kind,
        kept,
        favoured,
    )


def split_kinds(whole: MergedKinds, offers: Offers, option: Ints) -> Ints:
    """Return what was chosen among kinds as options of the problem itself, where they are found.

    Args:
        whole: the problem over kinds.
        offers: of the problem itself.
        option: (J,) what was chosen among kinds.
    """
    problem, classes = offers.problem, offers.classes
    node_kind = whole.problem.classes.of_node
    found = np.full(problem.jobs, -1, np.int64)
    # The nodes of a kind, class by class.
    home = classes.of_node
    home = home[np.argsort(whole.kind[home], kind="stable")]
    now = _favourites(whole, offers, option, home)
    placed = place(whole.problem, option, node_kind, now)
    if placed is None:
        return found
    pinned = np.zeros(len(home), np.bool_)
    owner = placed.job
    kept = np.isin(placed.node * problem.jobs + owner, now.node * problem.jobs + now.job)
    pinned[placed.node[kept]] = True
    wide = np.flatnonzero(np.diff(placed.starts) > 1)
    wide = wide[np.argsort(-whole.problem.options.value[option[wide]], kind="stable")]
    nodes = [placed.node[placed.starts[job] : placed.starts[job + 1]] for job in wide.tolist()]
    of_class = _classes_of(classes, whole.kind, node_kind, nodes, np.where(pinned, home, -1))
    bundle, wanted = _with_bundles(offers, owner, of_class[placed.node], placed.gpus)
    for job in np.flatnonzero(np.diff(placed.starts)).tolist():
        here = bundle[offers.bundle[offers.starts[job] : offers.starts[job + 1]]] == wanted[job]
        if here.any():
            found[job] = offers.starts[job] + int(here.argmax())
    # Others may have what is left.
    free = classes.capacity[of_class]
    keeps = found[owner] >= 0
    np.subtract.at(free, placed.node[keeps], placed.gpus[keeps])
    order = np.flatnonzero(found < 0)
    serve(offers, order, of_class, free, found, offers.free_of_charge, SWEEPS)
    return found


def _with_bundles(offers: Offers, job: Ints, of_class: Ints, gpus: Ints) -> tuple[Ints, Ints]:
    """Return (B,) codes of bundles and (J,) of what jobs have, equal where they are the same.

    Args:
        offers: whose bundles and jobs they are.
        job: (P,) whose each piece is, on a node of its own.
        of_class: (P,) its class.
        gpus: (P,) its GPUs.
    """
    jobs, bundles = len(offers.starts) - 1, len(offers.bundle_starts) - 1
    pieces = np.stack([job, -gpus, of_class], axis=1)
    pieces, nodes = np.unique(pieces, axis=0, return_counts=True)
    owner, wide, inside = np.ascontiguousarray(pieces.T)
    ends = np.searchsorted(owner, np.arange(1, jobs + 1))
    slot = offers.bundle_slots
    code = bundle_codes(
        np.append(offers.bundle_starts, offers.bundle_starts[-1] + ends),
        np.append(offers.slot_class[slot], inside),
        np.append(offers.slot_gpus[slot], -wide),
        np.append(offers.bundle_nodes, nodes),
    )
    return code[:bundles], code[bundles:]


def _favourites(whole: MergedKinds, offers: Offers, option: Ints, home: Ints) -> JobPieces:
    """Return nodes for jobs that chose what one class makes worth more, as far as there is room.

    Args:
        whole: the problem over kinds.
        offers: of the problem itself.
        option: (J,) what was chosen among kinds.
        home: (N,) class of each node.
    """
    choice = np.full(len(option), -1, np.int64)
    has = np.flatnonzero(option >= 0)
    has = has[whole.favoured[option[has]]]
    choice[has] = whole.best[option[has]]
    order = offers.widest_first(choice, np.zeros(len(choice)))
    free = offers.classes.capacity[home]
    held = serve(offers, order, home, free, choice, offers.free_of_charge, 0)
    return held.pieces(offers, choice)


def _classes_of(
    classes: NodeClasses, kind: Ints, node_kind: Ints, wide: Sequence[Ints], pinned: Ints
) -> Ints:
    """Return (N,) the class that each node of a kind is to be one of.

    Nodes that are held together go into one pool, the largest sets first, each where it leaves the
    least; what finds none, and nodes alone, go where there is room.

    Args:
        classes: the classes.
        kind: (C,) of each class.
        node_kind: (N,) of each node.
        wide: the nodes of each job on several, the jobs worth the most first.
        pinned: (N,) the class that a node is to be one of, -1 for any.
    """
    assert classes.pool is not None
    pools, pool = np.unique(classes.pool, return_inverse=True)
    class_at = np.full((len(pools), int(kind.max()) + 1), -1, np.int64)
    class_at[pool, kind] = np.arange(len(classes))
    room = np.where(class_at >= 0, classes.count[class_at], 0)
    of_class = pinned.copy()
    fixed = pinned[pinned >= 0]
    np.subtract.at(room, (pool[fixed], kind[fixed]), 1)
    left = _held_together(range(len(wide)), wide)
    while left:
        jobs = left.pop(0)
        together = np.unique(np.concatenate([wide[job] for job in jobs]))
        free = together[of_class[together] < 0]
        asked = np.bincount(node_kind[free], minlength=room.shape[1])
        able = np.flatnonzero((room >= asked).all(axis=1))
        there = np.unique(pool[of_class[together][of_class[together] >= 0]])
        if len(there):
            able = able[able == there[0]] if len(there) == 1 else able[:0]
        if len(able):
            best = able[room[able][:, asked > 0].sum(axis=1).argmin()]
            room[best] -= asked
            of_class[free] = class_at[best, node_kind[free]]
        else:
            # The rest may still do without the job that is worth the least.
            left += _held_together(jobs[:-1], wide)
    for k in range(room.shape[1]):
        alone = np.flatnonzero((node_kind == k) & (of_class < 0))
        able = np.flatnonzero(class_at[:, k] >= 0)
        of_class[alone] = np.repeat(class_at[able, k], room[able, k])
    return of_class


def _held_together(jobs: Iterable[int], wide: Sequence[Ints]) -> list[list[int]]:
    """Return the sets of jobs that are connected by their nodes, the largest first, in order.

    Args:
        jobs: positions in `wide`, ascending.
        wide: nodes of each job.
    """
    root: dict[int, int] = {}

    def find(node: int) -> int:
        while root.setdefault(node, node) != node:
            root[node] = root[root[node]]
            node = root[node]
        return node

    chosen = list(jobs)
    for job in chosen:
        first, *others = wide[job].tolist()
        for other in others:
            root[find(other)] = find(first)
    sets: dict[int, list[int]] = {}
    for job in chosen:
        sets.setdefault(find(int(wide[job][0])), []).append(job)
    return sorted(sets.values(), key=len, reverse=True)
