"""Linear and mixed-integer programmes and their solver: a problem in, a result out.

The only place that knows HiGHS. Results are reproducible: one thread, a fixed seed, limits in nodes
and iterations and none in seconds.
"""

from hetsched_core.optimize.highs import SolverError, solve
from hetsched_core.optimize.program import (
    Limits,
    Matrix,
    Point,
    Program,
    ProgramError,
    Rows,
    Solution,
    Status,
)

__all__ = [
    "Limits",
    "Matrix",
    "Point",
    "Program",
    "ProgramError",
    "Rows",
    "Solution",
    "SolverError",
    "Status",
    "solve",
]
