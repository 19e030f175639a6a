"""The live loop: observe, plan, check, diff, apply, record.

The policy, `check_plan` and `diff` are those of the replay. What is live about it is that the state
is read from Slurm, time is a clock's, and actions become calls.
"""

from slurm_plugin.daemon.daemon import CycleReport, Daemon
from slurm_plugin.daemon.jobs.copies import check_fit
from slurm_plugin.daemon.settings import DaemonMode, DaemonSettings

__all__ = ["CycleReport", "Daemon", "DaemonMode", "DaemonSettings", "check_fit"]
