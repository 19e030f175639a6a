"""Recognise a published trace by how it begins, and read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import BinaryIO

from hetsched_core.errors import InputError
from hetsched_core.traces.lines import first_line, read_head, read_lines
from hetsched_core.traces.published.csv_logs import form_of, read_csv_log
from hetsched_core.traces.published.log import PublishedLog
from hetsched_core.traces.published.pai import (
    JOB_COLUMNS,
    TASK_COLUMNS,
    Submitted,
    read_jobs,
    read_tasks,
    table_of,
)
from hetsched_core.traces.published.philly import is_philly, read_philly
from hetsched_core.traces.sacct import SacctOptions

_HEAD = 1 << 16


def is_published(head: str) -> bool:
    """Whether a file that begins like this is a published trace."""
    first = first_line(head)
    return is_philly(head) or form_of(first) is not None or table_of(first) is not None


def read_published(
    files: Sequence[tuple[str, BinaryIO]], options: SacctOptions, on_reject: Callable[[str], None]
) -> tuple[PublishedLog, ...]:
    """Read files that are `is_published`, in any order.

    Args:
        files: What messages call a file, and the file itself, seekable.
        options: Their zone is that of times without one; the rest is not needed.
        on_reject: Told, in a sentence, each line that cannot be used, as it is met.

    Raises:
        InputError: A file cannot be read, or no further; a table that goes with it is missing.
    """
    logs = []
    submitted: dict[str, Submitted] = {}
    begun = [(first_line(read_head(file, _HEAD)), source, file) for source, file in files]
    tables = [table_of(first) for first, _, _ in begun]
    if JOB_COLUMNS in tables and TASK_COLUMNS not in tables:
        raise InputError(
            f"{files[tables.index(JOB_COLUMNS)][0]}: PAI's table of jobs tells of no GPUs; give "
            "pai_task_table.csv as well (docs/formats/published.md)"
        )
    # PAI's tables of jobs come first: its tasks do not tell who submitted them, and when.
    for first, source, file in sorted(begun, key=lambda one: table_of(one[0]) is not JOB_COLUMNS):
        log = PublishedLog.of(source, options, on_reject)
        logs.append(log)
        lines = read_lines(file, source)
        if (table := table_of(first)) is JOB_COLUMNS:
            submitted |= read_jobs(lines, log)
        elif table is not None:
            read_tasks(lines, submitted, log)
        elif form := form_of(first):
            read_csv_log(lines, form, log)
        else:
            read_philly(file, log)
        log.close(options.zone is not None)
    return tuple(logs)
