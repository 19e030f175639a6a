"""Running Slurm's commands, with errors that tell whether Slurm is away or has said no."""

from __future__ import annotations

import os
import shutil
import subprocess

from slurm_plugin.backend.errors import AwayError, BackendError, RefusedError, SlowError

_AWAY = (
    "Unable to contact slurm controller",
    "Unable to establish controller",
    "Connection refused",
    "Connection reset by peer",
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Protocol authentication error",
    "Invalid authentication credential",
    "Munge encode failed",
    "failure to communicate",
    "Backup controller",
    "Unexpected missing socket",
    # scontrol's words for a job's change that no controller has answered.
    "Unexpected message received",
    # While Slurm is upgraded: of a command without its libraries, and beside others' plug-ins.
    "error while loading shared libraries",
    "failed to initialize auth plugin",
)
"""What the commands say when nobody answers: their exit code does not tell."""


def require_commands(*names: str) -> None:
    """Look for commands of Slurm's.

    Raises:
        BackendError: one is not here.
    """
    for name in names:
        if shutil.which(name) is None:
            raise BackendError(
                f"there is no command {name} in PATH; install Slurm's client commands"
            )


def run_command(
    command: list[str],
    told: str = "",
    timeout_s: float = 60.0,
    late: type[BackendError] = SlowError,
) -> str:
    """Run one of Slurm's commands and return what it printed.

    Args:
        command: its words.
        told: what it reads from its standard input.
        timeout_s: one that takes longer does not answer.
        late: what that means.

    Raises:
        AwayError, RefusedError: as `SlurmBackend.apply`.
    """
    try:
        done = subprocess.run(
            command,
            input=told,
            capture_output=True,
            text=True,
            # Names of jobs are whatever bytes their users gave.
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            check=False,
            # `now` is no time of its own in the hour that a zone has twice: Slurm's commands write
            # and read it as local time.
            env={**os.environ, "TZ": "UTC"},
        )
    except subprocess.TimeoutExpired:
        raise late(f"{command[0]} has not answered within {timeout_s:g} s") from None
    except OSError as error:
        # It was there at the start: Slurm is being upgraded, say.
        raise AwayError(f"{command[0]} cannot be run: {error.strerror}") from None
    said = " ".join(done.stderr.split())
    if any(words in said for words in _AWAY):
        raise AwayError(f"{command[0]}: {said}")
    if done.returncode:
        words = f"{' '.join(command)} {told}".strip()
        raise RefusedError(f"{words}: {said or done.stdout.strip()}")
    return done.stdout
