"""Logs, allocations and options for tests of traces."""

from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from hetsched_core.traces.load import LoadOptions
from hetsched_core.traces.sacct import (
    LoggedAllocation,
    LoggedState,
    ReadReport,
    SacctOptions,
    Unusable,
    parse_fields,
    parse_zone,
    read_sacct,
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


def allocation(**changes: Any) -> LoggedAllocation:
    """Return what the sound row of the tests of sacct becomes: two A100s for an hour."""
    job_id = changes.get("job_id", "100")
    values: dict[str, Any] = {
        "job_id": job_id,
        "job_id_raw": job_id,
        "name": "train",
        "user": "ada",
        "account": "lab",
        "partition": "gpu",
        "qos": "normal",
        "state": LoggedState.COMPLETED,
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
    return LoggedAllocation(**(values | changes))


SOUND = {
    "JobID": "100",
    "JobIDRaw": "100",
    "User": "ada",
    "Account": "lab",
    "Partition": "gpu",
    "QOS": "normal",
    "State": "COMPLETED",
    "Submit": "2025-09-12T14:00:00",
    "Eligible": "2025-09-12T14:00:00",
    "Start": "2025-09-12T14:10:00",
    "End": "2025-09-12T15:10:00",
    "ElapsedRaw": "3600",
    "Suspended": "00:00:00",
    "TimelimitRaw": "120",
    "Restarts": "0",
    "NodeList": "n1",
    "ReqTRES": "billing=8,cpu=8,gres/gpu=2,mem=64G,node=1",
    "AllocTRES": "billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1",
    "JobName": "train",
}


@dataclass(frozen=True)
class Outcome:
    """What reading a log gave."""

    allocations: list[LoggedAllocation]
    report: ReadReport
    unusable: list[Unusable]

    @property
    def only(self) -> LoggedAllocation:
        """The one allocation of a log in which every line but the header is one."""
        assert not self.unusable, self.unusable
        (allocation,) = self.allocations
        return allocation

    @property
    def why(self) -> str:
        """Why the one line that cannot be used cannot be used."""
        (unusable,) = self.unusable
        return str(unusable)


def read_log(data: bytes, options: SacctOptions | None = None) -> Outcome:
    """Read bytes as a log, and check that every line is in exactly one class."""
    unusable: list[Unusable] = []
    log = read_sacct(BytesIO(data), options, unusable.append)
    allocations = list(log)
    report = log.report
    classes = (report.headers, report.blank, report.steps, report.never_started, report.no_gpu)
    assert report.lines == sum(classes) + report.used + report.unusable
    assert report.complete
    assert report.used == len(allocations)
    assert report.unusable == len(unusable) == sum(seen.count for seen in report.flaws.values())
    return Outcome(allocations, report, unusable)


class Endless:
    """A log that is made while it is read: a start, and rows as long as there are any."""

    def __init__(self, start: bytes, rows: Iterable[bytes]) -> None:
        self.rest = start
        self.rows = iter(rows)
        self.served = 0

    def read(self, size: int = -1, /) -> bytes:
        while len(self.rest) < size and (row := next(self.rows, None)) is not None:
            self.rest += row
        found, self.rest = self.rest[:size], self.rest[size:]
        self.served += len(found)
        return found


def read_rows(*changes: dict[str, str], options: SacctOptions | None = None) -> Outcome:
    """Read a log with a header and one row for each dict, which says what is not sound in it."""
    names = list(SOUND | {name: "" for change in changes for name in change})
    rows = ["|".join((SOUND | change).get(name, "") for name in names) for change in changes]
    return read_log("".join(f"{line}\n" for line in ("|".join(names), *rows)).encode(), options)
