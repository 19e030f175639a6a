"""Which jobs may be moved, and what they are told before they are stopped."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from slurm_plugin.backend import Recipients
from slurm_plugin.daemon.jobs.request import Mark, Request
from slurm_plugin.daemon.settings import DaemonSettings

_OPTION = re.compile(r"(?:^|\s)--signal[=\s](\S+)")
_VALUE = re.compile(r"(?:([RB]+):)?([A-Za-z0-9+]+?)(?:@(\d+))?", re.ASCII)
_DEFAULT_AHEAD_S = 60
"""How long before the time limit Slurm sends the signal where the option does not say."""


@dataclass(frozen=True, slots=True)
class CheckpointSignal:
    """A signal on which a job saves its state, what gets it, and how long the job may then take."""

    signal: str
    to: Recipients
    wait_s: float


def asked_warning(mark: Mark, submit_line: str) -> CheckpointSignal | None:
    """Return what the user's `--signal=[{R|B}:]SIGNAL[@SECONDS]` asks for; None without one.

    The command line goes before the script's `#SBATCH` line, as it does for sbatch.
    """
    given = _OPTION.search(submit_line)
    found = _VALUE.fullmatch(given[1] if given else mark.signal)
    name = signal_name(found[2]) if found else None
    if found is None or name is None:
        return None
    to = Recipients.SCRIPT if "B" in (found[1] or "") else Recipients.STEPS
    return CheckpointSignal(name, to, float(found[3] or _DEFAULT_AHEAD_S))


def signal_name(text: str) -> str | None:
    """Return the name without SIG of a signal that is given by name or number; None for others."""
    try:
        if text.isdecimal():
            return signal.Signals(int(text)).name.removeprefix("SIG")
        return signal.Signals["SIG" + text.upper().removeprefix("SIG")].name.removeprefix("SIG")
    except (ValueError, KeyError):
        return None


def warning_for(mark: Mark, submit_line: str, settings: DaemonSettings) -> CheckpointSignal | None:
    """Return what a job is told before it is stopped: its own signal, or the site's; or nothing."""
    if settings.checkpoint_wait_s == 0:
        return None
    own = asked_warning(mark, submit_line)
    if own is not None:
        return CheckpointSignal(own.signal, own.to, min(own.wait_s, settings.checkpoint_wait_s))
    name = signal_name(settings.checkpoint_signal)
    return (
        None if name is None else CheckpointSignal(name, Recipients.ALL, settings.checkpoint_wait_s)
    )


def may_move(request: Request, submit_line: str, told: bool, settings: DaemonSettings) -> bool:
    """Whether a running job may be stopped to go on elsewhere.

    Args:
        request: what its user asked for.
        submit_line: the command line of its submission.
        told: whether the job itself has told of a checkpoint, through its spool.
        settings: what the site decides.
    """
    if not request.movable:
        return False
    mark = request.mark
    checkpoints = (
        mark.options.can_checkpoint or told or asked_warning(mark, submit_line) is not None
    )
    return checkpoints or settings.move_without_checkpoint
