"""How the lines of a text log are built: the delimiter between fields, and the fields' names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from math import comb

from hetsched_core.errors import InputError, unknown
from hetsched_core.traces.sacct.columns import PLAIN
from hetsched_core.traces.sacct.fields import FieldError, quote

IGNORED = "-"
"""Stands for one column that is not read."""
REST = "..."
"""Stands for all further columns, which are not read."""

FREE_TEXT = frozenset(
    {
        "admincomment",
        "comment",
        "constraints",
        "container",
        "extra",
        "licenses",
        "stderr",
        "stdin",
        "stdout",
        "submitline",
        "systemcomment",
        "wckey",
        "workdir",
        *(column.name.casefold() for column in PLAIN if column.free_text),
    }
)
"""Columns in which users write what they like, a delimiter among it."""

# `sacct --helpformat` of Slurm 26.05; at the end, columns that older versions had.
_COLUMNS = """
Account AdminComment AllocCPUS AllocNodes AllocTRES AssocID AveCPU AveCPUFreq AveDiskRead
AveDiskWrite AvePages AveRSS AveVMSize BlockID Cluster Comment Constraints ConsumedEnergy
ConsumedEnergyRaw Container CPUTime CPUTimeRAW DBIndex DerivedExitCode Elapsed ElapsedRaw Eligible
End Exclusive ExitCode Extra FailedNode Flags GID Group JobID JobIDRaw JobName Layout Licenses
MaxDiskRead MaxDiskReadNode MaxDiskReadTask MaxDiskWrite MaxDiskWriteNode MaxDiskWriteTask
MaxPages MaxPagesNode MaxPagesTask MaxRSS MaxRSSNode MaxRSSTask MaxVMSize MaxVMSizeNode
MaxVMSizeTask McsLabel MinCPU MinCPUNode MinCPUTask NCPUS NNodes NodeList NTasks OriginalSLUID
OverSubscribe Partition Planned PlannedCPU PlannedCPURAW Priority QOS QOSRAW QOSREQ Reason
ReqCPUFreq ReqCPUFreqGov ReqCPUFreqMax ReqCPUFreqMin ReqCPUS ReqMem ReqNodes ReqTRES Reservation
ReservationId ReqReservation Restarts SegmentSize SLUID Start State StdErr StdIn StdOut Submit
SubmitLine Suspended SystemComment SystemCPU Timelimit TimelimitRaw TotalCPU TRESUsageInAve
TRESUsageInMax TRESUsageInMaxNode TRESUsageInMaxTask TRESUsageInMin TRESUsageInMinNode
TRESUsageInMinTask TRESUsageInTot TRESUsageOutAve TRESUsageOutMax TRESUsageOutMaxNode
TRESUsageOutMaxTask TRESUsageOutMin TRESUsageOutMinNode TRESUsageOutMinTask TRESUsageOutTot UID
User UserCPU WCKey WCKeyID WorkDir AllocGRES ReqGRES Reserved ResvCPU ResvCPURAW
"""
KNOWN = {name.casefold(): name for name in _COLUMNS.split()}
"""sacct's columns by their names in lower case."""

# Alternatives for one thing; the first that a log has is read.
_REQUIRED = (
    ("JobID", "JobIDRaw"),
    ("State",),
    ("Submit",),
    ("Start",),
    ("End",),
    ("AllocTRES", "AllocGRES"),
)

_EXPORTED = (
    *("JobID", "JobIDRaw", *(column.name for column in PLAIN if not column.free_text)),
    *("State", "Submit", "Eligible", "Start", "End", "ElapsedRaw", "Suspended", "TimelimitRaw"),
    *("Restarts", "NodeList", "ReqTRES", "AllocTRES", "AdminComment"),
    # What may break a line apart comes last.
    *(column.name for column in PLAIN if column.free_text),
)

EXPORT = (
    "sacct --allusers --duplicates --allocations --parsable2 --starttime FROM --endtime TO "
    f"--format {','.join(_EXPORTED)}"
)
"""The command line whose output needs no option and loses nothing that is read."""

_NAME_THEM = "give sacct's names of all columns with --sacct-fields (- for one that it has not)"

# Characters of values: a line cannot be taken apart at them.
_IN_VALUES = re.compile(r"[\w \r\n,:=./+\[\]()%\\\"'-]")
_COMMON_DELIMITERS = "|\t;^~!#@\x1f\x1e\x01"
_WORD = r"[A-Za-z][A-Za-z0-9]*"
_FIRST_NAMES = re.compile(rf"({_WORD})([^A-Za-z0-9]+){_WORD}")
_AFTER_JOB_ID = re.compile(r"[0-9]+(?:_[0-9]+|_\[[^\]]*\]|\+[0-9]+)?(?:\.\w+)?([^\w\s.+\[-]|\t)")
_FIXED_WIDTH = re.compile(r"\s*[0-9][\w.+\[\],-]* {1,}\S+ +\S")
_RULE = re.compile(r"[- ]*-[- ]*")


@dataclass(frozen=True, slots=True)
class SacctLayout:
    """What every line of a log looks like.

    Attributes:
        names: Column names in lower case, `IGNORED` for a column that is not read.
        delimiter: What separates the fields.
        trailing: Whether one more delimiter ends each line (sacct -p).
    """

    names: tuple[str, ...]
    delimiter: str
    trailing: bool

    @property
    def delimiters(self) -> int:
        """How many delimiters a line has."""
        return len(self.names) - 1 + self.trailing

    def column(self, *names: str) -> int:
        """Return where the first of these columns is; one past the last where there is none."""
        for name in names:
            if name.casefold() in self.names:
                return self.names.index(name.casefold())
        return len(self.names)


def parse_fields(text: str) -> tuple[str, ...]:
    """Read the value of --sacct-fields: sacct's names with commas between, as for its --format.

    `-` stands for a column that is not read, a final `...` for all further ones. A width, as in
    `JobName%30`, is left out.

    Raises:
        InputError: A name is none of sacct's columns.
    """
    names = tuple(name.partition("%")[0].strip() for name in text.split(","))
    for at, name in enumerate(names):
        if name == IGNORED or (name == REST and at == len(names) - 1):
            continue
        if name.casefold() not in KNOWN:
            error = unknown("sacct field", name, KNOWN.values())
            raise InputError(
                f"{error} (write {IGNORED} for a column to leave out, and {REST} at the end for "
                "all further ones)"
            )
    return names


def find_layout(
    where: str, sample: Sequence[str], fields: tuple[str, ...] | None, delimiter: str | None
) -> SacctLayout:
    """Work out the layout of a log from its first lines.

    Args:
        where: Name of the log and number of its first line that is not blank, for messages.
        sample: Its first lines, blank ones left out; at least one.
        fields: Column names where the log has no header (see `parse_fields`).
        delimiter: The delimiter where it is known.

    Raises:
        InputError: The log is not sacct's, or it is not certain what its columns are.
    """
    first = sample[0]
    if delimiter is not None:
        _check_delimiter(delimiter)
    layout = _read_header(where, sample, delimiter)
    if layout is not None:
        if fields is not None:
            names = _renamed(fields, layout.names)
            if names is None:
                raise InputError(
                    f"{where} is a header, {quote(first)}, and names other columns than "
                    "--sacct-fields; leave --sacct-fields out"
                )
            layout = replace(layout, names=names)
    elif fields is not None:
        layout = _fit_fields(where, sample, fields, delimiter)
    elif strange := _strange_names(first):
        raise InputError(
            f"{where} is a header with names that are none of sacct's ({', '.join(strange[:5])}); "
            f"{_NAME_THEM}, or export with: {EXPORT}"
        )
    else:
        raise InputError(
            f"{where} is {quote(first)}, not a header such as JobID|User|State|...; name "
            "its columns with --sacct-fields (what was given to sacct as --format), or export "
            f"with a header: {EXPORT}"
        )
    missing = [
        " or ".join(names)
        for names in _REQUIRED
        if not any(name.casefold() in layout.names for name in names)
    ]
    if missing:
        why = f"no column {', '.join(missing)} among {len(layout.names)} columns"
        if strange := _strange_names(first):
            why += f", and none of sacct's is named {', '.join(strange[:5])}; {_NAME_THEM}, or"
        elif "reqtres" in layout.names and "AllocTRES" in missing[-1]:
            why += "; ReqTRES, which there is, tells what a job asked for and not what it held;"
        else:
            why += ";"
        raise InputError(f"{where}: {why} export with: {EXPORT}")
    return layout


def _read_header(where: str, sample: Sequence[str], delimiter: str | None) -> SacctLayout | None:
    """Return what the first line tells as a header; None where it is none.

    Raises:
        InputError: The log has columns of fixed width, or a delimiter that values hold.
    """
    first = sample[0]
    if delimiter is None:
        match = _FIRST_NAMES.match(first.lstrip())
        if match is None or match[1].casefold() not in KNOWN:
            if _FIXED_WIDTH.match(first) and not any(d in first for d in "|\t;"):
                raise _fixed_width(where, first)
            return None
        delimiter = match[2]
        if not delimiter.strip(" ") or (len(sample) > 1 and _RULE.fullmatch(sample[1])):
            raise _fixed_width(where, first)
    names = first.split(delimiter)
    trailing = names[-1] == ""
    if trailing:
        names.pop()
    known = sum(name.casefold() in KNOWN for name in names)
    if known < 2 or 2 * known < len(names) or not all(re.fullmatch(_WORD, n) for n in names):
        return None
    if _IN_VALUES.search(delimiter):
        raise InputError(
            f"{where}: its columns are separated by {delimiter!r}, which values hold too; "
            f"export with: {EXPORT}"
        )
    return SacctLayout(tuple(map(str.casefold, names)), delimiter, trailing)


def _fixed_width(where: str, line: str) -> InputError:
    return InputError(
        f"{where} is {quote(line)}: columns of fixed width, in which sacct cuts values "
        f"off (16261988.ba+, CANCELLED+); export again with --parsable2: {EXPORT}"
    )


def _check_delimiter(delimiter: str) -> None:
    if not delimiter or _IN_VALUES.search(delimiter):
        raise InputError(
            f"--sacct-delimiter is {delimiter!r}: values hold such characters, so lines cannot be "
            "taken apart there; export with sacct --parsable2, which writes '|'"
        )


def _renamed(fields: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the names of a header with those given for what sacct does not have.

    None where another name is given for a column of sacct's.
    """
    given = [name.casefold() for name in fields]
    if given and given[-1] == REST:
        given[-1:] = [IGNORED] * (len(names) - len(given) + 1)
    if len(given) != len(names):
        return None
    pairs = list(zip(given, names, strict=True))
    if any(a not in (IGNORED, b) and b in KNOWN for a, b in pairs):
        return None
    return tuple(b if a == IGNORED else a for a, b in pairs)


def _strange_names(line: str) -> list[str]:
    """Return the names in a header that are none of sacct's columns; none for any other line."""
    for delimiter in _COMMON_DELIMITERS:
        cells = [cell.strip() for cell in line.strip(delimiter).split(delimiter)]
        if len(cells) > 1 and all(re.fullmatch(r"[^\W\d][\w .()/-]*", cell) for cell in cells):
            return [cell for cell in cells if cell.casefold() not in KNOWN]
    return []


def _fit_fields(
    where: str, sample: Sequence[str], fields: tuple[str, ...], delimiter: str | None
) -> SacctLayout:
    """Find the delimiter with which lines have as many fields as were named."""
    open_ended = fields[-1:] == (REST,)
    names = tuple(name.casefold() for name in (fields[:-1] if open_ended else fields))
    for candidate in (delimiter,) if delimiter is not None else _candidates(sample[0]):
        # The usual number: a line may hold the delimiter in a name, or be cut off.
        usual = Counter(line.count(candidate) for line in sample).most_common(1)[0][0]
        if usual == 0:
            continue
        if open_ended and usual + 1 >= len(names):
            rest = usual + 1 - len(names)
            return SacctLayout(names + (IGNORED,) * rest, candidate, False)
        if usual + 1 == len(names):
            return SacctLayout(names, candidate, False)
        if usual == len(names) and any(line.endswith(candidate) for line in sample):
            return SacctLayout(names, candidate, True)
    found = ", ".join(
        f"{sample[0].count(candidate) + 1} with {candidate!r}"
        for candidate in ((delimiter,) if delimiter is not None else _candidates(sample[0]))
        if candidate in sample[0]
    )
    raise InputError(
        f"{where} is {quote(sample[0])} and has {found or 'one field'}, but "
        f"--sacct-fields names {len(names)}{' or more' if open_ended else ''}; name one field for "
        f"each column ({IGNORED} for one to leave out, {REST} at the end for the rest), or give "
        "the delimiter with --sacct-delimiter"
    )


def _candidates(line: str) -> list[str]:
    """Return the delimiters that a line may be built with, the likeliest first."""
    found = []
    after_job_id = _AFTER_JOB_ID.match(line)
    if after_job_id:
        found.append(after_job_id[1])
    found += _COMMON_DELIMITERS
    found += sorted({c for c in line if not c.isascii() and not c.isalnum()}, key=line.index)
    return list(dict.fromkeys(found))


# Rows with more fields than columns ---------------------------------------------------------------

_MOST_WAYS = 256


def repair(
    cells: Sequence[str],
    layout: SacctLayout,
    check: Callable[[Sequence[str]], None],
    read_columns: frozenset[int],
) -> list[str] | None:
    """Put the pieces of names together again where only one way of doing so makes sense.

    Args:
        cells: The fields as split at every delimiter, more than the layout has columns.
        layout: The layout of the log.
        check: Raises FieldError for a row whose values do not fit their columns.
        read_columns: Columns that are read; ways that differ only in others are the same.

    Returns:
        The row, of one field for each column; None where no way or more than one makes sense.
    """
    free = [at for at, name in enumerate(layout.names) if name in FREE_TEXT]
    surplus = len(cells) - len(layout.names)
    if not free or comb(surplus + len(free) - 1, surplus) > _MOST_WAYS:
        return None
    found: dict[tuple[str, ...], list[str]] = {}
    for widened in combinations_with_replacement(free, surplus):
        row = _join(cells, layout, widened)
        try:
            check(row)
        except FieldError:
            continue
        found[tuple(row[at] for at in sorted(read_columns))] = row
    return next(iter(found.values())) if len(found) == 1 else None


def _join(cells: Sequence[str], layout: SacctLayout, widened: tuple[int, ...]) -> list[str]:
    """Return the row in which each column takes one field, and one more each time it is widened."""
    row = []
    at = 0
    for column in range(len(layout.names)):
        width = 1 + widened.count(column)
        row.append(layout.delimiter.join(cells[at : at + width]))
        at += width
    return row
