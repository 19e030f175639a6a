"""Running other programs and waiting for them, with errors that say what they said."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from slurm_plugin.testbed.errors import TestbedError


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 60.0,
) -> str:
    """Run a program to its end and return its standard output.

    Args:
        command: the program and its arguments.
        env: variables on top of this process's.
        cwd: where to run it.
        timeout_s: after so many seconds it is killed.

    Raises:
        TestbedError: it failed, was not there, or took too long; the message ends with its words.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            env=os.environ | dict(env or {}),
            cwd=cwd,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError:
        raise TestbedError(f"there is no program {words[0]}") from None
    except subprocess.TimeoutExpired:
        raise TestbedError(f"{' '.join(words[:3])} took longer than {timeout_s:g} s") from None
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-500:]
        raise TestbedError(f"{' '.join(words[:3])} failed ({done.returncode}): {said}")
    return done.stdout


def wait_until(
    true: Callable[[], bool], what: str, timeout_s: float, every_s: float = 0.05
) -> None:
    """Wait until a condition holds.

    Raises:
        TestbedError: it does not after `timeout_s` seconds; the message says `what` did not happen.
    """
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            raise TestbedError(f"{what} has not happened within {timeout_s:g} s")
        time.sleep(every_s)
