"""Where the class formulation may not hold: what fits on nodes, and the problem node by node.

Slots alone would let two pieces of one job share a node where they are small enough.
"""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from hetsched_core.choose.nodes import place
from hetsched_core.choose.offers import Offers
from hetsched_core.choose.problem import ChooseProblem, JobPieces, NodeClasses, Options
from hetsched_core.choose.program import cuts_of

Ints = NDArray[np.int64]

MOST_OPTIONS = 5000
"""A problem that has more options node by node is not looked at so."""


def surely_fits(classes: NodeClasses, offers: Offers) -> bool:
    """Return whether what the programme finds always fits on nodes.

    It does where no two pieces of an option could share a node: then any cut that has the slots
    does. With one price per GPU instead of cuts the programme does not know the slots.
    """
    slots, pieces = offers.slots, offers.bundle_slots
    owner = np.repeat(np.arange(len(offers.bundle_starts) - 1), np.diff(offers.bundle_starts))
    narrow = slots.gpus[pieces] < classes.capacity[slots.of_class[pieces]]
    where = (owner * len(classes) + slots.of_class[pieces])[narrow]
    return len(np.unique(where)) == len(where) and all(
        classes.count[c] < 2
        or cuts_of(int(classes.capacity[c]), slots.gpus[slots.starts[c] : slots.starts[c + 1]])
        is not None
        for c in range(len(classes))
    )


def fits(problem: ChooseProblem, option: Ints) -> bool:
    """Return whether what was chosen finds nodes."""
    node_class = np.repeat(np.arange(len(problem.classes)), problem.classes.count)
    return place(problem, option, node_class, JobPieces.none(problem.jobs)) is not None


def node_by_node(problem: ChooseProblem) -> tuple[ChooseProblem, Ints] | None:
    """Return the problem with a class of its own for each node, and of which option each of its is.

    None if it has too many options.
    """
    classes, options = problem.classes, problem.options
    first = np.concatenate([[0], np.cumsum(classes.count)])
    origin: list[int] = []
    pieces: list[tuple[int, ...]] = []
    gpus: list[Ints] = []
    for q in range(len(options)):
        mine = slice(options.starts[q], options.starts[q + 1])
        # Pieces that are alike are on nodes in ascending order.
        alike: dict[tuple[int, int], int] = {}
        for piece in zip(
            options.piece_class[mine].tolist(), options.piece_gpus[mine].tolist(), strict=True
        ):
            alike[piece] = alike.get(piece, 0) + 1
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
            if len(origin) > MOST_OPTIONS:
                return None
    number = int(first[-1])
    return (
        ChooseProblem(
            NodeClasses(
                np.repeat(classes.capacity, classes.count),
                np.ones(number, np.int64),
                tuple(str(node) for node in range(number)),
            ),
            Options(
                options.job[origin],
                options.value[origin],
                np.concatenate([[0], np.cumsum([len(nodes) for nodes in pieces])]),
                np.array([node for nodes in pieces for node in nodes], np.int64),
                np.concatenate(gpus),
            ),
            problem.jobs,
        ),
        np.array(origin),
    )
