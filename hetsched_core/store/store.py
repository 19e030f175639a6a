"""The throughput database of Hops (SoCC '24), section 3.3; docs/formats/store.md has its tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Self, TypeVar

from hetsched_core.store import (
    following,
    jobs,
    journal,
    layers,
    measurements,
    names,
    summary,
    transfer,
)
from hetsched_core.store.database import MEMORY, Database, Mode, Transaction
from hetsched_core.store.errors import StoreError
from hetsched_core.store.ingest import Ingested, RunKey, SpoolIngest
from hetsched_core.store.jobs import JobEvent, StoredJob, StoredRange
from hetsched_core.store.migrations import (
    KEPT,
    create,
    known_version,
    migrate,
    migrations,
    require_newest,
)
from hetsched_core.store.spool_files import SpoolRun
from hetsched_core.store.transfer import Format

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")

IN_MEMORY = Path(MEMORY)
"""Path of a store that is gone when it is closed."""


def _operation(
    act: Callable[Concatenate[Transaction, _Given], _Found],
) -> Callable[Concatenate[Store, _Given], _Found]:
    """Return a method that does this in a transaction of its own."""

    @wraps(act)
    def method(store: Store, /, *args: _Given.args, **given: _Given.kwargs) -> _Found:
        with store.transaction() as transaction:
            return act(transaction, *args, **given)

    return method


class Store(Database):
    """An open store. One process writes it or several read it; one thread uses it.

    Other threads may use `history_of`, `freeze` and `unfreeze`.

    Each method is one transaction: it happens as a whole or, if it raises, not at all. All may
    raise `StoreError`; with `StoreWriteError` the disk is full and the call may be repeated.
    Several things are done as one, in SQL, in a `transaction`; docs/formats/store.md has its
    tables.

    Attributes:
        kept: the copy of the file as it was before it was carried forward; None if it was not.
    """

    def __init__(self, path: Path, mode: Mode) -> None:
        """Open a file that is there and has the newest schema; see `open`."""
        super().__init__(path, mode)
        self._spool = SpoolIngest()
        self.kept: Path | None = None

    @classmethod
    def open(cls, path: Path, mode: Mode = Mode.READ) -> Self:
        """Open a store; for writing, it is made if it is not there, or carried forward.

        Raises:
            StoreError: it cannot be opened, and the subclass says why: held by another process,
                damaged, newer than this program, or no store at all.
        """
        scripts = migrations()
        try:
            if path != IN_MEMORY:
                _make_ready(path, mode, scripts)
            store = cls(path, mode)
        except OSError as error:
            # Its folder may not be entered, say.
            raise StoreError(f"{path} cannot be opened: {error.strerror}") from None
        try:
            if mode is Mode.WRITE and path != IN_MEMORY:
                store._keep_older(scripts)
            with store.transaction() as transaction:
                if path == IN_MEMORY:
                    create(transaction)
                if mode is Mode.WRITE:
                    migrate(transaction, path, scripts)
                else:
                    require_newest(transaction, path, scripts)
        except BaseException:
            store.close()
            raise
        return store

    def _keep_older(self, scripts: Sequence[str]) -> None:
        """Keep a copy of a file that is to be carried forward: there is no other way back."""
        with self.transaction() as transaction:
            version = known_version(transaction, self.path, scripts)
        if version < len(scripts):
            self.kept = self.keep_a_copy(f"{KEPT}-{version}")

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the store."""
        self.close()

    # Each of these is a transaction; it says at its definition what it takes and returns.

    # One that is named as its module comes last of it.

    record = _operation(measurements.record_speeds)
    record_basic_times = _operation(measurements.record_basic_times)
    record_data_times = _operation(measurements.record_data_times)
    record_bandwidths = _operation(measurements.record_bandwidths)
    bandwidths = _operation(measurements.read_bandwidths)
    layers = _operation(layers.read_layers)
    publish = _operation(names.publish)
    withdraw = _operation(names.withdraw)

    follow = _operation(following.follow)
    followed = _operation(following.followed)
    unfollow = _operation(following.unfollow)
    remember = _operation(following.remember)
    remembered = _operation(following.remembered)
    progress = _operation(following.read_progress)

    record_decision = _operation(journal.record_decision)
    forget_decisions = _operation(journal.forget_decisions)
    decisions = _operation(journal.read_decisions)
    sampled_decisions = _operation(journal.sampled_decisions)
    record_history = _operation(jobs.record_history)
    events = _operation(jobs.read_events)
    ranges = _operation(jobs.read_ranges)
    forget_history = _operation(jobs.forget_history)
    ended_jobs = _operation(jobs.read_ended)
    jobs = _operation(jobs.read_jobs)

    import_speeds = _operation(transfer.import_speeds)
    profiles = _operation(summary.profiles)
    bandwidth_sources = _operation(summary.bandwidth_sources)
    faults = _operation(summary.faults)
    summary = _operation(summary.summary)

    def ingest(
        self, paths: Iterable[Path], runs: Mapping[RunKey, SpoolRun], now_s: float
    ) -> Ingested:
        """Take in what is new in spool files.

        Each line counts once, however often this is called, by whatever process. A line that is not
        ended yet waits. Nothing in a file can make this raise: what is wrong is counted.

        Args:
            paths: the spool files to look at in this call.
            runs: all runs that are followed, by job and run number, in every call; a file of none
                of them is rejected.
            now_s: seconds UTC, taken as the time of what is measured: what a job says is not.
        """
        try:
            with self.transaction() as transaction:
                return self._spool.ingest(transaction, paths, runs, now_s)
        except BaseException:
            # What was read is not recorded: it must be read again.
            self._spool.forget()
            raise

    def export(self, folder: Path, form: Format) -> tuple[Path, ...]:
        """Write every table to a file of its own in a folder, and return the files.

        Who may not read the store may not read them.
        """
        mode = 0o666 if self.path == IN_MEMORY else self.path.stat().st_mode & 0o666
        with self.transaction() as transaction:
            return transfer.export(transaction, folder, form, mode)

    def history_of(
        self, job: str, most: int = 1000
    ) -> tuple[tuple[StoredJob, ...], tuple[JobEvent, ...], tuple[StoredRange, ...]]:
        """Return `jobs`, `events` and `ranges` of an id; any thread may ask, at any time."""
        with self.aside() as transaction:
            return (
                jobs.read_jobs(transaction, job, 0.0, most),
                jobs.read_events(transaction, job, most),
                jobs.read_ranges(transaction, job, most),
            )


def _make_ready(path: Path, mode: Mode, scripts: Sequence[str]) -> None:
    """Make the store if it is to be written and not there; a killed maker leaves no half one."""
    if path.exists():
        return
    if mode is Mode.READ:
        raise StoreError(
            f"{path} does not exist; name a throughput database, or the file that hetschedd has as "
            "its setting 'database'"
        )
    log = path.with_name(path.name + ".wal")
    if log.exists():
        raise StoreError(
            f"{path} is gone, but {log.name} is still there; put the store back, or delete the rest"
        )
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    try:
        _make(part, scripts)
        # Unlike a rename, this never takes the place of what another process just made.
        path.hardlink_to(part)
    except FileExistsError:
        return
    except OSError as error:
        raise StoreError(f"{path} cannot be made: {error.strerror}") from None
    except StoreError as error:
        raise type(error)(str(error).replace(str(part), str(path))) from error
    finally:
        for left in (part, part.with_name(part.name + ".wal")):
            left.unlink(missing_ok=True)


def _make(path: Path, scripts: Sequence[str]) -> None:
    database = Database(path, Mode.WRITE)
    try:
        with database.transaction() as transaction:
            create(transaction)
            migrate(transaction, path, scripts)
        # Closing would do this too, but would not say if it failed; and the log stays behind.
        database.checkpoint()
    finally:
        database.close()
