"""Opening a store to look into it, also while another process holds it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetsched_core.store import Store

CLIENTS = "hetsched.db_clients"
"""The entry-point group of those who ask the process that holds a store for a copy of it: functions
that take the path and a folder, and return the path of the copy, or None if they know nobody."""


@contextmanager
def open_to_read(file: Path) -> Iterator[Store]:
    """Open a store for reading; where another process writes it, a copy as of now.

    Raises:
        StoreError: it cannot be opened; it is held, and who holds it gives no copy.
    """
    from hetsched_core.store import Store, StoreHeldError

    with ExitStack() as stack:
        try:
            store = stack.enter_context(Store.open(file))
        except StoreHeldError as held:
            store = stack.enter_context(Store.open(_copy(file, stack, held)))
        yield store


def _copy(file: Path, stack: ExitStack, held: Exception) -> Path:
    from importlib.metadata import entry_points
    from tempfile import TemporaryDirectory

    folder = Path(stack.enter_context(TemporaryDirectory(prefix="hetsched-")))
    for point in entry_points(group=CLIENTS):
        copy = point.load()(file, folder)
        if copy is not None:
            return Path(copy)
    raise held
