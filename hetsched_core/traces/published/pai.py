"""Alibaba's PAI trace of 2020 (docs/formats/published.md): the tables of tasks and of jobs.

Source: Weng et al., "MLaaS in the Wild", NSDI '22; cluster-trace-gpu-v2020 of
github.com/alibaba/clusterdata. All tasks of a job together are one run of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from hetsched_core.traces.published.csv_logs import number_in, part_of_gpu, rows_of
from hetsched_core.traces.published.log import PublishedLog, Unused, state_of
from hetsched_core.traces.sacct import FieldError, Flaw, LoggedAllocation, LoggedState

JOB_COLUMNS = ["job_name", "inst_id", "user", "status", "start_time", "end_time"]
TASK_COLUMNS = [
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
]
GPUS_PER_NODE = 8
"""Of the largest machines of the trace."""

Submitted = tuple[str, float | None]
"""What the table of jobs tells that the table of tasks does not: who, and when (seconds)."""

_STATES = {
    "Terminated": LoggedState.COMPLETED,
    "Failed": LoggedState.FAILED,
    # A tenth of all tasks, which can hardly all have run when the trace ended.
    "Running": LoggedState.CANCELLED,
    "Waiting": LoggedState.PENDING,
}
_WORST_FIRST = (LoggedState.FAILED, LoggedState.CANCELLED, LoggedState.COMPLETED)
_OLDER, _STANDS_FOR = "MISC", "k80"
_NEVER_S = math.inf


def table_of(first_line: str) -> list[str] | None:
    """Return the columns of the table that begins with this line, None where it begins neither.

    The tables have no header; one that was put before them does no harm.
    """
    cells = first_line.split(",")
    for columns in (TASK_COLUMNS, JOB_COLUMNS):
        if cells == columns or (len(cells) == len(columns) and cells[3] in _STATES):
            return columns
    return None


def read_jobs(lines: Iterable[str], log: PublishedLog) -> dict[str, Submitted]:
    """Read the table of jobs, by their names. Its lines are counted as steps."""
    report, jobs = log.report, {}
    for number, row in rows_of(lines, JOB_COLUMNS, log):
        report.lines += 1
        try:
            jobs[row["job_name"]] = row["user"], log.time(row["start_time"])
            report.steps += 1
        except FieldError as error:
            report.refuse(number, error.flaw, str(error))
    return jobs


def read_tasks(lines: Iterable[str], submitted: Mapping[str, Submitted], log: PublishedLog) -> None:
    """Read the table of tasks: the first line of each job counts as the job, the others as steps.

    A job of which one line cannot be used is left out.

    Args:
        lines: The table.
        submitted: The table of jobs, empty where it is not given.
        log: Takes the runs.
    """
    report = log.report
    jobs: dict[str, list[LoggedAllocation]] = {}
    spoilt = set()
    for number, row in rows_of(lines, TASK_COLUMNS, log):
        try:
            jobs.setdefault(row["job_name"], []).append(_task(log, number, row))
        except FieldError as error:
            report.lines += 1
            report.refuse(number, error.flaw, str(error))
            spoilt.add(row["job_name"])
    for name, tasks in jobs.items():
        others = len(tasks) - (name not in spoilt)
        report.lines += others
        report.steps += others
        if name not in spoilt:
            log.count(tasks[0].line, partial(_run, tasks, submitted.get(name, ("", None))))
    missing = sum(run.job_id not in submitted for run in log.runs)
    older = sum(name == _STANDS_FOR for run in log.runs for name, _ in run.gpus)
    for count, sentence in (
        (missing, "in no table of jobs: submitted when the first task started, by no known user"),
        (older, f"on GPUs of type {_OLDER}, older ones, which are taken for {_STANDS_FOR}"),
        (len(log.runs), f"on as few nodes of {GPUS_PER_NODE} GPUs as hold them"),
    ):
        if count:
            log.assumptions.append(f"{count} of {len(log.runs)} jobs of PAI: {sentence}.")


def _task(log: PublishedLog, line: int, row: Mapping[str, str]) -> LoggedAllocation:
    """Return what one line tells; what is empty asks for nothing, and a time of 0 is none."""
    if not row["job_name"]:
        raise FieldError(Flaw.JOB_ID, "job_name is empty")
    cpu, memory, gpu = (
        number_in(row[key] or "0", key) for key in ("plan_cpu", "plan_mem", "plan_gpu")
    )
    # Of tasks without GPUs some do not tell how many instances they have.
    instances = int(number_in(row["inst_num"] or ("" if gpu else "1"), "inst_num", whole=True))
    if gpu % 100:
        raise part_of_gpu(f"{gpu:g} % of a GPU in each of its instances")
    gpus = instances * int(gpu) // 100
    gpu_type = _STANDS_FOR if row["gpu_type"] == _OLDER else row["gpu_type"] or None
    return LoggedAllocation(
        job_id=row["job_name"],
        name=row["task_name"],
        state=state_of(row["status"], _STATES),
        submit_s=0.0,
        start_s=log.time(row["start_time"]) or _NEVER_S,
        end_s=log.time(row["end_time"]) or None,
        cpus=math.ceil(instances * cpu / 100),
        memory_mb=instances * memory * 1024,
        gpus=((gpu_type, gpus),) if gpus else (),
        line=line,
    )


def _run(tasks: Sequence[LoggedAllocation], submitted: Submitted) -> LoggedAllocation | Unused:
    """Return the run of one job: what its tasks with GPUs held together, from first to last."""
    held = [task for task in tasks if task.gpus]
    if not held:
        return Unused.NO_GPU
    first = min(held, key=lambda task: task.start_s)
    if first.start_s == _NEVER_S:
        return Unused.NEVER_STARTED
    gpus: Counter[str | None] = Counter()
    for task in held:
        gpus.update(dict(task.gpus))
    ends = [task.end_s for task in held if task.start_s < _NEVER_S]
    states = {task.state for task in held}
    user, submit_s = submitted
    return replace(
        first,
        user=user,
        state=next(state for state in _WORST_FIRST if state in states),
        submit_s=first.start_s if submit_s is None else submit_s,
        end_s=None if None in ends else max(end for end in ends if end is not None),
        n_nodes=math.ceil(gpus.total() / GPUS_PER_NODE),
        cpus=sum(task.cpus or 0 for task in tasks) or None,
        memory_mb=sum(task.memory_mb or 0.0 for task in tasks) or None,
        gpus=tuple(sorted(gpus.items(), key=str)),
    )
