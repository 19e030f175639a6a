"""The daemon's database, without which it goes on: measurements are lost then, and no job is."""

from __future__ import annotations

import glob
import math
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Self

from hetsched_core.store import (
    Mode,
    NotAStoreError,
    Store,
    StoreDamagedError,
    StoreError,
    StoreHeldError,
    StoreWriteError,
)
from slurm_plugin.daemon.spool.moves import user_name

TRY_AGAIN_S = 30.0
"""How long a database that cannot be had is left alone."""

_MODE = 0o600
"""Of the file and all beside it; what is new gets it by the process's umask."""

_SQLITE = b"SQLite format 3\0"

_UNREAD = "nothing of {} could be taken in: a killed writer left it, or it is damaged"


class DaemonDatabase:
    """Opens the store, and opens another one when it is deleted or turns out to be damaged.

    Attributes:
        store: what is in use; None while there is none to be had.
    """

    def __init__(self, path: Path) -> None:
        """Open nothing yet."""
        self._path = path
        self.store: Store | None = None
        self._identity: tuple[int, int] | None = None
        self._seen = (0, 0)
        self._tried_s = -math.inf
        self._said = ""

    def open(self, now: float) -> tuple[str, ...]:
        """Open the store at the start; return what is wrong with it, if it can be done without.

        Raises:
            StoreError: an admin has to decide: it was written by another version, is some other
                program's, or cannot be reached by this user.
        """
        return tuple(self._open(now))

    def check(self, now: float, failure: StoreError | None) -> tuple[str, ...]:
        """See whether there is a store; return what has happened to it, for the log.

        Args:
            now: seconds UTC.
            failure: what the store has said last, if that was an error.
        """
        if self.store is None:
            waits = 0.0 <= now - self._tried_s < TRY_AGAIN_S
            return () if waits else self._without_failing(self._again(now))
        if self._identity != _identity(self._path):
            self._let_go()
            words = f"{self._path} was deleted or replaced: {_ANEW}"
            return (words, *self._without_failing(self._open(now)))
        touched = self.store.touched
        if touched == self._path:
            self._let_go()
            return self._without_failing(self._looked_through(now))
        if isinstance(failure, StoreDamagedError):
            self._let_go()
            return self._without_failing(self._begin_anew(now, failure))
        said = () if touched is None else self._log_anew(self.store, touched)
        return (*said, *self._its_own())

    def __enter__(self) -> Self:
        """Return the database."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the store."""
        self._let_go()

    def _let_go(self) -> None:
        store, self.store = self.store, None
        if store is not None:
            # What cannot be written any more must not end the daemon.
            with suppress(Exception):
                store.close()

    def _without_failing(self, opening: Iterator[str]) -> tuple[str, ...]:
        try:
            said = tuple(opening)
        except (StoreError, OSError) as error:
            said = (f"{error}: {_WITHOUT}",)
        # The same trouble is told once, not every half minute.
        before, self._said = self._said, said[-1] if self.store is None else ""
        return tuple(words for words in said if words != before)

    def _open(self, now: float) -> Iterator[str]:
        self._tried_s = now
        yield from self._kept_from_others()
        try:
            self.store = Store.open(self._path, Mode.WRITE)
        except (StoreDamagedError, NotAStoreError) as error:
            if _begins_with(self._path, _SQLITE):
                raise
            yield from self._begin_anew(now, error)
            return
        except (StoreHeldError, StoreWriteError) as error:
            yield f"{error}: {_WITHOUT}"
            return
        with suppress(OSError):
            self._path.chmod(_MODE)
        self._identity, self._seen = _identity(self._path), _owner_and_mode(self._path)
        if self.store.unread_log:
            yield _UNREAD.format(self.store.unread_log)
        if self.store.kept:
            yield (
                f"{self._path} was carried forward to the schema of this hetsched; as it was it is "
                f"kept as {self.store.kept.name}, for the way back"
            )

    def _again(self, now: float) -> Iterator[str]:
        yield from self._open(now)
        if self.store is not None:
            yield f"{self._path} is in use from now on"

    def _looked_through(self, now: float) -> Iterator[str]:
        """Open a file that another process has written to, and read all of it."""
        words = f"{self._path} was written to by another process"
        before = self._identity
        opened = tuple(self._open(now))
        if self.store is not None and self._identity == before:
            try:
                wrong = self.store.faults()
            except StoreError as error:
                wrong = (str(error),)
            if not wrong:
                yield f"{words}; it is whole, and is gone on with"
                yield from opened
                return
            self._let_go()
            damaged = StoreDamagedError(f"{self._path} does not hold together: {wrong[0]}")
            opened = tuple(self._begin_anew(now, damaged))
        yield words
        yield from opened

    def _log_anew(self, store: Store, log: Path) -> tuple[str, ...]:
        """Put all that is in memory into the file: the log would not bring it back."""
        try:
            store.checkpoint()
        except StoreError:
            # It is tried again; what is wrong is said when something is to be recorded.
            return ()
        words = f"{log} was written to or deleted by another process"
        return (f"{words}; nothing is lost: all of it is in {self._path.name} now",)

    def _its_own(self) -> tuple[str, ...]:
        """See that the file is the daemon's to open again, and nobody else's to read."""
        before, self._seen = self._seen, _owner_and_mode(self._path)
        if self._seen == before:
            return ()
        uid, mode = self._seen
        try:
            self._path.chmod(_MODE)
        except FileNotFoundError:
            return ()  # the next look sees that
        except OSError:
            words = f"{self._path} belongs to {user_name(uid)} by now, with mode {mode:04o}"
            back = f"chown {user_name(os.geteuid())} {self._path}"
            return (f"{words}: the daemon could not open it again; give it back: {back}",)
        self._seen = uid, _MODE
        if uid != os.geteuid():
            # Root's daemon alone comes here, and can open it again all the same.
            words = f"{self._path} belongs to {user_name(uid)} by now, who may read all of it"
            back = f"chown {user_name(os.geteuid())} {self._path}"
            return (f"{words}; it has mode {_MODE:04o}; give it back: {back}",)
        had = "was another user's" if before[0] != uid else f"had mode {mode:04o}"
        return (f"{self._path} {had}; it is the daemon's alone again, {_MODE:04o}",)

    def _kept_from_others(self) -> Iterator[str]:
        """Let nobody else read what is there already: it tells of all users."""
        for each in self._path.parent.glob(f"{glob.escape(self._path.name)}*"):
            with suppress(OSError):
                found = each.lstat()
                if not stat.S_ISREG(found.st_mode):
                    continue
                # What others have put there may be anything, say another name of a file of root's.
                if found.st_uid == os.geteuid():
                    each.chmod(_MODE)
                elif found.st_mode & 0o077:
                    yield (
                        f"{each} belongs to {user_name(found.st_uid)}, and others may read it: "
                        f"chown {user_name(os.geteuid())} {each}, or remove it"
                    )

    def _begin_anew(self, now: float, error: StoreError) -> Iterator[str]:
        self._tried_s = now
        aside = self._set_aside()
        yield f"{error}: it was set aside as {aside.name}, and {_ANEW}"
        yield from self._open(now)

    def _set_aside(self) -> Path:
        """Rename a file that cannot be read back, and its log, so that nobody loses them.

        Raises:
            StoreError: that cannot be done.
        """
        names = (self._path.with_name(f"{self._path.name}.damaged-{number}") for number in count(1))
        aside = next(name for name in names if not name.exists())
        log = self._path.with_name(self._path.name + ".wal")
        try:
            self._path.rename(aside)
            with suppress(FileNotFoundError):
                log.rename(aside.with_name(aside.name + ".wal"))
        except OSError as error:
            raise StoreError(
                f"{self._path} cannot be read back, nor renamed: {error.strerror}"
            ) from None
        return aside


_ANEW = "a new one is begun, and speeds are estimated until they are measured again"
_WITHOUT = "nothing is recorded or measured until it can be opened"


def _owner_and_mode(path: Path) -> tuple[int, int]:
    """Return whose a file is, and who may read it; zeros for none."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_uid, stat.S_IMODE(found.st_mode)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return which file a name stands for; None for none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _begins_with(path: Path, magic: bytes) -> bool:
    # Nothing but DuckDB may open a file that it has open; this one it could not.
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            return os.read(descriptor, len(magic)) == magic
        finally:
            os.close(descriptor)
    return False
