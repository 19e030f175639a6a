"""HTTP servers from which a flood of connections takes little."""

from __future__ import annotations

import resource
import sys
import threading
from socketserver import ThreadingMixIn
from typing import Any

PATIENCE_S = 5.0
"""How long a client may send nothing, or read nothing."""

MOST_AT_ONCE = 32
"""Connections beyond these are closed at once: each has a thread and an open file."""


def at_once(most: int) -> int:
    """Return so many connections, or as many as leave three quarters of the open files to others.

    A process that can open no more file can do nothing else either.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if files == resource.RLIM_INFINITY else max(1, min(most, files // 4))


class BoundedThreads(ThreadingMixIn):
    """Serves each connection in a thread, and no more than so many at a time."""

    daemon_threads = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Make the server, which nobody has asked anything yet."""
        self._free = threading.BoundedSemaphore(at_once(MOST_AT_ONCE))
        super().__init__(*args, **kwargs)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, or close it."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)  # type: ignore[attr-defined]
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Leave a client that has gone, or is too slow, alone; tell stderr of all else."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[misc]
