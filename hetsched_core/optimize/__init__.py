"""Linear and mixed-integer programmes and their solver: a problem in, a result out.

The only place that knows HiGHS. Results are reproducible: one thread, a fixed seed, limits in nodes
and iterations and none in seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import highspy
import numpy as np
from numpy.typing import ArrayLike, NDArray

from hetsched_core.errors import HetschedError

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Bools = NDArray[np.bool_]

SEED = 0

_DEVEX = 1
"""Edge weights of the dual simplex: exact ones cost more at the start than they save here."""

_AS_IT_IS = 0
"""No scaling by the solver."""

_LOOK, _NONZEROS = 1000, 3
"""Work of each look of a solver at its limits, and for how many nonzeros of a programme one more.

Measured on programmes of `hetsched_core.choose`: 1 to 7 ms with 1,000 to 22,000 nonzeros.
"""

_EXACT = 1e-9
"""What a constraint may be missed by. With the usual 1e-7, a job that needs less gets nothing."""

_NO_SEARCH: dict[str, bool | int | float | str] = {
    "mip_heuristic_run_rins": False,
    "mip_heuristic_run_rens": False,
    "mip_heuristic_run_root_reduced_cost": False,
}
"""With a cutoff, better solutions are looked for by cuts and branching alone."""

_Model = highspy.HighsModelStatus


class ProgramError(HetschedError):
    """The parts of a programme do not fit together: an error of what built it."""


class SolverError(HetschedError):
    """The solver gave up, over numbers out of all proportion, say, or refused a limit."""


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A sparse matrix by rows: row r has `values[starts[r]:starts[r + 1]]` in those `columns`.

    Attributes:
        starts: (rows + 1,) where each row begins.
        columns: (nonzeros,) column of each value.
        values: (nonzeros,).
    """

    starts: Ints
    columns: Ints
    values: Floats

    @classmethod
    def of(cls, rows: int, row: ArrayLike, column: ArrayLike, value: ArrayLike) -> Matrix:
        """Build a matrix with `rows` rows from the place and value of each nonzero.

        Args:
            rows: number of rows, empty ones included.
            row: (nonzeros,) row of each value, in any order.
            column: (nonzeros,) column of each value; no place may be named twice.
            value: (nonzeros,).
        """
        at = np.asarray(row, dtype=np.int64)
        order = np.argsort(at, kind="stable")
        starts = np.zeros(rows + 1, dtype=np.int32)
        np.cumsum(np.bincount(at, minlength=rows), out=starts[1:])
        return cls(
            starts,
            np.asarray(column, dtype=np.int32)[order],
            np.asarray(value, dtype=np.float64)[order],
        )

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.starts) - 1


class Rows:
    """The rows of a programme, added one group after another."""

    def __init__(self) -> None:
        """Begin without rows."""
        self._count = 0
        self._places: list[tuple[NDArray[Any], ...]] = []
        self._bounds: list[tuple[NDArray[Any], ...]] = []

    def add(
        self,
        row: ArrayLike,
        column: ArrayLike,
        value: ArrayLike,
        lower: ArrayLike,
        upper: ArrayLike,
    ) -> None:
        """Add a group of rows.

        Args:
            row: (nonzeros,) row of each value, counted from 0 in the group.
            column: (nonzeros,) column of each value; no place may be named twice.
            value: (nonzeros,); for these three a number stands for as many as the others have.
            lower: (rows,) bounds.
            upper: (rows,) bounds; likewise a number stands for as many as the other has.
        """
        at = np.asarray(row, np.int64) + self._count
        values = np.asarray(value, np.float64)
        self._places.append(np.broadcast_arrays(at, np.asarray(column, np.int64), values))
        least, most = np.atleast_1d(lower).astype(np.float64), np.atleast_1d(upper)
        self._bounds.append(np.broadcast_arrays(least, most.astype(np.float64)))
        self._count += len(self._bounds[-1][0])

    def matrix(self) -> Matrix:
        """Return all rows as a matrix."""
        return Matrix.of(self._count, *map(np.concatenate, zip(*self._places, strict=True)))

    @property
    def lower(self) -> Floats:
        """(M,) lower bounds of all rows."""
        return np.concatenate([lower for lower, _ in self._bounds])

    @property
    def upper(self) -> Floats:
        """(M,) upper bounds of all rows."""
        return np.concatenate([upper for _, upper in self._bounds])


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Program:
    """Optimise `cost @ x` with row_lower <= matrix @ x <= row_upper and lower <= x <= upper.

    Infinite bounds are none. With N columns and M rows:

    Attributes:
        cost: (N,).
        lower: (N,).
        upper: (N,).
        matrix: M rows over N columns.
        row_lower: (M,).
        row_upper: (M,).
        maximise: whether `cost @ x` is to be large, not small.
        integer: (N,) which columns take whole numbers only; None for none.
    """

    cost: Floats
    lower: Floats
    upper: Floats
    matrix: Matrix
    row_lower: Floats
    row_upper: Floats
    maximise: bool = False
    integer: Bools | None = None

    def __post_init__(self) -> None:
        """Refuse parts that do not fit together.

        Raises:
            ProgramError: shapes differ, there is no column, or a number is none.
        """
        columns, rows = len(self.cost), self.matrix.rows
        for name, size in (
            ("lower", columns),
            ("upper", columns),
            ("row_lower", rows),
            ("row_upper", rows),
            ("integer", columns),
        ):
            part = getattr(self, name)
            if part is not None and part.shape != (size,):
                raise ProgramError(f"{name} has shape {part.shape}; expected ({size},)")
        if columns == 0:
            raise ProgramError("the programme has no columns; there is nothing to decide")
        found = self.matrix.columns
        if found.size and not 0 <= found.min() <= found.max() < columns:
            raise ProgramError(
                f"the matrix has columns {found.min()} to {found.max()}; there are {columns}"
            )
        bounds = (self.lower, self.upper, self.row_lower, self.row_upper)
        if any(np.isnan(part).any() for part in bounds):
            raise ProgramError("a bound is not a number; leave one out with an infinity")
        if not (np.isfinite(self.cost).all() and np.isfinite(self.matrix.values).all()):
            raise ProgramError("a cost or a coefficient is not a finite number")


class Point(StrEnum):
    """Which optimal point of a linear programme is wanted, where there are many.

    VERTEX: a corner of the set of optimal points (simplex); as many values as possible sit on a
    bound. INTERIOR: a point inside it (interior point, no crossover); what the optimum leaves open
    is spread over the variables. A mixed-integer programme has corners only.
    """

    VERTEX = "vertex"
    INTERIOR = "interior"


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop short of a proven optimum; None for never.

    Attributes:
        gap: relative gap between objective and bound at which a mixed-integer solve is done.
        nodes: branch-and-bound nodes.
        iterations: simplex or interior-point iterations of a linear programme.
        cutoff: a mixed-integer solve looks only for objectives better than this; its status is
            INFEASIBLE where there are none. A bound that it proves is no better than the cutoff.
        work: a mixed-integer solve stops after so much; a unit takes about a microsecond, and equal
            input takes equally many.
    """

    gap: float = 0.0
    nodes: int | None = None
    iterations: int | None = None
    cutoff: float | None = None
    work: int | None = None


class SolverStatus(StrEnum):
    """What a solution is worth."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    NO_OPTIMUM = "infeasible or unbounded"
    NOT_FOUND = "not found"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Solution:
    """What came of a solve.

    Attributes:
        status: OPTIMAL is within the gap asked for; FEASIBLE is a mixed-integer solution at which
            a limit was hit, NOT_FOUND a limit without a solution. NO_OPTIMUM is proven to be one of
            INFEASIBLE and UNBOUNDED, and not which.
        x: (N,) the solution; None where there is none.
        objective: `cost @ x`.
        bound: proven: no solution is better. None for a point inside.
        gap: |objective - bound| relative to |objective|.
        row_duals: (M,) change of the objective for one more unit of each row's bound; linear
            programmes only.
        limits: the limits that were hit, in words.
        work: what a mixed-integer solve took of the work that it was limited to.
    """

    status: SolverStatus
    x: Floats | None = None
    objective: float | None = None
    bound: float | None = None
    gap: float | None = None
    row_duals: Floats | None = None
    limits: tuple[str, ...] = ()
    work: int = 0


def solve(
    program: Program,
    point: Point = Point.VERTEX,
    limits: Limits | None = None,
    *,
    presolve: bool = True,
) -> Solution:
    """Solve a programme; equal input gives an equal result.

    Args:
        program: what to optimise.
        point: which optimal point of a linear programme.
        limits: when to stop short of a proven optimum.
        presolve: whether to look first for what can be left out, and for units that put a linear
            programme in proportion; that takes longer than the solve itself where there is neither.

    Raises:
        SolverError: the solver failed, or does not take one of the limits.
    """
    limits = limits or Limits()
    mixed = program.integer is not None and bool(program.integer.any())
    inside = point is Point.INTERIOR and not mixed
    # Presolve would answer for part of the variables with a corner.
    highs = _load(program, limits, mixed=mixed, inside=inside, presolve=presolve and not inside)
    looks = _Looks(limits.work, _LOOK + len(program.matrix.values) // _NONZEROS)
    if mixed and limits.work is not None:
        highs.cbMipInterrupt += looks.look
    highs.run()
    status = highs.getModelStatus()
    if status is _Model.kUnknown and inside:
        # Without crossover the last digits may be missing; a corner is better than no answer.
        return solve(program, Point.VERTEX, limits, presolve=presolve)
    match status:
        case _Model.kOptimal:
            if mixed:
                return _mixed(highs, program, limits, SolverStatus.OPTIMAL, looks)
            return _optimal(highs, inside=inside)
        case _Model.kInfeasible | _Model.kObjectiveBound:
            return Solution(status=SolverStatus.INFEASIBLE, work=looks.work)
        case _Model.kUnbounded:
            return Solution(status=SolverStatus.UNBOUNDED)
        case _Model.kUnboundedOrInfeasible:
            return Solution(status=SolverStatus.NO_OPTIMUM)
        case _Model.kIterationLimit | _Model.kSolutionLimit | _Model.kInterrupt:
            if mixed:
                return _mixed(highs, program, limits, SolverStatus.FEASIBLE, looks)
            return Solution(status=SolverStatus.NOT_FOUND, limits=("iterations",))
    raise SolverError(
        f"HiGHS {highs.version()} ended with {highs.modelStatusToString(status)!r} on "
        f"{len(program.cost)} columns and {program.matrix.rows} rows; "
        "look for coefficients that differ by more than 1e9"
    )


class _Looks:
    """Stops a mixed-integer solve once it has looked at its limits often enough.

    It does so about once for each linear programme that it solves. Nodes say little about the work:
    half a second may pass at the root, and 5,000 may take 0.1 s.
    """

    def __init__(self, most: int | None, each: int) -> None:
        self._most, self._each = math.inf if most is None else most, each
        self.work = 0

    @property
    def used_up(self) -> bool:
        """Whether that is why it stopped."""
        return self.work >= self._most

    def look(self, event: highspy.HighsCallbackEvent) -> None:
        """Count, and stop the solve."""
        self.work += self._each
        if self.used_up:
            event.interrupt()


def _load(
    program: Program, limits: Limits, *, mixed: bool, inside: bool, presolve: bool
) -> highspy.Highs:
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    options: dict[str, bool | int | float | str] = {
        "output_flag": False,
        "threads": 1,
        "random_seed": SEED,
        "mip_rel_gap": limits.gap,
        "mip_abs_gap": 0.0 if limits.gap == 0 else 1e-9,
        # It looks for a first solution, for longer than small programmes take to be solved.
        "mip_heuristic_run_feasibility_jump": False,
    }
    if inside:
        options |= {"solver": "ipm", "run_crossover": "off"}
    if not mixed:
        options["simplex_dual_edge_weight_strategy"] = _DEVEX
        options["primal_feasibility_tolerance"] = _EXACT
        options["small_matrix_value"] = 1e-12
    if not presolve:
        options["presolve"] = "off"
        if not mixed:
            options["simplex_scale_strategy"] = _AS_IT_IS
    if mixed and limits.cutoff is not None:
        # HiGHS minimises.
        options["objective_bound"] = -limits.cutoff if program.maximise else limits.cutoff
        options |= _NO_SEARCH
    if limits.nodes is not None:
        options["mip_max_nodes"] = limits.nodes
    if limits.iterations is not None:
        options["simplex_iteration_limit"] = limits.iterations
        options["ipm_iteration_limit"] = limits.iterations
    for name, value in options.items():
        if highs.setOptionValue(name, value) != highspy.HighsStatus.kOk:
            raise SolverError(f"HiGHS {highs.version()} does not take {value!r} for {name}")
    columns, matrix = len(program.cost), program.matrix
    integer = np.zeros(columns, np.int32) if program.integer is None else program.integer
    sense = highspy.ObjSense.kMaximize if program.maximise else highspy.ObjSense.kMinimize
    highs.passModel(
        columns,
        matrix.rows,
        len(matrix.values),
        int(highspy.MatrixFormat.kRowwise),
        int(sense),
        0.0,
        program.cost,
        program.lower,
        program.upper,
        program.row_lower,
        program.row_upper,
        matrix.starts,
        matrix.columns,
        matrix.values,
        integer.astype(np.int32),
    )
    return highs


def _optimal(highs: highspy.Highs, *, inside: bool) -> Solution:
    info, found = highs.getInfo(), highs.getSolution()
    objective = info.objective_function_value
    return Solution(
        status=SolverStatus.OPTIMAL,
        x=np.array(found.col_value),
        objective=objective,
        # A point inside comes near the optimum from this side and proves nothing about the other.
        bound=None if inside else objective,
        gap=None if inside else 0.0,
        row_duals=np.array(found.row_dual),
    )


def _mixed(
    highs: highspy.Highs, program: Program, limits: Limits, status: SolverStatus, looks: _Looks
) -> Solution:
    """Return what a mixed-integer solve found, which a limit ended if it is FEASIBLE."""
    objective, bound = highs.getInfo().objective_function_value, _proven(highs, program, limits)
    reached: tuple[str, ...] = ()
    if status is SolverStatus.FEASIBLE:
        reached = ("work",) if looks.used_up else ("nodes",)
    found = highs.getInfo().primal_solution_status == highspy.kSolutionStatusFeasible
    if found and limits.cutoff is not None:
        sign = 1.0 if program.maximise else -1.0
        # HiGHS may have come across it on its way; nothing better may be known to be there.
        found = sign * objective > sign * limits.cutoff
    if not found:
        if status is SolverStatus.OPTIMAL:
            return Solution(status=SolverStatus.INFEASIBLE, work=looks.work)
        return Solution(status=SolverStatus.NOT_FOUND, bound=bound, limits=reached, work=looks.work)
    return Solution(
        status=status,
        x=np.array(highs.getSolution().col_value),
        objective=objective,
        bound=bound,
        gap=None if bound is None else abs(objective - bound) / max(abs(objective), 1e-9),
        limits=reached,
        work=looks.work,
    )


def _proven(highs: highspy.Highs, program: Program, limits: Limits) -> float | None:
    """Return what no solution of a mixed-integer programme is better than, so far."""
    bound = highs.getInfo().mip_dual_bound
    if limits.cutoff is not None:
        sign = 1.0 if program.maximise else -1.0
        bound = sign * max(sign * bound, sign * limits.cutoff)
    return bound if math.isfinite(bound) else None
