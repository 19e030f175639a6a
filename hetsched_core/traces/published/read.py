"""Recognise a published trace by how it begins, and read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import BinaryIO

from hetsched_core.traces.lines import first_line, read_head, read_lines
from hetsched_core.traces.published.csv_logs import form_of, read_csv_log
from hetsched_core.traces.published.log import PublishedLog
from hetsched_core.traces.published.philly import is_philly, read_philly
from hetsched_core.traces.sacct import SacctOptions

_HEAD = 1 << 16


def is_published(head: str) -> bool:
    """Whether a file that begins like this is a published trace."""
    first = first_line(head)
    return is_philly(head) or form_of(first) is not None


def read_published(
    files: Sequence[tuple[str, BinaryIO]], options: SacctOptions, on_reject: Callable[[str], None]
) -> tuple[PublishedLog, ...]:
    """Read files that are `is_published`, in any order.

    Args:
        files: What messages call a file, and the file itself, seekable.
        options: Their zone is that of times without one; the rest is not needed.
        on_reject: Told, in a sentence, each line that cannot be used, as it is met.

    Raises:
        InputError: A file cannot be read, or no further.
    """
    logs = []
    for source, file in files:
        log = PublishedLog.of(source, options, on_reject)
        logs.append(log)
        if form := form_of(first_line(read_head(file, _HEAD))):
            read_csv_log(read_lines(file, source), form, log)
        else:
            read_philly(file, log)
        log.close(options.zone is not None)
    return tuple(logs)
