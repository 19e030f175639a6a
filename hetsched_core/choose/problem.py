"""What is to be chosen: jobs, the configurations each could take, and the nodes there are.

Nodes that are interchangeable (same GPU type, idle GPUs, topology group, and speed as far as that
is known) make one *node class*. An *option* is a configuration of a job with nodes replaced by
their classes: a multiset of (class, GPUs), each piece on a node of its own. A cluster in which
options are to name nodes has a class of one node for each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetsched_core.kernels.prices import number_bundles

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def starts_of(sizes: ArrayLike) -> Ints:
    """Return (R + 1,) where each of R runs of these sizes begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def runs_of(starts: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    """Return the elements of the chosen runs: of which of `chosen` each is, and where it is.

    Args:
        starts: (R + 1,) where each run begins.
        chosen: (M,) numbers of runs.
    """
    begins = starts[chosen]
    sizes = starts[chosen + 1] - begins
    owner = np.repeat(np.arange(len(chosen)), sizes)
    return owner, (begins - np.cumsum(sizes) + sizes)[owner] + np.arange(len(owner))


def bundle_codes(starts: Ints, piece_class: Ints, piece_gpus: Ints, piece_nodes: Ints) -> Ints:
    """Return (B,) numbers that are equal where bundles have equal sequences of pieces."""
    bundles = len(starts) - 1
    code, first = np.empty(bundles, np.int64), np.empty(bundles, np.int64)
    widths = [int(column.max(initial=0)) + 1 for column in (piece_gpus, piece_nodes)]
    slot = (piece_class * widths[0] + piece_gpus) * widths[1] + piece_nodes
    slots = (int(piece_class.max(initial=0)) + 1) * widths[0] * widths[1]
    number_bundles(starts, slot, slots, code, first, np.empty(1, np.int64))
    return code


def in_order(code: Ints, taken: Ints) -> tuple[Ints, Ints]:
    """Number what options take in the order in which it first appears.

    Args:
        code: (B,) of each bundle, equal for equal ones.
        taken: (Q,) the bundle of each option.

    Returns:
        (Q,) the numbers, and a bundle for each number.
    """
    of_option = code[taken]
    first = np.full(int(code.max(initial=-1)) + 1, len(taken))
    # Of several that are put in one place, the last one stays.
    first[of_option[::-1]] = np.arange(len(taken))[::-1]
    order = np.argsort(first, kind="stable")[: int((first < len(taken)).sum())]
    number = np.empty(len(first), np.int64)
    number[order] = np.arange(len(order))
    return number[of_option], taken[first[order]]


@dataclass(frozen=True, slots=True, eq=False)
class NodeClasses:
    """Interchangeable nodes, C classes of them.

    Attributes:
        capacity: (C,) idle GPUs of each node.
        count: (C,) nodes.
        label: C names, under which prices are shown.
        kind: (C,) equal for classes that differ only in where their nodes are; None for none do.
        pool: (C,) with `kind`: where the nodes of each class are; in a pool, each of another kind.
    """

    capacity: Ints
    count: Ints
    label: tuple[str, ...]
    kind: Ints | None = None
    pool: Ints | None = None

    def __len__(self) -> int:
        """Number of classes."""
        return len(self.label)

    @property
    def of_node(self) -> Ints:
        """(N,) class of each node, the nodes class by class."""
        return np.repeat(np.arange(len(self)), self.count)


@dataclass(frozen=True, slots=True, eq=False)
class OptionColumns:
    """The Q configurations that jobs could take, those of one job together.

    What they take are *bundles*, B in all, with P pieces: far fewer than options, as jobs can take
    the same. Bundle b has the pieces `starts[b]:starts[b + 1]`, each on so many nodes of its own.

    Attributes:
        job: (Q,) whose option it is, ascending.
        value: (Q,) what it adds to the objective, above 0.
        bundle: (Q,) what it takes.
        starts: (B + 1,) where each bundle's pieces begin.
        piece_class: (P,) the node class of each piece.
        piece_gpus: (P,) its GPUs on each node.
        piece_nodes: (P,) on how many nodes it is.
    """

    job: Ints
    value: Floats
    bundle: Ints
    starts: Ints
    piece_class: Ints
    piece_gpus: Ints
    piece_nodes: Ints

    @classmethod
    def apart(
        cls, job: Ints, value: Floats, starts: Ints, piece_class: Ints, piece_gpus: Ints
    ) -> OptionColumns:
        """Return options that have a bundle each, their pieces being given node by node."""
        options = np.arange(len(job))
        owner = np.repeat(options, np.diff(starts))
        each = np.stack([owner, piece_class, piece_gpus], axis=1)
        pieces, nodes = np.unique(each, axis=0, return_counts=True)
        owner, of_class, gpus = np.ascontiguousarray(pieces.T)
        starts = np.searchsorted(owner, np.arange(len(job) + 1))
        return cls(job, value, options, starts, of_class, gpus, nodes)

    def __len__(self) -> int:
        """Number of options."""
        return len(self.job)

    @property
    def nodes(self) -> Ints:
        """(Q,) on how many nodes each option is."""
        return np.add.reduceat(self.piece_nodes, self.starts[:-1])[self.bundle]

    def only(self, kept: Ints) -> OptionColumns:
        """Return some of the options, ascending."""
        return replace(self, job=self.job[kept], value=self.value[kept], bundle=self.bundle[kept])

    def by_node(self, options: Ints) -> tuple[Ints, Ints, Ints]:
        """Return of which of these options each piece is, its class and its GPUs, node by node."""
        owner, at = runs_of(self.starts, self.bundle[options])
        nodes = self.piece_nodes[at]
        columns = (owner, self.piece_class[at], self.piece_gpus[at])
        owner, of_class, gpus = (np.repeat(column, nodes) for column in columns)
        return owner, of_class, gpus


@dataclass(frozen=True, slots=True, eq=False)
class ChooseProblem:
    """Choose at most one option for each of `jobs` jobs so that their values add up to the most.

    The pieces chosen must fit on the nodes of their classes, those of one job on different nodes.
    Each option must fit on the idle nodes alone.
    """

    classes: NodeClasses
    options: OptionColumns
    jobs: int


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """What was chosen, and how good it is.

    Attributes:
        option: (J,) the option chosen for each job, -1 for none.
        objective: sum of the values chosen.
        bound: proven: no choice is worth more.
        method: how it was found, in words.
        prices: (C,) what one more GPU of each class is worth, in units of value.
        limits: the limits that were hit, in words.
        work: what the solver of integer programmes took, as in `Solution`.
    """

    option: Ints
    objective: float
    bound: float
    method: str
    prices: Floats
    limits: tuple[str, ...] = ()
    work: int = 0

    @property
    def gap(self) -> float:
        """(bound - objective) / objective; 0 where both are 0."""
        if self.objective > 0:
            return (self.bound - self.objective) / self.objective
        return math.inf if self.bound > 0 else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class JobPieces:
    """GPUs of jobs on nodes: job j has `gpus[starts[j]:starts[j + 1]]` on the nodes `node[...]`.

    Attributes:
        starts: (J + 1,) where each job's pieces begin.
        node: (P,) number of a node.
        gpus: (P,) GPUs there.
    """

    starts: Ints
    node: Ints
    gpus: Ints

    @property
    def job(self) -> Ints:
        """(P,) whose piece each is."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @classmethod
    def none(cls, jobs: int) -> JobPieces:
        """Return nothing for each job."""
        empty = np.zeros(0, np.int64)
        return cls(np.zeros(jobs + 1, np.int64), empty, empty)
