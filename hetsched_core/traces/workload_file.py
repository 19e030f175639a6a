"""The native workload format, `hetsched-workload/1` (docs/formats/workload.md): JSON lines.

The first line is a header. Each further line is a job, the speeds of a profile that comes with the
workload, or a job that was rejected when the workload was made; a profile stands before the first
job that uses it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from sys import intern
from typing import Any

import numpy as np

from hetsched_core.costs import DAY_S
from hetsched_core.errors import InputError, unknown
from hetsched_core.traces.workload import LATEST_S, RejectedJob, Workload, arrival_order
from hetsched_core.types import (
    EndState,
    Job,
    Layer,
    SpeedTable,
    Submission,
    TaskTimes,
)
from hetsched_core.values.json import strict_json
from hetsched_core.values.records import structure, unstructure

SCHEMA = "hetsched-workload/1"

_OWN_KEYS = tuple(f.name for f in fields(Submission) if f.name not in ("job", "loss"))
"""What a job's line says beside what its user told."""

_NOT_ITS_OWN = ("id", "closed", "limits")
"""Fields that a line has under another key, or that a cluster file tells."""

_JOB_KEYS = dict.fromkeys(
    ("job", *(f.name for f in fields(Job) if f.name not in _NOT_ITS_OWN), *_OWN_KEYS)
)
"""In order, and found at once: every key of every job is looked for."""

_SHARED_KEYS = ("profile", "user", "account", "partition", "qos")
"""Texts that many jobs have in common: a million jobs need them once."""


@dataclass(frozen=True, slots=True)
class _HeaderLine:
    schema: str
    assumptions: tuple[str, ...] = ()


_Rows = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class _SpeedLine:
    """The speeds of a profile: a row for each GPU type, of samples/s per GPU for each count."""

    profile: str
    gpu_types: tuple[str, ...]
    counts: tuple[int, ...]
    one_node: _Rows
    several_nodes: _Rows
    node_factor: dict[str, float] = field(default_factory=dict)
    tasks: dict[str, TaskTimes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _RejectedLine:
    rejected: str
    reason: str = ""
    line: int = 0


# Writing ------------------------------------------------------------------------------------------


def workload_lines(workload: Workload) -> Iterator[str]:
    """Yield the lines of the file that stands for a workload, without line breaks."""
    yield from head_lines(workload.assumptions, workload.tables)
    yield from map(submission_line, workload.submissions)
    for rejected in workload.rejected:
        # A reason is there even where it is empty.
        line = unstructure(_RejectedLine(rejected.job, rejected.reason, rejected.line))
        yield _dump({"rejected": rejected.job, "reason": rejected.reason} | line)


def head_lines(assumptions: Iterable[str], tables: Mapping[str, SpeedTable]) -> Iterator[str]:
    """Yield the header, and a line for each profile that comes with the workload."""
    yield _dump({"schema": SCHEMA, "assumptions": tuple(assumptions)})
    for profile, table in sorted(tables.items()):
        said = _SpeedLine(
            profile,
            table.gpu_types,
            table.counts.tolist(),
            table.one_node.tolist(),
            table.several_nodes.tolist(),
            dict(table.node_factor),
            dict(table.tasks),
        )
        yield _dump(unstructure(said))


def submission_line(submission: Submission) -> str:
    """Return the line of one job."""
    line = unstructure(replace(submission, loss=None) if submission.loss else submission)
    job = line.pop("job")
    return _dump({"job": job.pop("id"), **job, **line})


_dump = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(", ", ": ")).encode


# Reading ------------------------------------------------------------------------------------------


def read_workload(lines: Iterable[str], source: str, known_profiles: Collection[str]) -> Workload:
    """Read the lines of a workload file.

    Args:
        lines: The file's lines; they are read one at a time.
        source: Names the file in messages.
        known_profiles: Profiles that a job may have without their speeds being in the file.

    Raises:
        InputError: A line is not of this format; the message names line, key and value.
    """
    submissions: dict[str, Submission] = {}
    tables: dict[str, SpeedTable] = {}
    rejected: list[RejectedJob] = []
    assumptions: tuple[str, ...] | None = None
    node_sets: dict[frozenset[str], frozenset[str]] = {}
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            line = _parse(text)
            if assumptions is None:
                assumptions = _header(line)
            elif "job" in line:
                submission = _submission(line, node_sets)
                job = submission.job
                if job.id in submissions:
                    raise InputError(f"job {job.id!r} stands here a second time; ids are unique")
                if job.profile not in tables and job.profile not in known_profiles:
                    raise InputError(
                        f"{unknown('profile', job.profile, {*tables, *known_profiles})} (speeds "
                        "of a profile of your own stand in a line before its first job)"
                    )
                submissions[job.id] = submission
            elif "profile" in line:
                profile, table = _table(line)
                if profile in tables:
                    raise InputError(f"profile {profile!r} stands here a second time")
                tables[profile] = table
            elif "rejected" in line:
                found = structure(line, _RejectedLine)
                rejected.append(RejectedJob(found.rejected, found.reason, found.line))
            else:
                raise InputError(
                    f"none of its keys ({', '.join(line)}) is job, profile or rejected"
                )
        except InputError as error:
            raise InputError(f"{source}: line {number}: {error}") from None
    if assumptions is None:
        raise InputError(f'{source}: the file is empty; expected a first line {{"schema": ...}}')
    return Workload(
        tuple(sorted(submissions.values(), key=arrival_order)),
        tables,
        assumptions,
        tuple(rejected),
    )


def _parse(text: str) -> dict[str, Any]:
    try:
        line = strict_json(text)
    except ValueError as error:
        raise InputError(f"not valid JSON ({error}): {text[:60]!r}; is the line cut off?") from None
    except RecursionError:
        raise InputError("not a line of a workload: nested too deep") from None
    if not isinstance(line, dict):
        raise InputError(f"{text[:60]!r} is no JSON object {{...}}")
    return line


def _header(line: dict[str, Any]) -> tuple[str, ...]:
    if line.get("schema") != SCHEMA:
        raise InputError(
            f"schema is {line.get('schema')!r}; the first line of a workload is "
            f'{{"schema": "{SCHEMA}"}}'
        )
    header: _HeaderLine = structure(line, _HeaderLine)
    return header.assumptions


def _submission(
    line: dict[str, Any], node_sets: dict[frozenset[str], frozenset[str]]
) -> Submission:
    """Read a job; those that may run on the same nodes get the same object."""
    for key in line:
        if key not in _JOB_KEYS:
            raise unknown("key", key, _JOB_KEYS)
    for key in _SHARED_KEYS:
        if isinstance(value := line.get(key), str):
            line[key] = intern(value)
    line["id"] = structure(line.pop("job"), str, "job")
    if not line["id"]:
        raise InputError("job is empty; every job needs an id")
    own = {key: line.pop(key) for key in _OWN_KEYS if key in line}
    try:
        submission: Submission = structure({"job": line, **own}, Submission)
    except InputError as error:
        raise InputError(str(error).removeprefix("job.")) from None
    job = submission.job
    if job.nodes is not None:
        job = replace(job, nodes=node_sets.setdefault(job.nodes, job.nodes))
        submission = replace(submission, job=job)
    _check_nodes(job)
    for key, value, least, most in (
        ("submit_s", job.submit_s, 0.0, LATEST_S),
        ("eligible_s", job.eligible_s, job.submit_s, LATEST_S),
        ("cancel_s", submission.cancel_s, job.submit_s, LATEST_S),
        ("deadline_s", job.deadline_s, job.submit_s, LATEST_S),
        ("cpus_per_gpu", job.cpus_per_gpu, 0.0, math.inf),
        ("memory_mb_per_gpu", job.memory_mb_per_gpu, 0.0, math.inf),
        ("start_cost_s", submission.start_cost_s, 0.0, DAY_S),
        ("restart_cost_s", submission.restart_cost_s, 0.0, DAY_S),
    ):
        if value is None or least <= value <= most:
            continue
        if value < least:
            raise InputError(f"{key} is {value:g}; expected {least:g} or more")
        raise InputError(f"{key} is {value:g}; expected seconds, up to {most:g}")
    for key, value in (
        ("samples", submission.samples),
        ("total_samples", job.total_samples),
        ("time_limit_s", job.time_limit_s),
        ("weight", job.weight),
        ("copies", job.copies),
    ):
        if value is not None and value <= 0:
            raise InputError(f"{key} is {value:g}; expected more than 0")
    _check_phases(submission)
    if submission.ends_as not in (EndState.COMPLETED, EndState.FAILED):
        raise InputError(f"ends_as is {submission.ends_as!s}; expected completed or failed")
    return submission


def _check_phases(submission: Submission) -> None:
    phases = submission.phases
    if not phases:
        return
    if submission.job.tasks is not None:
        raise InputError("phases: a job of tasks has none; leave one of the two out")
    untils = [0.0, *(phase.until for phase in phases)]
    if untils[-1] != 1.0 or any(a >= b for a, b in pairwise(untils)):
        told = ", ".join(f"{until:g}" for until in untils[1:])
        raise InputError(
            f"phases end at {told}; expected shares of the samples, ascending, up to 1"
        )
    for phase in phases:
        if not 1e-6 <= phase.factor <= 1e6:
            raise InputError(f"phases: factor is {phase.factor:g}; expected 1e-6 to 1e6")


def _check_nodes(job: Job) -> None:
    if job.nodes is not None and not job.nodes:
        raise InputError("nodes is empty; leave it out for a job that may run on all nodes")
    least, most = job.min_nodes, job.max_nodes
    if least < 1:
        raise InputError(f"min_nodes is {least}; expected 1 or more")
    if most is not None and most < least:
        raise InputError(f"max_nodes is {most} and min_nodes is {least}; expected no less")


def _table(line: dict[str, Any]) -> tuple[str, SpeedTable]:
    said: _SpeedLine = structure(line, _SpeedLine)
    one_node = _matrix(said.one_node, "one_node")
    return said.profile, SpeedTable(
        gpu_types=said.gpu_types,
        counts=np.array(said.counts, dtype=np.int64),
        one_node=one_node,
        several_nodes=_matrix(said.several_nodes, "several_nodes"),
        layers=np.full(one_node.shape, Layer.TRUTH, dtype=np.int8),
        node_factor=said.node_factor,
        tasks=said.tasks,
    )


def _matrix(rows: _Rows, key: str) -> np.ndarray[Any, Any]:
    if len({len(row) for row in rows}) != 1:
        raise InputError(f"{key} is not a row of speeds for each GPU type, all of one length")
    return np.array(rows, dtype=np.float64)
