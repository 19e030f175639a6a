"""One daemon at a time: a lock on a file beside the database, which the kernel takes from the dead.

It is not the database's own lock: what reads the database for a moment is no daemon, and one whose
file was deleted holds nothing any more.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from hetsched_core.errors import InputError

_MOST_BYTES = 1024


class DaemonLock:
    """Held by the daemon that uses a database; the next one is told which that is."""

    def __init__(self, database: Path, now: float) -> None:
        """Take the lock.

        Args:
            database: what only one daemon may use.
            now: seconds UTC, which the next one is told.

        Raises:
            InputError: another daemon holds it, or the file cannot be made.
        """
        self._path = database.with_name(database.name + ".lock")
        self._since_s = now
        self._descriptor = self._take()

    def check(self) -> None:
        """Take the lock again if its file has been deleted, as soon as it can be made.

        Raises:
            InputError: another daemon has been quicker.
        """
        try:
            if os.path.samestat(self._path.stat(), os.fstat(self._descriptor)):
                return
        except OSError:
            if not os.access(self._path.parent, os.W_OK | os.X_OK):
                # Its folder is gone or closed, to another daemon of the same user as well.
                return
        again = self._take()
        os.close(self._descriptor)
        self._descriptor = again

    def __enter__(self) -> Self:
        """Return the lock."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of it. The file stays: two that make it anew could hold one each."""
        os.close(self._descriptor)

    def _take(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise InputError(
                f"{self._path} cannot be opened: {error.strerror}; the database's folder must be "
                "one that the daemon may write to"
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _holder(descriptor)
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise InputError(f"{self._path} cannot be locked: {error.strerror}") from None
            raise InputError(
                f"another daemon runs: {holder} ({self._path}); stop it first, or give this one "
                "partitions and a database of its own"
            ) from None
        me = {"pid": os.getpid(), "host": socket.gethostname(), "since_s": self._since_s}
        # The lock holds on a full disk, too; then it does not say whose it is.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(me).encode() + b"\n", 0)
        return descriptor


def _holder(descriptor: int) -> str:
    """Return in words which process has written into a lock file."""
    try:
        told = json.loads(os.pread(descriptor, _MOST_BYTES, 0))
        since = datetime.fromtimestamp(float(told["since_s"]), UTC).isoformat(timespec="seconds")
        return f"process {int(told['pid'])} on {told['host']!s:.64}, since {since}"
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return "it has not said which it is"
