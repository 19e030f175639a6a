"""One DuckDB file: who may open it, transactions, and what its failures mean.

DuckDB's lock on the file decides who holds it, and the lock itself names the process: no second
file that could be left behind or be wrong. POSIX drops a process's locks when it closes *any*
descriptor of the file, so nothing here opens it but DuckDB.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, get_args, get_type_hints
from weakref import WeakValueDictionary

import duckdb
import numpy as np
from numpy.typing import NDArray

from hetsched_core.store.errors import (
    NotAStoreError,
    StoreDamagedError,
    StoreError,
    StoreHeldError,
    StoreVersionError,
    StoreWriteError,
)

Columns = Mapping[str, NDArray[Any]]
"""Columns of equal length by name; texts are of dtype object."""

CHECKPOINT_BYTES = 16 << 20
"""A write-ahead log of this size is merged into the file before more is written."""

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    # One thread: sums are then taken in the same order every time.
    "threads": 1,
    "memory_limit": "512MB",
    # A commit that had to do more than append to the log could fail after it took effect.
    "checkpoint_threshold": "1TB",
    # A foreign file must not make the process fetch code from the network.
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}

_HELD = re.compile(r"[Cc]onflicting lock is held|Could not set lock")
_HOLDER = re.compile(r"\(PID (\d+)\)")
_FULL = re.compile(
    r"No space left|File too large|quota exceeded|Could not (?:write|fsync|truncate)"
)
_NEWER = re.compile(r"storage version|file with version number|newer version", re.IGNORECASE)
_FOREIGN = re.compile(r"not a valid DuckDB database|extension")
_NO_ACCESS = re.compile(r"Permission denied|Read-only file system|Is a directory|No such file")
_SQLITE = re.compile(r"sqlite", re.IGNORECASE)


MEMORY = ":memory:"
"""DuckDB's name for a database that is no file."""

_open: WeakValueDictionary[str, Database] = WeakValueDictionary()


class Mode(StrEnum):
    """What a store is opened for."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class _Mark:
    """How a file was left: which it is, its bytes, and when it was written to last."""

    file: tuple[int, int]
    size: int
    written_ns: int

    def follows(self, before: _Mark) -> bool:
        """Whether a file that was only appended to can be so."""
        return self.file == before.file and self.size >= before.size


def _mark(path: Path) -> _Mark | None:
    """Return how a file is now; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return _Mark((found.st_dev, found.st_ino), found.st_size, found.st_mtime_ns)


class Database:
    """An open DuckDB file; one thread of one process uses it, others read `aside`."""

    def __init__(self, path: Path, mode: Mode) -> None:
        """Open a file that exists.

        Raises:
            StoreError: it cannot be opened; the subclass says why.
        """
        self.path = path
        self.mode = mode
        # To DuckDB's lock the process is one; two writers in it would take the same lines in twice.
        self._busy = threading.RLock()
        self._reading = threading.Lock()
        self._frozen = 0
        name = str(path.resolve())
        if name in _open and path.name != MEMORY:
            raise StoreHeldError(f"{path} is open in this very process; close it there first")
        self._lost = self._damaged = False
        self._touched: Path | None = None
        self._connection = self._connect()
        _open[name] = self
        self.unread_log = self._set_unread_log_aside()
        self._left = self._marks()

    def _set_unread_log_aside(self) -> Path | None:
        """Return the write-ahead log if nothing of it was taken in; DuckDB would write over it.

        Such a log is what a killed writer began, or what it had already merged, or it is damaged
        at its start: they cannot be told apart.
        """
        log = self._log
        if not log.is_file() or log.stat().st_size == 0:
            return None
        query = "SELECT bool_or(wal_size <> '0 bytes') FROM pragma_database_size()"
        if self._connection.execute(query).fetchall() == [(True,)]:
            return None
        if self.mode is Mode.READ:
            return log
        aside = free_name(log, "unread")
        try:
            return log.rename(aside)
        except OSError as error:
            self.close()
            raise StoreError(
                f"nothing of {log} could be taken in, and it cannot be renamed to {aside.name}: "
                f"{error.strerror}; move it away"
            ) from None

    @property
    def _log(self) -> Path:
        return self.path.with_name(self.path.name + ".wal")

    def _marks(self) -> tuple[_Mark | None, _Mark | None]:
        return _mark(self.path), _mark(self._log)

    @property
    def touched(self) -> Path | None:
        """What another process has written to, the file or its log; None for neither.

        Nothing but DuckDB may open the file, and a lock keeps nobody away who does not ask for it:
        that it is not as it was left is all that can be seen. A log that is gone counts, too; a
        file that is gone or replaced does not.
        """
        with self._busy:
            (file, log), (left, left_log) = self._marks(), self._left
            if file is not None and left is not None and file.file == left.file and file != left:
                self._touched = self.path
            elif log != left_log and self._touched is None:
                self._touched = self._log
            return self._touched

    def _leave(self) -> None:
        """Remember how a transaction leaves the log; into the file only a checkpoint writes.

        One that is longer than a row group does, too. It is then read back where it need not be.
        """
        file, before = self._left
        log = _mark(self._log)
        if before is None or (log is not None and log.follows(before)):
            self._left = file, log

    def _disconnect(self) -> None:
        """Close the connection; what is damaged is not written into as well."""
        if self._damaged or self.touched == self.path:
            with contextlib.suppress(duckdb.Error):
                self._connection.execute("PRAGMA disable_checkpoint_on_shutdown")
        self._connection.close()
        self._left = self._marks()

    def close(self) -> None:
        """Close the file once nobody reads `aside`; a second time does nothing."""
        # With a reader left, DuckDB would give whoever opens this path next the same old file.
        with self._reading:
            try:
                self._disconnect()
            finally:
                _open.pop(str(self.path.resolve()), None)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Do everything in the block, or nothing of it.

        Raises:
            StoreWriteError: the disk is full; nothing was kept, and the same may be tried again.
            StoreError: the file cannot be read or written.
        """
        with self._busy:
            if self._lost:
                self._reopen()
            if self.touched != self.path and self.mode is Mode.WRITE:
                self._checkpoint_when_due()
            try:
                self._connection.begin()
                yield Transaction(self._connection)
                self._connection.commit()
            except duckdb.Error as error:
                failure = meaning(error, self.path)
                self._damaged |= isinstance(failure, StoreDamagedError)
                self._abandon(error)
                if failure is None:
                    raise
                raise failure from error
            except BaseException as error:
                self._abandon(error)
                raise
            finally:
                self._leave()

    @contextlib.contextmanager
    def aside(self) -> Iterator[Transaction]:
        """Read in another thread, what is committed, while the first one goes on.

        One at a time.

        Raises:
            StoreError: the file cannot be read, or is closed.
        """
        with self._reading:
            connection = self._reading_cursor()
            try:
                connection.begin()
                yield Transaction(connection)
                connection.rollback()
            except duckdb.Error as error:
                failure = meaning(error, self.path)
                if failure is None:
                    raise
                raise failure from error
            finally:
                connection.close()
                self.unfreeze()

    def _reading_cursor(self) -> duckdb.DuckDBPyConnection:
        with self._busy:
            try:
                connection = self._connection.cursor()
            except duckdb.ConnectionException:
                raise StoreError(f"{self.path} is closed just now; ask again") from None
            self._frozen += 1
            return connection

    def freeze(self) -> tuple[int, int]:
        """Let others copy the file: nothing but the end of its log changes until `unfreeze`.

        Returns:
            The bytes of the file, and those of the write-ahead log that belong to it by now.
        """
        with self._busy:
            self._frozen += 1
            log = self._log
            return self.path.stat().st_size, log.stat().st_size if log.is_file() else 0

    def unfreeze(self) -> None:
        """Let the file change again, once everybody who has frozen it has said so."""
        with self._busy:
            self._frozen -= 1

    def keep_a_copy(self, ending: str) -> Path:
        """Copy all that is in the file to one beside it, of its name and this ending, and a number.

        Who may read the file may read the copy. Nobody may read `aside` meanwhile.

        Raises:
            StoreWriteError: there is no room for it, or the folder may not be written to.
            StoreError: the file cannot be read, or another process has it by now.
        """
        self.checkpoint()
        copy = free_name(self.path, ending)
        part = copy.with_name(f"{copy.name}.part")
        try:
            part.unlink(missing_ok=True)
            with self.path.open("rb") as file, open(part, "xb", opener=_for_its_owner) as taken:
                shutil.copyfileobj(file, taken)
                os.fchmod(taken.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode))
                os.fsync(taken.fileno())
            part.rename(copy)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink()
            raise StoreWriteError(
                f"{copy} cannot be written: {error.strerror}; nothing was changed: make room for "
                f"a copy of {self.path.name}, then try again"
            ) from None
        finally:
            # To close the file has given up DuckDB's lock on it.
            self._reopen()
        return copy

    def _connect(self) -> duckdb.DuckDBPyConnection:
        try:
            return duckdb.connect(
                self.path, read_only=self.mode is Mode.READ, config=dict(_SETTINGS)
            )
        except duckdb.Error as error:
            raise meaning(error, self.path) or StoreError(
                f"{self.path} cannot be opened: {_first_line(error)}"
            ) from error

    def _abandon(self, error: BaseException) -> None:
        # A failed commit has already rolled back.
        with contextlib.suppress(duckdb.Error):
            self._connection.rollback()
        if isinstance(error, duckdb.FatalException):
            self._reopen()

    def _reopen(self) -> None:
        """After a fatal error DuckDB answers nothing more; the file itself is as last committed.

        Where it cannot be opened again, the next transaction tries once more.
        """
        self._lost = True
        with contextlib.suppress(duckdb.Error):
            self._disconnect()
        self._connection = self._connect()
        self._left = self._marks()
        self._lost = False

    def checkpoint(self) -> None:
        """Merge the write-ahead log into the file.

        Raises:
            StoreWriteError: the disk is full; the log is still what it was.
            StoreError: the file cannot be read or written.
        """
        with self._busy:
            try:
                self._connection.execute("CHECKPOINT")
            except duckdb.Error as error:
                self._reopen()
                failure = meaning(error, self.path)
                if failure is None:
                    raise
                raise failure from error
            self._left, self._touched = self._marks(), None

    def _checkpoint_when_due(self) -> None:
        try:
            due = self._log.stat().st_size >= CHECKPOINT_BYTES
        except OSError:
            # There is none, or the folder may not be entered by now.
            return
        if due and not self._frozen:
            # On a full disk the log may still have room for a little more.
            with contextlib.suppress(StoreWriteError):
                self.checkpoint()


class Transaction:
    """SQL inside one transaction. Rows go in and come out by column."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Speak over a connection on which a transaction has begun."""
        self._connection = connection

    def run(self, sql: str, *parameters: object, **tables: Columns) -> None:
        """Run a statement in which each of `tables` may be named like a table."""
        with self._registered(tables):
            self._connection.execute(sql, list(parameters))

    def columns(self, sql: str, *parameters: object, **tables: Columns) -> Columns:
        """Return the columns of a query, which may name `tables`; NULL is masked, in texts None."""
        with self._registered(tables):
            found: Columns = self._connection.execute(sql, list(parameters)).fetchnumpy()
        return found

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Return the few rows of a query."""
        return self._connection.execute(sql, list(parameters)).fetchall()

    def copy(self, query: str, path: Path, options: str) -> None:
        """Write the rows of a query to a file.

        Raises:
            StoreWriteError: the file cannot be written.
        """
        # A name cannot be a parameter here.
        quoted = str(path).replace("'", "''")
        try:
            self._connection.execute(
                f"COPY ({query}) TO '{quoted}' ({options}, USE_TMP_FILE false)"
            )
        except duckdb.IOException as error:
            raise StoreWriteError(f"{path} cannot be written: {_first_line(error)}") from None

    @contextlib.contextmanager
    def _registered(self, tables: Mapping[str, Columns]) -> Iterator[None]:
        for name, columns in tables.items():
            self._connection.register(name, dict(columns))
        try:
            yield
        finally:
            for name in tables:
                # After a fatal error there is nothing left to take it from.
                with contextlib.suppress(duckdb.Error):
                    self._connection.unregister(name)


def texts(values: Sequence[object]) -> NDArray[np.object_]:
    """Return texts as a column: of dtype object, for DuckDB takes others for an ENUM."""
    column = np.empty(len(values), dtype=np.object_)
    column[:] = values
    return column


def columns_of(types: Mapping[str, type], rows: Iterable[Sequence[object]]) -> Columns:
    """Return rows as columns of these names and types: `str`, `int`, `float` or `bool`.

    None in a column of floats is masked, which stands for NULL.
    """
    cells = list(zip(*rows, strict=True)) or [()] * len(types)
    columns: dict[str, NDArray[Any]] = {}
    for (name, kind), values in zip(types.items(), cells, strict=True):
        if kind is str:
            columns[name] = texts(values)
        elif None in values:
            known = [0.0 if value is None else value for value in values]
            columns[name] = np.ma.MaskedArray(known, [value is None for value in values], kind)
        else:
            columns[name] = np.array(values, dtype=kind)
    return columns


@cache
def types_of(record: type) -> Mapping[str, type]:
    """Return the columns of a table that has those of a record's fields, for `columns_of`."""
    hints = get_type_hints(record)
    # Of a value that may be missing, the type that it has.
    return {
        field.name: next(iter(get_args(hints[field.name])), hints[field.name])
        for field in fields(record)
    }


def meaning(error: duckdb.Error, path: Path) -> StoreError | None:
    """Return what an error of DuckDB says about the file; None if it is an error in our SQL."""
    text = _first_line(error)
    if _HELD.search(text):
        return StoreHeldError(f"{path} is open in {_holder(text)}; ask it, or stop it first")
    if _FULL.search(text):
        return StoreWriteError(
            f"{path} cannot be written ({text}); nothing was changed: make room, then try again"
        )
    # A commit that cannot make the log beside the file fails as a transaction.
    if isinstance(error, duckdb.TransactionException) and _NO_ACCESS.search(text):
        return StoreWriteError(
            f"{path} cannot be written ({text}); nothing was changed: the folder {path.parent} "
            "must be one that you may write to"
        )
    if isinstance(error, duckdb.IOException):
        if _NO_ACCESS.search(text):
            return StoreError(f"{path} cannot be opened: {text}; name a file that you may open")
        if _SQLITE.search(text):
            return NotAStoreError(
                f"{path} is no hetsched store but an SQLite database; name another file"
            )
        if _FOREIGN.search(text):
            return NotAStoreError(f"{path} is no hetsched store: {text}; name another file")
        if _NEWER.search(text):
            return StoreVersionError(
                f"{path} was written by another DuckDB than {duckdb.__version__}: {text}; "
                "update hetsched's environment, or put back a copy of before"
            )
    bare = type(error) is duckdb.Error  # how checksums that do not match are raised
    kinds = (duckdb.IOException, duckdb.FatalException, duckdb.InternalException)
    if bare or isinstance(error, (*kinds, duckdb.SerializationException)):
        return StoreDamagedError(
            f"{path} cannot be read back: {text}; restore a copy, or move the file away to begin "
            "a new one"
        )
    return None


def free_name(path: Path, ending: str) -> Path:
    """Return a name beside a file that nothing has: its own, an ending and a number."""
    names = (path.with_name(f"{path.name}.{ending}-{number}") for number in count(1))
    return next(name for name in names if not name.exists())


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _holder(text: str) -> str:
    """Return in words the process that a lock error names."""
    host = os.uname().nodename
    match = _HOLDER.search(text)
    if match is None:
        return f"another process, perhaps not on {host}"
    pid = int(match[1])
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return f"process {pid}, which is not to be seen on {host}"
    words = raw.rstrip(b"\0").split(b"\0")
    command = " ".join(word.decode("utf-8", "replace") for word in words)
    shown = "".join(c if c.isprintable() else "?" for c in command[:200])
    return f"process {pid} on {host} ({shown})"


def _first_line(error: duckdb.Error) -> str:
    return str(error).partition("\n")[0].rstrip(". ")
