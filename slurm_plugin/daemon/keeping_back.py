"""Waiting jobs are kept back while a policy thinks.

The first plan after an installation compiles kernels, and a great problem takes a solver long: a
cycle may then last for longer than the begin times reach.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from slurm_plugin.backend import BackendError, Push, RefusedError, SlurmBackend


@contextmanager
def keeping_back(backend: SlurmBackend, pushes: Collection[Push], every_s: float) -> Iterator[None]:
    """Move begin times on for as long as the block takes, each time that `every_s` is over.

    Nobody else may use `backend` meanwhile.
    """
    over = threading.Event()

    def keep() -> None:
        while not over.wait(every_s):
            for push in pushes:
                if over.is_set():
                    return
                try:
                    backend.apply(push)
                except RefusedError:
                    continue  # it has ended, or was cancelled
                except BackendError:
                    break  # the controller is away: again later

    thread = threading.Thread(target=keep, name="keeping back", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
