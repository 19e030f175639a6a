"""What each job asks for, as it was when the daemon first saw it.

Slurm shows a job in the shape that it was given last, and AdminComment may be overwritten, by a
site's epilog for example. So it is remembered what a job was before anything was changed of it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from hetsched_core.errors import InputError
from slurm_plugin.backend import Asked, RefusedError, SlurmBackend, SlurmJob
from slurm_plugin.daemon.gangs import job_of
from slurm_plugin.daemon.request import (
    NO_MARK,
    Mark,
    Request,
    elastic_request,
    is_mark,
    read_mark,
    rigid_request,
)
from slurm_plugin.submit.options import read_options, script_options


@dataclass(slots=True)
class _Known:
    """A job, or an array, as it was first seen.

    `last` is when each was queued last, and how often before, by id.
    """

    key: str
    user: str
    mark: Mark
    own: Asked | None
    nodes: tuple[str, ...]
    submit_s: float
    wrong: str = ""
    last: dict[str, tuple[float, int]] = field(default_factory=dict)


class Requests:
    """Remembers what jobs ask for, and asks Slurm about new ones."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        self._known: dict[str, _Known] = {}

    def of(self, seen: SlurmJob) -> Request | None:
        """Return what a job asks for; None where that has still to be looked up."""
        known = self._known.get(job_of(seen.id))
        if known is None or not _is_same(known, seen):
            if seen.batch or is_mark(seen.mark):
                return None
            known = self._remember(seen, NO_MARK, None)
        known.last[seen.id] = seen.submit_s, seen.restarts
        key = known.key if seen.id == job_of(seen.id) else f"{known.key}_{seen.element}"
        if known.own is None:
            return rigid_request(key, known.mark, seen, known.nodes)
        request = elastic_request(key, known.mark, seen, known.own, known.nodes)
        return replace(request, why_not=request.why_not or known.wrong)

    def wrong(self, seen: SlurmJob) -> str:
        """Return what is wrong with what a job says of itself, "" for nothing."""
        known = self._known.get(job_of(seen.id))
        return "" if known is None else known.wrong

    def look_up(self, seen: SlurmJob, backend: SlurmBackend) -> None:
        """Ask Slurm what a new job asks for.

        A job whose options are wrong counts as one without any.

        Raises:
            AwayError: Slurm does not answer.
        """
        wrong = ""
        try:
            mark = read_mark(seen.mark) if is_mark(seen.mark) else _of_script(seen, backend)
        except InputError as error:
            mark, wrong = NO_MARK, str(error)
        own = None
        if mark.options.counts is not None:
            try:
                own = backend.asked(seen.id)
                elastic_request("", mark, seen, own)
            except InputError as error:
                mark, own, wrong = replace(mark, options=NO_MARK.options), None, str(error)
            except RefusedError:
                return  # it has gone meanwhile
        self._remember(seen, mark, own, wrong)

    def forget_all_but(self, jobs: Collection[str]) -> None:
        """Forget jobs that are gone."""
        there = {job_of(job) for job in jobs}
        for job in self._known.keys() - there:
            del self._known[job]

    def _remember(self, seen: SlurmJob, mark: Mark, own: Asked | None, wrong: str = "") -> _Known:
        job = job_of(seen.id)
        key = mark.nonce or f"{job}@{seen.submit_s:.0f}"
        # What is in the reservation was put on its nodes by a daemon.
        nodes = () if seen.entered or seen.nodes else seen.pinned
        known = _Known(key, seen.user, mark, own, nodes, seen.submit_s, wrong)
        self._known[job] = known
        return known


def _of_script(seen: SlurmJob, backend: SlurmBackend) -> Mark:
    try:
        script = backend.script(seen.id)
    except RefusedError:
        return NO_MARK
    return Mark(options=read_options(script_options(script)))


def _is_same(known: _Known, seen: SlurmJob) -> bool:
    """Whether it is the job that had this id before: Slurm hands ids out again after a crash."""
    if is_mark(seen.mark) and known.mark.nonce:
        return _nonce(seen) == known.mark.nonce
    submit_s, restarts = known.last.get(seen.id, (known.submit_s, 0))
    # To be queued again changes both.
    requeued = seen.restarts > restarts
    return seen.user == known.user and (seen.submit_s == submit_s or requeued)


def _nonce(seen: SlurmJob) -> str:
    try:
        return read_mark(seen.mark).nonce
    except InputError:
        return ""
