"""The integer programme over node classes, for the options that prices leave open.

Columns: x_q, whether option q is taken; z_{c,p}, how many nodes of class c are cut by pattern p;
and how many pieces of each size get a slot of the next larger one. Rows: one option for each job,
no more pieces of a size than slots, no more cuts than nodes. What a class with a single node holds
is one row instead; the same stands, as a relaxation, for nodes with too many patterns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hetsched_core.choose.offers import Offers
from hetsched_core.optimize import Limits, Matrix, Program, Solution, SolverStatus, solve

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_PATTERNS = 2000

SHARE = 0.95
"""What part of the gap asked for is left to the programme."""

_COLUMN_NODES, _FEWEST_NODES, _MOST_NODES = 2_000_000, 50, 5000
"""Branch-and-bound nodes times columns, and nodes, at which a solve stops."""


@lru_cache(maxsize=1 << 10)
def patterns(capacity: int, sizes: tuple[int, ...], most: int) -> Ints | None:
    """Return (Z, S) how many pieces of each size a cut has: all cuts that leave no room for more.

    Args:
        capacity: GPUs of the node.
        sizes: the S sizes of pieces, ascending.
        most: return None if there are more cuts than this.
    """
    found: list[tuple[int, ...]] = []
    if not _cut(capacity, sizes, (), found, most):
        return None
    cuts = np.array(found, np.int64).reshape(len(found), len(sizes))
    cuts.flags.writeable = False
    return cuts


def _cut(
    rest: int,
    sizes: Sequence[int],
    larger: tuple[int, ...],
    found: list[tuple[int, ...]],
    most: int,
) -> bool:
    """Add the cuts with these numbers of `larger` pieces; return False if they are too many."""
    if not sizes:
        found.append(larger)
        return True
    if len(sizes) == 1:
        found.append((rest // sizes[0], *larger))
        return len(found) <= most
    size = sizes[-1]
    return all(
        _cut(rest - size * times, sizes[:-1], (times, *larger), found, most)
        for times in range(rest // size, -1, -1)
    )


@dataclass(slots=True)
class _Entries:
    """Nonzeros, row bounds and columns of a programme, as they are added."""

    rows: int = 0
    columns: int = 0
    row: list[Ints] = field(default_factory=list)
    column: list[Ints] = field(default_factory=list)
    value: list[Floats] = field(default_factory=list)
    row_upper: list[Floats] = field(default_factory=list)
    upper: list[Floats] = field(default_factory=list)
    integer: list[NDArray[np.bool_]] = field(default_factory=list)

    def add(self, row: Ints, column: Ints, value: Floats) -> None:
        """Add nonzeros; several of one place count as their sum."""
        self.row.append(row)
        self.column.append(column)
        self.value.append(value)

    def add_rows(self, upper: Floats) -> int:
        """Add rows `... <= upper`; return the number of the first."""
        first = self.rows
        self.rows += len(upper)
        self.row_upper.append(upper)
        return first

    def add_columns(self, upper: Floats, *, whole: bool) -> int:
        """Add columns from 0 to `upper`; return the number of the first."""
        first = self.columns
        self.columns += len(upper)
        self.upper.append(upper)
        self.integer.append(np.full(len(upper), whole))
        return first


def solve_open(
    offers: Offers, opened: Ints, fixed: Ints, enough: float, gap: float, work: int
) -> Solution:
    """Look for a choice worth more than `enough` among the opened options; the fixed are taken.

    Options are given as in `formulate`; `gap` is the relative gap at which a choice is good enough,
    `work` what the solver may take.
    """
    if len(opened) == 0:
        return Solution(status=SolverStatus.INFEASIBLE)
    program = formulate(offers, opened, fixed)
    # The programme's own gap is relative to what is open.
    settled = float(offers.value[fixed].sum())
    first = np.flatnonzero(np.diff(offers.job_of(opened), prepend=-1))
    rest = float(np.maximum.reduceat(offers.value[opened], first).sum())
    share = (settled + rest) / max(rest, 1e-300)
    nodes = int(np.clip(_COLUMN_NODES / len(program.cost), _FEWEST_NODES, _MOST_NODES))
    limits = Limits(
        gap=min(1.0, SHARE * gap * share), nodes=nodes, cutoff=enough - settled, work=work
    )
    return solve(program, limits=limits, presolve=False)


def formulate(offers: Offers, opened: Ints, fixed: Ints) -> Program:
    """Return the programme whose first columns are the `opened` options.

    Args:
        offers: what jobs could take.
        opened: (X,) options that may be taken, ascending; none of a job that has a fixed one.
        fixed: options that are taken.
    """
    parts = _Entries()
    parts.add_columns(np.ones(len(opened)), whole=True)
    _, job, options = np.unique(offers.job_of(opened), return_inverse=True, return_counts=True)
    # The bound of its column is all that a job with one option needs.
    several = options > 1
    first = parts.add_rows(np.ones(int(several.sum())))
    chosen = np.flatnonzero(several[job])
    parts.add(first + (np.cumsum(several) - 1)[job[chosen]], chosen, np.ones(len(chosen)))

    classes, slots = offers.classes, len(offers.slot_gpus)
    column, slot, nodes = offers.pieces(opened)
    _, fixed_slot, fixed_nodes = offers.pieces(fixed)
    taken = np.zeros(slots, np.int64)
    np.add.at(taken, fixed_slot, fixed_nodes)
    asked = taken + np.bincount(slot, minlength=slots)
    slot_row, weight = np.full(slots, -1), np.ones(slots)
    for c in range(len(classes)):
        begin, end = offers.slot_starts[c : c + 2]
        mine = begin + np.flatnonzero(asked[begin:end])
        if len(mine) == 0:
            continue
        gpus = offers.slot_gpus[mine]
        capacity, count = int(classes.capacity[c]), int(classes.count[c])
        cuts = cuts_of(capacity, gpus) if count > 1 else None
        if cuts is None:
            slot_row[mine] = parts.add_rows(np.array([capacity * count - gpus @ taken[mine]]))
            weight[mine] = gpus
        else:
            slot_row[mine] = _add_cuts(parts, cuts, count, taken[mine])
    parts.add(slot_row[slot], column, weight[slot] * nodes)
    return _program(parts, offers.value[opened])


def cuts_of(capacity: int, gpus: Ints) -> Ints | None:
    """Return the cuts of a node into pieces of these sizes; None if there are too many."""
    return patterns(capacity, tuple(gpus.tolist()), MOST_PATTERNS)


def _add_cuts(parts: _Entries, cuts: Ints, count: int, taken: Ints) -> Ints:
    """Add how the nodes of a class are cut; return the row of each piece size, ascending."""
    sizes = cuts.shape[1]
    first = parts.add_rows(np.append(-taken.astype(np.float64), count))
    rows = first + np.arange(sizes)
    z = parts.add_columns(np.full(len(cuts), count), whole=True)
    cut, size = np.nonzero(cuts)
    parts.add(first + size, z + cut, -cuts[cut, size].astype(np.float64))
    parts.add(np.full(len(cuts), first + sizes), z + np.arange(len(cuts)), np.ones(len(cuts)))
    # A slot of the next larger size does as well.
    larger = parts.add_columns(np.full(sizes - 1, np.inf), whole=False) + np.arange(sizes - 1)
    parts.add(rows[:-1], larger, np.full(sizes - 1, -1.0))
    parts.add(rows[1:], larger, np.ones(sizes - 1))
    return rows


def _program(parts: _Entries, value: Floats) -> Program:
    place = np.concatenate(parts.row) * parts.columns + np.concatenate(parts.column)
    places, at = np.unique(place, return_inverse=True)
    cost = np.zeros(parts.columns)
    cost[: len(value)] = value
    return Program(
        cost=cost,
        lower=np.zeros(parts.columns),
        upper=np.concatenate(parts.upper),
        matrix=Matrix.of(
            parts.rows,
            places // parts.columns,
            places % parts.columns,
            np.bincount(at, weights=np.concatenate(parts.value)),
        ),
        row_lower=np.full(parts.rows, -np.inf),
        row_upper=np.concatenate(parts.row_upper),
        maximise=True,
        integer=np.concatenate(parts.integer),
    )
