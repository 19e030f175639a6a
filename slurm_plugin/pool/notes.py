"""What a pool's scheduler said last: for `status`, which does not see what its job prints."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hetsched_core.cli.table import moment
from hetsched_core.errors import InputError
from hetsched_core.records.files import replacing

MOST = 5
"""So many are kept."""

MOST_CHARACTERS = 500
"""Of one of them."""


class Notes:
    """What one scheduler says, kept in the pool's `notes.json`, and said on as before."""

    def __init__(self, path: Path, say: Callable[[str], object]) -> None:
        """Begin without any; those of the scheduler before go."""
        self._file, self._say = path / "notes.json", say
        self._last: list[tuple[float, str]] = []
        with suppress(OSError):
            self._file.unlink(missing_ok=True)

    def __call__(self, message: str) -> None:
        """Say something, and keep it where that can be."""
        self._say(message)
        self._last = [*self._last, (time.time(), message[:MOST_CHARACTERS])][-MOST:]
        # The message may be that nothing can be written.
        with suppress(InputError), replacing(self._file) as file:
            json.dump(self._last, file)


def notes(path: Path) -> list[str]:
    """Return what the scheduler of a pool said last, with when."""
    try:
        said = json.loads((path / "notes.json").read_text())
        return [f"{moment(at_s)} scheduler: {message}" for at_s, message in said][-MOST:]
    except (OSError, ValueError, TypeError, OverflowError):
        return []
