"""From files of any kind to what a replay needs: jobs, true speeds, a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import StrEnum
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NoReturn

from hetsched_core.errors import InputError
from hetsched_core.throughput import assumed_of, builtin_profiles, builtin_tables
from hetsched_core.traces.cluster_file import ClusterFile
from hetsched_core.traces.gavel import (
    gavel_workload,
    is_trace,
    read_throughputs,
    read_trace,
)
from hetsched_core.traces.infer_cluster import infer_cluster
from hetsched_core.traces.jobs import LogOptions, jobs_from_log
from hetsched_core.traces.lines import read_head, read_lines
from hetsched_core.traces.rules import Rules, read_rules
from hetsched_core.traces.sacct import Allocation, ReadReport, SacctOptions, Unusable, read_sacct
from hetsched_core.traces.workload import Workload, arrival_order
from hetsched_core.traces.workload_file import read_workload
from hetsched_core.types import Cluster, Speeds, SpeedTable

CLUSTER_EXAMPLE = (
    'schema = "hetsched-cluster/1"',
    "[[nodes]]",
    'nodes = "n[1-8]"',
    'gpu_type = "v100"',
    "gpus = 4",
    "cpus = 32",
)

_File = tuple[str, BinaryIO]
"""What messages call a file, and the file itself, seekable."""


class Kind(StrEnum):
    """What a file holds, told from how it begins."""

    SACCT = "Slurm accounting"
    WORKLOAD = "workload"
    GAVEL_TRACE = "Gavel trace"
    GAVEL_THROUGHPUTS = "Gavel throughput table"


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How files are read. All but `sacct` is for logs only, which say least about their jobs."""

    rules: Path | None = None
    seed: int = 0
    elastic: bool = False
    sacct: SacctOptions = field(default_factory=SacctOptions)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a replay needs.

    Attributes:
        workload: The jobs; its assumptions cover speeds and cluster too.
        speeds: The true speeds of their profiles.
        cluster: The cluster given, or the one inferred.
        reports: What became of the lines of each accounting log, in numbers.
        unusable: In one sentence each, the lines of accounting logs that could not be used.
    """

    workload: Workload
    speeds: Speeds
    cluster: Cluster
    reports: tuple[ReadReport, ...] = ()
    unusable: tuple[str, ...] = ()

    def rejects(self) -> Iterator[str]:
        """Yield a sentence for every line and every job that could not be used."""
        yield from self.unusable
        for rejected in self.workload.rejected:
            line = f" (line {rejected.line})" if rejected.line else ""
            yield f"job {rejected.job}{line}: {rejected.reason}"


def load_workload(
    paths: Sequence[Path], cluster: ClusterFile | None = None, options: LoadOptions | None = None
) -> Loaded:
    """Read a workload from files of one kind (a Gavel trace goes with its throughput table).

    Args:
        paths: Accounting logs (text or JSON), native workloads, or Gavel's files; any of them may
            be compressed with gzip, or a pipe.
        cluster: Where the jobs will run; inferred from an accounting log where it is None.
        options: How accounting logs become jobs.

    Raises:
        InputError: A file cannot be used, there is no job in them, or a cluster must be given.
    """
    options = options or LoadOptions()
    with ExitStack() as stack:
        files = [(str(path), stack.enter_context(_open(path))) for path in paths]
        kinds = [recognise(file, source) for source, file in files]
        match sorted(set(kinds)):
            case [Kind.SACCT]:
                return _load_logs(files, cluster, options)
            case [Kind.WORKLOAD]:
                return _load_native(files, cluster)
            case [Kind.GAVEL_TRACE | Kind.GAVEL_THROUGHPUTS] | [
                Kind.GAVEL_THROUGHPUTS,
                Kind.GAVEL_TRACE,
            ]:
                return _load_gavel(files, kinds, cluster)
        listed = ", ".join(f"{path} ({kind})" for path, kind in zip(paths, kinds, strict=True))
        raise InputError(f"the files are of different kinds: {listed}; give those of one kind")


# Kinds --------------------------------------------------------------------------------------------

_HEAD = 1 << 16
_OWN = re.compile(r'\s*\{\s*"schema"\s*:\s*"(hetsched-[a-z]+)/')
# The first key of the first GPU type is a model and a number of GPUs.
_THROUGHPUTS = re.compile(r'\s*\{\s*"[^"]*"\s*:\s*\{\s*"\(')


def recognise(file: BinaryIO, source: str) -> Kind:
    """Return what a file holds; what is none of the others is taken for accounting.

    Raises:
        InputError: It is one of hetsched's own files, and no workload.
    """
    head = read_head(file, _HEAD)
    if own := _OWN.match(head):
        if own[1] == "hetsched-workload":
            return Kind.WORKLOAD
        raise InputError(f"{source}: a file of the format {own[1]}; expected a log or workload")
    if _THROUGHPUTS.match(head):
        return Kind.GAVEL_THROUGHPUTS
    first = next((line for line in head.splitlines() if line.strip()), "")
    return Kind.GAVEL_TRACE if is_trace(first) else Kind.SACCT


def _open(path: Path) -> BinaryIO:
    """Open a file; a pipe, which can be read only once, is taken into memory."""
    try:
        if path.is_file():
            return path.open("rb")
        piped = BytesIO(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    piped.name = str(path)
    return piped


# One loader for each kind -------------------------------------------------------------------------


def _load_logs(files: Sequence[_File], cluster: ClusterFile | None, options: LoadOptions) -> Loaded:
    allocations: list[Allocation] = []
    reports: tuple[ReadReport, ...] = ()
    unusable: list[str] = []
    for source, file in files:
        flaws: list[Unusable] = []
        log = read_sacct(file, options.sacct, flaws.append)
        allocations += log
        reports += (log.report,)
        unusable += [f"{source}: {flaw}" for flaw in flaws]
    inferred: tuple[str, ...] = ()
    if cluster is None:
        if not allocations:
            raise _no_job(files, Workload(()), reports)
        found = infer_cluster(allocations)
        cluster, inferred = ClusterFile(found.cluster), found.assumptions
    names = {name.lower() for a in allocations for name, _ in a.gpus if name}
    types = (*cluster.cluster.gpu_types, *sorted(names.difference(cluster.cluster.gpu_types)))
    tables = builtin_tables(types, max([cluster.cluster.gpus, *(a.gpu_count for a in allocations)]))
    speeds = Speeds(cluster.cluster, tables)
    rules = read_rules(options.rules, tables) if options.rules else Rules()
    workload = jobs_from_log(
        allocations, cluster, speeds, LogOptions(rules, options.seed, options.elastic)
    )
    warnings = tuple(dict.fromkeys(warning for report in reports for warning in report.warnings))
    assumed = (*warnings, *inferred, *workload.assumptions, *assumed_of(types))
    workload = replace(workload, assumptions=assumed)
    return _loaded(files, workload, speeds, cluster, reports, tuple(unusable))


def _load_native(files: Sequence[_File], cluster: ClusterFile | None) -> Loaded:
    builtin = {profile.name for profile in builtin_profiles()}
    workload = Workload(())
    for source, file in files:
        part = read_workload(read_lines(file, source), source, builtin)
        workload = _together(workload, part, source)
    cluster = cluster or _refuse(files)
    types = cluster.cluster.gpu_types
    used = {submission.job.profile for submission in workload.submissions}
    tables = {**workload.tables}
    if not used <= tables.keys():
        tables = builtin_tables(types, cluster.cluster.gpus) | tables
        assumed = (*workload.assumptions, *assumed_of(types))
        workload = replace(workload, assumptions=tuple(dict.fromkeys(assumed)))
    return _loaded(files, workload, Speeds(cluster.cluster, tables), cluster)


def _load_gavel(
    files: Sequence[_File], kinds: Sequence[Kind], cluster: ClusterFile | None
) -> Loaded:
    tables: dict[str, SpeedTable] = {}
    traces = []
    for (source, file), kind in zip(files, kinds, strict=True):
        if kind is Kind.GAVEL_TRACE:
            traces.append((source, read_trace(read_lines(file, source), source)))
        elif tables:
            raise InputError(f"{source}: a second throughput table; give one")
        else:
            tables = read_throughputs("\n".join(read_lines(file, source)), source)
    if not traces or not tables:
        missing = "trace" if tables else "throughput table"
        raise InputError(
            f"{files[0][0]}: give its {missing} as well: a Gavel trace and the JSON file of its "
            "throughputs go together (docs/formats/gavel.md)"
        )
    workload = Workload(())
    for number, (source, jobs) in enumerate(traces, 1):
        prefix = f"{number}." if len(traces) > 1 else ""
        workload = _together(workload, gavel_workload(jobs, tables, prefix), source)
    cluster = cluster or _refuse(files)
    return _loaded(files, workload, Speeds(cluster.cluster, workload.tables), cluster)


def _together(workload: Workload, part: Workload, source: str) -> Workload:
    """Return two workloads as one."""
    ids = {submission.job.id for submission in workload.submissions}
    for submission in part.submissions:
        if submission.job.id in ids:
            raise InputError(
                f"{source}: job {submission.job.id!r} is in an earlier file as well; ids are unique"
            )
    for profile in part.tables.keys() & workload.tables.keys():
        if part.tables[profile] is not workload.tables[profile]:
            raise InputError(
                f"{source}: profile {profile!r} has speeds in an earlier file as well; rename it"
            )
    return Workload(
        tuple(sorted((*workload.submissions, *part.submissions), key=arrival_order)),
        {**workload.tables, **part.tables},
        tuple(dict.fromkeys((*workload.assumptions, *part.assumptions))),
        (*workload.rejected, *part.rejected),
    )


def _loaded(
    files: Sequence[_File],
    workload: Workload,
    speeds: Speeds,
    cluster: ClusterFile,
    reports: tuple[ReadReport, ...] = (),
    unusable: tuple[str, ...] = (),
) -> Loaded:
    """Return what was loaded, if a job of it can run here at all."""
    if not workload.submissions:
        raise _no_job(files, workload, reports)
    types = cluster.cluster.gpu_types
    profiles = {submission.job.profile for submission in workload.submissions}
    if not any(speeds.table(profile).runs_on(t) for profile in profiles for t in types):
        known = sorted({t for profile in profiles for t in speeds.table(profile).gpu_types})
        raise InputError(
            f"no job of {_sources(files)} runs on a GPU type of cluster {cluster.cluster.name!r} "
            f"({', '.join(types)}); there are speeds for: {', '.join(known)}"
        )
    return Loaded(workload, speeds, cluster.cluster, reports, unusable)


def _no_job(
    files: Sequence[_File], workload: Workload, reports: Sequence[ReadReport]
) -> InputError:
    why = [f"{count} rejected: {reason}" for reason, count in workload.rejections()]
    seen = "; ".join([*map(str, reports), *why])
    return InputError(f"no GPU job in {_sources(files)}" + (f" ({seen})" if seen else ""))


def _refuse(files: Sequence[_File]) -> NoReturn:
    raise InputError(
        f"{_sources(files)} does not tell what cluster its jobs run on: give --cluster FILE, a "
        f"file of lines such as: {' | '.join(CLUSTER_EXAMPLE)} (docs/formats/cluster.md)"
    )


def _sources(files: Sequence[_File]) -> str:
    return ", ".join(source for source, _ in files)
