"""The managed nodes stay held while a policy thinks.

The first plan after an installation compiles kernels, and a great problem takes a solver long: a
cycle may then last for longer than the hold.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from slurm_plugin.backend import BackendError, Hold, SlurmBackend


@contextmanager
def renewing(backend: SlurmBackend, hold: Hold | None, every_s: float) -> Iterator[None]:
    """Renew a hold for as long as the block takes, each time that `every_s` is over.

    Nothing else may use `backend` meanwhile. None is no hold to renew.
    """
    over = threading.Event()

    def keep(hold: Hold) -> None:
        while not over.wait(every_s):
            try:
                backend.apply(hold)
            except BackendError:
                continue  # the controller is away: again later

    if hold is None:
        yield
        return
    thread = threading.Thread(target=keep, args=(hold,), name="renewing the hold", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
