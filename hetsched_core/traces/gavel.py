"""Traces and throughput tables of Gavel, and those of Shockwave (docs/formats/gavel.md).

Sources: Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
Workloads", OSDI '20; files of github.com/stanford-futuredata/gavel. Zheng et al., "Shockwave: Fair
and Efficient Cluster Scheduling for Dynamic Adaptation in Machine Learning", NSDI '23;
`parse_trace` of github.com/uw-mad-dash/shockwave.

Gavel counts work in steps of all GPUs together: a job is done when its total of steps is reached,
and its throughput is steps/s of the whole job. So one step is one sample here, and the speed per
GPU is the throughput divided by the number of GPUs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import numpy as np

from hetsched_core.errors import InputError
from hetsched_core.throughput import ModelProfile, gavel_profile, match_gpu
from hetsched_core.traces.lines import read_lines
from hetsched_core.traces.workload import LATEST_S, RejectedJob, Workload, arrival_order
from hetsched_core.types import Job, Layer, RequirementSet, SpeedTable, Submission

ALONE = "null"
"""The key under which a table has the throughput of a job that shares its GPUs with no other."""

_UNCONSOLIDATED = "_unconsolidated"
_JOB_TYPE = re.compile(r"\('(?P<model>[^']+)', (?P<gpus>[1-9]\d{0,5})\)")


class GavelRejectReason(StrEnum):
    """Why a job of a trace cannot be replayed."""

    MODEL = "the throughput table does not have its model"
    SCALE = "the throughput table does not have its model at its number of GPUs"
    NOWHERE = "its model fits no GPU type at its number of GPUs"
    NO_WORK = "it has no steps to do"


# Traces -------------------------------------------------------------------------------------------


_ALL_BEGIN = (
    "job_type",
    "command",
    "working_directory",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "scale_factor",
)

_COLUMNS = {
    10: (*_ALL_BEGIN, "priority_weight", "SLO", "arrival_time"),
    12: (*_ALL_BEGIN, "mode", "priority_weight", "SLO", "duration", "arrival_time"),
    7: (
        "job_type",
        "command",
        "num_steps_arg",
        "needs_data_dir",
        "total_steps",
        "arrival_time",
        "scale_factor",
    ),
}
"""The orders of columns, told apart by their number: Gavel's newer, Shockwave's, Gavel's older."""

_STATIC = "static"
"""The mode of a job that keeps its batch size; others change it as they train."""


@dataclass(frozen=True, slots=True)
class GavelJob:
    """One line of a trace: `gpus` is the scale factor, `slo` a multiple of the run time or None.

    `adapts` is whether the job changes its batch size as it trains, as some of Shockwave's do.
    """

    line: int
    model: str
    gpus: int
    steps: float
    arrival_s: float
    weight: float = 1.0
    slo: float | None = None
    adapts: bool = False


def is_trace(first_line: str) -> bool:
    """Whether a line may be the first one of a trace: as many columns, and numbers where due."""
    cells = first_line.split("\t")
    columns = _COLUMNS.get(len(cells))
    # A line of accounting without header begins with the number of a job.
    if columns is None or cells[0][:1].isdigit():
        return False
    try:
        _job(1, dict(zip(columns, cells, strict=True)))
    except InputError:
        return False
    return True


def read_trace(lines: Iterable[str], source: str) -> tuple[GavelJob, ...]:
    """Read a trace of any of the forms; all lines are of one form.

    Raises:
        InputError: A line is not of the form; the message names it.
    """
    jobs: list[GavelJob] = []
    forms = _COLUMNS
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        cells = line.split("\t")
        columns = forms.get(len(cells))
        if columns is None:
            expected = " or ".join(f"{count} columns" for count in forms)
            raise InputError(
                f"{source}: line {number} has {len(cells)} columns; expected {expected} "
                "with tabs between: " + ", ".join(next(iter(forms.values())))
            )
        forms = {len(cells): columns}
        try:
            jobs.append(_job(number, dict(zip(columns, cells, strict=True))))
        except InputError as error:
            raise InputError(f"{source}: line {number}: {error}") from None
    if not jobs:
        raise InputError(f"{source}: the trace is empty")
    return tuple(jobs)


def _job(line: int, cells: Mapping[str, str]) -> GavelJob:
    gpus = _number(cells, "scale_factor")
    if gpus != int(gpus) or not 1 <= gpus <= 1e6:
        raise InputError(f"scale_factor is {cells['scale_factor']!r}; expected 1 GPU or more")
    weight = _number(cells, "priority_weight") if "priority_weight" in cells else 1.0
    if weight <= 0:
        raise InputError(f"priority_weight is {cells['priority_weight']!r}; expected more than 0")
    slo = _number(cells, "SLO") if "SLO" in cells else -1.0
    steps, arrival_s = _number(cells, "total_steps"), _number(cells, "arrival_time")
    if min(steps, arrival_s) < 0:
        key = "total_steps" if steps < 0 else "arrival_time"
        raise InputError(f"{key} is {cells[key]!r}; expected 0 or more")
    adapts = cells.get("mode", _STATIC) != _STATIC
    given_slo = slo if slo >= 0 else None
    return GavelJob(line, cells["job_type"], int(gpus), steps, arrival_s, weight, given_slo, adapts)


def _number(cells: Mapping[str, str], key: str) -> float:
    try:
        value = float(cells[key])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{key} is {cells[key]!r}; expected a number")
    return value


# Throughput tables --------------------------------------------------------------------------------


def read_throughputs(text: str, source: str) -> dict[str, SpeedTable]:
    """Read a throughput table: steps/s by GPU type and by (model, number of GPUs).

    Only jobs alone on their GPUs count; packed pairs are left out. What the table does not have
    with GPUs on several nodes is 0 there: it does not fit.

    Returns:
        Model with batch size -> its speeds, in steps/s per GPU.

    Raises:
        InputError: It is no such table; the message names GPU type and model.
    """
    document = _table_document(text, source)
    per_gpu: dict[str, dict[tuple[str, int], float]] = {}
    for gpu_type, row in document.items():
        for key, entry in row.items():
            match = _JOB_TYPE.fullmatch(key)
            if match is None:
                continue
            value = entry.get(ALONE) if isinstance(entry, dict) else None
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not 0 <= value < 1e300
            ):
                raise InputError(
                    f"{source}: {gpu_type}, {key}: {ALONE} is {value!r:.60}; expected steps/s"
                )
            gpus = int(match["gpus"])
            per_gpu.setdefault(match["model"], {})[gpu_type, gpus] = value / gpus
    if not per_gpu:
        raise InputError(f"{source}: no throughput table: no key of it is ('MODEL', GPUS)")
    gpu_types = tuple(name for name in document if not name.endswith(_UNCONSOLIDATED))
    return {model: _table(gpu_types, rates) for model, rates in per_gpu.items()}


def _table_document(text: str, source: str) -> dict[str, dict[str, object]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: not valid JSON ({error}); is the file cut off?") from None
    if not isinstance(document, dict) or not all(
        isinstance(row, dict) for row in document.values()
    ):
        raise InputError(
            f"{source}: no throughput table; expected {{GPU type: {{\"('MODEL', GPUS)\": ...}}}}"
        )
    return document


def _table(gpu_types: tuple[str, ...], rates: Mapping[tuple[str, int], float]) -> SpeedTable:
    counts = sorted({gpus for _, gpus in rates})
    one_node, several_nodes = (
        np.array([[rates.get((name + suffix, n), 0.0) for n in counts] for name in gpu_types])
        for suffix in ("", _UNCONSOLIDATED)
    )
    return SpeedTable(
        gpu_types=gpu_types,
        counts=np.array(counts, dtype=np.int64),
        one_node=one_node,
        several_nodes=several_nodes,
        layers=np.full(one_node.shape, Layer.TRUTH, dtype=np.int8),
    )


# Workloads ----------------------------------------------------------------------------------------


def gavel_workload(
    jobs: Iterable[GavelJob], tables: Mapping[str, SpeedTable], prefix: str = ""
) -> Workload:
    """Return the jobs of a trace as a workload that carries its speeds.

    Every job is rigid. Its id is `prefix` and the number of its line, for Gavel's jobs have none.
    """
    submissions = []
    rejected = []
    adapting = 0
    for job in jobs:
        job_id = f"{prefix}{job.line}"
        reason = _reject(job, tables.get(job.model))
        if reason:
            rejected.append(RejectedJob(job_id, reason, job.line))
            continue
        adapting += job.adapts
        submissions.append(
            Submission(
                Job(
                    job_id,
                    job.arrival_s,
                    RequirementSet.rigid(job.gpus),
                    job.model,
                    total_samples=job.steps,
                    weight=job.weight,
                    name=job.model,
                    asked_count=job.gpus,
                    deadline_s=_deadline_s(job, tables[job.model]),
                ),
                job.steps,
            )
        )
    used = {submission.job.profile for submission in submissions}
    assumptions = ["Work is counted in steps: one sample is one step of one GPU."]
    if adapting:
        assumptions.append(
            f"{adapting} of {len(submissions)} jobs: they change their batch size as they train "
            "(mode accordion or gns). Here they keep the one that they begin with."
        )
    slos = sum(submission.job.deadline_s is not None for submission in submissions)
    if slos:
        assumptions.append(
            f"{slos} of {len(submissions)} jobs: they have an SLO, which is kept as a deadline: so "
            "many times the run time on the fastest GPU type. Policies are measured by it; none "
            "looks at it."
        )
    return Workload(
        tuple(sorted(submissions, key=arrival_order)),
        {model: table for model, table in tables.items() if model in used},
        tuple(assumptions),
        tuple(rejected),
    )


def _deadline_s(job: GavelJob, table: SpeedTable) -> float | None:
    """Return by when a job is to end; its SLO counts run times, as in Gavel's scheduler.py.

    None where that is later than a time can be.
    """
    if job.slo is None:
        return None
    at = int(np.searchsorted(table.counts, job.gpus))
    fastest = max(table.one_node[:, at].max(), table.several_nodes[:, at].max())
    deadline_s = job.arrival_s + job.slo * (job.steps / (job.gpus * float(fastest)))
    return deadline_s if deadline_s <= LATEST_S else None


def _reject(job: GavelJob, table: SpeedTable | None) -> GavelRejectReason | None:
    if table is None:
        return GavelRejectReason.MODEL
    if job.gpus not in table.counts:
        return GavelRejectReason.SCALE
    at = int(np.searchsorted(table.counts, job.gpus))
    if not (table.one_node[:, at].any() or table.several_nodes[:, at].any()):
        return GavelRejectReason.NOWHERE
    return None if job.steps > 0 else GavelRejectReason.NO_WORK


# Throughputs for a log ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredModels:
    """Models whose speeds were measured, on the GPU types of a cluster.

    Attributes:
        tables: Speeds in steps/s per GPU, by name of the model; the types have the cluster's names.
        models: Those that a job may be taken for: the ones whose class of GPU hours is known.
        assumptions: In sentences, what was assumed.
    """

    tables: Mapping[str, SpeedTable]
    models: tuple[ModelProfile, ...]
    assumptions: tuple[str, ...]


def read_measured(path: Path, gpu_types: Iterable[str]) -> MeasuredModels:
    """Read a throughput table of Gavel's, for a cluster's or log's names of GPU types.

    A type of the cluster has the speeds of the type in the table that its name stands for
    (`tesla_v100-sxm2` those of `v100`), and none where the table has no such type.

    Raises:
        InputError: It is no such table, or has none of the types.
    """
    source = str(path)
    try:
        with path.open("rb") as file:
            read = read_throughputs("\n".join(read_lines(file, source)), source)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    known = tuple(dict.fromkeys(t for table in read.values() for t in table.gpu_types))
    names = {name: _measured_as(name, known) for name in dict.fromkeys(gpu_types)}
    found = {name: measured for name, measured in names.items() if measured}
    if not found:
        raise InputError(
            f"{path}: none of the GPU types {', '.join(names)} is measured; measured are "
            f"{', '.join(known)}"
        )
    tables = {model: _renamed(table, found) for model, table in read.items()}
    profiles = (gavel_profile(model) for model in tables)
    missing = [name for name in names if name not in found]
    assumptions = [f"Speeds are those that {path.name} has measured, in steps/s."]
    if missing:
        assumptions.append(f"{path.name} has no speeds on {', '.join(missing)}: no job runs there.")
    return MeasuredModels(
        tables, tuple(profile for profile in profiles if profile), tuple(assumptions)
    )


def _measured_as(name: str, known: Iterable[str]) -> str | None:
    """Return the type of a table that a name stands for."""
    if name in known:
        return name
    match = match_gpu(name)
    if match.assumed:
        return None
    return next((k for k in known if match_gpu(k) == replace(match, name=k)), None)


def _renamed(table: SpeedTable, names: Mapping[str, str]) -> SpeedTable:
    """Return a table whose rows are those of the types in {name: type of the table}."""
    rows = [table.gpu_types.index(measured) for measured in names.values()]
    one_node, several_nodes = table.one_node[rows], table.several_nodes[rows]
    if np.array_equal(table.counts, [1]):
        # Measured on one GPU alone: several are taken to be no slower each.
        several_nodes = one_node
    return replace(
        table,
        gpu_types=tuple(names),
        one_node=one_node,
        several_nodes=several_nodes,
        layers=table.layers[rows],
    )
