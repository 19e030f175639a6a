"""Run logs on disk, `hetsched-runlog/1` (docs/formats/run-log.md): JSON lines.

The first line is the header, the last one closes the log; between them stands a line for each
record, in the order in which things happened. A log whose writer was stopped can still be read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, get_type_hints

from hetsched_core.errors import InputError, unknown
from hetsched_core.records.files import replacing
from hetsched_core.records.runlog import (
    JobRecord,
    NodeRecord,
    PlanRecord,
    RunLog,
    RunLogHeader,
    RunRecord,
)
from hetsched_core.types import Configuration
from hetsched_core.values.json import plain, strict_json
from hetsched_core.values.records import structure, unstructure

SCHEMA = "hetsched-runlog/1"

MAX_LINE_BYTES = 64 << 20
"""A longer line is no run log: the header of a cluster of 100,000 nodes stays far below it."""

Record = JobRecord | RunRecord | PlanRecord | NodeRecord


@dataclass(frozen=True, slots=True)
class Closing:
    """The last line of a run log."""

    closed_s: float
    rounds: int
    wall_s: float


@dataclass(frozen=True, slots=True)
class ReadRunLog:
    """A run log as read, and what a reader of its measures must know about the file."""

    log: RunLog
    notes: tuple[str, ...] = ()


_KINDS: Mapping[str, type] = {
    "job": JobRecord,
    "run": RunRecord,
    "plan": PlanRecord,
    "node": NodeRecord,
    "closed": Closing,
}
_NAMES = {type_: kind for kind, type_ in _KINDS.items()}


# Writing ------------------------------------------------------------------------------------------


class RunLogWriter:
    """Writes a run log line by line, as things happen."""

    def __init__(self, file: TextIO, header: RunLogHeader) -> None:
        """Write the header."""
        self._file = file
        line = unstructure(header)
        line["parameters"] = plain(header.parameters)
        # JSON has no infinity: without periodic checkpoints there is no time between them.
        line["checkpoint_s"] = header.checkpoint_s if header.checkpoint_s < math.inf else None
        self._write({"schema": SCHEMA, **line})

    def add(self, record: Record) -> None:
        """Write one record."""
        line = unstructure(record)
        if isinstance(record, RunRecord):
            line["configuration"] = dict(record.configuration)
        self._write({"kind": _NAMES[type(record)], **line})

    def close(self, closed_s: float, rounds: int, wall_s: float) -> None:
        """Write the closing line; nothing may follow it."""
        self._write({"kind": "closed", **unstructure(Closing(closed_s, rounds, wall_s))})

    def _write(self, line: Mapping[str, object]) -> None:
        self._file.write(json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n")


def write_run_log(log: RunLog, path: Path) -> None:
    """Write a whole run log; the file appears once it is complete.

    Raises:
        InputError: the file cannot be written.
    """
    with replacing(path) as file:
        writer = RunLogWriter(file, log.header)
        for records in (log.nodes, log.plans, log.runs, log.jobs):
            for record in records:
                writer.add(record)
        writer.close(log.closed_s, log.rounds, log.wall_s)


# Reading ------------------------------------------------------------------------------------------


def read_run_log(path: Path) -> ReadRunLog:
    """Read a run log.

    A last line that was cut off is left out with a note, and so is a log that was never closed.

    Raises:
        InputError: the file cannot be read, or a line is not of this format; the message names it.
    """
    reading = _Reading()
    try:
        with path.open("rb") as file:
            for text in iter(lambda: file.readline(MAX_LINE_BYTES), b""):
                reading.take(text)
    except InputError as error:
        raise InputError(f"{path}: line {reading.lines}: {error}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    if reading.log is None:
        raise InputError(f"{path} is empty; the first line of a run log has schema {SCHEMA!r}")
    return reading.result(reading.log)


@dataclass(slots=True)
class _Reading:
    """A run log as far as it has been read."""

    lines: int = 0
    log: RunLog | None = None
    closed: bool = False
    notes: tuple[str, ...] = ()

    def take(self, text: bytes) -> None:
        """Take in the next line."""
        self.lines += 1
        try:
            line = _parse(text)
        except InputError:
            whole = text.endswith(b"\n") or len(text) == MAX_LINE_BYTES
            if whole or self.log is None:
                raise
            self.notes += ("the last line was cut off and is left out",)
            return
        if self.log is None:
            self.log = RunLog(_header(line))
            return
        if self.closed:
            raise InputError("nothing may follow the line that closes the log")
        record = _record(line, self.log)
        match record:
            case JobRecord():
                self.log.jobs.append(record)
            case RunRecord():
                self.log.runs.append(record)
            case PlanRecord():
                self.log.plans.append(record)
            case NodeRecord():
                self.log.nodes.append(record)
            case Closing():
                self._close(self.log, record)

    def result(self, log: RunLog) -> ReadRunLog:
        """Return the whole log, closed at its latest time if its writer did not close it."""
        if not self.closed:
            latest_s = _latest_s(log)
            rounds = math.ceil((latest_s - log.header.origin_s) / log.header.round_s)
            self._close(log, Closing(latest_s, rounds, 0.0))
            self.notes += ("the log was never closed: jobs that had not ended are missing",)
        return ReadRunLog(log, self.notes)

    def _close(self, log: RunLog, closing: Closing) -> None:
        log.closed_s, log.rounds, log.wall_s = closing.closed_s, closing.rounds, closing.wall_s
        self.closed = True


def _parse(text: bytes) -> dict[str, Any]:
    if len(text) == MAX_LINE_BYTES:
        raise InputError(f"longer than {MAX_LINE_BYTES} bytes; this is no run log")
    try:
        line = strict_json(text.decode("utf-8"))
    except UnicodeDecodeError:
        raise InputError("not text in UTF-8; this is no run log") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{text[:60]!r} is not valid JSON ({error})") from None
    if not isinstance(line, dict):
        raise InputError(f"{text[:60]!r} is no JSON object {{...}}")
    return line


def _header(line: dict[str, Any]) -> RunLogHeader:
    schema = line.pop("schema", None)
    if schema != SCHEMA:
        raise InputError(f"schema is {schema!r}; the first line of a run log has {SCHEMA!r}")
    types = get_type_hints(RunLogHeader) | {"parameters": dict, "checkpoint_s": float | None}
    for key in line:
        if key not in types:
            raise unknown("key", key, types)
    for key in types:
        # A header says everything, so that no default of a later version slips in.
        if key not in line and key != "assumptions":
            raise InputError(f"{key}: missing")
    parameters = line.pop("parameters")
    if not isinstance(parameters, dict):
        raise InputError(f"parameters: {parameters!r:.60} is no JSON object {{...}}")
    values = {key: structure(value, types[key], key) for key, value in line.items()}
    if values["round_s"] <= 0:
        raise InputError(f"round_s is {values['round_s']:g}; expected more than 0")
    if values["checkpoint_s"] is None:
        values["checkpoint_s"] = math.inf
    return RunLogHeader(parameters=parameters, **values)


def _record(line: dict[str, Any], log: RunLog) -> Record | Closing:
    kind = line.pop("kind", None)
    if not isinstance(kind, str):
        raise InputError(f"kind is {kind!r}; expected one of {', '.join(_KINDS)}")
    if kind not in _KINDS:
        raise unknown("kind", kind, _KINDS)
    if kind == "run":
        pieces = structure(line.get("configuration"), dict[str, int], "configuration")
        line["configuration"] = {"pieces": [list(piece) for piece in Configuration.of(pieces)]}
    record: Record | Closing = structure(line, _KINDS[kind])
    cluster = log.header.cluster
    match record:
        case RunRecord(configuration=configuration, since_s=since_s, freed_s=freed_s):
            for node, _ in configuration:
                cluster.index(node)
            if freed_s < since_s:
                raise InputError(f"freed_s {freed_s} is before since_s {since_s}")
            # Moments since the epoch are less exact than what lies between them.
            least_s = freed_s - since_s - 1e-3
            if record.times < 1 or (record.times > 1 and record.every_s < least_s):
                raise InputError(
                    f"times {record.times} and every_s {record.every_s}: a run is repeated once or "
                    "more, and no sooner than its GPUs are free"
                )
        case NodeRecord(node=node):
            cluster.index(node)
    return record


def _latest_s(log: RunLog) -> float:
    times = [run.last_freed_s for run in log.runs]
    times += [job.end_s for job in log.jobs if job.end_s is not None]
    times += [plan.at_s for plan in log.plans]
    times += [change.at_s for change in log.nodes]
    return max(times, default=log.header.origin_s)
