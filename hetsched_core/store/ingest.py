"""From spool files into the layers."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hetsched_core.errors import InputError
from hetsched_core.records.spool import (
    AllReduce,
    Profile,
    Progress,
    Reject,
    Rejection,
    SpoolLine,
    SpoolName,
)
from hetsched_core.store.database import Columns, Transaction, columns_of
from hetsched_core.store.following import JobProgress, heard
from hetsched_core.store.measurements import (
    record_bandwidths,
    record_basic_times,
    record_data_times,
    record_speeds,
)
from hetsched_core.store.merge import replace
from hetsched_core.store.records import (
    BandwidthMeasurement,
    BandwidthTerm,
    BasicTimes,
    DataTimes,
    Measurement,
    ProfileKey,
)
from hetsched_core.store.spool_files import (
    FileReject,
    FileRejectedError,
    SpoolFile,
    SpoolRun,
)
from hetsched_core.throughput.iteration import Pattern
from hetsched_core.throughput.moments import Moments

RunKey = tuple[str, int]
"""Job id and run number, as in the name of a spool file."""


@dataclass(frozen=True, slots=True)
class RejectedLines:
    """How many lines of a user's files were rejected for one reason, or how many files."""

    uid: int
    reason: Reject | FileReject
    lines: int
    example: str


@dataclass(frozen=True, slots=True)
class Ingested:
    """What one call took in.

    Attributes:
        lines: the accepted lines, each with the file it is from, file by file.
        rejected: what was rejected.
        measurements: how many speeds, profiles, data times and bandwidths went into the layers.
        progress: how far the jobs are of which something new was said.
        bandwidths: GPU types whose bandwidths were measured.
    """

    lines: tuple[tuple[SpoolName, SpoolLine], ...]
    rejected: tuple[RejectedLines, ...]
    measurements: int
    progress: tuple[JobProgress, ...] = ()
    bandwidths: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Batch:
    """What a call has read so far; `site` are the users who speak for the site."""

    site: frozenset[int]
    lines: list[tuple[SpoolName, SpoolLine]] = field(default_factory=list)
    speeds: list[Measurement] = field(default_factory=list)
    basic_times: list[BasicTimes] = field(default_factory=list)
    data_times: list[DataTimes] = field(default_factory=list)
    averaged: dict[tuple[str, RunKey], list[AllReduce]] = field(default_factory=dict)
    rejected: Counter[tuple[int, Reject | FileReject]] = field(default_factory=Counter)
    examples: dict[tuple[int, Reject | FileReject], str] = field(default_factory=dict)
    heard: dict[tuple[str, str, int], list[SpoolLine]] = field(default_factory=dict)

    def reject(self, uid: int, reason: Reject | FileReject, example: str) -> None:
        self.rejected[uid, reason] += 1
        self.examples.setdefault((uid, reason), example)

    def take(self, file: SpoolFile, line: SpoolLine, now_s: float) -> None:
        """Keep a line, and what it measured."""
        run = file.run
        if why := self._odd(file, line):
            self.reject(run.uid, *why)
            return
        if isinstance(line, Profile | Progress | AllReduce):
            try:
                self._measure(file, line, now_s)
            except InputError as error:
                self.reject(run.uid, Reject.OUT_OF_RANGE, f"{file.name}: {error}")
                return
        self.lines.append((file.name, line))
        if file.name.rank == 0:
            who = (run.nonce, file.name.job, file.name.run)
            self.heard.setdefault(who, []).append(line)

    def _odd(self, file: SpoolFile, line: SpoolLine) -> tuple[Reject, str] | None:
        """Return why a line cannot be of this run, or is not its user's to tell; None if it is."""
        run = file.run
        if isinstance(line, AllReduce) and run.uid not in self.site:
            words = "bandwidths are everybody's, and told by jobs of the daemon's user or of root"
            return Reject.NOT_THE_SITE, f"{file.name}: {words}"
        if not isinstance(line, Profile | AllReduce):
            return None
        nodes = len({node.host for node, _ in run.pieces})
        whole = (line.gpus, line.nodes) == (run.gpus, nodes)
        part = isinstance(line, AllReduce) and line.gpus <= run.gpus and line.nodes <= nodes
        if whole or part:
            return None
        words = f"{line.gpus} GPUs on {line.nodes} nodes, where the run has {run.gpus} on {nodes}"
        return Reject.WRONG_IDENTITY, f"{file.name}: {words}"

    def _measure(self, file: SpoolFile, line: Profile | Progress | AllReduce, now_s: float) -> None:
        run, profile = file.run, file.run.profile
        if isinstance(line, AllReduce):
            # What CPUs average, or GPUs of several types, says nothing of any type.
            if line.backend == "nccl" and file.speaks_for is not None:
                _bandwidths(file.speaks_for, [line], now_s)
                key = (file.speaks_for, (file.name.job, file.name.run))
                self.averaged.setdefault(key, []).append(line)
            return
        if profile is None:
            return
        if isinstance(line, Progress) and line.samples_per_s > 0 and file.speaks_for is not None:
            self.speeds.append(_speed(run, profile, file.speaks_for, line, now_s))
        if file.gpu_type is not None:
            if isinstance(line, Profile):
                self.basic_times.append(_basic_times(profile, file.gpu_type, line, now_s))
            if line.data_s:
                times = DataTimes(profile, file.gpu_type, line.data_s, line.wait_s)
                self.data_times.append(times)

    def bandwidths(self, now_s: float) -> list[BandwidthMeasurement]:
        """Return what each run has measured: one value of a term, however many lines it wrote."""
        found = (_bandwidths(kind, lines, now_s) for (kind, _), lines in self.averaged.items())
        return [measured for each in found for measured in each]

    def ingested(self, progress: tuple[JobProgress, ...], bandwidths: int) -> Ingested:
        """Return the result of the call, in which so many bandwidths were recorded."""
        rejected = [
            RejectedLines(uid, reason, lines, self.examples[uid, reason])
            for (uid, reason), lines in sorted(self.rejected.items())
        ]
        pairs = sum(len(times.data_s) for times in self.data_times)
        return Ingested(
            tuple(self.lines),
            tuple(rejected),
            len(self.speeds) + len(self.basic_times) + pairs + bandwidths,
            progress,
            frozenset(gpu_type for gpu_type, _ in self.averaged),
        )


class SpoolIngest:
    """Takes spool files in, each line once, in this process and after it."""

    def __init__(self) -> None:
        """Follow no file yet; root and this process's user speak for the site."""
        self._site = frozenset({0, os.geteuid()})
        self._files: dict[Path, SpoolFile] = {}
        self._counted: set[tuple[Path, FileReject]] = set()

    def ingest(
        self,
        transaction: Transaction,
        paths: Iterable[Path],
        runs: Mapping[RunKey, SpoolRun],
        now_s: float,
    ) -> Ingested:
        """Read on in each file and record what is new, with how far each file was read."""
        batch = _Batch(self._site)
        asked = dict.fromkeys(paths)
        self._counted = {
            (path, why) for path, why in self._counted if path in asked or _goes_on(path, runs)
        }
        files = self._followed(transaction, asked, runs, batch)
        moved = []
        for file in files:
            before = file.position
            try:
                lines = file.read()
            except FileRejectedError as error:
                self._refuse(file.path, error.reason, error.uid, batch)
                continue
            for line in lines:
                if isinstance(line, Rejection):
                    batch.reject(file.run.uid, line.reason, f"{file.name}: {line.detail}")
                else:
                    batch.take(file, line, now_s)
            if file.position > before:
                moved.append(file)
        record_speeds(transaction, batch.speeds)
        record_basic_times(transaction, batch.basic_times)
        record_data_times(transaction, batch.data_times)
        bandwidths = batch.bandwidths(now_s)
        record_bandwidths(transaction, bandwidths)
        _record_positions(transaction, moved)
        _record_rejected(transaction, batch.rejected)
        return batch.ingested(heard(transaction, batch.heard, now_s), len(bandwidths))

    def forget(self) -> None:
        """Begin again from what the store holds: after a failed transaction."""
        self._files.clear()
        self._counted.clear()

    def _followed(
        self,
        transaction: Transaction,
        paths: Iterable[Path],
        runs: Mapping[RunKey, SpoolRun],
        batch: _Batch,
    ) -> list[SpoolFile]:
        """Return the files to read; those of runs that are over and not asked for are let go."""
        asked: dict[Path, SpoolFile] = {}
        new: list[SpoolFile] = []
        for path in paths:
            name = SpoolName.parse(path.name)
            if name is None:
                self._refuse(path, FileReject.NAME, -1, batch)
                continue
            run = runs.get((name.job, name.run))
            if run is None:
                self._refuse(path, FileReject.UNKNOWN_RUN, -1, batch)
                continue
            file = self._files.get(path)
            if file is None or file.run != run:
                file = SpoolFile(path, name, run, 0)
                new.append(file)
            asked[path] = file
        _resume(transaction, new)
        for path, file in list(self._files.items()):
            if (file.name.job, file.name.run) not in runs:
                del self._files[path]
        self._files |= asked
        return list(asked.values())

    def _refuse(self, path: Path, reason: FileReject, uid: int, batch: _Batch) -> None:
        # It may be asked for again and again: it is looked at each time, and counted once.
        if (path, reason) not in self._counted:
            self._counted.add((path, reason))
            batch.reject(uid, reason, ascii(path.name)[:80])


def _goes_on(path: Path, runs: Mapping[RunKey, SpoolRun]) -> bool:
    """Whether a file is one of a run that is known, though perhaps not asked for in this call."""
    name = SpoolName.parse(path.name)
    return name is not None and (name.job, name.run) in runs


def _basic_times(profile: ProfileKey, gpu_type: str, line: Profile, now_s: float) -> BasicTimes:
    # One line is one value, however many iterations it is a mean of: their spread is not in it.
    return BasicTimes(
        profile,
        gpu_type,
        line.batch_size,
        line.parameters,
        Pattern(line.pattern),
        Moments(1, line.forward_s),
        Moments(1, line.backward_s),
        Moments(1, line.update_s),
        now_s,
    )


def _bandwidths(
    gpu_type: str, lines: Iterable[AllReduce], now_s: float
) -> list[BandwidthMeasurement]:
    """Return the bandwidths behind all-reduces, of those terms that were measured.

    Raises:
        InputError: they cannot be.
    """
    # It brings scipy, which takes longer to import than the rest of the store.
    from hetsched_core.throughput.fit import CommunicationTime, fit_bandwidths

    found = fit_bandwidths(
        CommunicationTime(line.parameters, line.gpus, line.nodes, line.seconds) for line in lines
    )
    terms = ((BandwidthTerm.LINK, found.link), (BandwidthTerm.NETWORK, found.network))
    return [
        BandwidthMeasurement(gpu_type, term, Moments(1, value), now_s)
        for term, value in terms
        if not math.isnan(value)
    ]


def _speed(
    run: SpoolRun, profile: ProfileKey, gpu_type: str, line: Progress, now_s: float
) -> Measurement:
    return Measurement(
        profile,
        gpu_type,
        run.gpus,
        len(run.pieces),
        Moments(1, line.samples_per_s / run.gpus),
        now_s,
        tuple(node.name for node, _ in run.pieces),
    )


_FILE = {"uid": int, "nonce": str, "job": str, "run": int, "rank": int, "place": int}


def _columns(files: Sequence[SpoolFile], at: Iterable[int]) -> Columns:
    """Return what identifies each file, and a number for each."""
    return columns_of(
        _FILE,
        [
            (f.run.uid, f.run.nonce, f.name.job, f.name.run, f.name.rank, number)
            for f, number in zip(files, at, strict=True)
        ],
    )


def _resume(transaction: Transaction, files: list[SpoolFile]) -> None:
    """Set each file to where it was read to, by whatever process."""
    if not files:
        return
    found = transaction.columns(
        """
        SELECT coalesce(position, 0) AS position
        FROM asked LEFT JOIN spool_file USING (uid, nonce, job, run, rank) ORDER BY place
        """,
        asked=_columns(files, range(len(files))),
    )
    for file, position in zip(files, found["position"].tolist(), strict=True):
        file.position = position


def _record_positions(transaction: Transaction, files: list[SpoolFile]) -> None:
    if files:
        rows = dict(_columns(files, [file.position for file in files]))
        rows["position"] = rows.pop("place")
        replace(transaction, "spool_file", rows)


def _record_rejected(
    transaction: Transaction, rejected: Mapping[tuple[int, Reject | FileReject], int]
) -> None:
    if rejected:
        transaction.run(
            """
            MERGE INTO rejected AS t USING batch USING (uid, reason)
            WHEN MATCHED THEN UPDATE SET lines = t.lines + batch.lines
            WHEN NOT MATCHED THEN INSERT BY NAME
            """,
            batch=columns_of(
                {"uid": int, "reason": str, "lines": int},
                [(uid, reason.value, lines) for (uid, reason), lines in rejected.items()],
            ),
        )
