"""What each job asks for, as it was when the daemon first saw it, and what it has had.

Slurm shows a job in the shape that it was given last, and AdminComment may be overwritten, by a
site's epilog for example. So it is remembered what a job was before anything was changed of it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from hetsched_core.errors import InputError
from hetsched_core.store import Store
from hetsched_core.values.records import from_json, to_json, to_text
from slurm_plugin.backend import JobState, RefusedError, SlurmBackend, SlurmJob
from slurm_plugin.daemon.jobs.gangs import job_of
from slurm_plugin.daemon.jobs.request import (
    NO_MARK,
    Mark,
    Own,
    Request,
    is_mark,
    mark_in,
    own_of,
    read_mark,
    request_of,
)
from slurm_plugin.daemon.jobs.service import Service, Unseen, unseen
from slurm_plugin.submit.options import (
    NO_OPTIONS,
    read_options,
    script_options,
    script_signal,
)


@dataclass(slots=True)
class _Known:
    """A job, or an array, as it was first seen.

    `text` is the mark as it was written, "" for none. `own` is the shape of all elements but those
    whose user has changed them by themselves, which have theirs in `edited`, by id. `last` is when
    each was queued last, and how often before, and `served` what each has had, by id.
    """

    key: str
    user: str
    text: str
    mark: Mark
    own: Own
    submit_s: float
    wrong: str = ""
    edited: dict[str, Own] = field(default_factory=dict)
    last: dict[str, tuple[float, int]] = field(default_factory=dict)
    served: dict[str, Service] = field(default_factory=dict)


class Requests:
    """Remembers what jobs ask for, and asks Slurm about new ones."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        self._known: dict[str, _Known] = {}
        self._stored: Store | None = None
        self._new: set[str] = set()
        self._left: set[str] = set()

    def keep_in(self, store: Store | None) -> None:
        """Go on with what a store knows of jobs, and keep there what comes.

        Raises:
            StoreError: it cannot be read.
        """
        self._stored = store
        self._new, self._left = set(self._known), set()
        for job, document in ({} if store is None else store.remembered()).items():
            if job not in self._known and (known := _read(document)) is not None:
                self._known[job] = known

    def write(self) -> None:
        """Write down what is new; where the store fails it is tried again.

        Raises:
            StoreError: it takes nothing in.
        """
        if self._stored is not None and (self._new or self._left):
            new = self._new & self._known.keys()
            self._stored.remember({job: _document(self._known[job]) for job in new}, self._left)
        self._new, self._left = set(), set()

    def knows(self, seen: SlurmJob) -> bool:
        """Whether it is the job that had this id before, or an element of it."""
        known = self._known.get(job_of(seen.id))
        return known is not None and _is_same(known, seen)

    def of(self, seen: SlurmJob) -> Request | None:
        """Return what a job asks for; None where that has still to be looked up."""
        known = self._known.get(job_of(seen.id))
        if known is None or not _is_same(known, seen):
            if seen.batch and not is_mark(seen.mark):
                return None
            known = self._remember(seen, *_of_mark(seen))
        if known.last.get(seen.id, (known.submit_s, 0))[0] != seen.submit_s:
            # Where a node fails Slurm counts the restart first, and queues the job later.
            known.last[seen.id] = seen.submit_s, seen.restarts
        key = _key(known, seen)
        own = known.edited.get(seen.id, known.own)
        try:
            return request_of(key, known.mark, seen, own)
        except InputError as error:
            known.mark, known.wrong = replace(known.mark, options=NO_OPTIONS), str(error)
            return request_of(key, known.mark, seen, own)

    def marked(self, jobs: Mapping[str, SlurmJob]) -> Mapping[str, SlurmJob]:
        """Return jobs with the marks that they had, where something else was written over them."""
        lost = {}
        for job_id, seen in jobs.items():
            known = None if is_mark(seen.mark) else self._known.get(job_of(job_id))
            if known is not None and known.text and _is_same(known, seen):
                lost[job_id] = replace(seen, mark=known.text)
        return {**jobs, **lost} if lost else jobs

    def wrong(self, seen: SlurmJob) -> str:
        """Return what is wrong with what a job says of itself, "" for nothing.

        Such a job counts as one that says nothing.
        """
        known = self._known.get(job_of(seen.id))
        return "" if known is None else known.wrong

    def edited(self, seen: SlurmJob, was: SlurmJob) -> None:
        """Take in that the user of a waiting job has changed what it asks for.

        `was` is the job before. What was placed is shown in another shape than its own, also when
        the reservation has ended since, or is lost: it stays pinned.
        """
        known = self._known.get(job_of(seen.id))
        waits = was.restarts == seen.restarts and all(
            each.state is JobState.PENDING and not each.entered for each in (was, seen)
        )
        if known is None or not waits or seen.lost_reservation:
            return
        before, own = known.edited.get(seen.id, known.own), own_of(seen, known.mark)
        if before.most_nodes and not own.most_nodes:
            # Nobody can take it away. A controller that has started again does not show it.
            own = replace(own, resources=replace(own.resources, nodes=before.resources.nodes))
        if own == before or was.pinned != before.nodes:
            return
        if seen.id == job_of(seen.id):
            known.own = own
        else:
            known.edited[seen.id] = own
        self._new.add(job_of(seen.id))

    def service(self, seen: SlurmJob) -> Service | None:
        """Return what a job has had, as it was noted last; None for nothing."""
        known = self._known.get(job_of(seen.id))
        return None if known is None else known.served.get(seen.id)

    def serve(self, job: str, service: Service) -> None:
        """Note what a job has had, where that does not follow from what is noted."""
        known = self._known.get(job_of(job))
        before = None if known is None else known.served.get(job)
        if known is None or (before is not None and before.foretells(service)):
            return
        known.served[job] = service
        self._new.add(job_of(job))

    def unseen(self, jobs: Mapping[str, SlurmJob], now: float) -> dict[str, Unseen]:
        """Return what became of jobs that an earlier daemon knew and that have ended, by key."""
        found = {}
        for job_id, seen in jobs.items():
            known = self._known.get(job_of(job_id))
            if known is not None and seen.state is JobState.ENDED and _is_same(known, seen):
                found[_key(known, seen)] = unseen(seen, known.served.get(job_id), now)
        return found

    def look_up(self, seen: SlurmJob, backend: SlurmBackend) -> None:
        """Ask Slurm for the script of a new job, and read its options.

        Raises:
            AwayError: Slurm does not answer.
        """
        try:
            script = backend.script(seen.id)
        except RefusedError:
            script = ""
        try:
            options, wrong = read_options(script_options(script)), ""
        except InputError as error:
            options, wrong = NO_OPTIONS, str(error)
        mark = Mark(options=options, signal=script_signal(script))
        self._remember(seen, mark, wrong)

    def forget_all_but(self, jobs: Collection[str]) -> None:
        """Forget jobs that are gone."""
        there = {job_of(job) for job in jobs}
        for job in self._known.keys() - there:
            del self._known[job]
            self._left.add(job)
        for known in self._known.values():
            if known.edited:
                known.edited = {job: own for job, own in known.edited.items() if job in jobs}
            if known.served:
                known.served = {job: had for job, had in known.served.items() if job in jobs}

    def _remember(self, seen: SlurmJob, mark: Mark, wrong: str) -> _Known:
        job = job_of(seen.id)
        key = mark.nonce or f"{job}@{seen.submit_s:.0f}"
        text = seen.mark if is_mark(seen.mark) else ""
        known = _Known(key, seen.user, text, mark, own_of(seen, mark), seen.submit_s, wrong)
        self._known[job] = known
        self._new.add(job)
        return known


def _key(known: _Known, seen: SlurmJob) -> str:
    return known.key if seen.id == job_of(seen.id) else f"{known.key}_{seen.element}"


def _of_mark(seen: SlurmJob) -> tuple[Mark, str]:
    """Return what an AdminComment says, and what is wrong with it."""
    try:
        return read_mark(seen.mark), ""
    except InputError as error:
        return NO_MARK, str(error)


def _document(known: _Known) -> str:
    return to_text(to_json(known, "last"))


def _read(document: str) -> _Known | None:
    """Read what an earlier daemon has written; None for what this one cannot read."""
    try:
        found: _Known = from_json(json.loads(document), _Known)
    except (ValueError, InputError):
        return None
    return found


def _is_same(known: _Known, seen: SlurmJob) -> bool:
    """Whether it is the job that had this id before: Slurm hands ids out again after a crash."""
    if is_mark(seen.mark) and known.mark.nonce:
        return mark_in(seen.mark).nonce == known.mark.nonce
    submit_s, restarts = known.last.get(seen.id, (known.submit_s, 0))
    # To be queued again changes both. A controller that was killed has a job back as it had saved
    # it last, perhaps before it was queued again. What takes its id is submitted later.
    requeued = seen.restarts > restarts
    return seen.user == known.user and (seen.submit_s <= submit_s or requeued)
