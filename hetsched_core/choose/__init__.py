"""Choosing at most one configuration for each job so that the sum of values is the largest.

The integer programme of Hops (section 3.6), over classes of interchangeable nodes: `choose` says
which configuration each job gets and proves how good that is, `assign_nodes` on which nodes.
"""

from hetsched_core.choose.nodes import assign_nodes
from hetsched_core.choose.problem import (
    Choice,
    ChooseProblem,
    JobPieces,
    NodeClasses,
    OptionColumns,
)
from hetsched_core.choose.solver import MOST_WORK, choose, choose_in_order

__all__ = [
    "MOST_WORK",
    "Choice",
    "ChooseProblem",
    "JobPieces",
    "NodeClasses",
    "OptionColumns",
    "assign_nodes",
    "choose",
    "choose_in_order",
]
