"""The tracker at work: it looks at the folder and does what is next, until the job is over.

One runs beside each copy, and all of them come to the same, since every file is written once. So
that they need not all average, the copies' names decide who goes first; the next one waits for
`PATIENCE_S` more, and acts only where those before it are gone.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Callable

from job_wrappers.consolidation.folder import Round
from job_wrappers.consolidation.rounds import (
    Act,
    Begin,
    Consolidate,
    Finish,
    Over,
    Rules,
    Standing,
    Wait,
    next_act,
)
from job_wrappers.consolidation.tracker import Averaging, Consolidated, OvertakenError, Tracker

PATIENCE_S = 5.0


@dataclass(frozen=True)
class Done:
    """What a tracker has done: the act, the round before it, -1 for none, and what came of it."""

    act: Act
    number: int
    result: Round | Consolidated


def track(
    tracker: Tracker,
    rules: Rules,
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
            done = _carried_out(tracker, act, seen.round, averaging)
        except OvertakenError:
            continue
        tell(Done(act, number, done))


def place(name: str | None, seen: Standing) -> int:
    """Return how many trackers go before this one: those of the copies that come first."""
    if name is None:
        return 0
    return sum(other < name for other in seen.present)


def _carried_out(
    tracker: Tracker, act: Act, now: Round | None, averaging: Averaging
) -> Round | Consolidated:
    number = 0 if now is None else now.number + 1
    if isinstance(act, Begin):
        return tracker.begin(act.steps, act.ends_s, number)
    if isinstance(act, Consolidate):
        return tracker.consolidate(averaging, now)
    assert isinstance(act, Finish)
    return tracker.begin({}, number=number)
