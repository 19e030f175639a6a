"""Records of `sacct --json`, of any of its data parser versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hetsched_core.errors import InputError
from hetsched_core.traces.sacct.allocation import LoggedAllocation
from hetsched_core.traces.sacct.clock import NO_VALUE
from hetsched_core.traces.sacct.columns import PLAIN
from hetsched_core.traces.sacct.fields import (
    FieldError,
    NodeLists,
    Tres,
    combine_states,
    parse_state,
    quote,
    tres_of,
)
from hetsched_core.traces.sacct.json_stream import BrokenJsonError, iterate_list
from hetsched_core.traces.sacct.report import Flaw, ReadReport
from hetsched_core.traces.sacct.runs import check_order, credible_end, find_doubts

Record = Mapping[str, Any]
"""A JSON object; what is in it is checked where it is read."""


def read_json(read: Callable[[int], bytes], report: ReadReport) -> Iterator[LoggedAllocation]:
    """Yield the GPU allocations of a JSON log and count every record of it, one at a time.

    Args:
        read: Returns up to so many of the next bytes, none at the end.
        report: Counts the records.

    Raises:
        InputError: It is no JSON, or none that sacct writes.
    """
    nodes = NodeLists()
    try:
        for record in iterate_list(read, "jobs"):
            report.lines += 1
            try:
                allocation = _read_record(record, report, nodes)
            except FieldError as error:
                if report.lines == 1 and error.flaw is Flaw.RECORD:
                    raise InputError(
                        f"{report.source}: record 1 {error}: expected the output of sacct --json "
                        "(squeue and scontrol write other records)"
                    ) from None
                report.refuse(report.lines, error.flaw, str(error))
                continue
            if allocation is not None:
                report.use(allocation)
                yield allocation
    except BrokenJsonError as error:
        if not error.cut_off:
            raise InputError(
                f"{report.source}: no JSON after record {report.lines}: {error}; export it again "
                "with sacct --json"
            ) from None
        if report.lines:
            report.lines += 1
            report.refuse(report.lines, Flaw.CUT_OFF, "the file ends within the list of jobs")
    if not report.lines:
        raise InputError(
            f'{report.source}: no job in it; expected {{"jobs": [...]}} with at least one record, '
            "as sacct --json writes it"
        )


def _read_record(
    record: object, report: ReadReport, node_lists: NodeLists
) -> LoggedAllocation | None:
    if not isinstance(record, dict):
        raise FieldError(Flaw.RECORD, f"is {quote(str(record))} and no object")
    time = _object(record, "time")
    start_s = _time(time, "start")
    held = _tres(_object(record, "tres").get("allocated"))
    state_text = _state(record)
    job_id = _id(record, "job_id")
    if job_id is None:
        raise FieldError(Flaw.RECORD, "has no number as job_id")
    node_list = _text(record, "nodes")
    if start_s is None or node_list == "None assigned":
        report.never_started += 1
        return None
    if held.part_of_gpu:
        raise FieldError(
            Flaw.PART_OF_GPU,
            "holds shards or MPS of a GPU, and only whole GPUs are scheduled",
        )
    requested = _tres(_object(record, "tres").get("requested"))
    if not held.gpus:
        report.without_gpu(_text(record, "partition"), asked=bool(requested.gpus))
        return None
    submit_s, end_s = _time(time, "submission"), _time(time, "end")
    if submit_s is None:
        raise FieldError(Flaw.TIME, "has no time of submission, and ran")
    check_order(submit_s, start_s, end_s)
    elapsed_s, suspended_s = _number(time, "elapsed"), _number(time, "suspended")
    limit = _number(time, "limit")
    time_limit_s = None if limit is None else limit * 60
    state = parse_state(state_text)
    nodes = node_lists.expand(node_list)
    own = _own(record)
    return LoggedAllocation(
        job_id=_displayed_id(record, job_id),
        job_id_raw=str(job_id),
        **{column.field: _text(own, column.key) for column in PLAIN},
        state=state,
        submit_s=submit_s,
        eligible_s=_time(time, "eligible"),
        start_s=start_s,
        end_s=credible_end(start_s, end_s, elapsed_s, suspended_s),
        elapsed_s=elapsed_s,
        suspended_s=suspended_s,
        time_limit_s=time_limit_s,
        nodes=nodes,
        n_nodes=len(nodes) or held.nodes,
        cpus=held.cpus,
        memory_mb=held.memory_mb or requested.memory_mb,
        gpus=held.gpus,
        requested_gpus=requested.gpus,
        restarts=_count(record, "restart_cnt"),
        doubts=find_doubts(state, start_s, end_s, elapsed_s, suspended_s, time_limit_s),
        line=report.lines,
    )


def _own(record: Record) -> Record:
    """Return a record with the user of its association, where it names none of its own."""
    if _text(record, "user"):
        return record
    return {**record, "user": _text(_object(record, "association", {}), "user")}


def _object(record: Record, key: str, default: Record | None = None) -> Record:
    value = record.get(key, default)
    if not isinstance(value, dict):
        raise FieldError(Flaw.RECORD, f"has no object {key!r}")
    return value


def _text(record: Record, key: str) -> str:
    value = record.get(key)
    return value if isinstance(value, str) else ""


def _plain_number(value: object) -> float | None:
    """Return a number, which newer versions write as {"set", "infinite", "number"}.

    None where it is not set, infinite, or one of Slurm's marks for these two.
    """
    if isinstance(value, dict):
        value = None if not value.get("set") or value.get("infinite") else value.get("number")
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise FieldError(Flaw.NUMBER, f"{quote(str(value))} is no number")
    if not abs(value) < 2**63:
        raise FieldError(Flaw.NUMBER, f"{value} is out of range")
    return None if NO_VALUE <= value <= NO_VALUE + 1 else float(value)


def _number(record: Record, key: str) -> float | None:
    try:
        number = _plain_number(record.get(key))
    except FieldError as error:
        raise FieldError(error.flaw, f"{key}: {error}") from None
    if number is not None and number < 0:
        raise FieldError(Flaw.NUMBER, f"{key}: {number:.0f} is negative")
    return number


def _count(record: Record, key: str) -> int | None:
    number = _number(record, key)
    if number is not None and not number.is_integer():
        raise FieldError(Flaw.NUMBER, f"{key}: {number} is not whole")
    return None if number is None else int(number)


def _id(record: Record, key: str) -> int | None:
    """Return the number of a job or task; Slurm's have 32 bits."""
    number = _count(record, key)
    if number is not None and number > NO_VALUE:
        raise FieldError(Flaw.JOB_ID, f"{key}: {number} is out of range")
    return number


def _time(record: Record, key: str) -> float | None:
    """Return a time in seconds UTC; None for one that never came (0, or NO_VAL)."""
    try:
        return _number(record, key) or None
    except FieldError as error:
        raise FieldError(Flaw.TIME, str(error)) from None


def _state(record: Record) -> str:
    """Return the state as text output shows it: a word, or a list of a state and its flags."""
    value = record.get("state")
    if isinstance(value, dict):
        value = value.get("current")
    words = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else ()
    if not words or not all(isinstance(word, str) for word in words):
        raise FieldError(Flaw.RECORD, "has no state")
    return combine_states(words)


def _tres(value: object) -> Tres:
    """Read [{"type": "gres", "name": "gpu:a100", "count": 4}, ...]; memory is in MiB."""
    if not isinstance(value, list):
        raise FieldError(Flaw.RECORD, "has no list of TRES")
    found = []
    for item in value:
        if not isinstance(item, dict):
            raise FieldError(Flaw.TRES, f"{quote(str(item))} is no object of type, name and count")
        kind, name = _text(item, "type"), _text(item, "name")
        # Others, such as energy, may have a count of -2.
        if kind in ("gres", "cpu", "node", "mem"):
            count = _count(item, "count")
            found.append((f"gres/{name}", count or 0) if kind == "gres" else (kind, count or None))
    return tres_of(found)


def _displayed_id(record: Record, job_id: int) -> str:
    """Return the id as text output shows it."""
    array, het = record.get("array"), record.get("het")
    if isinstance(array, dict):
        base, task = _id(array, "job_id"), _id(array, "task_id")
        if base and task is not None:
            return f"{base}_{task}"
    if isinstance(het, dict):
        base, offset = _id(het, "job_id"), _id(het, "job_offset")
        if base and offset is not None:
            return f"{base}+{offset}"
    return str(job_id)
