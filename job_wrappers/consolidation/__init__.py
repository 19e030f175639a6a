"""Copies of one job on several nodes, whose models are averaged at the end of each round (HadarE).

Everything passes through a folder that all nodes see; no process need reach another:

    round-000004.json     each copy's steps in round 4                                the tracker
    model-000004.tensors  what all its copies start from                              the tracker
    round-000004.n0.tensors  what copy `n0` has made of it, in how many steps         copy n0

The tracker gives each copy its steps (`begin`), waits, averages what has come (`consolidate`) and
begins the next round. A copy that died, or is late, costs the steps that it was to do, no others:
rounds end without it, and steps count when their parameters do. Every file is written once and
whole; two trackers, or one that was killed anywhere and started anew, leave one sequence of rounds.

Source: Sultana et al., "Resource Heterogeneity-Aware and Utilization-Enhanced Scheduling for Deep
Learning Clusters" (HadarE), sections V-A and V-B. What becomes of buffers and optimiser state, on
which the paper says nothing: `job_wrappers.averaging`.
"""

from job_wrappers.consolidation.copy import Copy, Turn
from job_wrappers.consolidation.folder import ConsolidationRound, Share
from job_wrappers.consolidation.tracker import Averaging, Consolidated, Tracker, track

__all__ = [
    "Averaging",
    "Consolidated",
    "ConsolidationRound",
    "Copy",
    "Share",
    "Tracker",
    "Turn",
    "track",
]
