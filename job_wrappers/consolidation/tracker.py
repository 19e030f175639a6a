"""The tracker of a job's copies: which of them does how many steps, and what becomes of them.

One runs beside each copy, and all of them come to the same, since every file is written once. So
that they need not all average, the copies' names decide which goes first; the next one waits for
`PATIENCE_S` more, and acts only where those before it are gone.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Callable

from job_wrappers import files, tensor_file
from job_wrappers.averaging import Mean
from job_wrappers.consolidation.folder import (
    SCHEMA,
    ConsolidationRound,
    Folder,
    Share,
    checked_name,
)
from job_wrappers.consolidation.rounds import (
    Act,
    Begin,
    Consolidate,
    Over,
    RoundRules,
    Standing,
    Wait,
    next_act,
)

PATIENCE_S = 5.0

_SILENT = "no report"


class Averaging(Enum):
    """How much each copy's parameters count: by the steps it did, or all the same."""

    STEPS = "steps"
    PLAIN = "plain"


class OvertakenError(ValueError):
    """Others have averaged a round, and have gone on so far that nothing is left of it."""


@dataclass(frozen=True)
class Consolidated:
    """How a round ended.

    Attributes:
        number: of the round.
        steps: copy -> steps that became part of the model.
        left_out: copy -> why none of it did.
        done: steps in the model, over all rounds.
    """

    number: int
    steps: Mapping[str, int]
    left_out: Mapping[str, str]
    done: int


class Tracker(Folder):
    """Gives copies their steps and averages what they report; `consolidate` alone needs torch.

    It has no memory: all it knows is in the folder.
    """

    def begin(
        self, steps: Mapping[str, int], ends_s: float | None = None, number: int | None = None
    ) -> ConsolidationRound:
        """Begin the next round.

        Args:
            steps: copy -> steps, 1 or more; none at all tells the copies that the job is over.
            ends_s: when copies are to report whatever they have, seconds UTC.
            number: which round is meant, if that is sure: one that has begun is left alone.

        Returns:
            The round; where another tracker was quicker, the one that it began.

        Raises:
            ValueError: the round before is not consolidated, or a name or a number is no good.
        """
        before = self.round()
        done = first = 0
        if before is not None and number is not None and before.number >= number:
            return before
        if before is not None:
            path = self.model_path(before.number + 1)
            if not path.exists():
                raise ValueError(f"round {before.number} goes on: consolidate it first")
            try:
                done = int(self.header(path, before.number + 1)["done"])
            except FileNotFoundError:
                if not self._past(before):
                    raise
                return self.round() or before
            first = max((s.first + s.steps for s in before.shares.values()), default=0)
        shares = {}
        for copy, own in sorted(steps.items()):
            if own < 1:
                raise ValueError(f"{own} steps for copy {copy}: leave out copies with none")
            shares[checked_name(copy)] = Share(own, first)
            first += own
        found = ConsolidationRound(before.number + 1 if before else 0, done, shares, ends_s)
        said = {"schema": SCHEMA, "nonce": self.nonce, **asdict(found)}
        path = self.path / f"round-{found.number:06}.json"
        if not files.write_once(path, [json.dumps(said).encode()]):
            found = self.round() or found
        self._clear(found.number - 1)
        return found

    def arrived(self) -> dict[str, int]:
        """Return copy -> steps of the reports on the newest round; a damaged one is none yet."""
        return self._arrived(self.round())

    def consolidate(
        self, averaging: Averaging = Averaging.STEPS, of: ConsolidationRound | None = None
    ) -> Consolidated:
        """Average what has come of a round; its copies' work ends here.

        Copies that did no step have nothing to add, however they are averaged. If no copy has, the
        next round starts from what this one did.

        Args:
            averaging: what parameters count by.
            of: the round that is meant; None for the newest.

        Returns:
            What became part of the model. Once a round is consolidated, what that was the first
            time.

        Raises:
            ValueError: there is no round, or no copy has offered a start yet.
            OvertakenError: others have done it, and what that was is no longer known.
        """
        now = of or self.round()
        if now is None:
            raise ValueError("there is no round: begin one")
        path = self.model_path(now.number + 1)
        if not path.exists():
            self._average(now, path, averaging)
        try:
            header = self.header(path, now.number + 1)
        except FileNotFoundError:
            raise OvertakenError(f"round {now.number} is long over") from None
        return Consolidated(now.number, header["steps"], header["left_out"], header["done"])

    def standing(self, now_s: float) -> Standing:
        """Return what there is to decide on, at a time in seconds UTC.

        Raises:
            ValueError: the folder is of another job, or what is in it is damaged.
        """
        while True:
            now = self.round()
            try:
                return self._standing(now, now_s)
            except FileNotFoundError:
                # Others have gone on since, and have cleared away what was looked at.
                if now is None or not self._past(now):
                    raise

    def _standing(self, now: ConsolidationRound | None, now_s: float) -> Standing:
        number = 0 if now is None else now.number
        averaged = now is not None and self.model_path(number + 1).exists()
        newest = self.model_path(number + 1 if averaged else number)
        header = self.header(newest, number + 1 if averaged else number) if newest.exists() else {}
        rates = header.get("rates", {})
        return Standing(
            now_s=now_s,
            round=now,
            averaged=averaged,
            done=int(header["done"]) if header else None,
            present=self.present(),
            arrived=self._arrived(now),
            rates={str(copy): float(rate) for copy, rate in rates.items()},
        )

    def _arrived(self, now: ConsolidationRound | None) -> dict[str, int]:
        steps = {copy: self._reported(now, copy) for copy in now.shares} if now else {}
        return {copy: own for copy, own in steps.items() if own is not None}

    def _reported(self, now: ConsolidationRound, copy: str) -> int | None:
        """Return the steps that a copy says it did; None while there is no such report."""
        try:
            return int(self.header(self.report_path(now.number, copy), now.number)["steps"])
        except (OSError, ValueError):
            return None

    def _average(self, now: ConsolidationRound, path: Path, averaging: Averaging) -> None:
        try:
            before, start = tensor_file.read(self.model_path(now.number))
        except FileNotFoundError:
            if self._past(now):
                return
            raise ValueError("no copy has offered a start yet") from None
        mean = Mean(start)
        steps: dict[str, int] = {}
        left_out: dict[str, str] = {}
        rates: dict[str, float] = dict(before.get("rates", {}))
        # Most steps first: where states differ in form, theirs is the one that counts.
        by_steps = self._arrived(now)
        for copy in sorted(now.shares, key=lambda copy: (-by_steps.get(copy, 0), copy)):
            report = self.report_path(now.number, copy)
            try:
                said = self.header(report, now.number)
                own = int(said["steps"])
                if not 0 < own <= now.shares[copy].steps:
                    raise ValueError(f"{own} steps of {now.shares[copy].steps} given to it")
                mean.add(tensor_file.read(report)[1], own if averaging is Averaging.STEPS else 1.0)
                steps[copy] = own
                if (seconds := float(said.get("seconds", 0.0))) > 0:
                    rates[copy] = own / seconds
            except FileNotFoundError:
                left_out[copy] = _SILENT
            except (OSError, ValueError) as error:
                left_out[copy] = str(error)
        header = {
            "nonce": self.nonce,
            "number": now.number + 1,
            "done": now.done + sum(steps.values()),
            "steps": steps,
            "left_out": left_out,
            "averaging": averaging.value,
            "rates": rates,
        }
        if self._past(now):
            # Reports that are missing may have been deleted since: no copy was silent.
            return
        if tensor_file.write_once(path, header, mean.result() if steps else start):
            for copy, why in left_out.items():
                if why == _SILENT:
                    # It died, or hangs; if it lives it joins anew.
                    self.present_path(copy).unlink(missing_ok=True)

    def _past(self, now: ConsolidationRound) -> bool:
        """Whether a later round has begun, so that a copy has averaged this one."""
        newest = self.round()
        return newest is not None and newest.number > now.number

    def _clear(self, below: int) -> None:
        """Delete the files of rounds that are wanted no more."""
        for path in self.path.glob("*-??????.*"):
            found = re.match(r"(?:round|model)-(\d{6})\.", path.name)
            if found and int(found[1]) < below:
                path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Done:
    """What a tracker has done, and what came of it."""

    act: Act
    result: ConsolidationRound | Consolidated


def track(
    tracker: Tracker,
    rules: RoundRules,
    name: str | None = None,
    averaging: Averaging = Averaging.STEPS,
    *,
    tell: Callable[[Done], None],
    watch: Callable[[Standing], None] = lambda _: None,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    poll_s: float = 1.0,
) -> int:
    """Run the rounds of a job to its end.

    Args:
        tracker: of the job's folder.
        rules: of the job.
        name: the copy beside which this runs; None for a tracker that runs alone and never waits
            for others.
        averaging: what parameters count by.
        tell: is told of everything that is done here.
        watch: is shown what is seen, each time.
        clock: seconds UTC.
        sleep: waits for so many seconds.
        poll_s: how often to look.

    Returns:
        The steps in the model.

    Raises:
        ValueError: the folder is of another job, or what is in it is damaged.
        OSError: it cannot be written.
    """
    pending: tuple[int, type[Act]] | None = None
    since_s = 0.0
    while True:
        seen = tracker.standing(clock())
        watch(seen)
        act = next_act(seen, rules)
        if isinstance(act, Over):
            return seen.done or 0
        number = -1 if seen.round is None else seen.round.number
        if pending != (number, type(act)):
            pending, since_s = (number, type(act)), seen.now_s
        mine = seen.now_s >= since_s + PATIENCE_S * place(name, seen)
        if isinstance(act, Wait) or not mine or tracker.round() != seen.round:
            sleep(poll_s)
            continue
        try:
            if isinstance(act, Consolidate):
                tell(Done(act, tracker.consolidate(averaging, seen.round)))
            else:
                steps, ends_s = (act.steps, act.ends_s) if isinstance(act, Begin) else ({}, None)
                tell(Done(act, tracker.begin(steps, ends_s, number + 1)))
        except OvertakenError:
            continue


def place(name: str | None, seen: Standing) -> int:
    """Return how many trackers go before this one: those of the copies that come first."""
    if name is None:
        return 0
    return sum(other < name for other in seen.present)
