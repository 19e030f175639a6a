"""The rounds of a job: gradients of a fixed number of tasks, then one step of the optimiser.

Source: Hare, HPDC '22, relaxed scale-fixed synchronisation: the tasks of a round run whenever and
on whatever GPUs they may, one after another on the same one too; their mean gradient is applied
when all are there, so that training is that of the fixed number.

Where the paper has a parameter server for each job, here are files in a folder that all executors
of the job see, each written once and whole:

    round-000004.state         parameters, buffers and optimiser state that round 4 begins with
    round-000004.task-001.gradient    what task 1 makes of them

Whoever brings the last gradient applies them, on the host and in the order of the tasks, so that
neither GPUs nor the order in which they came make a difference. Several that do so at once agree.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Callable, TypeVar

from job_wrappers import files, tensor_file
from job_wrappers.averaging import Mean

GONE_S = 2.0
"""States that are not seen for so long are gone; a network file system may be late."""


_Made = TypeVar("_Made")


class StatesGoneError(Exception):
    """States that were there are gone; says which training's."""


class Advance(Enum):
    """Whether the next round has begun: not yet, by another process, or by this very call."""

    WAITS = "waits"
    BEGUN = "begun"
    OWN = "own"


@dataclass(frozen=True)
class Gradient:
    """The mean over a round.

    Attributes:
        parameters: name -> gradient; of parameters that no task had one for, nothing.
        buffers: name -> buffer.
    """

    parameters: Mapping[str, Any]
    buffers: Mapping[str, Any]


@dataclass(frozen=True)
class Rounds:
    """The folder of a job, made by the process that comes first.

    Attributes:
        folder: on a file system with hard links.
        scale: tasks of a round.
    """

    folder: Path
    scale: int

    def begin(self, state: object) -> None:
        """Leave what round 0 begins with, unless another process has."""
        path = self._state(0)

        def write() -> None:
            self.folder.mkdir(parents=True, exist_ok=True)
            if self.newest() is None:
                tensor_file.write_once(path, {"round": 0}, state)

        files.patiently(path, write)

    def newest(self) -> int | None:
        """Return the round that has begun last; None before the first."""

        def look() -> list[str]:
            try:
                return os.listdir(self.folder)  # noqa: PTH208 -- a glob is silent about errors
            except FileNotFoundError:
                return []

        names = fnmatch.filter(files.patiently(self.folder, look), "round-??????.state")
        return int(max(names)[6:12]) if names else None

    def has(self, round_: int, task: int) -> bool:
        """Return whether a task is done: its gradient is there, or was applied."""
        newest = self.newest()
        return (newest is not None and newest > round_) or self._trained(round_, task)

    def state(self, round_: int) -> Any:
        """Return what a round begins with.

        Raises:
            FileNotFoundError: it has not begun.
            ValueError: the file is damaged.
        """
        return self._read(self._state(round_))[1]

    def put(self, round_: int, task: int, gradients: Mapping[str, Any], buffers: Any) -> None:
        """Leave the gradients of a task, None where there is none, and its buffers.

        Raises:
            StatesGoneError: the folder is gone.
            OSError: they cannot be written.
        """
        header = {"without": [name for name, own in gradients.items() if own is None]}
        own = {name: gradient for name, gradient in gradients.items() if gradient is not None}
        path, tensors = self._gradient(round_, task), {"own": own, "buffers": buffers}
        try:
            self._patiently(path, lambda: tensor_file.write(path, header, tensors))
        except FileNotFoundError:
            raise self._gone() from None

    def advance(self, round_: int, step: Callable[[Any, Gradient], object]) -> Advance:
        """Begin the round after this one if all gradients of this one are there.

        Args:
            round_: the round.
            step: (what the round began with, mean gradient) -> what the next one begins with.

        Raises:
            ValueError: a gradient is damaged, and was removed for its task to run again; or
                gradients are not finite or not of one form.
            StatesGoneError: no state is there.
        """
        if files.is_there(self._state(round_ + 1)):
            return Advance.BEGUN
        if not all(self._trained(round_, task) for task in range(self.scale)):
            return Advance.WAITS
        try:
            state = self.state(round_)
            mean = self._mean(round_, state)
        except FileNotFoundError:
            # Another executor has begun the next round meanwhile, or has removed what is damaged.
            if files.is_there(self._state(round_ + 1)):
                return Advance.BEGUN
            if self.newest() is None and not self._away():
                raise self._gone() from None
            return Advance.WAITS
        after = step(state, mean)
        path, header = self._state(round_ + 1), {"round": round_ + 1}
        own = self._patiently(path, lambda: tensor_file.write_once(path, header, after))
        for task in range(self.scale):
            self._remove(self._gradient(round_, task))
        # One more than is needed stays for an executor that is just reading it.
        self._remove(self._state(round_ - 1))
        return Advance.OWN if own else Advance.BEGUN

    def await_round(
        self, round_: int, step: Callable[[Any, Gradient], object], timeout_s: float
    ) -> None:
        """Wait until others have done their tasks of the rounds before.

        Raises:
            TimeoutError: they have not.
            StatesGoneError: no state is there, and one was.
        """
        deadline = time.monotonic() + timeout_s
        seen_s = time.monotonic()
        while not files.is_there(self._state(round_)):
            # The process that was to do it may have died in between.
            newest = self.newest()
            if newest == round_ - 1 and self.advance(round_ - 1, step) != Advance.WAITS:
                return
            if newest is not None:
                seen_s = time.monotonic()
            elif self._away():
                seen_s = time.monotonic()
                deadline = seen_s + timeout_s
            elif time.monotonic() >= seen_s + GONE_S:
                raise self._gone()
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{self.folder}: round {round_} has not begun")
            time.sleep(0.005)

    def _mean(self, round_: int, state: Mapping[str, Any]) -> Gradient:
        """Return the mean over the tasks, a parameter's gradient being 0 in tasks without one."""
        import torch

        mean = Mean({"buffers": state["model"]})
        without: list[set[str]] = []
        for task in range(self.scale):
            path = self._gradient(round_, task)
            try:
                header, own = self._read(path)
            except ValueError as error:
                self._remove(path)
                raise ValueError(f"{error}; it was removed") from None
            none = set(header["without"])
            zeros = {name: torch.zeros_like(state["model"][name]) for name in none}
            try:
                mean.add({"own": {**own["own"], **zeros}, "buffers": own["buffers"]}, 1.0)
            except ValueError as error:
                raise ValueError(f"round {round_}: {_plain(error)}") from None
            without.append(none)
        found = mean.result()
        unused = set.intersection(*without)
        parameters = {name: g for name, g in found["own"].items() if name not in unused}
        return Gradient(parameters, found["buffers"])

    def _trained(self, round_: int, task: int) -> bool:
        return files.is_there(self._gradient(round_, task))

    def _read(self, path: Path) -> tuple[dict[str, Any], Any]:
        return self._patiently(path, lambda: tensor_file.read(path))

    def _remove(self, path: Path) -> None:
        files.patiently(path, lambda: path.unlink(missing_ok=True))

    def _patiently(self, path: Path, act: Callable[[], _Made]) -> _Made:
        """Do something with a file, once its file system is there."""

        def tried() -> _Made:
            try:
                return act()
            except FileNotFoundError:
                if self._away():
                    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE)) from None
                raise

        return files.patiently(path, tried)

    def _away(self) -> bool:
        """Whether the folder of all jobs is not there, as where a file system is not mounted."""
        return not files.is_there(self.folder.parent)

    def _gone(self) -> StatesGoneError:
        return StatesGoneError(f"its state files are gone: rounds/{self.folder.name}/ has none")

    def _state(self, round_: int) -> Path:
        return self.folder / f"round-{round_:06}.state"

    def _gradient(self, round_: int, task: int) -> Path:
        return self.folder / f"round-{round_:06}.task-{task:03}.gradient"


def _plain(error: ValueError) -> str:
    """Return what is wrong with a mean in words that know nothing of how its states are kept."""
    for inner, word in (("own.", "the gradient of "), ("buffers.", "the buffer ")):
        if str(error).startswith(inner):
            return word + str(error)[len(inner) :]
    return str(error)
