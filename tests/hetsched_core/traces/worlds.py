"""Logs, allocations and options for tests of traces."""

from typing import Any

from hetsched_core.traces.load import LoadOptions
from hetsched_core.traces.sacct import (
    Allocation,
    JobState,
    SacctOptions,
    parse_fields,
    parse_zone,
)

NOON = 1_757_678_400.0
"""2025-09-12 12:00:00 UTC."""

UTC = LoadOptions(sacct=SacctOptions(zone=parse_zone("UTC")))

FOX = (
    "JobID,JobIDRaw,User,Account,State,Start,End,AveCPU,AveDiskRead,AveDiskWrite,AveRSS,AveVMSize,"
    "ElapsedRaw,ExitCode,Layout,MaxRSS,MaxVMSize,MinCPU,ReqCPUS,ReqMem,ReqNodes,Reservation,Submit,"
    "Suspended,SystemCPU,TimelimitRaw,UserCPU,NodeList,Partition,AllocTRES,Priority,JobName"
)
"""The columns of the log of Fox, which has no header; so are the next."""

HABROK = (
    "JobID,JobName,User,Partition,NodeList,NNodes,NCPUs,NTasks,State,Submit,Start,End,Timelimit,"
    "Elapsed,TotalCPU,CPUTime,UserCPU,SystemCPU,ReqMem,MaxRSS,MaxVMSize,ReqTRES,AllocTRES,..."
)


def columns(fields: str, zone: str = "UTC") -> SacctOptions:
    """Return how a log without header is read."""
    return SacctOptions(fields=parse_fields(fields), zone=parse_zone(zone))


def allocation(**changes: Any) -> Allocation:
    """Return what the sound row of the tests of sacct becomes: two A100s for an hour."""
    job_id = changes.get("job_id", "100")
    values: dict[str, Any] = {
        "job_id": job_id,
        "job_id_raw": job_id,
        "name": "train",
        "user": "ada",
        "account": "lab",
        "partition": "gpu",
        "state": JobState.COMPLETED,
        "submit_s": NOON + 7_200,
        "eligible_s": NOON + 7_200,
        "start_s": NOON + 7_800,
        "end_s": NOON + 11_400,
        "elapsed_s": 3_600.0,
        "suspended_s": 0.0,
        "time_limit_s": 7_200.0,
        "nodes": ("n1",),
        "n_nodes": 1,
        "cpus": 8,
        "memory_mb": 65_536.0,
        "gpus": (("a100", 2),),
        "requested_gpus": ((None, 2),),
        "restarts": 0,
        "doubts": (),
        "line": 2,
    }
    return Allocation(**(values | changes))
