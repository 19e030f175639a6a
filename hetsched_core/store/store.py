"""The throughput database of Hops (SoCC '24), section 3.3; docs/formats/store.md has its tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from hetsched_core.store import (
    check,
    following,
    gpus,
    jobs,
    journal,
    names,
    speeds,
    summary,
    theory,
    transfer,
)
from hetsched_core.store.database import MEMORY, Database, Mode, Transaction
from hetsched_core.store.errors import StoreError
from hetsched_core.store.following import FollowedRun, JobProgress
from hetsched_core.store.ingest import Ingested, RunKey, SpoolIngest
from hetsched_core.store.jobs import JobEvent, StoredJob, StoredRange
from hetsched_core.store.layers import StoredLayers, read_layers
from hetsched_core.store.migrations import create, migrate, migrations, require_newest
from hetsched_core.store.records import (
    BandwidthMeasurement,
    BasicTimes,
    DataTimes,
    Decision,
    Measurement,
    ProfileKey,
    StoredRun,
)
from hetsched_core.store.spool_files import SpoolRun
from hetsched_core.store.summary import ProfileSummary, Summary
from hetsched_core.store.transfer import Format, StoredSpeed
from hetsched_core.throughput.gpus import GpuSpec
from hetsched_core.throughput.iteration import Bandwidths

IN_MEMORY = Path(MEMORY)
"""Path of a store that is gone when it is closed."""


class Store:
    """An open store. One process writes it or several read it; one thread uses it.

    Other threads may use `history_of`, `lend` and `give_back`.

    Each method is one transaction: it happens as a whole or, if it raises, not at all. All may
    raise `StoreError`; with `StoreWriteError` the disk is full and the call may be repeated.
    """

    def __init__(self, database: Database) -> None:
        """Use an open database that has the newest schema; see `open`."""
        self._database = database
        self._spool = SpoolIngest()

    @classmethod
    def open(cls, path: Path, mode: Mode = Mode.READ) -> Self:
        """Open a store; for writing, it is made if it is not there.

        Raises:
            StoreError: it cannot be opened, and the subclass says why: held by another process,
                damaged, newer than this program, or no store at all.
        """
        scripts = migrations()
        if path != IN_MEMORY:
            _make_ready(path, mode, scripts)
        database = Database(path, mode)
        try:
            with database.transaction() as transaction:
                if path == IN_MEMORY:
                    create(transaction)
                if mode is Mode.WRITE:
                    migrate(transaction, path, scripts)
                else:
                    require_newest(transaction, path, scripts)
        except BaseException:
            database.close()
            raise
        return cls(database)

    def close(self) -> None:
        """Close the store; a second time does nothing."""
        self._database.close()

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the store."""
        self.close()

    @property
    def path(self) -> Path:
        """The file."""
        return self._database.path

    @property
    def touched(self) -> Path | None:
        """The file, or its log, that another process has written to meanwhile; None for neither."""
        return self._database.touched

    def checkpoint(self) -> None:
        """Merge the write-ahead log into the file, which goes by itself when the log is long."""
        self._database.checkpoint()

    @property
    def unread_log(self) -> Path | None:
        """The write-ahead log if nothing of it could be taken in; a writer has set it aside."""
        return self._database.unread_log

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Do several things as one, in SQL; the tables are those of docs/formats/store.md."""
        with self._database.transaction() as transaction:
            yield transaction

    # Measurements ---------------------------------------------------------------------------------

    def record(self, measurements: Sequence[Measurement]) -> None:
        """Merge measured speeds into the entity layer, and so into the type layer."""
        with self._database.transaction() as transaction:
            speeds.record_speeds(transaction, measurements)

    def record_basic_times(self, times: Sequence[BasicTimes]) -> None:
        """Merge profiled times into the theoretical layer.

        What has another batch size, model or pattern than before replaces what was there.
        """
        with self._database.transaction() as transaction:
            theory.record_basic_times(transaction, times)

    def record_data_times(self, times: Sequence[DataTimes]) -> None:
        """Merge times of loading and waiting into the theoretical layer, and fit their modes."""
        with self._database.transaction() as transaction:
            theory.record_data_times(transaction, times)

    def record_bandwidths(self, measurements: Sequence[BandwidthMeasurement]) -> None:
        """Merge measured bandwidths of GPU types."""
        with self._database.transaction() as transaction:
            gpus.record_bandwidths(transaction, measurements)

    def record_gpu_specs(self, specs: Sequence[GpuSpec]) -> None:
        """Keep published rates of GPU types; those that are there already are replaced."""
        with self._database.transaction() as transaction:
            gpus.record_gpu_specs(transaction, specs)

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
            with self._database.transaction() as transaction:
                return self._spool.ingest(transaction, paths, runs, now_s)
        except BaseException:
            # What was read is not recorded: it must be read again.
            self._spool.forget()
            raise

    def follow(self, runs: Sequence[FollowedRun]) -> None:
        """Note runs whose spool files are to be read, for whoever goes on after this process."""
        with self._database.transaction() as transaction:
            following.follow(transaction, runs)

    def followed(self) -> tuple[FollowedRun, ...]:
        """Return the runs whose spool files are to be read, the earliest first."""
        with self._database.transaction() as transaction:
            return following.followed(transaction)

    def unfollow(self, runs: Sequence[FollowedRun], left: Iterable[str] = ()) -> None:
        """Note that nothing more is read of runs; the progress of jobs that left is forgotten.

        Args:
            runs: runs that are over.
            left: nonces of jobs.
        """
        with self._database.transaction() as transaction:
            following.unfollow(transaction, runs, left)

    def remember(self, documents: Mapping[str, str], left: Iterable[str] = ()) -> None:
        """Keep what jobs asked for when they were first seen, for the next daemon.

        Args:
            documents: job id -> JSON.
            left: jobs that are gone.
        """
        with self._database.transaction() as transaction:
            following.remember(transaction, documents, left)

    def remembered(self) -> dict[str, str]:
        """Return what is kept of jobs: job id -> JSON."""
        with self._database.transaction() as transaction:
            return following.remembered(transaction)

    def progress(self) -> dict[str, JobProgress]:
        """Return how far each job has come, by nonce, as its spool files said."""
        with self._database.transaction() as transaction:
            return following.read_progress(transaction)

    # What is known --------------------------------------------------------------------------------

    def layers(self, profiles: Sequence[ProfileKey], gpu_types: Sequence[str]) -> StoredLayers:
        """Return all three layers of every pair of these profiles and GPU types."""
        with self._database.transaction() as transaction:
            return read_layers(transaction, profiles, gpu_types)

    def bandwidths(self, gpu_types: Sequence[str]) -> tuple[Bandwidths, ...]:
        """Return the measured bandwidths of each GPU type, NaN where there is none."""
        with self._database.transaction() as transaction:
            return gpus.read_bandwidths(transaction, gpu_types)

    def gpu_specs(self) -> tuple[GpuSpec, ...]:
        """Return the published rates that are kept, by name."""
        with self._database.transaction() as transaction:
            return gpus.read_gpu_specs(transaction)

    def publish(self, profile: ProfileKey) -> None:
        """Let everybody read a profile.

        Raises:
            InputError: there is no such profile, or another one of this name is published.
        """
        with self._database.transaction() as transaction:
            names.publish(transaction, profile, published=True)

    def withdraw(self, profile: ProfileKey) -> None:
        """Let nobody but its owner read a profile.

        Raises:
            InputError: there is no such profile, or it is the site's.
        """
        with self._database.transaction() as transaction:
            names.publish(transaction, profile, published=False)

    # For other threads, and other processes -------------------------------------------------------

    def history_of(
        self, job: str, most: int = 1000
    ) -> tuple[tuple[StoredJob, ...], tuple[JobEvent, ...], tuple[StoredRange, ...]]:
        """Return `jobs`, `events` and `ranges` of an id; any thread may ask, at any time."""
        with self._database.aside() as transaction:
            return (
                jobs.read_jobs(transaction, job, 0.0, most),
                jobs.read_events(transaction, job, most),
                jobs.read_ranges(transaction, job, most),
            )

    def lend(self) -> tuple[int, int]:
        """Let another process copy the file, which `give_back` ends; any thread may.

        Returns:
            The bytes of the file, and those at the beginning of its log that belong to it by now:
            copies of both are a store as of now. Until `give_back` only the log grows.
        """
        return self._database.lend()

    def give_back(self) -> None:
        """Be done with what was lent."""
        self._database.give_back()

    # What happened --------------------------------------------------------------------------------

    def record_runs(self, runs: Sequence[StoredRun]) -> None:
        """Add runs that ended; one that is there already is replaced."""
        with self._database.transaction() as transaction:
            journal.record_runs(transaction, runs)

    def runs(
        self, job: str | None = None, profile: ProfileKey | None = None, most: int = 1000
    ) -> tuple[StoredRun, ...]:
        """Return the runs that ended last, the latest first: of a job, of a profile, or of all."""
        with self._database.transaction() as transaction:
            return journal.read_runs(transaction, job, profile, most)

    def record_decision(self, decision: Decision) -> int:
        """Add a decision and return its number; numbers grow, whatever the clock does."""
        with self._database.transaction() as transaction:
            return journal.record_decision(transaction, decision)

    def forget_decisions(self, keep: int, most_bytes: int) -> None:
        """Forget the oldest decisions.

        Args:
            keep: how many of the latest may stay.
            most_bytes: how long the documents of those that stay may be, together.
        """
        with self._database.transaction() as transaction:
            journal.forget_decisions(transaction, keep, most_bytes)

    def decisions(self, after: int = 0, most: int = 1000) -> tuple[tuple[int, Decision], ...]:
        """Return decisions with a number above `after`, each with its number, in their order."""
        with self._database.transaction() as transaction:
            return journal.read_decisions(transaction, after, most)

    def sampled_decisions(self, since_s: float, most: int = 50) -> tuple[tuple[int, Decision], ...]:
        """Return at most so many decisions since a time, evenly spread, the latest among them."""
        with self._database.transaction() as transaction:
            return journal.sampled_decisions(transaction, since_s, most)

    def record_history(
        self,
        jobs_: Sequence[StoredJob] = (),
        events: Sequence[JobEvent] = (),
        ranges: Sequence[StoredRange] = (),
        starts: Sequence[tuple[str, str, float]] = (),
    ) -> None:
        """Add what became of jobs, as one.

        Args:
            jobs_: that came or left; one that is there already is replaced.
            events: what happened.
            ranges: that were given for starts.
            starts: nonce, job and true start of jobs that ranges were given for.
        """
        with self._database.transaction() as transaction:
            jobs.record_jobs(transaction, jobs_)
            jobs.record_events(transaction, events)
            jobs.record_ranges(transaction, ranges)
            jobs.record_starts(transaction, starts)

    def jobs(
        self, job: str | None = None, since_s: float = 0.0, most: int = 10_000
    ) -> tuple[StoredJob, ...]:
        """Return jobs in the order of submission, the latest: of an id, still there at a time."""
        with self._database.transaction() as transaction:
            return jobs.read_jobs(transaction, job, since_s, most)

    def events(self, job: str, most: int = 1000) -> tuple[JobEvent, ...]:
        """Return what happened to the jobs of an id, in order, the latest."""
        with self._database.transaction() as transaction:
            return jobs.read_events(transaction, job, most)

    def ranges(self, job: str | None = None, most: int = 1000) -> tuple[StoredRange, ...]:
        """Return the ranges that were given for starts, in order, the latest."""
        with self._database.transaction() as transaction:
            return jobs.read_ranges(transaction, job, most)

    def forget_history(self, keep: int) -> None:
        """Forget the oldest jobs, all but `keep`, and as many events and ranges as belong to it."""
        with self._database.transaction() as transaction:
            jobs.forget(transaction, keep)

    # Tables in and out ----------------------------------------------------------------------------

    def summary(self) -> Summary:
        """Return what the store holds, in figures."""
        with self._database.transaction() as transaction:
            return summary.summary(transaction)

    def profiles(self) -> tuple[ProfileSummary, ...]:
        """Return what is known of each profile on each GPU type, by name, owner and type."""
        with self._database.transaction() as transaction:
            return summary.profiles(transaction)

    def import_speeds(self, rows: Sequence[StoredSpeed]) -> None:
        """Merge rows of another store's table `speed`.

        Raises:
            InputError: rows of a distributed configuration are missing.
        """
        with self._database.transaction() as transaction:
            transfer.import_speeds(transaction, rows)

    def export(self, folder: Path, form: Format) -> tuple[Path, ...]:
        """Write every table to a file of its own in a folder, and return the files.

        Who may not read the store may not read them.
        """
        with self._database.transaction() as transaction:
            return transfer.export(transaction, folder, form, self._readers())

    def _readers(self) -> int:
        """Return the mode with which no more may read a file than may read the store."""
        return 0o666 if self.path == IN_MEMORY else self.path.stat().st_mode & 0o666

    def faults(self) -> tuple[str, ...]:
        """Read every value and return in words what does not hold together."""
        with self._database.transaction() as transaction:
            return check.faults(transaction)


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
