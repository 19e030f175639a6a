"""The daemon's log: a line for each decision and each change, in logfmt or JSON."""

from __future__ import annotations

import os
import select
from collections import Counter
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any, TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger

from hetsched_core.types import Plan, Waiting
from slurm_plugin.backend import (
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
from slurm_plugin.daemon.daemon import CycleReport
from slurm_plugin.daemon.process.configuration import LogForm

_RELEASED = (
    "Slurm has held it, since a run of it could not be launched or its reservation was gone; it is "
    "placed again"
)

_CANCELLED = "the job of which it is an element is over"

_LOST = (
    "Slurm does not know it any more: its controller has lost it, or has forgotten its end; who "
    "misses it submits it again"
)

_ENDED = (
    *("already completing or completed", "already finished", "Invalid job id"),
    "no longer pending execution",
)
"""Slurm's words for a change of a job that has ended or begun meanwhile, which is no fault."""

_FIRST = ("time", "level", "event", "job")


class _Enduring:
    """A stream that drops what it cannot write: its disk is full, its reader is gone or stands."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._ready = stream, select.poll()
        self._fd: int | None = None
        self._cut = False
        # One without a descriptor is in memory.
        with suppress(OSError):
            stream.flush()
            self._fd = stream.fileno()
            self._ready.register(self._fd, select.POLLOUT)

    def write(self, text: str) -> None:
        if self._fd is None:
            self._stream.write(text)
            return
        left = text.encode(errors="backslashreplace")
        if self._cut:
            left = b"\n" + left
        with suppress(OSError):
            # A pipe that is ready takes so much without letting us wait.
            while left and self._ready.poll(0):
                written = os.write(self._fd, left[: select.PIPE_BUF])
                left, self._cut = left[written:], True
        self._cut = self._cut and bool(left)

    def flush(self) -> None:
        if self._fd is None:
            self._stream.flush()


def open_log(form: LogForm, stream: TextIO) -> FilteringBoundLogger:
    """Return a log that writes lines of this form to a stream, with the time in UTC.

    What the stream does not take is lost: no daemon ends for it.
    """
    renderer: Any = structlog.processors.JSONRenderer()
    if form is LogForm.LOGFMT:
        renderer = structlog.processors.LogfmtRenderer(key_order=_FIRST, drop_missing=True)
    log: FilteringBoundLogger = structlog.wrap_logger(
        structlog.WriteLogger(cast("TextIO", _Enduring(stream))),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            _on_one_line,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger("debug"),
    )
    return log


def tell(log: FilteringBoundLogger, report: CycleReport, plan: Plan, number: int) -> None:
    """Write down what a cycle did.

    Args:
        log: where to.
        report: the cycle.
        plan: the plan in force.
        number: how many decisions were made so far, which names the last one.
    """
    for warning in report.warnings:
        log.warning("beware", words=warning)
    for job in report.lost:
        log.warning("lost", job=job.id, user=job.user, name=job.name, words=_LOST)
    heard = report.heard
    if heard.trouble:
        log.error("spool_fails", words=heard.trouble)
    for each in heard.rejected:
        log.warning(
            "spool_rejected",
            uid=each.uid,
            reason=each.reason.value,
            lines=each.lines,
            words=each.example,
        )
    for gpu_type in sorted(heard.bandwidths):
        log.info("bandwidths_measured", gpu_type=gpu_type)
    for violation in report.violations:
        log.error("invalid_plan", broke=violation)
    if report.decision is not None:
        _tell_decision(log, report, plan, number)
    if report.outcome is None:
        if report.decision is not None:
            for change in report.changes:
                _tell_change(log, "would_", change, number)
        return
    for change in report.outcome.made:
        _tell_change(log, "", change, number)
    for change, words in report.outcome.refused:
        said = {"job": change.job, "change": type(change).__name__.lower(), "words": words}
        if any(each in words for each in _ENDED):
            log.debug("refused", **said)
        else:
            log.warning("refused", **said)


def _tell_decision(log: FilteringBoundLogger, report: CycleReport, plan: Plan, number: int) -> None:
    assert report.decision is not None
    record, diagnostics = report.decision.plan, report.decision.diagnostics
    # One that runs to be measured waits for its own work alone.
    measured = {profile.job for profile in plan.profiles}
    reasons = Counter(
        entry.reason.code.word
        for job, entry in plan.entries.items()
        if isinstance(entry, Waiting) and job not in measured
    )
    log.info(
        "decision",
        number=number,
        policy=report.decision.policy,
        triggers=",".join(sorted(trigger.value for trigger in record.triggers)),
        placed=record.placed,
        measured=len(measured) or None,
        waiting=reasons.total(),
        because=", ".join(f"{count} {word}" for word, count in reasons.most_common()),
        took_ms=round(record.plan_s * 1000, 1),
        method=diagnostics.method,
        gap=diagnostics.gap,
    )


def _tell_change(log: FilteringBoundLogger, prefix: str, change: Change, number: int) -> None:
    match change:
        case Together(_, steps):
            for step in steps:
                _tell_change(log, prefix, step, number)
        case Enter(job, _, nodes, resources=resources):
            log.info(
                f"{prefix}place",
                job=job,
                nodes=",".join(nodes),
                gpus_per_node=resources and resources.per_node,
                decision=number,
            )
        case Signal(job, name, to):
            log.info(f"{prefix}signal", job=job, signal=name, to=to.name.lower(), decision=number)
        case Requeue(job) | RequeueEnded(job):
            log.info(f"{prefix}requeue", job=job, decision=number)
        case Release(job):
            log.warning(f"{prefix}release", job=job, words=_RELEASED)
        case Leave(job):
            log.info(f"{prefix}leave", job=job)
        case Depend(job):
            log.debug(f"{prefix}depend", job=job)
        case Cancel(job):
            log.warning(f"{prefix}cancel", job=job, words=_CANCELLED)
        case Hold(name, nodes, seconds):
            log.debug(f"{prefix}hold", reservation=name, nodes=len(nodes), seconds=seconds)
        case Drop(name):
            log.info(f"{prefix}drop", reservation=name)


def _on_one_line(_: Any, __: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Fold texts that came from elsewhere, and leave out what is not known."""
    return {
        key: _tamed(value) if isinstance(value, str) else value
        for key, value in event.items()
        if value is not None and value != ""
    }


def _tamed(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
