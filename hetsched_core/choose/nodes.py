"""From classes to nodes: where the chosen pieces go; a job that keeps its pieces keeps its nodes.

What takes just what it has stays, and the others go, the widest piece first, where they fill a node
best. Where that leaves a job without room, the nodes of the class are cut anew by an integer
programme over (what a node keeps, pattern) that moves as few pieces as possible. That always
succeeds where the class formulation holds and no two pieces of a job could share a node. Where they
could, pieces of different jobs change places; if that fails, the slots are dealt out again, to jobs
with the most pieces first; if that fails, too, a programme over pieces and nodes decides, where it
is small enough. What is chosen over classes may not fit there: slots alone would let two pieces of
one job share a node where they are small enough.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from hetsched_core.choose.offers import Offers
from hetsched_core.choose.problem import (
    ChooseProblem,
    JobPieces,
    NodeClasses,
    OptionColumns,
    starts_of,
)
from hetsched_core.choose.program import cuts_of, patterns
from hetsched_core.kernels.fill import fill
from hetsched_core.optimize import Limits, Matrix, Program, solve

Ints = NDArray[np.int64]

_MOST_PATTERNS = 20_000
"""Patterns times kinds of nodes, by what they keep, in a programme."""

_MOST_PIECES_AND_NODES = 4000
"""With a quarter more a programme took 3 s, 2 of them between two looks at its limits."""

_LIMITS = Limits(gap=1e-3, nodes=1000, work=100_000)

_MOST_OPTIONS = 5000
"""A problem that has more options node by node is not looked at so."""


@dataclass(frozen=True, slots=True, eq=False)
class _Pieces:
    """Pieces, those of one job together and its widest first, and where they are now.

    Attributes:
        job: (P,).
        of_class: (P,).
        gpus: (P,).
        at: (P,) node of a piece that may stay, -1 for others.
    """

    job: Ints
    of_class: Ints
    gpus: Ints
    at: Ints


def assign_nodes(
    problem: ChooseProblem, option: Ints, node_class: Ints, now: JobPieces
) -> JobPieces | None:
    """Return the nodes of each job that has an option; None where what was chosen does not fit.

    Args:
        problem: whose option it is.
        option: (J,) what was chosen for each job, -1 for none; it fits, as that of `choose` does.
        node_class: (N,) class of each node, as many of each as the problem says.
        now: what jobs have at present; a job that is to have just that keeps it if it can.
    """
    placed = place(problem, option, node_class, now)
    if placed is None:
        placed = place(problem, option, node_class, JobPieces.none(problem.jobs))
    return placed


def place(
    problem: ChooseProblem, option: Ints, node_class: Ints, now: JobPieces
) -> JobPieces | None:
    """Return the same as `assign_nodes`, or None where it finds no room."""
    wanted = _pieces_of(problem, option, node_class, now)
    at = wanted.at.copy()
    full = _fill_up(wanted, problem.classes.capacity[node_class], node_class, at)
    for c in np.unique(wanted.of_class[full]):
        mine = np.flatnonzero(wanted.of_class == c)
        nodes = np.flatnonzero(node_class == c)
        capacity = int(problem.classes.capacity[c])
        pieces = wanted.job[mine], wanted.gpus[mine], wanted.at[mine]
        found = _recut(capacity, nodes, *pieces)
        if found is None:
            found = _piece_by_piece(capacity, nodes, *pieces)
        if found is None:
            return None
        at[mine] = found
    starts = np.searchsorted(wanted.job, np.arange(problem.jobs + 1))
    return JobPieces(starts, at, wanted.gpus)


def surely_fits(offers: Offers) -> bool:
    """Return whether what the programme finds always fits on nodes.

    It does where no two pieces of an option could share a node: then any cut that has the slots
    does. With one price per GPU instead of cuts the programme does not know the slots.
    """
    classes, starts = offers.classes, offers.slot_starts
    of_class, gpus = offers.slot_class[offers.bundle_slots], offers.slot_gpus[offers.bundle_slots]
    bundles = len(offers.bundle_starts) - 1
    owner = np.repeat(np.arange(bundles), np.diff(offers.bundle_starts))
    small = gpus < classes.capacity[of_class]
    where = (owner * len(classes) + of_class)[small]
    alone = len(np.unique(where)) == len(where) and (offers.bundle_nodes[small] == 1).all()
    return bool(alone) and all(
        classes.count[c] < 2
        or cuts_of(int(classes.capacity[c]), offers.slot_gpus[starts[c] : starts[c + 1]])
        is not None
        for c in range(len(classes))
    )


def fits(problem: ChooseProblem, option: Ints) -> bool:
    """Return whether what was chosen finds nodes."""
    none = JobPieces.none(problem.jobs)
    return place(problem, option, problem.classes.of_node, none) is not None


def node_by_node(problem: ChooseProblem) -> tuple[ChooseProblem, Ints] | None:
    """Return the problem with a class of its own for each node, and of which option each of its is.

    None if it has too many options.
    """
    classes, options = problem.classes, problem.options
    first = starts_of(classes.count)
    origin: list[int] = []
    pieces: list[tuple[int, ...]] = []
    gpus: list[Ints] = []
    for q, b in enumerate(options.bundle.tolist()):
        mine = slice(options.starts[b], options.starts[b + 1])
        # Pieces that are alike are on nodes in ascending order.
        alike: Counter[tuple[int, int]] = Counter()
        columns = options.piece_class[mine], options.piece_gpus[mine], options.piece_nodes[mine]
        for of_class, each, many in zip(*(column.tolist() for column in columns), strict=True):
            alike[of_class, each] += many
        # `product` puts all that it is given together beforehand.
        counts = [math.comb(int(classes.count[c]), times) for (c, _), times in alike.items()]
        if 0 in counts:
            continue
        if math.prod(counts) > _MOST_OPTIONS:
            return None
        ways = product(
            *(combinations(range(first[c], first[c + 1]), times) for (c, _), times in alike.items())
        )
        sizes = np.repeat(
            np.array([g for _, g in alike], np.int64), np.array(list(alike.values()), np.int64)
        )
        for way in ways:
            nodes = tuple(node for part in way for node in part)
            if len(set(nodes)) == len(nodes):
                origin.append(q)
                pieces.append(nodes)
                gpus.append(sizes)
            if len(origin) > _MOST_OPTIONS:
                return None
    number = int(first[-1])
    return (
        ChooseProblem(
            NodeClasses(
                np.repeat(classes.capacity, classes.count),
                np.ones(number, np.int64),
                tuple(map(str, range(number))),
            ),
            OptionColumns.apart(
                options.job[origin],
                options.value[origin],
                starts_of([len(nodes) for nodes in pieces]),
                np.array([node for nodes in pieces for node in nodes], np.int64),
                np.concatenate(gpus),
            ),
            problem.jobs,
        ),
        np.array(origin),
    )


def drop_unplaced(problem: ChooseProblem, option: Ints) -> Ints:
    """Return what was chosen less the jobs that find no room behind the others."""
    node_class = problem.classes.of_node
    wanted = _pieces_of(problem, option, node_class, JobPieces.none(problem.jobs))
    free = problem.classes.capacity[node_class]
    full = _fill_up(wanted, free, node_class, wanted.at.copy())
    left = option.copy()
    left[wanted.job[full]] = -1
    return left


def _pieces_of(problem: ChooseProblem, option: Ints, node_class: Ints, now: JobPieces) -> _Pieces:
    """Return the pieces chosen, with the nodes of the jobs that take what they have."""
    options, classes = problem.options, problem.classes
    has = np.flatnonzero(option >= 0)
    owner, of_class, gpus = options.by_node(option[has])
    job = has[owner]
    order = np.lexsort((of_class, -gpus, job))
    job, of_class, gpus = job[order], of_class[order], gpus[order]

    had_job, had_class, had_gpus = now.job, node_class[now.node], now.gpus
    order = np.lexsort((had_class, -had_gpus, had_job))
    had_node, had_class, had_gpus = now.node[order], had_class[order], had_gpus[order]

    # Compare piece by piece the jobs with as many pieces as they had.
    many = np.bincount(job, minlength=problem.jobs)
    alike = (many == np.diff(now.starts)) & (many > 0)
    at = np.full(len(job), -1, np.int64)
    mine, theirs = np.flatnonzero(alike[job]), np.flatnonzero(alike[had_job])
    differs = (of_class[mine] != had_class[theirs]) | (gpus[mine] != had_gpus[theirs])
    alike[job[mine][differs]] = False
    at[mine] = np.where(alike[job[mine]], had_node[theirs], -1)
    # More may be said to run on a node than it has room for; then no job stays there.
    stays = at >= 0
    held = np.bincount(at[stays], weights=gpus[stays], minlength=len(node_class))
    crowded = held > classes.capacity[node_class]
    leave = np.isin(job, job[stays][crowded[at[stays]]])
    at[leave] = -1
    return _Pieces(job, of_class, gpus, at)


def _fill_up(wanted: _Pieces, free: Ints, node_class: Ints, at: Ints) -> Ints:
    """Find nodes for those that do not stay, in `at`; return the pieces of jobs that found none.

    `free` holds the GPUs of each node, and what is left of them afterwards.
    """
    stays = at >= 0
    np.subtract.at(free, at[stays], wanted.gpus[stays])
    loose = np.flatnonzero(at < 0)
    if len(loose) == 0:
        return loose
    jobs, first = np.unique(wanted.job[loose], return_index=True)
    starts = np.append(first, len(loose))
    every = np.arange(len(jobs))
    choice, held = every.copy(), np.full(len(loose), -1, np.int64)
    fill(
        node_class,
        np.argsort(-wanted.gpus[loose][first], kind="stable"),
        np.arange(len(jobs) + 1),
        np.ones(len(jobs)),
        every,
        np.zeros(len(jobs)),
        starts,
        wanted.of_class[loose],
        wanted.gpus[loose],
        np.ones(len(loose), np.int64),
        0,
        choice,
        free,
        starts,
        held,
    )
    owner = np.repeat(every, np.diff(starts))
    at[loose] = held
    return loose[choice[owner] < 0]


def _recut(capacity: int, nodes: Ints, job: Ints, gpus: Ints, at: Ints) -> Ints | None:
    """Return a node for each piece of one class, so that most stay; None if that fails.

    Args:
        capacity: GPUs of each node.
        nodes: (N,) the nodes.
        job: (P,) whose piece.
        gpus: (P,) its GPUs.
        at: (P,) where it is and may stay, -1 for those that are to be placed.
    """
    sizes, size = np.unique(gpus, return_inverse=True)
    cuts = patterns(capacity, tuple(sizes.tolist()), _MOST_PATTERNS)
    if cuts is None:
        return None
    keeps = np.zeros((len(nodes), len(sizes)), np.int64)
    stays = np.flatnonzero(at >= 0)
    np.add.at(keeps, (np.searchsorted(nodes, at[stays]), size[stays]), 1)
    kinds, kind = np.unique(keeps, axis=0, return_inverse=True)
    if len(kinds) * len(cuts) > _MOST_PATTERNS:
        return None
    times = _cut_kinds(cuts, kinds, np.bincount(kind), np.bincount(size))
    if times is None:
        return None
    # Equal nodes are interchangeable: the first ones get the first patterns.
    pattern = np.empty(len(nodes), np.int64)
    for k in range(len(kinds)):
        pattern[kind == k] = np.repeat(np.arange(len(cuts)), times[k])
    slots = cuts[pattern]
    found = np.full(len(job), -1, np.int64)
    for p in stays:
        n = np.searchsorted(nodes, at[p])
        if slots[n, size[p]] > 0:
            slots[n, size[p]] -= 1
            found[p] = n
    n, s = np.nonzero(slots)
    node, room = np.repeat(n, slots[n, s]), np.repeat(sizes[s], slots[n, s])
    by_room = np.argsort(-room, kind="stable")
    moved = np.flatnonzero(found < 0)
    moved = moved[np.argsort(-gpus[moved], kind="stable")]
    slots_left = node[by_room], room[by_room]
    given = found.copy()
    if not _take_slots(moved, job, gpus, *slots_left, given):
        given = found
        if not _deal_slots(moved, job, gpus, *slots_left, given):
            return None
    return nodes[given]


def _cut_kinds(cuts: Ints, kinds: Ints, number: Ints, pieces: Ints) -> Ints | None:
    """Return (K, Z) how many nodes of each kind are cut by each pattern, so that most pieces stay.

    Args:
        cuts: (Z, S) pieces of each size in a pattern.
        kinds: (K, S) pieces of each size that a node of a kind could keep.
        number: (K,) nodes of each kind.
        pieces: (S,) pieces of each size in all.
    """
    stay = np.minimum(kinds[:, None, :], cuts[None, :, :]).sum(axis=2)
    at_least = cuts[:, ::-1].cumsum(axis=1)[:, ::-1]
    columns = stay.size
    kind, cut = np.divmod(np.arange(columns), len(cuts))
    enough, size = np.nonzero(np.tile(at_least, (len(kinds), 1)))
    found = solve(
        Program(
            cost=stay.ravel().astype(np.float64),
            lower=np.zeros(columns),
            upper=number[kind].astype(np.float64),
            matrix=Matrix.of(
                len(kinds) + len(pieces),
                np.concatenate([kind, len(kinds) + size]),
                np.concatenate([np.arange(columns), enough]),
                np.concatenate([np.ones(columns), at_least[cut[enough], size]]),
            ),
            row_lower=np.concatenate([number, pieces[::-1].cumsum()[::-1]]).astype(np.float64),
            row_upper=np.concatenate([number, np.full(len(pieces), np.inf)]).astype(np.float64),
            maximise=True,
            integer=np.ones(columns, np.bool_),
        ),
        limits=_LIMITS,
    )
    return None if found.x is None else np.rint(found.x).astype(np.int64).reshape(stay.shape)


def _piece_by_piece(capacity: int, nodes: Ints, job: Ints, gpus: Ints, at: Ints) -> Ints | None:
    """Return the same as `_recut` from a programme that knows every piece and every node."""
    pieces = len(job)
    if pieces * len(nodes) > _MOST_PIECES_AND_NODES:
        return None
    piece, node = np.divmod(np.arange(pieces * len(nodes)), len(nodes))
    owners, owner = np.unique(job, return_inverse=True)
    found = solve(
        Program(
            cost=(nodes[node] == at[piece]).astype(np.float64),
            lower=np.zeros(len(piece)),
            upper=np.ones(len(piece)),
            matrix=Matrix.of(
                pieces + len(nodes) + len(owners) * len(nodes),
                np.concatenate(
                    [piece, pieces + node, pieces + len(nodes) * (1 + owner[piece]) + node]
                ),
                np.tile(np.arange(len(piece)), 3),
                np.concatenate([np.ones(len(piece)), gpus[piece], np.ones(len(piece))]),
            ),
            row_lower=np.append(np.ones(pieces), np.full(len(nodes) * (1 + len(owners)), -np.inf)),
            row_upper=np.concatenate(
                [np.ones(pieces), np.full(len(nodes), capacity), np.ones(len(owners) * len(nodes))]
            ).astype(np.float64),
            maximise=True,
            integer=np.ones(len(piece), np.bool_),
        ),
        limits=_LIMITS,
    )
    if found.x is None:
        return None
    chosen: Ints = found.x.reshape(pieces, len(nodes)).argmax(axis=1)
    return nodes[chosen]


def _take_slots(moved: Ints, job: Ints, gpus: Ints, node: Ints, room: Ints, found: Ints) -> bool:
    """Give each moved piece a slot on a node without another piece of its job; False if it fails.

    Slots and pieces are in falling order, so that the first slot left is always wide enough.
    """
    nodes_of: dict[int, set[int]] = {}
    for p in np.flatnonzero(found >= 0).tolist():
        nodes_of.setdefault(int(job[p]), set()).add(int(found[p]))
    slots = node.tolist()
    for i, p in enumerate(moved.tolist()):
        mine = nodes_of.setdefault(int(job[p]), set())
        k = next(
            (k for k in range(i, len(slots)) if slots[k] not in mine and room[k] >= gpus[p]), None
        )
        if k is not None:
            slots[i], slots[k] = slots[k], slots[i]
            room[[i, k]] = room[[k, i]]
        else:
            k = _partner(i, moved, job, gpus, slots, room, nodes_of)
            if k is None:
                return False
            theirs = nodes_of[int(job[moved[k]])]
            theirs.remove(slots[k])
            theirs.add(slots[i])
            slots[i], slots[k] = slots[k], slots[i]
            room[[i, k]] = room[[k, i]]
            found[moved[k]] = slots[k]
        found[p] = slots[i]
        mine.add(slots[i])
    return True


def _deal_slots(moved: Ints, job: Ints, gpus: Ints, node: Ints, room: Ints, found: Ints) -> bool:
    """Do what `_take_slots` does, jobs with the most pieces first, where the most slots are left.

    Pieces of one size find room so wherever they can (the theorem of Gale and Ryser).
    """
    nodes_of: dict[int, set[int]] = {}
    for p in np.flatnonzero(found >= 0).tolist():
        nodes_of.setdefault(int(job[p]), set()).add(int(found[p]))
    left: Counter[int] = Counter()
    slots = 0
    for size in np.unique(gpus[moved])[::-1].tolist():
        while slots < len(room) and room[slots] >= size:
            left[int(node[slots])] += 1
            slots += 1
        pieces: dict[int, list[int]] = {}
        for p in moved[gpus[moved] == size].tolist():
            pieces.setdefault(int(job[p]), []).append(p)
        for owner, mine in sorted(pieces.items(), key=lambda each: -len(each[1])):
            taken = nodes_of.setdefault(owner, set())
            able = [n for n, _ in left.most_common() if n not in taken][: len(mine)]
            if len(able) < len(mine):
                return False
            found[mine] = able
            taken.update(able)
            left.subtract(able)
            left += Counter()
    return True


def _partner(
    i: int,
    moved: Ints,
    job: Ints,
    gpus: Ints,
    slots: list[int],
    room: Ints,
    nodes_of: dict[int, set[int]],
) -> int | None:
    """Return the place of a piece with a slot already that can change slots with piece i."""
    mine = nodes_of[int(job[moved[i]])]
    for k in range(i):
        theirs = nodes_of[int(job[moved[k]])]
        if slots[k] not in mine and slots[i] not in theirs and room[i] >= gpus[moved[k]]:
            return k
    return None
