"""The executor's end of a process that trains one job."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Callable, Optional

from job_wrappers import offspring
from job_wrappers.guardian import Guardian

DEAF_TO = "HUP INT TERM USR1 USR2"
"""Signals that a job's process leaves to its executor."""

LOOK_S = 1.0
"""Seconds between two looks whether an answer is still wanted."""

KILLED_S = 30.0
"""Within which a process that was killed has ended: a driver gives back its memory first."""

UNASKED = (
    "its process gave an answer that it was not asked for, as what it has forked may do; what a "
    "training's functions fork must not return from them"
)

Due = Optional[Sequence[int]]
"""What an answer is about: round and number of a task that has trained, or nothing."""


class JobFailedError(Exception):
    """A job's process raised, ended or did not answer in time; says how."""


class DeviceFailedError(Exception):
    """Not even a process without a job can use the device; says why."""


class Process:
    """A process that stands by, or serves a job.

    Attributes:
        size: bytes of its job's model; 0 while it has none.
        held: bytes of it that are on the device.
        device_free, device_total: bytes of the device when it got ready; 0 where it is the host.
        connection: readable when there is an answer.
        unwanted: whether its job was ended, so that its answers are of no use.
    """

    def __init__(self, device: str, guardian: Guardian) -> None:
        """Start it, in a process group of its own that is guarded while it runs; it gets ready."""
        ours, theirs = socket.socketpair()
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH", "")) if p)
        with theirs:
            self._process = subprocess.Popen(
                [
                    # Signals that tell a job's step to stop reach every process of it.
                    *("/bin/sh", "-c", f"trap '' {DEAF_TO}; exec \"$@\"", "executor"),
                    *(sys.executable, "-m", "job_wrappers.executor.worker"),
                    *(str(theirs.fileno()), device),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
        self._guardian = guardian
        guardian.guard(self._process.pid)
        self.connection = Connection(ours.detach())
        self._due: deque[Due] = deque([None])
        self._ended = False
        self.size = self.held = 0
        self.device_free = self.device_total = 0
        self.unwanted: Callable[[], bool] = lambda: False

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def idle(self) -> bool:
        """Take the answers that have come; return whether none is due.

        Raises:
            JobFailedError: as `answer`.
        """
        while self._due and self.connection.poll():
            self.answer()
        return not self._due

    def ask(self, do: str, answers: Sequence[Due] = (None,), **values: object) -> None:
        """Give it something to do after what it was given before; do not wait.

        Raises:
            JobFailedError: it cannot, or has answered without being asked.
        """
        try:
            if not self._due and self.connection.poll():
                self.connection.recv_bytes()
                raise self._wrong()
            self.connection.send_bytes(json.dumps({"do": do, **values}).encode())
        except (EOFError, OSError):
            raise JobFailedError(self._end()) from None
        self._due.extend(answers)

    def answer(
        self, timeout_s: float | None = None, since_s: float | None = None
    ) -> dict[str, Any]:
        """Return its next answer.

        Args:
            timeout_s: for which it is waited for; None for no limit.
            since_s: when that began (monotonic); None for now.

        Raises:
            JobFailedError: it will give none, or not within so many seconds, or it is unwanted.
            DeviceFailedError: so, and its process does not end.
        """
        began_s = time.monotonic() if since_s is None else since_s
        deadline = began_s + (math.inf if timeout_s is None else timeout_s)
        try:
            while not self.connection.poll(max(0.0, min(LOOK_S, deadline - time.monotonic()))):
                # What it has forked may hold its end of the connection open.
                if self._process.poll() is not None and not self.connection.poll():
                    raise JobFailedError(self._end())
                late = time.monotonic() >= deadline
                if late or self.unwanted():
                    self.kill()
                    why = f"no answer in {timeout_s:g} s" if late else "it was ended"
                    raise JobFailedError(why)
            text = self.connection.recv_bytes()
        except (EOFError, OSError):
            raise JobFailedError(self._end()) from None
        try:
            said: dict[str, Any] = json.loads(text)
            about = said.get("task")
        except (ValueError, AttributeError):
            raise self._wrong() from None
        if "failed" in said:
            self.kill()
            raise JobFailedError(said["failed"])
        if not self._due or about != self._due.popleft():
            raise self._wrong()
        self.size = said.get("size", self.size)
        self.held = said.get("held", self.held)
        self.device_free = said.get("device_free", self.device_free)
        self.device_total = said.get("device_total", self.device_total)
        return said

    def settle(self, timeout_s: float | None = None) -> None:
        """Wait for all answers that are due, together for so long."""
        since_s = time.monotonic()
        while self._due:
            self.answer(timeout_s, since_s)

    def kill(self) -> None:
        """End it, whatever it is doing, and all that its job has started.

        Raises:
            DeviceFailedError: it does not end, as where a driver has it.
        """
        if self._ended:
            return
        self._ended = True
        if self._process.poll() is None:
            offspring.end(self._process.pid)
        # What it has left in its group, where it has ended by itself.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.connection.close()
        self._due.clear()
        self.held = 0
        try:
            self._process.wait(KILLED_S)
        except subprocess.TimeoutExpired:
            why = f"a process that was killed has not ended in {KILLED_S:g} s"
            raise DeviceFailedError(why) from None
        self._guardian.release(self._process.pid)

    def _wrong(self) -> JobFailedError:
        self.kill()
        return JobFailedError(UNASKED)

    def _end(self) -> str:
        """Return how it ended; it does now."""
        try:
            code = self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.kill()
            return "its process closed its connection, and had not ended by itself"
        self.kill()
        if code < 0:
            return f"its process was killed by {signal.Signals(-code).name}"
        return f"its process ended with exit code {code}"
