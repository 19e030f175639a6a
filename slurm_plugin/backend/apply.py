"""Applying changes so that none is left half made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from slurm_plugin.backend.change import (
    Cancel,
    Change,
    Depend,
    Drop,
    Enter,
    Hold,
    Leave,
    Release,
    Requeue,
    RequeueEnded,
    Signal,
    Together,
)
from slurm_plugin.backend.errors import AwayError, RefusedError, SlowError
from slurm_plugin.backend.protocol import SlurmBackend

_ORDER: dict[type[Change], int] = {
    # What waits stays where it is, first of all.
    Hold: -1,
    Signal: 0,
    Cancel: 0,
    Requeue: 0,
    RequeueEnded: 0,
    Leave: 1,
    Depend: 2,
    Release: 4,
    Enter: 5,
    Drop: 6,
}


def _order(change: Change) -> int:
    """Return when to make a change; what is done together, when its last step is due."""
    last = change.steps[-1] if isinstance(change, Together) else change
    return _ORDER[type(last)]


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """What became of a cycle's changes.

    Attributes:
        made: those that Slurm accepted; for a `Together` its steps.
        refused: those that it did not, each with its words. A refused `Enter` was undone, and so
            was all that had been placed together with it.
        put_off: those that were not tried, or not known to be made, because Slurm went away or
            there was no more time.
        away: what was said when it did; "" if it did not.
        stuck: jobs of which a placement was refused, and to undo it, too: Slurm takes no change of
            them, as of those that have ended meanwhile.
    """

    made: tuple[Change, ...]
    refused: tuple[tuple[Change, str], ...]
    put_off: tuple[Change, ...]
    away: str = ""
    stuck: frozenset[str] = frozenset()

    def tried(self, kind: type[Change]) -> frozenset[str]:
        """Return the jobs of the changes of a kind that Slurm has answered, either way."""
        answered = (*self.made, *(change for change, _ in self.refused))
        return frozenset(change.job for change in answered if isinstance(change, kind))


def apply_changes(
    backend: SlurmBackend,
    changes: Iterable[Change],
    sleep: Callable[[float], None],
    backoff_s: tuple[float, ...] = (0.1, 0.4),
    enough: Callable[[], bool] = lambda: False,
) -> ApplyResult:
    """Make changes in the order of dependency: what frees GPUs first, what takes them last.

    Every change is one call and may be made twice, so one whose answer was lost is simply made
    again. Slurm may refuse the second half of a call after making the first: a job whose `Enter` is
    refused is taken out again. So it is with what is placed together: those before it leave, too,
    and those behind it are not tried.

    Args:
        backend: Slurm.
        changes: what to do, in any order.
        sleep: waits for so many seconds.
        backoff_s: how long to wait before each further attempt when Slurm does not answer.
        enough: whether to put off what is left; asked after each change.
    """
    made: list[Change] = []
    refused: list[tuple[Change, str]] = []
    stuck: set[str] = set()
    queue = sorted(changes, key=_order)
    left = list(queue)
    try:
        for change in queue:
            steps = change.steps if isinstance(change, Together) else (change,)
            for at, step in enumerate(steps):
                try:
                    _attempt(backend, step, sleep, backoff_s)
                except RefusedError as error:
                    refused.append((step, str(error)))
                    left.remove(change)
                    for entry in reversed(steps[: at + 1]):
                        if isinstance(entry, Enter) and not _undo(backend, entry, sleep, backoff_s):
                            stuck.add(entry.job)
                    break
            else:
                made += steps
                left.remove(change)
            if enough():
                break
    except AwayError as error:
        return ApplyResult(tuple(made), tuple(refused), tuple(left), str(error), frozenset(stuck))
    return ApplyResult(tuple(made), tuple(refused), tuple(left), stuck=frozenset(stuck))


def _attempt(
    backend: SlurmBackend,
    change: Change,
    sleep: Callable[[float], None],
    backoff_s: tuple[float, ...],
) -> None:
    for wait_s in backoff_s:
        try:
            return backend.apply(change)
        except SlowError:
            # All others wait meanwhile.
            raise
        except AwayError:
            sleep(wait_s)
    return backend.apply(change)


def _undo(
    backend: SlurmBackend,
    change: Enter,
    sleep: Callable[[float], None],
    backoff_s: tuple[float, ...],
) -> bool:
    """Bring a job back; return whether Slurm took that: it does not if it has ended or started."""
    try:
        _attempt(backend, change.otherwise, sleep, backoff_s)
    except RefusedError:
        return False
    return True
