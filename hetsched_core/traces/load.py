"""From files of any kind to what a replay needs: jobs, true speeds, a cluster."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import StrEnum
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from hetsched_core.errors import InputError
from hetsched_core.throughput import (
    ProfileSet,
    assumed_of,
    builtin_profiles,
    builtin_tables,
    profile_set,
)
from hetsched_core.traces.cluster_file import ClusterFile
from hetsched_core.traces.gavel import (
    gavel_workload,
    is_trace,
    read_measured,
    read_throughputs,
    read_trace,
)
from hetsched_core.traces.infer_cluster import infer_cluster
from hetsched_core.traces.jobs import jobs_from_log
from hetsched_core.traces.lines import GZIP, first_line, read_head, read_lines
from hetsched_core.traces.published import is_published, read_published
from hetsched_core.traces.rules import Rules, read_rules
from hetsched_core.traces.sacct import (
    LoggedAllocation,
    ReadReport,
    SacctOptions,
    Unusable,
    read_sacct,
    warnings_of,
    why_no_job,
)
from hetsched_core.traces.sia import is_sia, read_sia
from hetsched_core.traces.site_jobs import under_site
from hetsched_core.traces.slurm_site import SlurmTables
from hetsched_core.traces.workload import RejectedJob, Workload, arrival_order
from hetsched_core.traces.workload_file import read_workload
from hetsched_core.types import Cluster, Speeds, SpeedTable, Submission, Window
from hetsched_core.types.site import SiteSettings

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


class FileKind(StrEnum):
    """What a file holds, told from how it begins."""

    SACCT = "Slurm accounting"
    PUBLISHED = "published trace"
    WORKLOAD = "workload"
    SIA = "workload of Sia"
    GAVEL_TRACE = "Gavel trace"
    GAVEL_THROUGHPUTS = "Gavel throughput table"


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How accounting logs are read, which say least about their jobs.

    `throughputs` is a table of Gavel's whose models and speeds stand for the built-in ones.
    """

    rules: Path | None = None
    throughputs: Path | None = None
    seed: int = 0
    elastic: bool = False
    logged_types: bool = False
    sacct: SacctOptions = field(default_factory=SacctOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What files hold.

    Attributes:
        workload: The jobs.
        reports: What became of the lines of each accounting log, in numbers.
    """

    workload: Workload
    reports: tuple[ReadReport, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayInputs(Inputs):
    """What a replay needs: jobs, the true speeds of their profiles, and a cluster.

    `windows` are spans in which nodes of it are closed. `site` is None where nothing is said of
    shares, limits or tiers.
    """

    speeds: Speeds
    cluster: Cluster
    windows: tuple[Window, ...] = ()
    site: SiteSettings | None = None


Heard = Callable[[str], None]
"""Is told, in a sentence, every line and every job that cannot be used, as it is met."""


def _unheard(_: str) -> None:
    pass


def load_workload(
    paths: Sequence[Path],
    cluster: ClusterFile | None = None,
    options: LoadOptions | None = None,
    site: SlurmTables | None = None,
    on_reject: Heard = _unheard,
) -> ReplayInputs:
    """Read what a replay needs from files of one kind.

    Args:
        paths: As for `read_inputs`.
        cluster: Where the jobs will run; inferred from accounting logs where it is None.
        options: How accounting logs become jobs.
        site: What Slurm says of shares, limits and partitions beside the cluster.
        on_reject: As for `read_inputs`.

    Raises:
        InputError: A file cannot be used, a cluster must be given, or no job runs on it.
    """
    inputs, cluster = _read(paths, cluster, options or LoadOptions(), on_reject)
    workload = inputs.workload
    if cluster is None:
        raise InputError(
            f"nothing in {_names(paths)} tells which cluster its jobs run on: give --cluster FILE, "
            f"a file of lines such as: {' | '.join(CLUSTER_EXAMPLE)} (docs/formats/cluster.md)"
        )
    if site is not None:
        cluster = site.added_to(cluster)
        workload = replace(workload, assumptions=(*workload.assumptions, *site.notes))
    nodes, workload = cluster.cluster, limited_to_partitions(workload, cluster)
    workload, word = under_site(workload, cluster)
    _tell(workload.rejected[len(inputs.workload.rejected) :], on_reject)
    if not workload.submissions:
        why = "; ".join(f"{n} jobs: {reason}" for reason, n in workload.rejections())
        raise InputError(f"no job of {_names(paths)} could ever start: {why}; raise these limits")
    tables = workload.tables
    used = {submission.job.profile for submission in workload.submissions}
    if not used <= tables.keys():
        tables = {**builtin_tables(nodes.gpu_types, nodes.gpus), **tables}
        assumed = dict.fromkeys((*workload.assumptions, *assumed_of(nodes.gpu_types)))
        workload = replace(workload, assumptions=tuple(assumed))
    if not any(tables[profile].runs_on(t) for profile in used for t in nodes.gpu_types):
        known = sorted({t for profile in used for t in tables[profile].gpu_types})
        raise InputError(
            f"no job of {_names(paths)} runs on a GPU type of cluster {nodes.name!r} "
            f"({', '.join(nodes.gpu_types)}); there are speeds for: {', '.join(known)}"
        )
    return ReplayInputs(
        workload=workload,
        reports=inputs.reports,
        speeds=Speeds(nodes, {profile: tables[profile] for profile in sorted(used)}),
        cluster=nodes,
        windows=cluster.windows,
        site=word,
    )


def read_inputs(
    paths: Sequence[Path],
    cluster: ClusterFile | None = None,
    options: LoadOptions | None = None,
    on_reject: Heard = _unheard,
) -> Inputs:
    """Read the jobs that files of one kind hold.

    Args:
        paths: Accounting logs (text or JSON), published traces, workloads of hetsched's own or of
            Sia, or Gavel traces with their throughput table; any of them may be compressed with
            gzip, or a pipe.
        cluster: Tells more about the jobs of accounting logs; inferred from them where it is None.
        options: How accounting logs become jobs.
        on_reject: Told what cannot be used, also where reading fails after it.

    Raises:
        InputError: A file cannot be used, or there is no job in them.
    """
    return _read(paths, cluster, options or LoadOptions(), on_reject)[0]


def _tell(rejected: Iterable[RejectedJob], on_reject: Heard) -> None:
    for job in rejected:
        line = f" (line {job.line})" if job.line else ""
        on_reject(f"job {job.job}{line}: {job.reason}")


def _read(
    paths: Sequence[Path], cluster: ClusterFile | None, options: LoadOptions, on_reject: Heard
) -> tuple[Inputs, ClusterFile | None]:
    """Return what the files hold, and the cluster that was given or that they tell."""
    with ExitStack() as stack:
        files = [(str(path), stack.enter_context(_open(path))) for path in paths]
        kinds = [recognise(file, source) for source, file in files]
        match sorted(set(kinds)):
            case [FileKind.SACCT | FileKind.PUBLISHED]:
                inputs, cluster = _read_logs(files, kinds[0], cluster, options, on_reject)
            case [FileKind.WORKLOAD]:
                inputs = Inputs(workload=_read_native(files))
            case [FileKind.SIA]:
                inputs = Inputs(workload=_read_sia(files, options.elastic))
            case [FileKind.GAVEL_TRACE | FileKind.GAVEL_THROUGHPUTS] | [
                FileKind.GAVEL_THROUGHPUTS,
                FileKind.GAVEL_TRACE,
            ]:
                inputs = Inputs(workload=_read_gavel(files, kinds))
            case _:
                each = (f"{path} ({kind})" for path, kind in zip(paths, kinds, strict=True))
                raise InputError(
                    f"the files are of different kinds: {', '.join(each)}; give those of one kind"
                )
    _tell(inputs.workload.rejected, on_reject)
    if not inputs.workload.submissions:
        if reasons := inputs.workload.rejections():
            why = "; ".join(f"{n} rejected: {reason}" for reason, n in reasons)
            raise InputError(f"no job of {_names(paths)} can be used: {why}")
        raise InputError(why_no_job(inputs.reports) or f"no job in {_names(paths)}")
    return inputs, cluster


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths))


# Kinds --------------------------------------------------------------------------------------------

_HEAD = 1 << 16
_OWN = re.compile(r'\s*\{\s*"schema"\s*:\s*"(hetsched-[a-z]+)/')
# The first key of the first GPU type is a model and a number of GPUs.
_THROUGHPUTS = re.compile(r'\s*\{\s*"[^"]*"\s*:\s*\{\s*"\(')


def recognise(file: BinaryIO, source: str) -> FileKind:
    """Return what a file holds; what is none of the others is taken for accounting.

    Raises:
        InputError: It is one of hetsched's own files, and no workload.
    """
    head = read_head(file, _HEAD)
    if own := _OWN.match(head):
        if own[1] == "hetsched-workload":
            return FileKind.WORKLOAD
        raise InputError(f"{source}: a file of the format {own[1]}; expected a log or workload")
    if _THROUGHPUTS.match(head):
        return FileKind.GAVEL_THROUGHPUTS
    if is_published(head):
        return FileKind.PUBLISHED
    first = first_line(head)
    if is_sia(first):
        return FileKind.SIA
    return FileKind.GAVEL_TRACE if is_trace(first) else FileKind.SACCT


def _open(path: Path) -> BinaryIO:
    """Open a file; a pipe, which can be read only once, is taken into memory.

    What begins like no text is refused before that: /dev/zero has no end.
    """
    try:
        if path.is_file():
            return path.open("rb")
        with path.open("rb") as file:
            head = file.read(_HEAD)
            if b"\0" in head and not head.startswith(GZIP):
                raise InputError(f"{path}: a binary file, not text; expected a log or workload")
            piped = BytesIO(head + file.read())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    piped.name = str(path)
    return piped


# Readers ------------------------------------------------------------------------------------------


def _read_logs(
    files: Sequence[_File],
    kind: FileKind,
    cluster: ClusterFile | None,
    options: LoadOptions,
    on_reject: Heard,
) -> tuple[Inputs, ClusterFile | None]:
    allocations: list[LoggedAllocation] = []
    reports: list[ReadReport] = []
    assumed: list[str] = []
    rules = read_rules(options.rules) if options.rules else Rules()
    if kind is FileKind.PUBLISHED:
        for log in read_published(files, options.sacct, on_reject):
            allocations += log.runs
            reports.append(log.report)
            assumed += log.assumptions
    for source, file in files if kind is FileKind.SACCT else ():

        def refuse(unusable: Unusable, source: str = source) -> None:
            on_reject(f"{source}: {unusable}")

        sacct = read_sacct(file, options.sacct, refuse)
        allocations += sacct
        reports.append(sacct.report)
    workload = Workload(())
    if rules.partition_types.rules:
        named = [rules.typed(run) for run in allocations]
        typed = sum(a is not b for a, b in zip(named, allocations, strict=True))
        allocations = named
        said = f"{typed} of {len(allocations)} allocations: the GPU type is that of their partition"
        assumed.append(f"{said} in the rules.")
    if allocations:
        if cluster is None:
            found = infer_cluster(allocations)
            cluster = ClusterFile(found.cluster)
            assumed = [*found.assumptions, *assumed]
        workload = _log_workload(allocations, cluster, rules, options)
    said_first = (*warnings_of(reports), *dict.fromkeys(assumed), *workload.assumptions)
    inputs = Inputs(workload=replace(workload, assumptions=said_first), reports=tuple(reports))
    return inputs, cluster


def _log_workload(
    allocations: Sequence[LoggedAllocation],
    cluster: ClusterFile,
    rules: Rules,
    options: LoadOptions,
) -> Workload:
    """Return the jobs of a log at the speeds of the built-in models, or of measured ones."""
    nodes = cluster.cluster
    named = {name.lower() for run in allocations for name, _ in run.gpus if name}
    types = (*nodes.gpu_types, *sorted(named.difference(nodes.gpu_types)))
    if options.throughputs:
        measured = read_measured(options.throughputs, types)
        tables, models = dict(measured.tables), measured.models
        assumed = measured.assumptions
    else:
        most = max([nodes.gpus, *(run.gpu_count for run in allocations)])
        tables, models = builtin_tables(types, most), profile_set(ProfileSet.LOG)
        assumed = assumed_of(types)
    rules.require(tables, str(options.rules))
    workload = jobs_from_log(
        allocations,
        cluster,
        Speeds(nodes, tables),
        models,
        rules,
        options.seed,
        options.elastic,
        options.logged_types,
    )
    used = {submission.job.profile for submission in workload.submissions}
    return replace(
        workload,
        tables={name: tables[name] for name in sorted(used)} if options.throughputs else {},
        assumptions=(*workload.assumptions, *assumed),
    )


def _read_native(files: Sequence[_File]) -> Workload:
    builtin = {profile.name for profile in builtin_profiles()}
    workload = Workload(())
    for source, file in files:
        part = read_workload(read_lines(file, source), source, builtin)
        workload = _together(workload, part, source)
    return workload


def _read_gavel(files: Sequence[_File], kinds: Sequence[FileKind]) -> Workload:
    tables: dict[str, SpeedTable] = {}
    traces = []
    for (source, file), kind in zip(files, kinds, strict=True):
        if kind is FileKind.GAVEL_TRACE:
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
    for (source, jobs), prefix in zip(traces, _prefixes(traces), strict=True):
        workload = _together(workload, gavel_workload(jobs, tables, prefix), source)
    return workload


def _read_sia(files: Sequence[_File], elastic: bool) -> Workload:
    workload = Workload(())
    for (source, file), prefix in zip(files, _prefixes(files), strict=True):
        part = read_sia(read_lines(file, source), source, prefix, elastic)
        workload = _together(workload, part, source)
    return workload


def _prefixes(traces: Sequence[object]) -> list[str]:
    """Return what ids of each trace begin with, where several may have the same ones."""
    return [f"{number}." if len(traces) > 1 else "" for number in range(1, len(traces) + 1)]


def _together(workload: Workload, part: Workload, source: str) -> Workload:
    """Return two workloads as one."""
    ids = {submission.job.id for submission in workload.submissions}
    for submission in part.submissions:
        if submission.job.id in ids:
            raise InputError(
                f"{source}: job {submission.job.id!r} is in an earlier file, too; ids are unique"
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


# Partitions ---------------------------------------------------------------------------------------


def limited_to_partitions(workload: Workload, file: ClusterFile) -> Workload:
    """Return the workload with each job on the nodes of its partitions, where these are described.

    A job that says itself on which nodes it may run keeps to what it says; one may name several
    partitions, with commas between them, and runs on the nodes of all of them. Jobs of partitions
    that are not described may run on all nodes, and an assumption says how many these are.

    Raises:
        InputError: A job says that it may run on a node that the cluster does not have.
    """
    _require_nodes(workload, file.cluster)
    if not file.partitions:
        return workload
    everything = frozenset(file.cluster.names)
    sets: dict[str, frozenset[str] | None] = {}
    unknown: Counter[str] = Counter()
    submissions = []
    for submission in workload.submissions:
        job = submission.job
        if job.nodes is None and job.partition:
            if job.partition not in sets:
                sets[job.partition] = _nodes_of(job.partition, file, everything, sets)
            nodes = sets[job.partition]
            if not any(name in file.partitions for name in job.partition.split(",")):
                unknown[job.partition] += 1
            if nodes is not None:
                submission = replace(submission, job=replace(job, nodes=nodes))
        submissions.append(submission)
    assumptions = workload.assumptions
    if unknown:
        names = ", ".join(sorted(unknown))
        said = f"{unknown.total()} jobs of partitions without nodes in the cluster file ({names})"
        assumptions = (*assumptions, f"{said} may run on all nodes.")
    return replace(workload, submissions=tuple(submissions), assumptions=assumptions)


def _nodes_of(
    partition: str,
    file: ClusterFile,
    everything: frozenset[str],
    known: dict[str, frozenset[str] | None],
) -> frozenset[str] | None:
    """The nodes of these partitions, the same object as for others with just these; None: all."""
    mine = [file.partitions[name] for name in partition.split(",") if name in file.partitions]
    nodes = frozenset().union(*mine)
    if not mine or nodes == everything:
        return None
    return next((other for other in known.values() if other == nodes), nodes)


def _require_nodes(workload: Workload, cluster: Cluster) -> None:
    looked_at: set[frozenset[str]] = set()

    def strange(submission: Submission) -> list[str]:
        nodes = submission.job.nodes
        if nodes is None or nodes in looked_at:
            return []
        looked_at.add(nodes)
        return sorted(name for name in nodes if name not in cluster)

    for submission in workload.submissions:
        if names := strange(submission):
            raise InputError(
                f"job {submission.job.id!r} may run on {', '.join(names[:5])}: no such node in "
                f"cluster {cluster.name!r}, which has {', '.join(cluster.names[:5])} and so on; "
                "mend its key nodes, or give the cluster that it is for"
            )
