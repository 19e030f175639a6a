"""Who is answered next."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from hetsched_core.errors import InputError


class Turns:
    """Work that is done one at a time: of each user in turn, of one user in its order.

    A lock would give no order: a user with many questions could take it again and again.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        # The first user's first one has the turn; a user that had one goes to the end.
        self._lines: dict[str, deque[object]] = {}

    def __len__(self) -> int:
        """Return how many have the turn or wait for it."""
        with self._changed:
            return sum(map(len, self._lines.values()))

    @contextmanager
    def turn(self, user: str, patience_s: float) -> Iterator[None]:
        """Wait for a turn of a user, and have it.

        Raises:
            InputError: it did not come for so long.
        """
        ticket = object()
        with self._changed:
            self._lines.setdefault(user, deque()).append(ticket)
            if not self._changed.wait_for(lambda: self._first() is ticket, patience_s):
                self._leave(user, ticket)
                raise InputError("the daemon has too many questions at once; ask again")
        try:
            yield
        finally:
            with self._changed:
                self._leave(user, ticket)
                if user in self._lines:
                    self._lines[user] = self._lines.pop(user)
                self._changed.notify_all()

    def _first(self) -> object:
        return next(iter(self._lines.values()))[0]

    def _leave(self, user: str, ticket: object) -> None:
        self._lines[user].remove(ticket)
        if not self._lines[user]:
            del self._lines[user]
