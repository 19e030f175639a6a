"""Write the bundled log and cluster: `python -m hetsched_core.traces.bundled.generate [FOLDER]`.

A small university cluster for four days of submissions and the tail after them. Arrivals follow the
hours of the day and come in bursts, durations and GPU counts are heavy-tailed, and a scheduler
decides when and where a job runs, so that no GPU is held twice. One seed, the same bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from hetsched_core.traces.bundled.jobs import DAY, Job, Request, Run, draw_jobs, make_cluster
from hetsched_core.traces.bundled.scheduler import WRITTEN, Scheduler
from hetsched_core.traces.cluster_file import ClusterFile, fold_names, format_cluster

SEED = 5
BEGIN = datetime(2025, 3, 3, tzinfo=UTC)
"""Midnight of a Monday. Nothing runs yet; everywhere else times are seconds since then."""
COLUMNS = (
    *("JobID", "JobIDRaw", "JobName", "User", "Account", "Partition", "State"),
    *("Submit", "Eligible", "Start", "End", "ElapsedRaw", "TimelimitRaw"),
    *("NNodes", "NCPUS", "ReqMem", "ReqTRES", "AllocTRES", "NodeList", "Restarts", "ExitCode"),
)
EXTERN_SINCE = 3 * DAY
"""From here on the site has PrologFlags=Contain, and with it a step .extern for every run."""
EXIT_CODES = {"FAILED": "1:0", "OUT_OF_MEMORY": "0:125", "NODE_FAIL": "1:0"}
STEP_ENDS = {
    "COMPLETED": ("COMPLETED", "0:0"),
    "FAILED": ("FAILED", "1:0"),
    "OUT_OF_MEMORY": ("OUT_OF_MEMORY", "0:125"),
    "RUNNING": ("RUNNING", "0:0"),
}


def sacct_lines(jobs: list[Job]) -> Iterator[str]:
    """Yield the header, and a line for each run of a job and for each of its steps."""
    yield "|".join(COLUMNS)
    for job in jobs:
        for restarts, run in enumerate(job.runs):
            yield _run_line(job, run, restarts)
            if run.start is not None:
                yield from _step_lines(job, run, run.start)


def _run_line(job: Job, run: Run, restarts: int) -> str:
    request, started = job.request, run.start is not None
    never = "Unknown" if run.end is None else "None"
    return _line(
        JobID=job.id,
        JobIDRaw=job.raw_id,
        JobName=request.kind.name,
        User=f"user{request.user:02d}",
        Account=request.account,
        Partition="normal" if request.on_cpus else "gpu",
        State=run.state,
        Submit=_time(run.submit),
        Eligible=_time(run.eligible),
        Start=_time(run.start, never),
        End=_time(run.end),
        ElapsedRaw=0 if run.start is None else (run.end or WRITTEN) - run.start,
        TimelimitRaw=request.limit_min,
        NNodes=request.nodes,
        NCPUS=request.cpus if started else 0,
        ReqMem=f"{request.mem_gb}G",
        ReqTRES=f"billing={request.cpus},{_tres(request, request.asked_type, request.nodes)}",
        AllocTRES=f"billing={request.cpus},{_tres(request, run.gpu_type, request.nodes)}"
        if started
        else "",
        NodeList=_nodes(run.hosts),
        Restarts=restarts,
        ExitCode=EXIT_CODES.get(run.state, "0:0"),
    )


def _step_lines(job: Job, run: Run, start: int) -> Iterator[str]:
    request = job.request
    state, exit_code = STEP_ENDS.get(run.state, ("CANCELLED", "0:15"))
    extern = "RUNNING" if run.end is None else "COMPLETED"
    # (step, name, seconds after the run, nodes, state, exit code)
    steps = [("batch", "batch", 0, 1, state, exit_code)]
    if start >= EXTERN_SINCE:
        steps.append(("extern", "extern", 0, request.nodes, extern, "0:0"))
    ran_on = WRITTEN if run.end is None else run.end
    if request.nodes > 1 and ran_on > start:
        steps.append(("0", "python", 1, request.nodes, state, exit_code))
    for step, name, delay, nodes, step_state, code in steps:
        begun = _time(start + delay)
        yield _line(
            JobID=f"{job.id}.{step}",
            JobIDRaw=f"{job.raw_id}.{step}",
            JobName=name,
            Account=request.account,
            State=step_state,
            Submit=begun,
            Eligible=begun,
            Start=begun,
            End=_time(run.end),
            ElapsedRaw=ran_on - start - delay,
            NNodes=nodes,
            NCPUS=request.cpus // request.nodes * nodes,
            AllocTRES=_tres(request, run.gpu_type, nodes),
            NodeList=_nodes(run.hosts[:nodes]),
            ExitCode=code,
        )


def _line(**columns: str | int) -> str:
    return "|".join(str(columns.get(name, "")) for name in COLUMNS)


def _time(seconds: int | None, none: str = "Unknown") -> str:
    if seconds is None:
        return none
    return (BEGIN + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


def _tres(request: Request, gpu_type: str, nodes: int) -> str:
    """Return the resources on so many of a job's nodes; without a type GPUs are untyped."""
    cpus, mem_gb = (whole // request.nodes * nodes for whole in (request.cpus, request.mem_gb))
    gpus = request.per_node * nodes
    typed = f"gres/gpu:{gpu_type}={gpus}," if gpu_type else ""
    gres = "" if request.on_cpus else f"{typed}gres/gpu={gpus},"
    return f"cpu={cpus},{gres}mem={mem_gb}G,node={nodes}"


def _nodes(hosts: tuple[str, ...]) -> str:
    return fold_names(hosts) if hosts else "None assigned"


# Files --------------------------------------------------------------------------------------------


def generate(folder: Path) -> None:
    """Write `sacct.txt` and `cluster.toml` to a folder."""
    cluster = make_cluster()
    jobs = draw_jobs(Random(SEED))
    Scheduler(cluster).run(jobs)
    text = "".join(f"{line}\n" for line in sacct_lines(jobs))
    (folder / "sacct.txt").write_text(text, encoding="utf-8", newline="\n")
    comment = "The generated cluster of sacct.txt: the nodes with GPUs of a small university."
    text = format_cluster(ClusterFile(cluster), [comment])
    (folder / "cluster.toml").write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    generate(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent))
