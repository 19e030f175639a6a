"""Servers from which a flood of connections takes little."""

from __future__ import annotations

import resource
import sys
import threading
from collections import Counter
from socketserver import ThreadingMixIn
from typing import Any

PATIENCE_S = 5.0
"""How long a client may send nothing, or read nothing."""


def at_once(most: int) -> int:
    """Return so many connections, or as many as leave three quarters of the open files to others.

    A process that can open no more file can do nothing else either.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if files == resource.RLIM_INFINITY else max(1, min(most, files // 4))


class Places:
    """So many that may be served at a time, and so many of them of one client."""

    def __init__(self, most: int, most_of_one: int) -> None:
        """All are free."""
        self._most, self._most_of_one = most, most_of_one
        self._served: Counter[object] = Counter()
        self._changed = threading.Condition()

    def take(self, client: object) -> bool:
        """Take one for a client; return whether there was one."""
        with self._changed:
            if self._served[client] >= self._most_of_one or self._served.total() >= self._most:
                return False
            self._served[client] += 1
            return True

    def free(self, client: object) -> None:
        """Free one that a client has."""
        with self._changed:
            self._served[client] -= 1
            if not self._served[client]:
                # Strangers choose their addresses: none of them is kept.
                del self._served[client]
            self._changed.notify_all()

    def wait(self, most_s: float) -> None:
        """Wait until all are free, but not for longer than so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: not self._served.total(), most_s)


class BoundedThreads(ThreadingMixIn):
    """Serves each connection in a thread, and no more than so many at a time.

    Those beyond are closed at once: each has a thread and an open file.

    Attributes:
        most: so many at a time, or fewer where few files may be open.
        most_of_one: so many of them of one client.
    """

    most = 32
    most_of_one = 32
    daemon_threads = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Make the server, which nobody has asked anything yet."""
        self._places = Places(at_once(self.most), self.most_of_one)
        super().__init__(*args, **kwargs)

    def client(self, request: Any, address: Any) -> object:
        """Return what tells clients apart: here nothing does."""
        return None

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, or close it."""
        client = self.client(request, client_address)
        if not self._places.take(client):
            self.shutdown_request(request)  # type: ignore[attr-defined]
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.free(client)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, in its thread."""
        client = self.client(request, client_address)
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.free(client)

    def wait(self, most_s: float) -> None:
        """Wait until all clients have been served, but not for longer than so many seconds."""
        self._places.wait(most_s)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Leave a client that has gone, or is too slow, alone; tell stderr of all else."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[misc]
