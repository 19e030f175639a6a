"""Runs in processes of this machine."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Protocol

Command = tuple[str, ...]
"""Arguments of `hetsched`."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended; `error` is what it said when it failed, "" if it did not."""

    at: int
    error: str


class Runner(Protocol):
    """Carries out commands, in whatever order, and says of each that it has ended."""

    def run(self, commands: Sequence[Command]) -> Iterator[Ended]:
        """Carry out commands; `Ended.at` counts them from 0."""
        ...


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """Carries out so many commands at a time, each in a process of its own."""

    at_once: int

    def run(self, commands: Sequence[Command]) -> Iterator[Ended]:
        """Carry out commands; one that is killed is told as failed, and ends what is left."""
        with ProcessPoolExecutor(self.at_once) as pool:
            waiting: dict[Future[str], int] = {
                pool.submit(perform, command): at for at, command in enumerate(commands)
            }
            try:
                for future in as_completed(waiting):
                    yield Ended(waiting[future], _outcome(future))
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


def _outcome(future: Future[str]) -> str:
    try:
        return future.result()
    except BrokenProcessPool:
        return "its process was killed"


def perform(command: Command) -> str:
    """Carry out a command of `hetsched` in this process; return its error, "" if it succeeded."""
    from hetsched_core.cli import main

    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        code = main(list(command))
    if code == 0:
        return ""
    lines = [line for line in said.getvalue().splitlines() if line.strip()]
    return lines[-1] if lines else f"exit code {code}"
