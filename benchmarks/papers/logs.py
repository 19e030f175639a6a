"""Figures of docs/reproduction/logs.md: how close replays of accounting logs come to them.

    HETSCHED_DATA=... python -m benchmarks.papers.logs

writes them between the markers of the page (about ten seconds).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.papers.page import PAGES, filled
from benchmarks.papers.throughput import markdown
from hetsched_core.measures.logged import Closeness, closeness
from hetsched_core.policy import make_policy
from hetsched_core.report.history import LoggedHistory
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.traces.bundled import cluster_path, log_path
from hetsched_core.traces.cluster_file import ClusterFile, read_cluster
from hetsched_core.traces.infer_cluster import infer_cluster
from hetsched_core.traces.load import LoadOptions, ReplayInputs, load_workload
from hetsched_core.traces.sacct import SacctOptions, parse_fields, parse_zone
from hetsched_core.traces.slurm_nodes import read_scontrol

PAGE = PAGES / "logs.md"
SEEDS = range(4)
FOX = (
    "JobID,JobIDRaw,User,Account,State,Start,End,AveCPU,AveDiskRead,AveDiskWrite,AveRSS,AveVMSize,"
    "ElapsedRaw,ExitCode,Layout,MaxRSS,MaxVMSize,MinCPU,ReqCPUS,ReqMem,ReqNodes,Reservation,Submit,"
    "Suspended,SystemCPU,TimelimitRaw,UserCPU,NodeList,Partition,AllocTRES,Priority,JobName"
)
HABROK = (
    "JobID,JobName,User,Partition,NodeList,NNodes,NCPUs,NTasks,State,Submit,Start,End,Timelimit,"
    "Elapsed,TotalCPU,CPUTime,UserCPU,SystemCPU,ReqMem,MaxRSS,MaxVMSize,ReqTRES,AllocTRES,..."
)


def bundled(seed: int = 0) -> ReplayInputs:
    """Return the log that comes with the project, its models drawn with this seed."""
    return load_workload((log_path(),), read_cluster(cluster_path()), LoadOptions(seed=seed))


def fox(folder: Path, seed: int = 0) -> ReplayInputs:
    """Return the log of Fox on the cluster that it shows."""
    sacct = SacctOptions(fields=parse_fields(FOX), zone=parse_zone("Europe/Oslo"))
    options = LoadOptions(sacct=sacct, seed=seed)
    return load_workload((folder / "fox_sacct_P_noheader.txt",), None, options)


def habrok(folder: Path, seed: int = 0) -> ReplayInputs:
    """Return the log of Hábrók on the cluster that scontrol shows."""
    nodes = read_scontrol((folder / "habrok_scontrol_nodes.txt").read_text())
    sacct = SacctOptions(fields=parse_fields(HABROK), zone=parse_zone("Europe/Amsterdam"))
    cluster = ClusterFile(infer_cluster(scontrol=nodes).cluster)
    options = LoadOptions(sacct=sacct, seed=seed)
    return load_workload((folder / "habrok_sacct_snowman.txt",), cluster, options)


def slurm_beside(loaded: ReplayInputs, seed: int = 0) -> Closeness:
    """Return how close `slurm` comes to the log."""
    submissions = loaded.workload.submissions
    log = simulate(
        submissions,
        loaded.cluster,
        make_policy("slurm"),
        loaded.speeds,
        SimulationSettings(seed=seed),
    )
    found = closeness(submissions, log.jobs)
    assert found is not None
    return found


def row(name: str, loaded: ReplayInputs) -> list[str]:
    """Return a log's line of the table."""
    found = slurm_beside(loaded)
    history = LoggedHistory.of(loaded.workload.submissions)
    assert history is not None
    held, rank = history.held_while_waiting(), found.wait_rank_correlation
    return [
        f"{name}, {found.jobs} jobs",
        f"{_hours(found.avg_logged_wait_s)} / {_hours(found.avg_wait_s)}",
        f"{found.close_share:.0%} / {found.waited_close} of {found.waited}",
        f"{_hours(found.p50_error_s)} / {_hours(found.p90_error_s)}",
        "–" if rank is None else f"{rank:.2f}",
        f"{held or 0.0:.1f} of {loaded.cluster.gpus}",
    ]


def seeds() -> Iterator[list[str]]:
    """Yield what the draw of the models changes of the bundled log."""
    for seed in SEEDS:
        found = slurm_beside(bundled(seed), seed)
        assert found.wait_rank_correlation is not None
        yield [
            str(seed),
            _hours(found.avg_wait_s),
            f"{found.close_share:.0%} / {found.waited_close} of {found.waited}",
            f"{found.wait_rank_correlation:.2f}",
        ]


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f} h"


def main() -> int:
    """Rewrite the page."""
    data = os.environ.get("HETSCHED_DATA")
    if not data:
        sys.stderr.write("HETSCHED_DATA is not set: it names the directory of public logs\n")
        return 1
    folder = Path(data) / "sacct"
    closest = "starts within 5 min: all jobs / those that wait"
    heads = [
        "log",
        "mean wait, logged / `slurm`",
        closest,
        "off by: median / 90th percentile",
        "rank correlation of waits",
        "GPUs in use",
    ]
    logs = [
        row("bundled", bundled()),
        row("Fox (University of Oslo)", fox(folder)),
        row("Hábrók (University of Groningen)", habrok(folder)),
    ]
    figures = {
        "logs": markdown(heads, logs),
        "seeds": markdown(["seed", "mean wait", closest, "rank correlation of waits"], seeds()),
    }
    PAGE.write_text(filled(PAGE.read_text(), figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
