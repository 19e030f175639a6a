"""A log of any form, read once and in bounded memory."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import IO, Protocol, cast
from zoneinfo import ZoneInfo

from hetsched_core.errors import InputError
from hetsched_core.traces.lines import GZIP, readable
from hetsched_core.traces.sacct.allocation import LoggedAllocation
from hetsched_core.traces.sacct.clock import SacctClock
from hetsched_core.traces.sacct.json_records import read_json
from hetsched_core.traces.sacct.report import ReadReport, SacctFormat, Unusable
from hetsched_core.traces.sacct.text import CHUNK, read_text

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class SacctOptions:
    """What the log itself does not tell; JSON needs none of it.

    Attributes:
        fields: Column names of a log without header, from `parse_fields`.
        delimiter: What separates the fields; found out where it is None.
        zone: Time zone of times without one, from `parse_zone`; None reads them as UTC and warns.
    """

    fields: tuple[str, ...] | None = None
    delimiter: str | None = None
    zone: ZoneInfo | None = None


class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to so many of the next bytes, none at the end."""


class SacctLog(Iterator[LoggedAllocation]):
    """The GPU allocations of one log, in its order, and a report on every line of it.

    Iterating reads the log, once. `report` counts what has been read so far; it is complete when
    the iterator is exhausted.
    """

    def __init__(self, source: Path | Readable, options: SacctOptions, report: ReadReport) -> None:
        self._report = report
        self._zone_given = options.zone is not None
        self._clock = SacctClock(options.zone or UTC)
        self._allocations = self._read(source, options)

    def __next__(self) -> LoggedAllocation:
        return next(self._allocations)

    @property
    def report(self) -> ReadReport:
        """What became of the lines read so far."""
        self._report.zone_missing = self._clock.naive and not self._zone_given
        return self._report

    def _read(self, source: Path | Readable, options: SacctOptions) -> Iterator[LoggedAllocation]:
        report = self._report
        with ExitStack() as stack:
            if isinstance(source, Path):
                try:
                    source = stack.enter_context(source.open("rb"))
                except OSError as error:
                    raise InputError(
                        f"{report.source}: cannot be read: {error.strerror}; name a file that "
                        "holds the output of sacct"
                    ) from None
            stream = _HeadedFile(source, report)
            if stream.head.startswith(GZIP):
                # GzipFile reads its file and does nothing else with it.
                stream = _HeadedFile(gzip.GzipFile(fileobj=cast("IO[bytes]", stream)), report)
            if stream.head.startswith(_BOM):
                stream.read(len(_BOM))
            if b"\0" in stream.head:
                raise InputError(
                    f"{report.source}: a binary file (or UTF-16 text); expected the text or JSON "
                    "that sacct writes, as it is or compressed with gzip"
                )
            if stream.head.removeprefix(_BOM).lstrip()[:1] in (b"{", b"["):
                report.form = SacctFormat.JSON
                yield from read_json(stream.read, report)
            else:
                yield from read_text(
                    stream.read, report, self._clock, options.fields, options.delimiter
                )
        report.complete = True


class _HeadedFile:
    """Bytes whose first ones are known; what goes wrong in reading them is an InputError."""

    def __init__(self, source: Readable, report: ReadReport) -> None:
        self._source = source
        self._report = report
        self.head = b""
        while len(self.head) < CHUNK and (more := self._next(CHUNK - len(self.head))):
            self.head += more
        self._pending = self.head

    def read(self, size: int = -1, /) -> bytes:
        """Return up to so many of the next bytes, none at the end."""
        if not self._pending:
            return self._next(size)
        if size < 0:
            size = len(self._pending)
        found, self._pending = self._pending[:size], self._pending[size:]
        return found

    def _next(self, size: int) -> bytes:
        report = self._report
        with readable(report.source, lambda: f"{report.form} {report.lines}"):
            return self._source.read(size)


def read_sacct(
    source: Path | Readable,
    options: SacctOptions | None = None,
    on_unusable: Callable[[Unusable], None] | None = None,
) -> SacctLog:
    """Read what sacct wrote: text or JSON, as it is or compressed with gzip.

    Args:
        source: A file, or a stream of bytes, which is left open.
        options: What the log does not tell by itself.
        on_unusable: Called with each line that cannot be used, as it is met.

    Returns:
        An iterator of allocations with a report. It raises InputError when the log cannot be read
        at all, or no further.
    """
    name = source if isinstance(source, Path) else getattr(source, "name", "the log")
    return SacctLog(source, options or SacctOptions(), ReadReport(str(name), on_unusable))
