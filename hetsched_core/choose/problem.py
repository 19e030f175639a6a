"""What is to be chosen: jobs, the configurations each could take, and the nodes there are.

Nodes that are interchangeable (same GPU type, idle GPUs, topology group, and speed as far as that
is known) make one *node class*. An *option* is a configuration of a job with nodes replaced by
their classes: a multiset of (class, GPUs), each piece on a node of its own. A cluster in which
options are to name nodes has a class of one node for each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
    """The Q configurations that jobs could take, those of one job together, with P pieces in all.

    Option q takes the pieces `starts[q]:starts[q + 1]`, each on a node of its own.

    Attributes:
        job: (Q,) whose option it is, ascending.
        value: (Q,) what it adds to the objective, above 0.
        starts: (Q + 1,) where each option's pieces begin.
        piece_class: (P,) the node class of each piece.
        piece_gpus: (P,) its GPUs.
    """

    job: Ints
    value: Floats
    starts: Ints
    piece_class: Ints
    piece_gpus: Ints

    def __len__(self) -> int:
        """Number of options."""
        return len(self.job)

    def only(self, kept: Ints) -> OptionColumns:
        """Return some of the options, ascending."""
        starts, at = starts_of(np.diff(self.starts)[kept]), runs_of(self.starts, kept)[1]
        return OptionColumns(
            self.job[kept], self.value[kept], starts, self.piece_class[at], self.piece_gpus[at]
        )


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
