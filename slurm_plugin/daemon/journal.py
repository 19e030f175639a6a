"""What becomes of jobs, kept in the store: as they come, change and leave.

It decides nothing, and nothing that it writes is needed to schedule: where the store takes nothing
in, the latest of it waits.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from hetsched_core.forecast import PastJob, claim_of, work_done
from hetsched_core.measures.fairness import RunTimes, latency_ratio, raqlr
from hetsched_core.store import JobEvent, Store, StoredJob, StoredRange, StoreError
from hetsched_core.types import (
    Configuration,
    EndedJob,
    Entry,
    Job,
    JobView,
    Phase,
    Placed,
    Plan,
    ReasonCode,
    Snapshot,
    Waiting,
)
from slurm_plugin.backend import SlurmJob
from slurm_plugin.daemon.jobs.managed import ManagedJob
from slurm_plugin.daemon.jobs.service import Unseen, last_run_gpu_s

KEEP_JOBS = 20_000
"""How many jobs are kept, the latest ones; with each, twenty events and two ranges."""

REMEMBERED = 1000
"""So many past jobs are learned from."""

_NOTHING: Mapping[str, SlurmJob] = {}
_NONE_UNSEEN: Mapping[str, Unseen] = {}
_NONE_LATER: Mapping[str, JobView] = {}
_MOST_UNWRITTEN = 10_000
_MOST_SAID = 100_000
_FORGET_EVERY = 500
_AGAIN_S = 10.0

_BEFORE = "what was before is not known, since the database is a new one"
"""What is told of a job that is there when the database is replaced."""

_UNTOLD = "while no daemon ran"
"""What is told of a job that Slurm has forgotten when the next daemon looks."""

_PLACED = "placed"
"""What is told of a job whose GPUs are kept for it, and which Slurm has not started yet."""


@dataclass(slots=True)
class _Followed:
    """A job that is there: what was said of it last."""

    nonce: str
    job: Job
    view: JobView
    first_start_s: float | None
    held: tuple[str, str] = ("", "")
    planned: tuple[str, str] = ("", "")


@dataclass(slots=True)
class _Said:
    """What an earlier daemon said last of a job: how it stands to GPUs, since when, what for."""

    held: tuple[str, str] = ("", "")
    held_s: float = math.inf
    planned: tuple[str, str] = ("", "")


class Journal:
    """Writes down what becomes of jobs, and knows what became of the latest ones."""

    def __init__(self) -> None:
        """Begin with nothing known; the first store that is given tells what was before."""
        self._store: Store | None = None
        self._followed: dict[str, _Followed] = {}
        self._jobs: deque[StoredJob] = deque(maxlen=_MOST_UNWRITTEN)
        self._events: deque[JobEvent] = deque(maxlen=_MOST_UNWRITTEN)
        self._ranges: deque[StoredRange] = deque(maxlen=_MOST_UNWRITTEN)
        self._starts: deque[tuple[str, str, float]] = deque(maxlen=_MOST_UNWRITTEN)
        self._taught: list[EndedJob] = []
        self._past: dict[str, PastJob] = {}
        self._ended: deque[tuple[float, float]] = deque(maxlen=REMEMBERED)
        self._written = 0
        self._next_s = -math.inf
        self._changed = True
        self._known: tuple[PastJob, ...] = ()
        self._there: dict[str, StoredJob] = {}
        self._said: dict[str, _Said] = {}
        self.trouble = ""

    @property
    def past(self) -> tuple[PastJob, ...]:
        """The latest jobs in the order in which they came, those that are there included."""
        if self._changed:
            order = sorted(self._past.values(), key=lambda one: (one.job.submit_s, one.job.id))
            self._known, self._changed = tuple(order[-REMEMBERED:]), False
            self._past = {
                nonce: one
                for nonce, one in self._past.items()
                if nonce in self._followed or one.job.submit_s >= self._known[0].job.submit_s
            }
        return self._known

    def take_ended(self) -> tuple[EndedJob, ...]:
        """Return the jobs that told no size and have completed since this was asked last."""
        taken, self._taught = tuple(self._taught), []
        return taken

    def jobs(self) -> dict[str, tuple[str, Job]]:
        """Return the jobs that are there, by id: nonce, and all that is known of each."""
        return {job_id: (each.nonce, each.job) for job_id, each in self._followed.items()}

    def raqlr(self, now: float) -> float | None:
        """Return the mean latency ratio of the jobs that left lately (Hops formula 7)."""
        if not self._ended:
            return None
        end_s, ratios = np.array(self._ended).T
        return raqlr(end_s, ratios, now)

    def note(
        self,
        store: Store | None,
        managed: Iterable[ManagedJob],
        snapshot: Snapshot,
        plan: Plan,
        decisions: int,
        given: Iterable[StoredRange] = (),
        ended: Mapping[str, SlurmJob] = _NOTHING,
        unseen: Mapping[str, Unseen] = _NONE_UNSEEN,
        later: Mapping[str, JobView] = _NONE_LATER,
    ) -> tuple[tuple[str, float], ...]:
        """Take in a cycle, and write what is new.

        Args:
            store: where to write; None while there is none.
            managed: the jobs of ours.
            snapshot: what is known now.
            plan: the plan in force.
            decisions: how many were made so far.
            given: ranges that were given for starts since the last call.
            ended: what Slurm shows of jobs that have ended since.
            unseen: what became of jobs that ended before, while no daemon looked, by nonce.
            later: those that are not to begin yet, of which no policy is told.

        Returns:
            Nonce and time of the jobs that have started since.
        """
        self._recall(store, snapshot.now, decisions)
        self._ranges.extend(given)
        started = []
        seen = set()
        for known in managed:
            view = snapshot.jobs.get(known.slurm.id)
            if view is None:
                continue
            seen.add(view.id)
            each = self._follow(known, view, snapshot, decisions)
            if each.first_start_s is None and known.first_start_s is not None:
                each.first_start_s = known.first_start_s
                self._starts.append((each.nonce, view.id, known.first_start_s))
                started.append((each.nonce, known.first_start_s))
            if known.slurm.over:
                self._tell_end(each, view, known.slurm.end_s, snapshot, decisions)
            else:
                self._tell(each, view, plan.entries.get(view.id), snapshot, decisions)
            each.view = view
        for job_id in later.keys() & self._followed.keys() - seen:
            self._put_off(self._followed[job_id], later[job_id], snapshot, decisions)
        gone = self._followed.keys() - seen - later.keys()
        for job_id in [job_id for job_id in self._followed if job_id in gone]:
            # The daemon may look long after.
            over = ended.get(job_id)
            end_s = min(snapshot.now, (over and over.end_s) or math.inf)
            each, at = self._followed.pop(job_id), replace(snapshot, now=end_s)
            gpu_s = 0.0
            ran = over is not None and bool(over.nodes) and over.start_s is not None
            if over is not None and ran and each.first_start_s is None:
                each.first_start_s = over.start_s
                # Seen by nobody, it has not waited since.
                waited_s = max(0.0, (over.start_s or end_s) - each.job.eligible_from_s)
                each.view = replace(each.view, observed_s=end_s, wait_s=waited_s)
                gpu_s = last_run_gpu_s(over, end_s)
            self._leave(each, at, decisions, gpu_s, over.outcome if over else "")
        self._tell_unseen(snapshot.now, decisions, unseen, later)
        self._write(store, snapshot.now)
        return tuple(started)

    def _follow(
        self, known: ManagedJob, view: JobView, snapshot: Snapshot, decisions: int
    ) -> _Followed:
        each = self._followed.get(view.id)
        nonce = known.key
        if each is not None and each.nonce != nonce:
            self._leave(self._followed.pop(view.id), snapshot, decisions)
            each = None
        if each is None:
            job = known.whole
            # One that ran before the daemon began has no start that anybody was told of.
            each = _Followed(nonce, job, view, known.first_start_s)
            self._followed[view.id] = each
            if nonce in self._there:
                del self._there[nonce]
                self._go_on(each, view)
            else:
                self._jobs.append(StoredJob(nonce, job))
                self._event(each, snapshot.now, decisions, "came", f"{job.requirements} GPUs")
            self._past[nonce] = PastJob(job)
            self._changed = True
        elif view.job is not each.view.job:
            each.job = known.whole
        return each

    def _go_on(self, each: _Followed, view: JobView) -> None:
        """Take up what an earlier daemon said of a job; a run that began since is another one."""
        said = self._said.pop(each.nonce, _Said())
        each.planned = said.planned
        if all(run.since_s <= said.held_s for run in view.runs if run.begun):
            each.held = said.held

    def _tell_unseen(
        self,
        now: float,
        decisions: int,
        unseen: Mapping[str, Unseen],
        later: Mapping[str, JobView],
    ) -> None:
        """Write down what became of the jobs of an earlier daemon that are not there any more."""
        waits = {nonce for nonce, each in self._there.items() if each.job.id in later}
        for nonce, each in self._there.items():
            if nonce in waits:
                continue
            told, had = unseen.get(each.nonce, Unseen(now, None, 0.0)), _UNTOLD
            if each.nonce in unseen:
                had = _had(told.first_start_s, told.gpu_s)
            self._jobs.append(replace(each, ended_s=told.end_s, first_start_s=told.first_start_s))
            left = each.nonce, each.job.id, each.job.user, told.end_s, decisions, "left", had
            self._events.append(JobEvent(*left))
        self._there = {nonce: each for nonce, each in self._there.items() if nonce in waits}
        self._said = {nonce: each for nonce, each in self._said.items() if nonce in waits}

    def _tell(
        self,
        each: _Followed,
        view: JobView,
        entry: Entry | None,
        snapshot: Snapshot,
        decisions: int,
    ) -> None:
        """Write down what has changed: what it holds, and what the plan says."""
        held, planned = _held(view, snapshot.now), _planned(view, entry)
        if held != each.held:
            if held[0]:
                self._event(each, snapshot.now, decisions, *held)
            elif each.held[0]:
                gone = "unplaced" if each.held[0] == _PLACED else "stopped"
                self._event(each, snapshot.now, decisions, gone, each.held[1])
            each.held = held
        if planned != each.planned:
            if planned[0] and planned[1] != held[1]:
                self._event(each, snapshot.now, decisions, *planned)
            each.planned = planned

    def _put_off(self, each: _Followed, later: JobView, snapshot: Snapshot, decisions: int) -> None:
        """Write down that a job waits for its time to begin; it has what it had until now."""
        now, view = snapshot.now, each.view
        each.view = replace(
            view,
            observed_s=now,
            runs=(),
            samples_done=view.samples_at(now),
            wait_s=view.wait_at(now),
            attained_gpu_s=tuple(view.attained_at(now, snapshot.cluster).items()),
            blocked=later.blocked,
        )
        self._tell(each, each.view, None, snapshot, decisions)

    def _tell_end(
        self,
        each: _Followed,
        view: JobView,
        end_s: float | None,
        snapshot: Snapshot,
        decisions: int,
    ) -> None:
        """Write down that a job has ended whose processes still end: it is not stopped."""
        now = snapshot.now
        held = "ends", _held(view, now)[1] or each.held[1]
        if held != each.held:
            # When it leaves, it has left then.
            self._event(each, min(now, end_s or now), decisions, *held)
            each.held = held

    def _leave(
        self,
        each: _Followed,
        snapshot: Snapshot,
        decisions: int,
        unseen_gpu_s: float = 0.0,
        outcome: str = "",
    ) -> None:
        """Write down what has become of a job.

        Of what it ran unseen `unseen_gpu_s` says how many GPU seconds; `outcome` is Slurm's word
        for how it ended, "" where that is not known.
        """
        now, view = snapshot.now, each.view
        samples = work_done(view, snapshot)
        claim = claim_of(each.job, snapshot.speeds, snapshot.cluster.gpu_types)
        ran = each.first_start_s is not None and samples > 0 and claim > 0
        expected_s = RunTimes(snapshot.speeds, snapshot.cluster).expected_run_s(each.job, samples)
        stored = StoredJob(
            each.nonce,
            each.job,
            ended_s=now,
            first_start_s=each.first_start_s,
            ended_as=outcome,
            share=samples / claim if ran else None,
            samples=samples,
            wait_s=view.wait_at(now),
            restarts=view.restarts,
            expected_s=expected_s,
        )
        self._jobs.append(stored)
        self._learn(stored)
        if (ended := stored.as_ended()) is not None:
            self._taught.append(ended)
        # How it ended is Slurm's to tell: sacct knows.
        had = _had(each.first_start_s, view.service_at(now) + unseen_gpu_s)
        self._event(each, now, decisions, "left", had)

    def _learn(self, stored: StoredJob) -> None:
        self._past[stored.nonce] = PastJob(stored.job, stored.share)
        self._changed = True
        if stored.ended_s is not None and stored.share is not None and stored.expected_s:
            ratio = latency_ratio(stored.wait_s, stored.expected_s)
            if math.isfinite(ratio):
                self._ended.append((stored.ended_s, ratio))

    def _event(self, each: _Followed, now: float, decisions: int, event: str, detail: str) -> None:
        job = each.job
        self._events.append(JobEvent(each.nonce, job.id, job.user, now, decisions, event, detail))

    # -- the store ---------------------------------------------------------------------------------

    def _recall(self, store: Store | None, now: float, decisions: int) -> None:
        """Take in what a store knows of jobs, once; tell one that comes later of those it lacks."""
        if store is None or store is self._store:
            return
        first = self._store is None
        try:
            if first:
                for stored in store.jobs(most=REMEMBERED):
                    self._learn(stored)
            there = {job.nonce: job for job in store.jobs(since_s=math.inf, most=KEEP_JOBS)}
            said = store.events(None, most=_MOST_SAID)
        except StoreError as error:
            self.trouble = str(error)
            return
        self._store = store
        unwritten = {job.nonce for job in self._jobs}
        for each in self._followed.values():
            if there.pop(each.nonce, None) is None and each.nonce not in unwritten:
                self._jobs.append(StoredJob(each.nonce, each.job))
                self._event(each, now, decisions, "goes on", _BEFORE)
                each.held = each.planned = ("", "")
        self._there = there
        for event in said:
            _hear(self._said.setdefault(event.nonce, _Said()), event)

    def _write(self, store: Store | None, now: float) -> None:
        """Write what is new."""
        new = len(self._jobs) + len(self._events) + len(self._ranges) + len(self._starts)
        if store is None or not new or self._next_s - _AGAIN_S <= now < self._next_s:
            return
        try:
            store.record_history(
                tuple(self._jobs), tuple(self._events), tuple(self._ranges), tuple(self._starts)
            )
            self._written += new
            if self._written >= _FORGET_EVERY:
                self._written = 0
                store.forget_history(KEEP_JOBS)
        except StoreError as error:
            self.trouble, self._next_s = str(error), now + _AGAIN_S
            return
        self.trouble = ""
        for unwritten in (self._jobs, self._events, self._ranges, self._starts):
            unwritten.clear()


def _hear(said: _Said, event: JobEvent) -> None:
    """Take in what was said of a job, the earliest first."""
    match event.event:
        case "planned" | "waits":
            said.planned = event.event, event.detail
        case "unplaced" | "stopped":
            said.held = "", ""
        case "placed" | "runs" | "is measured" | "stops" | "ends":
            said.held, said.held_s = (event.event, event.detail), event.at_s


def _had(first_start_s: float | None, gpu_s: float) -> str:
    """Return in words what a job has had."""
    return "without having run" if first_start_s is None else f"after {gpu_s / 3600:.3g} GPU hours"


def _held(view: JobView, now: float) -> tuple[str, str]:
    """Return how the job stands to GPUs, and to which."""
    match view.phase(now):
        case Phase.WAITING:
            return "", ""
        case Phase.PLACED:
            what = _PLACED
        case Phase.DRAINING:
            what = "stops"
        case Phase.PROFILING:
            what = "is measured"
        case _:
            what = "runs"
    return what, str(view.holds)


def _planned(view: JobView, entry: Entry | None) -> tuple[str, str]:
    """Return what the plan says of the job."""
    if view.blocked is not None:
        return "waits", str(view.blocked)
    match entry:
        case Placed(placements) if placements:
            pieces = (piece for each in placements for piece in each.configuration)
            return "planned", str(Configuration.of(pieces))
        case Waiting(reason):
            # Ahead of whom it waits changes all the time.
            return "waits", _why(reason.code)
    return "", ""


@cache  # one text for each, however many jobs wait for it
def _why(code: ReasonCode) -> str:
    return f"{code.horizon.value}: {code.sentence}"
