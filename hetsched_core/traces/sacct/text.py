"""Rows of `sacct --parsable2` and its kin."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from hetsched_core.errors import InputError
from hetsched_core.traces.sacct.allocation import Allocation, Doubt, GpuCounts, JobState
from hetsched_core.traces.sacct.clock import NO_VALUE, Clock
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
from hetsched_core.traces.sacct.judgement import check_order, credible_end, find_doubts
from hetsched_core.traces.sacct.layout import EXPORT, FREE_TEXT, Layout, find_layout
from hetsched_core.traces.sacct.lines import MAX_LINE, OVERLONG, split_lines
from hetsched_core.traces.sacct.repair import repair
from hetsched_core.traces.sacct.report import Flaw, Tally

_SAMPLE = 256
# The bulk of a log: told apart before anything is decoded. Rarer forms are parsed as job ids.
_STEP = re.compile(rb"[0-9]+(?:[_+][0-9]+)?\.[^\s|]")
_JOB = re.compile(r"[0-9]{1,10}(?:[_+][0-9]{1,10})?")
_NEVER = frozenset({"", "Unknown", "None", "N/A", "0", str(NO_VALUE), str(NO_VALUE + 1)})
_NOT_ASSIGNED = "None assigned"


def read_text(
    read: Callable[[int], bytes],
    tally: Tally,
    clock: Clock,
    fields: tuple[str, ...] | None,
    delimiter: str | None,
) -> Iterator[Allocation]:
    """Yield the GPU allocations of a text log and count every line of it.

    Args:
        read: Returns up to so many of the next bytes, none at the end.
        tally: Counts the lines.
        clock: Reads the times.
        fields: Column names where the log has no header.
        delimiter: The delimiter where it cannot be found out.

    Raises:
        InputError: It is no sacct output, or it is not certain what its columns are.
    """
    rows: _Rows | None = None
    for batch, complete in split_lines(read):
        if rows is None:
            blank = next((at for at, line in enumerate(batch) if line.strip()), len(batch))
            tally.lines += blank
            tally.blank += blank
            batch = batch[blank:]
            if not batch:
                continue
            where = f"{tally.source}: line {tally.lines + 1}"
            rows = _Rows(_find_layout(where, batch, fields, delimiter), clock, tally)
        yield from rows.read(batch, complete)
    if rows is None:
        raise InputError(f"{tally.source}: the log is empty; export one with: {EXPORT}")


def _find_layout(
    where: str, lines: list[bytes], fields: tuple[str, ...] | None, delimiter: str | None
) -> Layout:
    if lines[0] == OVERLONG:
        raise InputError(
            f"{where} is longer than {MAX_LINE} bytes: no output of sacct; export it with: {EXPORT}"
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

    def __init__(self, layout: Layout, clock: Clock, tally: Tally) -> None:
        column = layout.column
        self._layout = layout
        self._clock = clock
        self._tally = tally
        self._node_lists = NodeLists()
        self._job_id = column("JobID", "JobIDRaw")
        self._job_id_raw = column("JobIDRaw", "JobID")
        self._name = column("JobName")
        self._user = column("User")
        self._account = column("Account")
        self._partition = column("Partition")
        self._qos = column("QOS")
        self._state = column("State")
        self._submit = column("Submit")
        self._eligible = column("Eligible")
        self._start = column("Start")
        self._end = column("End")
        self._elapsed_raw = column("ElapsedRaw")
        self._elapsed = column("Elapsed")
        self._suspended = column("Suspended")
        self._limit_raw = column("TimelimitRaw")
        self._limit = column("Timelimit")
        self._nodes = column("NodeList")
        self._n_nodes = column("AllocNodes", "NNodes")
        self._cpus = column("AllocCPUS", "NCPUS")
        self._memory = column("ReqMem")
        self._tres = column("AllocTRES")
        self._gres = column("AllocGRES")
        self._requested = column("ReqTRES")
        self._restarts = column("Restarts")
        self._comment = column("Comment")
        self._admin_comment = column("AdminComment")
        checks: tuple[tuple[str, int, Callable[[str], object]], ...] = (
            ("JobID", self._job_id, parse_job_id),
            ("JobIDRaw", self._job_id_raw, parse_job_id),
            ("State", self._state, parse_state),
            ("Submit", self._submit, clock.read),
            ("Eligible", self._eligible, clock.read),
            ("Start", self._start, clock.read),
            ("End", self._end, clock.read),
            ("ElapsedRaw", self._elapsed_raw, parse_number),
            ("Elapsed", self._elapsed, parse_duration),
            ("Suspended", self._suspended, parse_duration),
            ("TimelimitRaw", self._limit_raw, parse_number),
            ("Timelimit", self._limit, parse_duration),
            ("NodeList", self._nodes, expand_nodes),
            ("NNodes", self._n_nodes, parse_number),
            ("AllocCPUS", self._cpus, parse_number),
            ("ReqMem", self._memory, lambda text: parse_memory(text, None, None)),
            ("AllocTRES", self._tres, parse_tres),
            ("AllocGRES", self._gres, parse_gres),
            ("ReqTRES", self._requested, parse_tres),
            ("Restarts", self._restarts, parse_number),
        )
        texts = (
            self._name,
            self._user,
            self._account,
            self._partition,
            self._qos,
            self._comment,
            self._admin_comment,
        )
        absent = len(layout.names)
        # What is checked column by column, where a row as a whole does not make sense.
        self._checks = tuple(check for check in checks if check[1] != absent)
        self._read_columns = frozenset({*texts, *(at for _, at, _ in checks)} - {absent})

    def read(self, batch: list[bytes], complete: bool) -> Iterator[Allocation]:
        """Yield the allocations among some lines; the last line may not be complete."""
        tally, layout = self._tally, self._layout
        delimiter, delimiters = layout.delimiter.encode(), layout.delimiters
        before_id = self._job_id
        is_step = _STEP.match
        number, steps = tally.lines, 0
        for line in batch:
            number += 1
            is_whole = line.count(delimiter) == delimiters
            if is_whole and is_step(
                line.split(delimiter, before_id + 1)[before_id] if before_id else line
            ):
                steps += 1
                continue
            tally.lines = number
            tally.steps += steps
            steps = 0
            if is_whole:
                row = _decode(line).split(layout.delimiter)
                if not layout.trailing:
                    row.append("")
                allocation = self._row(row, _NONE if complete or layout.trailing else _CUT)
            else:
                allocation = self._odd_line(line, complete)
            if allocation is not None:
                tally.use(allocation)
                yield allocation
        tally.lines = number
        tally.steps += steps

    def _odd_line(self, line: bytes, complete: bool) -> Allocation | None:
        """Count a line that has not as many fields as there are columns, or mend it."""
        tally, layout = self._tally, self._layout
        if line == OVERLONG:
            tally.refuse(tally.lines, Flaw.TOO_LONG, f"it is longer than {MAX_LINE} bytes")
            return None
        if not line.strip():
            tally.blank += 1
            return None
        cells = _decode(line).split(layout.delimiter)
        if layout.trailing and not cells[-1]:
            cells.pop()
        counts = f"{len(cells)} fields for {len(layout.names)} columns"
        if len(cells) <= len(layout.names):
            if complete:
                why = "a name may hold a line break"
                tally.refuse(tally.lines, Flaw.FIELD_COUNT, f"{counts}; {why}: {quote(cells[0])}")
            else:
                tally.refuse(tally.lines, Flaw.CUT_OFF, counts)
            return None
        if _STEP.match(cells[self._job_id].encode()) and not any(
            name in FREE_TEXT for name in layout.names[: self._job_id]
        ):
            tally.steps += 1
            return None
        row = repair(cells, layout, self._check, self._read_columns)
        if row is None:
            tally.refuse(
                tally.lines,
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
                if parse(row[at]) is JobState.UNKNOWN:
                    raise FieldError(Flaw.STATE, f"{quote(row[at])} is no known state")
            except FieldError as error:
                raise FieldError(error.flaw, f"{name}: {error}") from None

    def _row(self, row: list[str], doubts: tuple[Doubt, ...]) -> Allocation | None:
        """Count a row; return the allocation that it is."""
        tally = self._tally
        try:
            if not _JOB.fullmatch(row[self._job_id]) and self._is_no_job(row):
                return None
            if row[self._start] in _NEVER or row[self._nodes] == _NOT_ASSIGNED:
                tally.never_started += 1
                return None
            if "gres/" in row[self._tres] or "gpu" in row[self._gres]:
                gpus, tres = self._gpus(row)
                if gpus:
                    return self._allocation(row, gpus, tres, doubts)
            tally.no_gpu += 1
        except FieldError as error:
            try:
                self._check(row)
            except FieldError as at_column:
                if at_column.flaw is error.flaw:
                    error = at_column
            tally.refuse(tally.lines, error.flaw, str(error))
        return None

    def _is_no_job(self, row: list[str]) -> bool:
        """Count a row that is no job; an array's unstarted tasks are one."""
        if tuple(cell.casefold() for cell in row[:-1]) == self._layout.names:
            self._tally.headers += 1
            return True
        if parse_job_id(row[self._job_id]).step:
            self._tally.steps += 1
            return True
        return False

    def _gpus(self, row: list[str]) -> tuple[GpuCounts, Tres]:
        tres = parse_tres(row[self._tres])
        gpus = tres.gpus or parse_gres(row[self._gres])
        if not gpus and tres.part_of_gpu:
            raise FieldError(
                Flaw.PART_OF_GPU,
                f"AllocTRES: {quote(row[self._tres])} holds shards or MPS of a GPU, "
                "and only whole GPUs are scheduled",
            )
        return gpus, tres

    def _allocation(
        self, row: list[str], gpus: GpuCounts, tres: Tres, doubts: tuple[Doubt, ...]
    ) -> Allocation:
        clock = self._clock
        seconds = parse_number(row[self._elapsed_raw])
        elapsed_s = parse_duration(row[self._elapsed]) if seconds is None else float(seconds)
        suspended_s = parse_duration(row[self._suspended])
        times = row[self._submit], row[self._eligible], row[self._start], row[self._end]
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
        limit = parse_number(row[self._limit_raw])
        if limit is not None:
            time_limit_s = limit * 60.0 if limit < NO_VALUE else None
        else:
            time_limit_s = parse_duration(row[self._limit])
        state = parse_state(row[self._state])
        nodes = self._node_lists.expand(row[self._nodes])
        requested = parse_tres(row[self._requested])
        n_nodes = len(nodes) or tres.nodes or parse_number(row[self._n_nodes])
        cpus = tres.cpus or parse_number(row[self._cpus])
        return Allocation(
            job_id=row[self._job_id],
            job_id_raw=row[self._job_id_raw],
            name=row[self._name],
            user=row[self._user],
            account=row[self._account],
            partition=row[self._partition],
            qos=row[self._qos],
            state=state,
            state_text=row[self._state],
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
            or parse_memory(row[self._memory], cpus, n_nodes),
            gpus=gpus,
            requested_gpus=requested.gpus,
            restarts=parse_number(row[self._restarts]),
            comment=row[self._comment],
            admin_comment=row[self._admin_comment],
            doubts=doubts
            + find_doubts(state, start_s, end_s, elapsed_s, suspended_s, time_limit_s),
            line=self._tally.lines,
        )


_NONE: tuple[Doubt, ...] = ()
_CUT = (Doubt.LAST_LINE,)
