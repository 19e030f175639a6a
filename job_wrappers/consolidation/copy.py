"""One copy of a job, in the process that trains it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from job_wrappers import files, tensor_file
from job_wrappers.consolidation.folder import (
    COPY_SCHEMA,
    ConsolidationRound,
    Folder,
    Share,
    checked_name,
)


@dataclass(frozen=True)
class Turn:
    """A copy's part in a round.

    Attributes:
        number: of the round.
        steps, first: as `Share`.
        done: steps in the model that it starts from; what a learning-rate schedule should follow.
        ends_s: as `ConsolidationRound`.
        state: what it starts from, on the host.
    """

    number: int
    steps: int
    first: int
    done: int
    ends_s: float | None
    state: Any

    def over(self, step: int, now_s: float) -> bool:
        """Return whether a copy that has done so many steps is to report by now."""
        return step >= self.steps or (self.ends_s is not None and now_s >= self.ends_s)


class Copy(Folder):
    """One copy of a job, in the process that trains it.

    A copy that was killed and started anew takes part in the newest round that it has not reported
    on.
    """

    def __init__(self, folder: Path, nonce: str, name: str) -> None:
        """Be the copy of this name, which no other process is.

        That of its node and job, for example: one node may have copies of several jobs.
        """
        super().__init__(folder, nonce)
        self._name = checked_name(name)
        self._last = -1
        self._given_s = time.monotonic()

    def offer(self, state: object) -> None:
        """Offer what the first round starts from; that of the copy that comes first is taken.

        Args:
            state: what `Turn.state` is to hold: dicts, lists and tuples of tensors and plain
                values, such as `{"model": model.state_dict(), "optimizer":
                optimizer.state_dict()}`. What is not in it is not averaged, and every copy keeps
                its own.
        """
        now = self.round()
        if not self.model_path(now.number if now else 0).exists():
            header = {"number": 0, "done": 0, "steps": {}, "left_out": {}}
            path = self.model_path(0)
            tensor_file.write_once(path, {"nonce": self.nonce, **header}, state)

    def await_turn(self, timeout_s: float = float("inf"), poll_s: float = 1.0) -> Turn | None:
        """Return the next turn of this copy; None when the job is over.

        One that waits takes part: a tracker gives it steps from the next round on.

        Args:
            timeout_s: how long to wait for one.
            poll_s: how often to look.

        Raises:
            TimeoutError: there was none.
            ValueError: the folder is of another job, or what is in it is damaged.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            now = self.round()
            if now is not None and not now.shares:
                self.leave()
                return None
            self._join()
            if now is not None and now.number > self._last and self._name in now.shares:
                turn = self._turn(now, now.shares[self._name])
                if turn is not None:
                    self._given_s = time.monotonic()
                    return turn
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{self.path}: no turn for copy {self._name}")
            time.sleep(poll_s)

    def report(self, turn: Turn, steps: int, state: object) -> None:
        """Tell what this copy has made of its turn.

        Args:
            turn: which.
            steps: those done.
            state: of the form of `offer`.

        Raises:
            OSError: it cannot be written; the turn is lost unless this is tried again.
        """
        header = {
            "nonce": self.nonce,
            "number": turn.number,
            "copy": self._name,
            "steps": steps,
            "seconds": time.monotonic() - self._given_s,
        }
        tensor_file.write(self.report_path(turn.number, self._name), header, state)
        self._last = max(self._last, turn.number)

    def leave(self) -> None:
        """Take no part from the next round on, after a report on this one: it must stop."""
        self.present_path(self._name).unlink(missing_ok=True)

    def _join(self) -> None:
        path = self.present_path(self._name)
        if not path.exists():
            said = {"schema": COPY_SCHEMA, "nonce": self.nonce, "copy": self._name}
            content = json.dumps({**said, "joined_s": time.time()}).encode()
            files.write_once(path, [content])

    def _turn(self, now: ConsolidationRound, share: Share) -> Turn | None:
        """Return the turn in a round; None if it is over, or has nothing to start from."""
        if self.model_path(now.number + 1).exists():
            return None
        try:
            self.header(self.report_path(now.number, self._name), now.number)
            return None
        except (OSError, ValueError):
            pass
        try:
            self.header(self.model_path(now.number), now.number)
            state = tensor_file.read(self.model_path(now.number))[1]
        except FileNotFoundError:
            return None
        return Turn(now.number, share.steps, share.first, now.done, now.ends_s, state)
