"""Waits for the workers of a node, and passes on to them what the launcher is told by signals."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from job_wrappers.launch.saying import say
from job_wrappers.launch.worker import Worker
from job_wrappers.outcome import STOPPED

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

_TO_STOP = (signal.SIGTERM, signal.SIGUSR2)
"""Signals that tell a session to save and end; until it listens they end its process."""

_POLL_S = 0.05


class Watch:
    """Passes signals on and waits.

    Attributes:
        heard: signals that have come so far.
    """

    def __init__(self) -> None:
        """Have nobody to pass anything on to yet."""
        self._workers: list[Worker] = []
        self.heard: list[int] = []
        self._to_stop_s: float | None = None

    def told_to_stop(self) -> bool:
        """Whether a signal has come that stops the run."""
        return any(number in _TO_STOP for number in self.heard)

    @contextmanager
    def listening(self) -> Iterator[Watch]:
        """Take the signals while this lasts."""
        before = {number: signal.signal(number, self._take) for number in PASSED_ON}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def wait(self, workers: list[Worker], kill_after_s: float) -> int:
        """Return the exit code of a node once all its workers have ended.

        0 if all ended with 0, `STOPPED` if the others ended with that, or if one was stopped before
        it could take the signal, by which the others lose it; else the code of the worker that
        failed first, 128 + n where signal n ended it.
        """
        self._workers = workers
        for number in self.heard:  # what came before there was anybody to tell
            self._pass_on(number)
        codes: dict[str, int] = {}
        failed = 0
        unready = False
        deadline: float | None = None
        while len(codes) < len(workers) or any(worker.left() for worker in workers):
            self._tell_who_goes_on(kill_after_s)
            for worker in workers:
                worker.follow()
                code = worker.process.poll()
                if code is None or worker.name in codes:
                    continue
                code = 128 - code if code < 0 else code
                if code - 128 in _TO_STOP and code - 128 in self.heard:
                    # Before it could take the signal, and so before any progress.
                    code, unready = STOPPED, True
                codes[worker.name] = code
                if (code in (0, STOPPED) and not worker.left()) or failed:
                    continue
                failed = code
                deadline = time.monotonic() + kill_after_s
                say(_blame(worker, code, len(workers) - len(codes), kill_after_s))
                for other in workers:
                    other.send(signal.SIGTERM)
            if deadline is not None and time.monotonic() >= deadline:
                for worker in workers:
                    worker.kill()
            time.sleep(_POLL_S)
        return STOPPED if unready else failed or max(codes.values())

    def _take(self, number: int, _: object) -> None:
        self.heard.append(number)
        if number in _TO_STOP and self._to_stop_s is None:
            self._to_stop_s = time.monotonic()
        self._pass_on(number)

    def _tell_who_goes_on(self, after_s: float) -> None:
        """Say once who was told to stop so long ago, and is still there."""
        if self._to_stop_s is None or not 0.0 < after_s <= time.monotonic() - self._to_stop_s:
            return
        self._to_stop_s = None
        names = ", ".join(w.name for w in self._workers if w.process.poll() is None)
        if names:
            say(
                f"{names}: told to stop {after_s:g} s ago, and still there; either it takes long "
                "to save, or the script does not take the signal, as a TrainingSession would, and "
                "Slurm will kill it"
            )

    def _pass_on(self, number: int) -> None:
        for worker in self._workers:
            worker.send(number)


def _blame(worker: Worker, code: int, others: int, kill_after_s: float) -> str:
    how = f"ended with {code}" if code < 128 else f"was ended by {_signal(code - 128)}"
    rest = f"; the other {others} have {kill_after_s:g} s to end" if others else ""
    if worker.left():
        rest = f"; its workers have {kill_after_s:g} s to end"
    return f"{worker.name} {how}{rest}{worker.hint()}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
