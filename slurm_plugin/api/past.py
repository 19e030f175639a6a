"""Answers about what was and what will be: `history`, `when`, and the database itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hetsched_core.errors import InputError
from hetsched_core.forecast import HORIZON_S, RangeAccuracy, StartRange
from hetsched_core.store import JobEvent, Store, StoredJob, StoredRange
from hetsched_core.types import Entry, JobView, Phase, Placed, Reason, ReasonCode, Waiting
from slurm_plugin.api.answers import SCHEMA, CycleView, Peer, may_see, outside, seen_by, view_of
from slurm_plugin.api.forecasts import Forecasts

FROZEN_S = 60.0
"""How long the database is left alone for somebody who copies it."""

_MOST = 500


class StoreAnswers:
    """Answers from the daemon's database and its forecasts."""

    def __init__(self, store: Callable[[], Store | None], forecasts: Forecasts) -> None:
        """Answer from these; questions come from other threads than the one that writes.

        Args:
            store: returns the daemon's store, None while it has none.
            forecasts: the ranges.
        """
        self._find, self._forecasts = store, forecasts
        self._timers: set[threading.Timer] = set()

    def close(self) -> None:
        """Unfreeze the database: it is about to be closed."""
        for timer in tuple(self._timers):
            timer.cancel()
            timer.join()

    @property
    def _store(self) -> Store:
        store = self._find()
        if store is None:
            raise InputError("the daemon has no database, and remembers nothing")
        return store

    def when(self, published: CycleView, job: str, peer: Peer) -> dict[str, Any]:
        """Return a range for a job's start, and how good past ranges were."""
        reason = outside(published, job, peer)
        view = None if reason else view_of(published, job, peer)
        entry = published.plan.entries.get(job)
        kept = next((r for r in published.plan.reservations if r.job == job), None)
        given: StartRange | None = None
        why = ""
        if view is None:
            why = str(reason)
        elif view.runs:
            why = _holding(view, entry, published.snapshot.now)
        elif view.blocked is not None:
            why = str(view.blocked)
        elif isinstance(entry, Waiting) and published.plan.never(job):
            why = str(seen_by(published, peer, entry.reason))
        else:
            found = self._forecasts.when(job, peer.user)
            if not isinstance(found, StartRange):
                why = str(found or "nothing is known of it yet; ask again")
            elif found.drawn_low_s >= found.at_s + HORIZON_S:
                days = HORIZON_S / 86_400
                why = f"in hardly any of {found.starts} futures does it start within {days:g} days"
            else:
                given = found
        return _head(published) | {
            "job": job,
            "first_start_s": None if view is None else view.first_start_s,
            "range": None
            if given is None
            else {
                "low_s": given.low_s,
                "high_s": given.high_s,
                "made_s": given.at_s,
                "futures": given.starts,
            },
            "why_none": why,
            "reserved_s": None if kept is None else kept.start_s,
            "past": _told(self._forecasts.accuracy()),
        }

    def history(self, published: CycleView, job: str, peer: Peer) -> dict[str, Any]:
        """Return what happened to the jobs of an id, the present one last."""
        jobs, events, ranges = self._store.history_of(job, _MOST)
        if not jobs:
            # An element of a gang that is over is its job's.
            jobs, events, ranges = self._store.history_of(job.partition("_")[0], _MOST)
        seen = [each for each in jobs if may_see(published, peer, each.job.user)]
        if not seen:
            raise InputError(_no_history(published, job, peer))
        return _head(published) | {
            "job": job,
            "jobs": [_job(each, events, ranges, published.snapshot.jobs) for each in seen],
        }

    def db(self, published: CycleView, peer: Peer) -> dict[str, Any]:
        """Let an admin's process copy the database: for a while only the end of its log changes."""
        if not peer.admin:
            raise InputError("only root and the daemon's user may read the database")
        store = self._store
        size, log_size = store.freeze()

        def unfreeze() -> None:
            store.unfreeze()
            self._timers.discard(timer)

        timer = threading.Timer(FROZEN_S, unfreeze)
        timer.daemon = True
        self._timers = {each for each in self._timers if each.is_alive()} | {timer}
        timer.start()
        path = Path(store.path).resolve()
        return _head(published) | {
            "path": str(path),
            "bytes": size,
            "log_bytes": log_size,
            "within_s": FROZEN_S,
        }


def _no_history(published: CycleView, job: str, peer: Peer) -> str:
    """Return why there is nothing to tell of a job."""
    reason = outside(published, job, peer)
    if reason is None:
        try:
            view = view_of(published, job, peer)
        except InputError:
            return (
                f"nothing is known of a job {job!r}; it was never managed here, or before the "
                "database was begun"
            )
        reason = view.blocked if job in published.later else None
    if reason is not None:
        return f"job {job!r} has no history yet: {reason}"
    return (
        f"nothing about job {job!r} is in the database, though it is managed: it may be newer than "
        "the database, or the database was replaced; hetsched queue shows it"
    )


def _head(published: CycleView) -> dict[str, Any]:
    return {"schema": SCHEMA, "at_s": published.at_s, "away": published.away}


def _told(found: RangeAccuracy | None) -> dict[str, Any] | None:
    return None if found is None else asdict(found)


def _holding(view: JobView, entry: Entry | None, now: float) -> str:
    """Return why there is no range for the start of a job that holds GPUs."""
    match view.phase(now), entry:
        case Phase.PLACED, _:
            return str(Reason(ReasonCode.PLACED))
        case Phase.PROFILING, _:
            return "it runs to be measured"
        case Phase.DRAINING, Placed(placements) if placements:
            where = placements[0].configuration
            return f"it is to go on on {where} once it has freed what it holds"
        case Phase.DRAINING, _:
            return "it has not yet freed what it holds"
    return "it has its GPUs"


def _job(
    stored: StoredJob,
    events: tuple[JobEvent, ...],
    ranges: tuple[StoredRange, ...],
    active: Mapping[str, JobView],
) -> dict[str, Any]:
    # What is stored of restarts is from when a job left.
    now = active.get(stored.job.id) if stored.ended_s is None else None
    return {
        "nonce": stored.nonce,
        "user": stored.job.user,
        "partition": stored.job.partition,
        "name": stored.job.name,
        "gpus": str(stored.job.requirements),
        "submit_s": stored.job.submit_s,
        "first_start_s": stored.first_start_s,
        "ended_s": stored.ended_s,
        "wait_s": None if stored.ended_s is None else stored.wait_s,
        "restarts": stored.restarts if now is None else now.restarts,
        "events": [
            {"at_s": e.at_s, "decision": e.decision, "event": e.event, "detail": e.detail}
            for e in events
            if e.nonce == stored.nonce
        ],
        "ranges": [
            {"at_s": r.at_s, "low_s": r.low_s, "high_s": r.high_s, "start_s": r.start_s}
            for r in ranges
            if r.nonce == stored.nonce
        ],
    }
