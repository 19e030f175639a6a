"""Run logs on disk, `hetsched-runlog/1` (docs/formats/run-log.md): JSON lines.

The first line is the header, the last one closes the log; between them stands a line for each
record, in the order in which things happened.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from hetsched_core.records.files import replacing
from hetsched_core.records.runlog import RunLog, RunRecord
from hetsched_core.values.json import plain
from hetsched_core.values.records import unstructure

SCHEMA = "hetsched-runlog/1"


def write_run_log(log: RunLog, path: Path) -> None:
    """Write a whole run log; the file appears once it is complete.

    Raises:
        InputError: the file cannot be written.
    """
    with replacing(path) as file:
        for line in _lines(log):
            file.write(json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n")


def _lines(log: RunLog) -> Iterator[dict[str, object]]:
    header = unstructure(log.header)
    header["parameters"] = plain(log.header.parameters)
    # JSON has no infinity: without periodic checkpoints there is no time between them.
    header["checkpoint_s"] = log.header.checkpoint_s if log.header.checkpoint_s < math.inf else None
    yield {"schema": SCHEMA, **header}
    parts: dict[str, Iterable[object]] = {
        "node": log.nodes,
        "plan": log.plans,
        "run": log.runs,
        "job": log.jobs,
    }
    for kind, records in parts.items():
        for record in records:
            line = unstructure(record)
            if isinstance(record, RunRecord):
                line["configuration"] = dict(record.configuration)
            yield {"kind": kind, **line}
    yield {
        "kind": "closed",
        "closed_s": log.closed_s,
        "rounds": log.rounds,
        "wall_s": log.wall_s,
    }
