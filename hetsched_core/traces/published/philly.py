"""The job log of Microsoft's Philly clusters (docs/formats/published.md): one JSON list of jobs.

Source: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads",
ATC '19; `cluster_job_log` of github.com/msr-fiddle/philly-traces. Each attempt of a job is a run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from hetsched_core.errors import InputError
from hetsched_core.traces.lines import readable, unpacked
from hetsched_core.traces.published.log import PublishedLog, Unused, state_of
from hetsched_core.traces.sacct import FieldError, Flaw, LoggedAllocation, LoggedState, SacctFormat
from hetsched_core.traces.sacct.fields import quote
from hetsched_core.traces.sacct.json_stream import BrokenJsonError, iterate_list
from hetsched_core.values.records import structure

_JOBS = re.compile(r'\s*\[\s*\{\s*"(status|vc|jobid|attempts|submitted_time|user)"\s*:')
_NODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_STATES = {
    "Pass": LoggedState.COMPLETED,
    "Killed": LoggedState.CANCELLED,
    "Failed": LoggedState.FAILED,
}


@dataclass(frozen=True, slots=True)
class _Host:
    ip: str
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Attempt:
    start_time: str | None
    end_time: str | None
    detail: tuple[_Host, ...]


@dataclass(frozen=True, slots=True)
class _Job:
    jobid: str
    status: str
    submitted_time: str | None
    attempts: tuple[_Attempt, ...]
    vc: str | None = None
    user: str | None = None


def is_philly(head: str) -> bool:
    """Whether a file that begins like this is such a log."""
    return _JOBS.match(head) is not None


def read_philly(file: BinaryIO, log: PublishedLog) -> None:
    """Read such a log; its records are attempts, and jobs that had none.

    Raises:
        InputError: It cannot be read, or is no JSON.
    """
    report = log.report
    report.form = SacctFormat.JSON
    source = unpacked(file)
    with readable(report.source, lambda: f"record {report.lines}"):
        try:
            for record in iterate_list(_as_member(source.read), "jobs"):
                try:
                    job: _Job = structure(record, _Job)
                except InputError as error:
                    report.lines += 1
                    report.refuse(report.lines, Flaw.RECORD, f"is no job of Philly: {error}")
                    continue
                for number in range(max(1, len(job.attempts))):
                    log.count(report.lines + 1, partial(_run, log, job, number))
        except BrokenJsonError as error:
            if not error.cut_off:
                raise InputError(
                    f"{report.source}: no JSON after record {report.lines}: {error}; unpack it "
                    "again from trace-data.tar.gz"
                ) from None
            report.lines += 1
            report.refuse(report.lines, Flaw.CUT_OFF, "the file ends within the list of jobs")


def _as_member(read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Return a reader of `{"jobs":` and then what `read` gives: lists are read inside objects."""
    start = [b'{"jobs":']
    return lambda size: start.pop() if start else read(size)


def _run(log: PublishedLog, job: _Job, number: int) -> LoggedAllocation | Unused:
    """Return one attempt of a job."""
    if not job.jobid:
        raise FieldError(Flaw.JOB_ID, "jobid is empty")
    if not job.attempts:
        return Unused.NEVER_STARTED
    attempt, last = job.attempts[number], number == len(job.attempts) - 1
    hosts = [host for host in attempt.detail if host.gpus]
    if not hosts:
        return Unused.NO_GPU
    try:
        submit_s, start_s, end_s = log.times(
            job.submitted_time or "", attempt.start_time or "", attempt.end_time or ""
        )
        for host in hosts:
            if not _NODE.fullmatch(host.ip):
                raise FieldError(Flaw.NODE_LIST, f"ip is {quote(host.ip)}; expected one like m47")
        state = state_of(job.status, _STATES) if last else LoggedState.FAILED
    except FieldError as error:
        where = f"attempt {number + 1} of job {quote(job.jobid)}"
        raise FieldError(error.flaw, f"{where}: {error}") from None
    return LoggedAllocation(
        job_id=job.jobid,
        user=job.user or "",
        account=job.vc or "",
        partition=job.vc or "",
        state=LoggedState.RUNNING if last and end_s is None else state,
        submit_s=submit_s,
        start_s=start_s,
        end_s=end_s,
        nodes=tuple(sorted({host.ip for host in hosts})),
        gpus=((None, sum(len(host.gpus) for host in hosts)),),
        restarts=number,
    )
