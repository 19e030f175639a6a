"""Jobs, clusters and speeds that several pages replay, and how they are replayed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from hetsched_core.policy import Policy
from hetsched_core.records.runlog import RunLog
from hetsched_core.simulate import Estimates, SimulationSettings, simulate
from hetsched_core.traces.bundled import cluster_path, log_path
from hetsched_core.traces.cluster_file import ClusterFile, read_cluster
from hetsched_core.traces.infer_cluster import infer_cluster
from hetsched_core.traces.load import LoadOptions, ReplayInputs, load_workload
from hetsched_core.traces.sacct import SacctOptions, parse_fields, parse_zone
from hetsched_core.traces.slurm_nodes import read_scontrol
from hetsched_core.traces.workload import Workload
from hetsched_core.types import Cluster, Node, Speeds, Submission

THROUGHPUTS = "throughputs/gavel_simulation_throughputs.json.gz"
GPUS_A_NODE = 4
PHYSICAL = (("v100", 8), ("p100", 16), ("k80", 24))
"""The GPUs of Gavel's physical cluster."""

FOX_FIELDS = (
    "JobID,JobIDRaw,User,Account,State,Start,End,AveCPU,AveDiskRead,AveDiskWrite,AveRSS,AveVMSize,"
    "ElapsedRaw,ExitCode,Layout,MaxRSS,MaxVMSize,MinCPU,ReqCPUS,ReqMem,ReqNodes,Reservation,Submit,"
    "Suspended,SystemCPU,TimelimitRaw,UserCPU,NodeList,Partition,AllocTRES,Priority,JobName"
)
HABROK_FIELDS = (
    "JobID,JobName,User,Partition,NodeList,NNodes,NCPUs,NTasks,State,Submit,Start,End,Timelimit,"
    "Elapsed,TotalCPU,CPUTime,UserCPU,SystemCPU,ReqMem,MaxRSS,MaxVMSize,ReqTRES,AllocTRES,..."
)


@cache
def gavel(folder: Path, trace: str, gpus: tuple[tuple[str, int], ...]) -> ReplayInputs:
    """Return a trace of Gavel's on nodes of four GPUs, so many GPUs of each type."""
    nodes = tuple(
        Node(f"{gpu_type}-{number}", gpu_type, GPUS_A_NODE)
        for gpu_type, count in gpus
        for number in range(count // GPUS_A_NODE)
    )
    files = (folder / "workloads" / trace, folder / THROUGHPUTS)
    return load_workload(files, ClusterFile(Cluster(nodes)))


def bundled(seed: int = 0, *, elastic: bool = False) -> ReplayInputs:
    """Return the log that comes with the project, its models drawn with this seed.

    `elastic` jobs accept several counts.
    """
    options = LoadOptions(elastic=elastic, seed=seed)
    return load_workload((log_path(),), read_cluster(cluster_path()), options)


def fox(folder: Path, seed: int = 0) -> ReplayInputs:
    """Return the log of Fox on the cluster that it shows."""
    sacct = SacctOptions(fields=parse_fields(FOX_FIELDS), zone=parse_zone("Europe/Oslo"))
    options = LoadOptions(sacct=sacct, seed=seed)
    return load_workload((folder / "sacct/fox_sacct_P_noheader.txt",), None, options)


def habrok(folder: Path, seed: int = 0) -> ReplayInputs:
    """Return the log of Hábrók on the cluster that scontrol shows."""
    nodes = read_scontrol((folder / "sacct/habrok_scontrol_nodes.txt").read_text())
    sacct = SacctOptions(fields=parse_fields(HABROK_FIELDS), zone=parse_zone("Europe/Amsterdam"))
    cluster = ClusterFile(infer_cluster(scontrol=nodes).cluster)
    options = LoadOptions(sacct=sacct, seed=seed)
    return load_workload((folder / "sacct/habrok_sacct_snowman.txt",), cluster, options)


def made_up(jobs: Iterable[Submission], cluster: Cluster, speeds: Speeds) -> ReplayInputs:
    """Return jobs that no file holds."""
    return ReplayInputs(workload=Workload(tuple(jobs)), speeds=speeds, cluster=cluster)


def run(
    loaded: ReplayInputs,
    policy: Policy,
    settings: SimulationSettings,
    estimates: Estimates | None = None,
) -> RunLog:
    """Return what a policy makes of jobs; it knows the true speeds unless estimates are given."""
    jobs, cluster = loaded.workload.submissions, loaded.cluster
    return simulate(jobs, cluster, policy, loaded.speeds, settings, estimates=estimates)


Variant = tuple[str, Mapping[str, str]]
"""A policy and its parameters."""


def name_of(variant: Variant) -> str:
    """Return a policy's name with the parameters that are not default."""
    return " ".join((variant[0], *variant[1].values()))
