"""Ranges for the starts of waiting jobs: given when a job comes and when somebody asks.

What is drawn, and how it is calibrated, is `hetsched_core.forecast`'s. It happens in threads of
its own, for a few seconds at a time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from hetsched_core.forecast import (
    LEAST_DRAWS,
    Calibration,
    Experience,
    Futures,
    PastJob,
    RangeAccuracy,
    StartRange,
    possible_starts,
    range_accuracy,
)
from hetsched_core.policy import Policy
from hetsched_core.simulate import SimulationSettings
from hetsched_core.store import StoredRange
from hetsched_core.types import Job, JobView, Plan, Snapshot, Waiting
from slurm_plugin.api.answer_order import Turns

MOST_S = 8.0
"""How long futures are drawn at a time, seconds, the daemon's cycles between not counted."""

SLOW_S = 0.7
"""A future that takes longer is drawn anew with fewer plans, and so are those after it."""

LONGEST_S = 14.0
"""The same with the cycles counted."""

FIRST_AT_ONCE = 25
MOST_AT_ONCE = 200
"""How many jobs are foretold at a time, the earliest first: at first few, for futures end when all
of them have started, and more as long as there is time."""

REST = 5.0
"""After a look ahead, jobs that come meanwhile wait for so many times as long as it took."""

LEAST_REST_S = 2.0
_PATIENCE_S = 14.0
"""How long a question waits for its turn; with the longest drawing, less than its client waits."""

_DAEMON = "the daemon itself"
"""Whose turn it is where nobody has asked."""

_FRESH_S = 5.0
"""For so long a range is told again in which the present lies."""

REMEMBERED = 300


@dataclass(frozen=True, slots=True)
class Known:
    """What a forecast is made from, beside the snapshot and the plan.

    `jobs` are those that are there, by id: the nonce, and all that is known of each.
    """

    policy: Policy
    snapshot: Snapshot
    plan: Plan
    jobs: Mapping[str, tuple[str, Job]]
    past: tuple[PastJob, ...]
    settings: SimulationSettings


@dataclass(frozen=True, slots=True)
class TooFew:
    """Why there is no range: only `drawn` of `wanted` futures came to their end in `took_s`."""

    drawn: int
    wanted: int
    took_s: float

    def __str__(self) -> str:
        """Return it in words for who asks."""
        return (
            f"only {self.drawn} of {self.wanted} futures were done in {self.took_s:.0f} s, and "
            f"{LEAST_DRAWS} are the least; fewer jobs and longer rounds take less"
        )


class Forecasts:
    """Gives ranges, and learns from how good they were."""

    def __init__(self, stopwatch: Callable[[], float]) -> None:
        """Begin with nothing; `stopwatch` tells seconds."""
        self._stopwatch = stopwatch
        self._turns = Turns()
        self._state = threading.Lock()
        self._known: Known | None = None
        self._waiting: dict[str, StartRange] = {}
        self._judged: deque[tuple[StartRange, float]] = deque(maxlen=REMEMBERED)
        self._calibration = Calibration()
        self._new: list[StoredRange] = []
        self._told: dict[str, tuple[object, StartRange]] = {}
        self._come = threading.Event()
        self._end = threading.Event()
        self._free = threading.Event()
        self._free.set()

    def recall(self, ranges: Iterable[StoredRange]) -> None:
        """Learn from the ranges that were given before, in their order."""
        first: dict[str, StoredRange] = {}
        for each in ranges:
            first.setdefault(each.nonce, each)
        for nonce, each in first.items():
            given = StartRange(
                each.at_s, each.drawn_low_s, each.drawn_high_s, each.low_s, each.high_s
            )
            self._waiting[nonce] = given
            if each.start_s is not None:
                self.started(nonce, each.start_s)

    def look(self, known: Known) -> None:
        """Take in what is known after a cycle; ranges for those that came are then given aside."""
        self._known = known
        there = {nonce for nonce, _ in known.jobs.values()}
        with self._state:
            for nonce in self._waiting.keys() - there:
                # It left without having started.
                del self._waiting[nonce]
            if any(self._is_new(known, view) for view in known.snapshot.jobs.values()):
                self._come.set()

    def started(self, nonce: str, start_s: float) -> None:
        """Learn when a job has started, seconds UTC."""
        with self._state:
            given = self._waiting.pop(nonce, None)
            if given is not None and start_s >= given.at_s:
                self._judged.append((given, start_s))
                self._calibration.learn(given, start_s)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Draw nothing meanwhile, but for the plan that a future is being asked for.

        The loop and those who draw share one interpreter, and the loop holds the nodes.
        """
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()

    def take(self) -> tuple[StoredRange, ...]:
        """Return the ranges that were given since the last call."""
        with self._state:
            new, self._new = tuple(self._new), []
        return new

    def accuracy(self) -> RangeAccuracy | None:
        """Return how good the ranges were that were given as jobs came."""
        with self._state:
            given = tuple(self._judged)
        return range_accuracy(given)

    def when(self, job: str, user: str) -> StartRange | TooFew | None:
        """Return a range for a waiting job, or why there is none; None where it may not start.

        It may take some seconds. Within a plan the answer stays the same until it begins to pass.
        `user` is the one that asks.
        """
        known = self._known
        if known is None or job not in known.jobs:
            return None
        if (found := self._told_of(job)) is not None:
            return found
        with self._turns.turn(user, _PATIENCE_S):
            # It may have been given meanwhile.
            if (found := self._told_of(job)) is not None:
                return found
            given, too_few = self._give(known, [job])
        return given.get(job) or too_few

    def _told_of(self, job: str) -> StartRange | None:
        """Return what was said of a job, if it would be said again."""
        known, told = self._known, self._told.get(job)
        if known is None or told is None or told[0] is not known.plan.identity:
            return None
        found = told[1]
        return found if known.snapshot.now < max(found.low_s, found.at_s + _FRESH_S) else None

    def serve(self) -> None:
        """Give ranges to jobs that come, until closed; for a thread of its own."""
        most = FIRST_AT_ONCE
        while not self._end.is_set():
            self._come.wait()
            self._come.clear()
            known = self._known
            if self._end.is_set() or known is None:
                continue
            begun = self._stopwatch()
            new = [v.id for v in known.snapshot.by_submission() if self._is_new(known, v)]
            if new:
                try:
                    with self._turns.turn(_DAEMON, _PATIENCE_S):
                        given, _ = self._give(known, new[:most])
                except Exception:
                    # A policy may fail in a future that never comes; who asks is told of it.
                    given = {}
                # A future ends when all those asked for have started: fewer are sooner.
                most = min(MOST_AT_ONCE, 2 * most) if given else max(1, most // 4)
            took_s = self._stopwatch() - begun
            # Who waits costs no more than a part of one CPU, however many there are.
            self._end.wait(max(LEAST_REST_S, REST * took_s))

    def close(self) -> None:
        """End `serve`, and what is being drawn, at the next turn of each."""
        self._end.set()
        self._come.set()
        self._free.set()

    def _is_new(self, known: Known, view: JobView) -> bool:
        return (
            view.first_start_s is None
            and not view.runs
            and view.blocked is None
            and isinstance(known.plan.entries.get(view.id), Waiting)
            and not known.plan.never(view.id)
            and view.id in known.jobs
            and known.jobs[view.id][0] not in self._waiting
        )

    def _give(self, known: Known, jobs: list[str]) -> tuple[dict[str, StartRange], TooFew | None]:
        starts, too_few = self._starts(known, jobs)
        given = {}
        with self._state:
            for job_id, own in starts.items():
                nonce, job = known.jobs[job_id]
                found = self._calibration.range_of(known.snapshot.now, own)
                given[job_id] = found
                self._waiting.setdefault(nonce, found)
                self._told[job_id] = known.plan.identity, found
                self._new.append(
                    StoredRange(
                        nonce,
                        job_id,
                        job.user,
                        found.at_s,
                        known.policy.info.name,
                        found.drawn_low_s,
                        found.drawn_high_s,
                        found.low_s,
                        found.high_s,
                    )
                )
            # What is told of a plan that is gone is asked for no more.
            self._told = {
                job_id: told
                for job_id, told in self._told.items()
                if told[0] is known.plan.identity
            }
        return given, too_few

    def _starts(
        self, known: Known, jobs: list[str]
    ) -> tuple[dict[str, tuple[float, ...]], TooFew | None]:
        begun, stood_s, from_s, drawn = self._stopwatch(), 0.0, 0.0, 0
        snapshot = known.snapshot
        experience = Experience(known.past, snapshot.speeds, snapshot.cluster.gpu_types)
        whole = {
            job_id: known.jobs[job_id][1] if job_id in known.jobs else view.job
            for job_id, view in snapshot.jobs.items()
        }

        def go_on() -> bool:
            nonlocal stood_s
            asked = self._stopwatch()
            free = self._free.wait(max(0.0, begun + LONGEST_S - asked))
            now = self._stopwatch()
            stood_s += now - asked
            free &= not self._end.is_set()
            return free and now - begun < LONGEST_S and now - begun - stood_s < MOST_S

        def slow(instant: int) -> bool:
            nonlocal from_s
            worked_s = self._stopwatch() - stood_s
            if instant == 1:
                from_s = worked_s
            return worked_s - from_s > SLOW_S

        def count() -> None:
            nonlocal drawn
            drawn += 1

        futures = Futures(settings=known.settings, go_on=go_on, slow=slow, drawn=count)
        found = possible_starts(
            snapshot, known.plan, known.policy, whole, jobs, experience, futures
        )
        took_s = self._stopwatch() - begun
        too_few = TooFew(drawn, futures.draws, took_s) if drawn < LEAST_DRAWS else None
        return found, too_few
