"""A log of a few rows, made of one sound row and what is different in each."""

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO

import pytest

from hetsched_core.traces.sacct import Allocation, ReadReport, SacctOptions, Unusable, read_sacct

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

    allocations: list[Allocation]
    report: ReadReport
    unusable: list[Unusable]

    @property
    def only(self) -> Allocation:
        """The one allocation of a log in which every line but the header is one."""
        assert not self.unusable, self.unusable
        (allocation,) = self.allocations
        return allocation

    @property
    def why(self) -> str:
        """Why the one line that cannot be used cannot be used."""
        (unusable,) = self.unusable
        return str(unusable)


def read_bytes(data: bytes, options: SacctOptions | None = None) -> Outcome:
    unusable: list[Unusable] = []
    log = read_sacct(BytesIO(data), options, unusable.append)
    allocations = list(log)
    report = log.report
    classes = (report.headers, report.blank, report.steps, report.never_started, report.no_gpu)
    assert report.lines == sum(classes) + report.used + report.unusable
    assert report.complete
    assert report.used == len(allocations)
    assert report.unusable == len(unusable) == sum(flaw.count for flaw in report.flaws)
    return Outcome(allocations, report, unusable)


@pytest.fixture
def read_log() -> Callable[..., Outcome]:
    """Read bytes as a log, and check that every line is in exactly one class."""
    return read_bytes


@pytest.fixture
def read_rows() -> Callable[..., Outcome]:
    """Read a log with a header and one row for each dict, which says what is not sound in it."""

    def read(*changes: dict[str, str], options: SacctOptions | None = None) -> Outcome:
        names = list(SOUND | {name: "" for change in changes for name in change})
        rows = [
            "|".join((SOUND | change).get(name, "") for name in names) + "\n" for change in changes
        ]
        return read_bytes(("|".join(names) + "\n" + "".join(rows)).encode(), options)

    return read
