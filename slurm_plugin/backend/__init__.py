"""Slurm as the daemon sees it: one bulk read, and a few kinds of change.

`open_backend` gives one of two: pyslurm, or Slurm's own commands for sites whose Slurm no pyslurm
fits. The same contract tests run over both.
"""

from slurm_plugin.backend.apply import ApplyResult, apply_changes
from slurm_plugin.backend.change import (
    Cancel,
    Change,
    Depend,
    Drop,
    Enter,
    Hold,
    Leave,
    Recipients,
    Release,
    Requeue,
    RequeueEnded,
    Signal,
    Terms,
    Together,
)
from slurm_plugin.backend.choose import BACKENDS, open_backend, settled
from slurm_plugin.backend.errors import AwayError, BackendError, RefusedError, SlowError, TakenError
from slurm_plugin.backend.features import nodes_with
from slurm_plugin.backend.limits import GpuLimit, GpuLimits
from slurm_plugin.backend.protocol import SlurmBackend
from slurm_plugin.backend.site import SlurmSite
from slurm_plugin.backend.state import (
    HostRequest,
    JobState,
    Resources,
    SlurmJob,
    SlurmNode,
    SlurmReservation,
    SlurmState,
    hold_named,
    hold_number,
)

__all__ = [
    "BACKENDS",
    "ApplyResult",
    "AwayError",
    "BackendError",
    "Cancel",
    "Change",
    "Depend",
    "Drop",
    "Enter",
    "GpuLimit",
    "GpuLimits",
    "Hold",
    "HostRequest",
    "JobState",
    "Leave",
    "Recipients",
    "RefusedError",
    "Release",
    "Requeue",
    "RequeueEnded",
    "Resources",
    "Signal",
    "SlowError",
    "SlurmBackend",
    "SlurmJob",
    "SlurmNode",
    "SlurmReservation",
    "SlurmSite",
    "SlurmState",
    "TakenError",
    "Terms",
    "Together",
    "apply_changes",
    "hold_named",
    "hold_number",
    "nodes_with",
    "open_backend",
    "settled",
]
