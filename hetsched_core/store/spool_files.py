"""Spool files, followed from call to call (docs/formats/spool.md).

A spool file lies in a folder of the user whose job writes it. So it may be a link, a pipe or
somebody else's, may shrink, never end a line or grow without end; none of it may stop the reader,
keep it long, or make it read what the user could not have written.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hetsched_core.records.spool import (
    MAX_FILE_BYTES,
    MAX_LINE_BYTES,
    Reject,
    Rejection,
    SpoolLine,
    SpoolName,
    SpoolStart,
    SpoolValidator,
)
from hetsched_core.store.records import ProfileKey
from hetsched_core.types import Node

MOST_LINES = 2_000
"""Most lines taken from a file in one call; the others wait for the next."""

_MOST_BYTES = 1 << 20
_TAIL_BYTES = 4 * MAX_LINE_BYTES


@dataclass(frozen=True, slots=True)
class SpoolRun:
    """What the scheduler knows of a run, to hold against what its spool files say.

    Attributes:
        uid: the user whose job it is, and who must own the files.
        nonce: what the job was given when it was submitted.
        profile: to whose profile its measurements go; None if they count for none.
        pieces: the nodes it holds, with the number of GPUs on each.
    """

    uid: int
    nonce: str
    profile: ProfileKey | None
    pieces: tuple[tuple[Node, int], ...]

    @property
    def gpus(self) -> int:
        """Number of GPUs over all nodes."""
        return sum(gpus for _, gpus in self.pieces)

    @property
    def gpu_type(self) -> str | None:
        """The type of all its GPUs; None if they are of several."""
        types = {node.gpu_type for node, _ in self.pieces}
        return types.pop() if len(types) == 1 else None

    def gpu_type_on(self, host: str) -> str | None:
        """Return the type of its GPUs on a host; None if they are of several, or none are there."""
        types = {node.gpu_type for node, _ in self.pieces if node.host == host}
        return types.pop() if len(types) == 1 else None


class FileReject(StrEnum):
    """Why a file is not read at all, or no further."""

    NAME = "not the name of a spool file"
    UNKNOWN_RUN = "no such run"
    NOT_A_FILE = "link, pipe or folder"
    OWNER = "wrong owner"
    SHRUNK = "file has shrunk"
    UNREADABLE = "cannot be read"


class FileRejectedError(Exception):
    """A file is refused as a whole; `uid` owns it, -1 where nobody can tell."""

    def __init__(self, reason: FileReject, uid: int) -> None:
        """Hold the reason."""
        super().__init__(reason.value)
        self.reason = reason
        self.uid = uid


class SpoolFile:
    """The lines of one spool file, those taken in earlier left out.

    What earlier lines said is known to the check of later ones from the start line and from the
    last 16 KiB before `position`, so that a file is not read anew after a restart.

    Attributes:
        position: the bytes that have been taken in.
        gpu_type: of the GPU that the file's writer has; None where that is not known.
        speaks_for: the GPU type whose speed the file tells. None if there are several, for a speed
            over them says little about any; and for ranks other than 0, which say it once more.
    """

    def __init__(self, path: Path, name: SpoolName, run: SpoolRun, position: int) -> None:
        """Follow a file of which the first `position` bytes have been taken in."""
        self.path = path
        self.name = name
        self.run = run
        self.position = position
        self.gpu_type = run.gpu_type
        self.speaks_for = run.gpu_type if name.rank == 0 else None
        self._validator: SpoolValidator | None = None
        self._in_long_line = False

    def read(self) -> list[SpoolLine | Rejection]:
        """Return the lines that were completed since the last call, and move `position` on.

        Raises:
            FileRejectedError: the file must not be read.
        """
        seen = self._look()
        if seen == self.position or self.position > MAX_FILE_BYTES:
            return []
        if seen < self.position:
            raise FileRejectedError(FileReject.SHRUNK, self.run.uid)
        descriptor = self._open()
        try:
            if self._validator is None:
                self._validator = self._resumed(descriptor)
            size = min(_MOST_BYTES, MAX_FILE_BYTES - self.position)
            data = os.pread(descriptor, size, self.position)
            end = self.position + len(data)
        except OSError:
            raise FileRejectedError(FileReject.UNREADABLE, self.run.uid) from None
        finally:
            os.close(descriptor)
        lines = [self._take(text) for text in self._complete_lines(data)]
        if not lines and end == MAX_FILE_BYTES < seen:
            self.position = MAX_FILE_BYTES + 1
            lines = [Rejection(Reject.FILE_TOO_LONG, f"over {MAX_FILE_BYTES} bytes")]
        return lines

    def _take(self, text: bytes) -> SpoolLine | Rejection:
        assert self._validator is not None
        line = self._validator.take(text)
        if isinstance(line, SpoolStart):
            self._begin(line)
        return line

    def _begin(self, start: SpoolStart) -> None:
        if self.gpu_type is None:
            self.gpu_type = self.run.gpu_type_on(start.host)

    def _complete_lines(self, data: bytes) -> list[bytes]:
        *lines, rest = data.split(b"\n", MOST_LINES)
        self.position += len(data) - len(rest)
        if lines and self._in_long_line:
            del lines[0]
            self._in_long_line = False
        if len(rest) > MAX_LINE_BYTES and b"\n" not in rest:
            self.position += len(rest)
            if not self._in_long_line:
                lines.append(rest)
            self._in_long_line = True
        return lines

    def _look(self) -> int:
        """Return the size of the file, if it may be read."""
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            return 0  # not yet there, or no more
        except OSError:
            raise FileRejectedError(FileReject.UNREADABLE, self.run.uid) from None
        return self._checked(found)

    def _checked(self, found: os.stat_result) -> int:
        if not stat.S_ISREG(found.st_mode):
            raise FileRejectedError(FileReject.NOT_A_FILE, found.st_uid)
        if found.st_uid != self.run.uid:
            raise FileRejectedError(FileReject.OWNER, found.st_uid)
        return found.st_size

    def _open(self) -> int:
        """Open the file: neither it nor its folder may be a link, and it is looked at again."""
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            folder = os.open(self.path.parent, flags | os.O_DIRECTORY)
            try:
                descriptor = os.open(self.path.name, flags, dir_fd=folder)
            finally:
                os.close(folder)
        except OSError as error:
            linked = error.errno in (errno.ELOOP, errno.ENOTDIR)
            reason = FileReject.NOT_A_FILE if linked else FileReject.UNREADABLE
            raise FileRejectedError(reason, self.run.uid) from None
        try:
            self._checked(os.fstat(descriptor))
        except FileRejectedError:
            os.close(descriptor)
            raise
        return descriptor

    def _resumed(self, descriptor: int) -> SpoolValidator:
        """Return a validator that knows what was said up to `position`."""
        validator = SpoolValidator(self.name, self.run.nonce)
        if self.position == 0:
            return validator
        first, newline, _ = os.pread(descriptor, MAX_LINE_BYTES + 1, 0).partition(b"\n")
        line = validator.take(first)
        if isinstance(line, SpoolStart):
            self._begin(line)
        after_first = len(first) + len(newline)
        begin = max(after_first, self.position - _TAIL_BYTES)
        tail = os.pread(descriptor, max(0, self.position - begin), begin)
        *lines, rest = tail.split(b"\n")
        self._in_long_line = bool(rest) or self.position < after_first
        for text in lines[begin > after_first :]:
            validator.take(text)
        return validator
