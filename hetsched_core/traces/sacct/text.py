"""Rows of `sacct --parsable2` and its kin."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from hetsched_core.errors import InputError
from hetsched_core.traces.sacct.allocation import Doubt, GpuCounts, LoggedAllocation, LoggedState
from hetsched_core.traces.sacct.clock import NO_VALUE, SacctClock
from hetsched_core.traces.sacct.columns import PLAIN
from hetsched_core.traces.sacct.fields import (
    FieldError,
    NodeLists,
    Tres,
    expand_nodes,
    parse_duration,
    parse_gres,
    parse_job_id,
    parse_memory,
    parse_number,
    parse_state,
    parse_tres,
    quote,
)
from hetsched_core.traces.sacct.layout import EXPORT, FREE_TEXT, SacctLayout, find_layout, repair
from hetsched_core.traces.sacct.report import Flaw, ReadReport
from hetsched_core.traces.sacct.runs import check_order, credible_end, find_doubts

CHUNK = 1 << 18
MAX_LINE = 1 << 20
"""Longest line that is read, in bytes (give or take a chunk)."""

OVERLONG = b"\n"
"""Stands for a line that is longer than that; no line holds a line break."""

_SAMPLE = 256
# The bulk of a log: told apart before anything is decoded. Rarer forms are parsed as job ids.
_STEP = re.compile(rb"[0-9]+(?:[_+][0-9]+)?\.[^\s|]")
_JOB = re.compile(r"[0-9]{1,10}(?:[_+][0-9]{1,10})?")
_ASKS_GPU = re.compile(r"gres/gpu[:=]")
_NEVER = frozenset({"", "Unknown", "None", "N/A", "0", str(NO_VALUE), str(NO_VALUE + 1)})
_NOT_ASSIGNED = "None assigned"

_Parse = Callable[..., object]
_COLUMNS: Mapping[str, tuple[tuple[str, ...], _Parse | None]] = {
    "JobID": (("JobID", "JobIDRaw"), parse_job_id),
    "JobIDRaw": (("JobIDRaw", "JobID"), parse_job_id),
    "State": (("State",), parse_state),
    "Submit": (("Submit",), SacctClock.read),
    "Eligible": (("Eligible",), SacctClock.read),
    "Start": (("Start",), SacctClock.read),
    "End": (("End",), SacctClock.read),
    "ElapsedRaw": (("ElapsedRaw",), parse_number),
    "Elapsed": (("Elapsed",), parse_duration),
    "Suspended": (("Suspended",), parse_duration),
    "TimelimitRaw": (("TimelimitRaw",), parse_number),
    "Timelimit": (("Timelimit",), parse_duration),
    "NodeList": (("NodeList",), expand_nodes),
    "NNodes": (("AllocNodes", "NNodes"), parse_number),
    "AllocCPUS": (("AllocCPUS", "NCPUS"), parse_number),
    "ReqMem": (("ReqMem",), partial(parse_memory, cpus=None, nodes=None)),
    "AllocTRES": (("AllocTRES",), parse_tres),
    "AllocGRES": (("AllocGRES",), parse_gres),
    "ReqTRES": (("ReqTRES",), parse_tres),
    "Restarts": (("Restarts",), parse_number),
    **{column.name: ((column.name,), None) for column in PLAIN},
    # Of no use to a job, but a row in which one of them is not certain is refused.
    "Comment": (("Comment",), None),
    "AdminComment": (("AdminComment",), None),
}
"""What is read: the columns that have it, the first that a log has counts, and the form of its
values; None for text."""


def read_text(
    read: Callable[[int], bytes],
    report: ReadReport,
    clock: SacctClock,
    fields: tuple[str, ...] | None,
    delimiter: str | None,
) -> Iterator[LoggedAllocation]:
    """Yield the GPU allocations of a text log and count every line of it.

    Args:
        read: Returns up to so many of the next bytes, none at the end.
        report: Counts the lines.
        clock: Reads the times.
        fields: Column names where the log has no header.
        delimiter: The delimiter where it cannot be found out.

    Raises:
        InputError: It is no sacct output, or it is not certain what its columns are.
    """
    rows: _Rows | None = None
    for batch, complete in split_lines(read):
        if rows is None:
            begins = (at for at, line in enumerate(batch) if line.strip() or line == OVERLONG)
            blank = next(begins, len(batch))
            report.lines += blank
            report.blank += blank
            batch = batch[blank:]
            if not batch:
                continue
            where = f"{report.source}: line {report.lines + 1}"
            rows = _Rows(_find_layout(where, batch, fields, delimiter), clock, report)
        yield from rows.read(batch, complete)
    if rows is None:
        raise InputError(f"{report.source}: the log is empty; export one with: {EXPORT}")


def split_lines(read: Callable[[int], bytes]) -> Iterator[tuple[list[bytes], bool]]:
    """Yield batches of lines without their line breaks.

    The flag is False for what follows the last line break of the stream, which comes in a batch of
    its own: such a line may be cut off.
    """
    tail = b""
    overlong = False
    while chunk := read(CHUNK):
        lines = chunk.split(b"\n")
        if len(lines) > 1:
            lines[0] = OVERLONG if overlong else tail + lines[0]
            tail, overlong = lines.pop(), False
            yield lines, True
        elif not overlong:
            tail += chunk
        if len(tail) > MAX_LINE:
            tail, overlong = b"", True
    if tail or overlong:
        yield [OVERLONG if overlong else tail], False


def _find_layout(
    where: str, lines: list[bytes], fields: tuple[str, ...] | None, delimiter: str | None
) -> SacctLayout:
    if lines[0] == OVERLONG:
        raise InputError(
            f"{where} is longer than {MAX_LINE} bytes, or has no end: no output of sacct, which "
            f"ends the line of each job; export it with: {EXPORT}"
        )
    sample = [_decode(line) for line in lines[:_SAMPLE] if line.strip()]
    return find_layout(where, sample, fields, delimiter)


def _decode(line: bytes) -> str:
    """Return a line as text; bytes that are not UTF-8 stay visible, as hexadecimal escapes."""
    return line.decode("utf-8", "backslashreplace").removesuffix("\r")


class _Rows:
    """Reads rows of one layout.

    A row is a list of one string for each column and an empty one at the end, which is what a
    column that the log does not have refers to.
    """

    def __init__(self, layout: SacctLayout, clock: SacctClock, report: ReadReport) -> None:
        self._layout = layout
        self._clock = clock
        self._report = report
        self._node_lists = NodeLists()
        self._at = {name: layout.column(*names) for name, (names, _) in _COLUMNS.items()}
        self._plain = tuple((column.field, self._at[column.name]) for column in PLAIN)
        absent = len(layout.names)
        # What is checked column by column, where a row as a whole does not make sense.
        self._checks = tuple(
            (name, self._at[name], clock.read if parse is SacctClock.read else parse)
            for name, (_, parse) in _COLUMNS.items()
            if parse is not None and self._at[name] != absent
        )
        self._read_columns = frozenset(self._at.values()) - {absent}

    def read(self, batch: list[bytes], complete: bool) -> Iterator[LoggedAllocation]:
        """Yield the allocations among some lines; the last line may not be complete."""
        report, layout = self._report, self._layout
        delimiter, delimiters = layout.delimiter.encode(), layout.delimiters
        before_id = self._at["JobID"]
        is_step = _STEP.match
        number, steps = report.lines, 0
        for line in batch:
            number += 1
            is_whole = line.count(delimiter) == delimiters
            if is_whole and is_step(
                line.split(delimiter, before_id + 1)[before_id] if before_id else line
            ):
                steps += 1
                continue
            report.lines = number
            report.steps += steps
            steps = 0
            if is_whole:
                row = _decode(line).split(layout.delimiter)
                if not layout.trailing:
                    row.append("")
                allocation = self._row(row, _NONE if complete or layout.trailing else _CUT)
            else:
                allocation = self._odd_line(line, complete)
            if allocation is not None:
                report.use(allocation)
                yield allocation
        report.lines = number
        report.steps += steps

    def _odd_line(self, line: bytes, complete: bool) -> LoggedAllocation | None:
        """Count a line that has not as many fields as there are columns, or mend it."""
        report, layout = self._report, self._layout
        if line == OVERLONG:
            report.refuse(report.lines, Flaw.TOO_LONG, f"it is longer than {MAX_LINE} bytes")
            return None
        if not line.strip():
            report.blank += 1
            return None
        cells = _decode(line).split(layout.delimiter)
        if layout.trailing and not cells[-1]:
            cells.pop()
        counts = f"{len(cells)} fields for {len(layout.names)} columns"
        if len(cells) <= len(layout.names):
            if complete:
                why = "a name may hold a line break"
                report.refuse(report.lines, Flaw.FIELD_COUNT, f"{counts}; {why}: {quote(cells[0])}")
            else:
                report.refuse(report.lines, Flaw.CUT_OFF, counts)
            return None
        if _STEP.match(cells[self._at["JobID"]].encode()) and not any(
            name in FREE_TEXT for name in layout.names[: self._at["JobID"]]
        ):
            report.steps += 1
            return None
        row = repair(cells, layout, self._check, self._read_columns)
        if row is None:
            report.refuse(
                report.lines,
                Flaw.FIELD_COUNT,
                f"{counts}; a name holds {layout.delimiter!r} and it is not certain which: "
                "export with a --delimiter that no name holds",
            )
            return None
        row.append("")
        return self._row(row, (Doubt.REPAIRED,))

    def _check(self, row: Sequence[str]) -> None:
        """Raise FieldError, with the name of the column, for the first value that does not fit."""
        for name, at, parse in self._checks:
            try:
                if parse(row[at]) is LoggedState.UNKNOWN:
                    raise FieldError(Flaw.STATE, f"{quote(row[at])} is no known state")
            except FieldError as error:
                raise FieldError(error.flaw, f"{name}: {error}") from None

    def _row(self, row: list[str], doubts: tuple[Doubt, ...]) -> LoggedAllocation | None:
        """Count a row; return the allocation that it is."""
        report, at = self._report, self._at
        try:
            if not _JOB.fullmatch(row[at["JobID"]]) and self._is_no_job(row):
                return None
            if row[at["Start"]] in _NEVER or row[at["NodeList"]] == _NOT_ASSIGNED:
                report.never_started += 1
                return None
            if "gres/" in row[at["AllocTRES"]] or "gpu" in row[at["AllocGRES"]]:
                gpus, tres = self._gpus(row)
                if gpus:
                    return self._allocation(row, gpus, tres, doubts)
            asked = _ASKS_GPU.search(row[at["ReqTRES"]]) is not None
            report.without_gpu(row[at["Partition"]], asked=asked)
        except FieldError as error:
            try:
                self._check(row)
            except FieldError as at_column:
                if at_column.flaw is error.flaw:
                    error = at_column
            report.refuse(report.lines, error.flaw, str(error))
        return None

    def _is_no_job(self, row: list[str]) -> bool:
        """Count a row that is no job; an array's unstarted tasks are one."""
        if tuple(cell.casefold() for cell in row[:-1]) == self._layout.names:
            self._report.headers += 1
            return True
        if parse_job_id(row[self._at["JobID"]]).step:
            self._report.steps += 1
            return True
        return False

    def _gpus(self, row: list[str]) -> tuple[GpuCounts, Tres]:
        held = row[self._at["AllocTRES"]]
        tres = parse_tres(held)
        gpus = tres.gpus or parse_gres(row[self._at["AllocGRES"]])
        if not gpus and tres.part_of_gpu:
            raise FieldError(
                Flaw.PART_OF_GPU,
                f"AllocTRES: {quote(held)} holds shards or MPS of a GPU, "
                "and only whole GPUs are scheduled",
            )
        return gpus, tres

    def _allocation(
        self, row: list[str], gpus: GpuCounts, tres: Tres, doubts: tuple[Doubt, ...]
    ) -> LoggedAllocation:
        clock, at = self._clock, self._at
        seconds = parse_number(row[at["ElapsedRaw"]])
        elapsed_s = parse_duration(row[at["Elapsed"]]) if seconds is None else float(seconds)
        suspended_s = parse_duration(row[at["Suspended"]])
        times = row[at["Submit"]], row[at["Eligible"]], row[at["Start"]], row[at["End"]]
        submit_s, start_s, end_s = clock.read(times[0]), clock.read(times[2]), clock.read(times[3])
        eligible_s = clock.read(times[1]) if times[1] else None
        if clock.change_days and not clock.change_days.isdisjoint([time[:10] for time in times]):
            span_s = None if elapsed_s is None else elapsed_s + (suspended_s or 0.0)
            settled = clock.settle(*times, span_s)
            submit_s, eligible_s = settled.submit_s, settled.eligible_s
            start_s, end_s = settled.start_s, settled.end_s
            if not settled.certain:
                doubts += (Doubt.CLOCK_CHANGE,)
        if submit_s is None or start_s is None:
            raise FieldError(Flaw.TIME, f"Submit: {quote(times[0])} is no time of a job that ran")
        check_order(submit_s, start_s, end_s)
        if elapsed_s is None and end_s is not None:
            elapsed_s = end_s - start_s - (suspended_s or 0.0)
        limit = parse_number(row[at["TimelimitRaw"]])
        if limit is not None:
            time_limit_s = limit * 60.0 if limit < NO_VALUE else None
        else:
            time_limit_s = parse_duration(row[at["Timelimit"]])
        state = parse_state(row[at["State"]])
        nodes = self._node_lists.expand(row[at["NodeList"]])
        requested = parse_tres(row[at["ReqTRES"]])
        n_nodes = len(nodes) or tres.nodes or parse_number(row[at["NNodes"]])
        cpus = tres.cpus or parse_number(row[at["AllocCPUS"]])
        return LoggedAllocation(
            job_id=row[at["JobID"]],
            job_id_raw=row[at["JobIDRaw"]],
            **{field: row[place] for field, place in self._plain},
            state=state,
            submit_s=submit_s,
            eligible_s=eligible_s,
            start_s=start_s,
            end_s=credible_end(start_s, end_s, elapsed_s, suspended_s),
            elapsed_s=elapsed_s,
            suspended_s=suspended_s,
            time_limit_s=time_limit_s,
            nodes=nodes,
            n_nodes=n_nodes,
            cpus=cpus,
            memory_mb=tres.memory_mb
            or requested.memory_mb
            or parse_memory(row[at["ReqMem"]], cpus, n_nodes),
            gpus=gpus,
            requested_gpus=requested.gpus,
            restarts=parse_number(row[at["Restarts"]]),
            doubts=doubts
            + find_doubts(state, start_s, end_s, elapsed_s, suspended_s, time_limit_s),
            line=self._report.lines,
        )


_NONE: tuple[Doubt, ...] = ()
_CUT = (Doubt.LAST_LINE,)
