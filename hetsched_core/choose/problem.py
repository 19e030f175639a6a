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

from hetsched_core.errors import HetschedError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class ProblemError(HetschedError):
    """The parts of a problem do not fit together: an error of what built it."""


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

    def __post_init__(self) -> None:
        """Refuse parts that do not fit together.

        Raises:
            ProblemError: shapes or types differ, or a number is negative.
        """
        _expect("capacity", self.capacity, np.int64, len(self.label))
        _expect("count", self.count, np.int64, len(self.label))
        for name, part in (("capacity", self.capacity), ("count", self.count)):
            if len(part) and part.min() < 0:
                at = int(part.argmin())
                raise ProblemError(f"{name} of class {self.label[at]!r} is {part[at]}, below 0")
        if self.kind is not None or self.pool is not None:
            self._expect_kinds()

    def _expect_kinds(self) -> None:
        if self.kind is None or self.pool is None:
            raise ProblemError("classes have kinds and pools, or neither")
        _expect("kind", self.kind, np.int64, len(self.label))
        _expect("pool", self.pool, np.int64, len(self.label))
        seen: set[tuple[int, int]] = set()
        capacity: dict[int, int] = {}
        for c, place in enumerate(zip(self.kind.tolist(), self.pool.tolist(), strict=True)):
            if place in seen:
                raise ProblemError(
                    f"class {self.label[c]!r} is of the kind and in the pool of one before it; "
                    "make them one class"
                )
            seen.add(place)
            if capacity.setdefault(place[0], int(self.capacity[c])) != self.capacity[c]:
                raise ProblemError(
                    f"class {self.label[c]!r} has {self.capacity[c]} GPUs; others of its kind have "
                    f"{capacity[place[0]]}"
                )

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

    def __post_init__(self) -> None:
        """Refuse parts that do not fit together.

        Raises:
            ProblemError: shapes or types differ, jobs are out of order, an option has no piece, or
                a value is not above 0.
        """
        options, pieces = len(self.job), len(self.piece_class)
        _expect("job", self.job, np.int64, options)
        _expect("value", self.value, np.float64, options)
        _expect("starts", self.starts, np.int64, options + 1)
        _expect("piece_class", self.piece_class, np.int64, pieces)
        _expect("piece_gpus", self.piece_gpus, np.int64, pieces)
        if self.starts[0] != 0 or self.starts[-1] != pieces:
            raise ProblemError(
                f"starts runs from {self.starts[0]} to {self.starts[-1]}; expected 0 to {pieces}"
            )
        if options == 0:
            return
        if (np.diff(self.starts) < 1).any():
            at = int(np.argmax(np.diff(self.starts) < 1))
            raise ProblemError(f"option {at} has no piece; leave it out")
        if (np.diff(self.job) < 0).any():
            at = int(np.argmax(np.diff(self.job) < 0)) + 1
            raise ProblemError(
                f"option {at} is of job {self.job[at]}, the one before of job {self.job[at - 1]}; "
                "sort options by job"
            )
        if not (np.isfinite(self.value).all() and self.value.min() > 0):
            at = int(np.argmin(np.isfinite(self.value) & (self.value > 0)))
            raise ProblemError(
                f"the value of option {at} is {self.value[at]}; leave out what is not above 0"
            )
        if self.piece_gpus.min() < 1:
            at = int(self.piece_gpus.argmin())
            raise ProblemError(f"piece {at} has {self.piece_gpus[at]} GPUs; expected 1 or more")

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
    """

    classes: NodeClasses
    options: OptionColumns
    jobs: int

    def __post_init__(self) -> None:
        """Refuse options for jobs and classes that are not there, or that no idle cluster holds.

        Raises:
            ProblemError: as above.
        """
        options, classes = self.options, self.classes
        if len(options) == 0:
            return
        if options.job[0] < 0 or options.job[-1] >= self.jobs:
            raise ProblemError(
                f"options are of jobs {options.job[0]} to {options.job[-1]}; "
                f"expected 0 to {self.jobs - 1}"
            )
        if not 0 <= options.piece_class.min() <= options.piece_class.max() < len(classes):
            raise ProblemError(
                f"pieces are of classes {options.piece_class.min()} to "
                f"{options.piece_class.max()}; expected 0 to {len(classes) - 1}"
            )
        wide = options.piece_gpus > classes.capacity[options.piece_class]
        if wide.any():
            at = int(wide.argmax())
            of = int(options.piece_class[at])
            raise ProblemError(
                f"piece {at} has {options.piece_gpus[at]} GPUs; a node of class "
                f"{classes.label[of]!r} has {classes.capacity[of]}"
            )
        self._expect_nodes_enough()

    def _expect_nodes_enough(self) -> None:
        options, classes = self.options, self.classes
        fewest = np.minimum.reduceat(classes.count[options.piece_class], options.starts[:-1])
        doubtful = np.flatnonzero(np.diff(options.starts) > fewest)
        if len(doubtful) == 0:
            return
        owner, piece = runs_of(options.starts, doubtful)
        place, nodes = np.unique(
            doubtful[owner] * len(classes) + options.piece_class[piece], return_counts=True
        )
        of_class = place % len(classes)
        many = nodes > classes.count[of_class]
        if many.any():
            at = int(many.argmax())
            of = int(of_class[at])
            raise ProblemError(
                f"option {place[at] // len(classes)} takes {nodes[at]} nodes of class "
                f"{classes.label[of]!r}, which has {classes.count[of]}"
            )


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
    """

    option: Ints
    objective: float
    bound: float
    method: str
    prices: Floats
    limits: tuple[str, ...] = ()

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

    def __post_init__(self) -> None:
        """Refuse parts that do not fit together.

        Raises:
            ProblemError: shapes or types differ.
        """
        _expect("starts", self.starts, np.int64, len(self.starts))
        _expect("node", self.node, np.int64, len(self.node))
        _expect("gpus", self.gpus, np.int64, len(self.node))
        if self.starts[0] != 0 or self.starts[-1] != len(self.node):
            raise ProblemError(
                f"starts runs from {self.starts[0]} to {self.starts[-1]}; "
                f"expected 0 to {len(self.node)}"
            )

    @property
    def job(self) -> Ints:
        """(P,) whose piece each is."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @classmethod
    def none(cls, jobs: int) -> JobPieces:
        """Return nothing for each job."""
        empty = np.zeros(0, np.int64)
        return cls(np.zeros(jobs + 1, np.int64), empty, empty)


def _expect(name: str, part: NDArray[np.generic], dtype: type[np.generic], size: int) -> None:
    if part.shape != (size,) or part.dtype != dtype:
        raise ProblemError(
            f"{name} has shape {part.shape} and type {part.dtype}; "
            f"expected ({size},) and {np.dtype(dtype)}"
        )
