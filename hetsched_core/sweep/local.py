"""What carries out the runs of a sweep; here, processes of this machine."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hetsched_core.errors import InputError

Command = tuple[str, ...]
"""Arguments of `hetsched`."""


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """A command that has ended; `error` is what it said when it failed, "" if it did not."""

    at: int
    error: str


class Runner(Protocol):
    """Carries out commands, in whatever order, and says of each that it has ended.

    A package names what makes its own, `(folder, at_once, options) -> Runner`, in the entry-point
    group `hetsched.runners`.
    """

    def settle(self, say: Callable[[str], None]) -> None:
        """Wait for what an earlier sweep into the same folder has left under way."""
        ...

    def run(self, commands: Sequence[Command]) -> Iterator[CommandEnd]:
        """Carry out commands; `CommandEnd.at` counts them from 0."""
        ...


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """Carries out so many commands at a time, each in a process of its own."""

    at_once: int

    def settle(self, say: Callable[[str], None]) -> None:
        """Do nothing: processes end with the sweep that started them."""

    def run(self, commands: Sequence[Command]) -> Iterator[CommandEnd]:
        """Carry out commands; one that is killed is told as failed, and ends what is left."""
        with ProcessPoolExecutor(self.at_once) as pool:
            waiting: dict[Future[str], int] = {
                pool.submit(perform, command): at for at, command in enumerate(commands)
            }
            try:
                for future in as_completed(waiting):
                    yield CommandEnd(waiting[future], _outcome(future))
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


def local_runner(_: Path, at_once: int, given: Mapping[str, str]) -> LocalRunner:
    """Return the runner named `local` (entry-point group `hetsched.runners`).

    Raises:
        InputError: there are options; it has none.
    """
    if given:
        raise InputError(f"--submit {next(iter(given))}: runs in local processes have no options")
    return LocalRunner(at_once)


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
    return last_line(said.getvalue(), f"exit code {code}")


def last_line(said: str, otherwise: str) -> str:
    """Return the last line that is more than blanks and dashes, or else something else."""
    lines = (line for line in reversed(said.splitlines()) if line.strip("- \t"))
    return next(lines, otherwise)
