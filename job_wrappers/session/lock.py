"""Keeps two runs from one checkpoint directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from job_wrappers.session.errors import SessionError, not_writable

WAIT_S = 20.0
"""A run that was stopped, or whose node was lost, may hold on a little longer than Slurm shows."""


class FolderLock:
    """A lock on a folder that ends with the process that holds it, however that ends."""

    def __init__(self, folder: Path, who: Mapping[str, object]) -> None:
        """Take the lock, and say in it who holds it.

        Raises:
            SessionError: somebody else holds it, and does not let go in `WAIT_S`.
            OSError: the folder cannot be written.
        """
        self._file: IO[str] = (folder / "lock").open("a+")
        deadline = time.monotonic() + WAIT_S
        while not self._taken(folder):
            if time.monotonic() >= deadline:
                self._file.seek(0)
                said = self._file.read()
                self._file.close()
                raise SessionError(
                    f"{folder} is in use by {_described(said)}; let it end, or name "
                    "another checkpoint directory for this one"
                )
            time.sleep(0.2)
        self._file.truncate(0)
        json.dump(who, self._file)
        self._file.flush()

    def release(self) -> None:
        """Let go, also for processes that were forked from this one, such as those that load."""
        with contextlib.suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._file.close()

    def _taken(self, folder: Path) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            # A file system without locks: better unlocked than not at all.
            sys.stderr.write(f"hetsched: {folder} cannot be locked: {error.strerror}\n")
        return True


def _described(text: str) -> str:
    try:
        who = json.loads(text)
        return f"job {who['job']} run {who['run']} (process {who['pid']} on {who['host']})"
    except (ValueError, KeyError, TypeError):
        return "another run"


def lock_for_job(folder: Path) -> FolderLock:
    """Make the folder and take its lock for the job that this process is part of.

    Raises:
        SessionError: somebody else holds it, or nothing can be written there.
    """
    who = {
        "job": os.environ.get("SLURM_JOB_ID", "none"),
        "run": os.environ.get("SLURM_RESTART_COUNT", "0"),
        "pid": os.getpid(),
        "host": os.environ.get("SLURMD_NODENAME") or os.uname().nodename,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return FolderLock(folder, who)
    except OSError as error:
        raise not_writable(folder, error) from error
