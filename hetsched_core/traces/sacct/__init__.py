"""Slurm's accounting output as a stream of GPU allocations.

`read_sacct` reads a log, `link_runs` puts the runs of each job together. The format, and what
becomes of each of its oddities, is described in `docs/formats/sacct.md`.
"""

from hetsched_core.traces.sacct.allocation import Doubt, GpuCounts, LoggedAllocation, LoggedState
from hetsched_core.traces.sacct.clock import parse_zone
from hetsched_core.traces.sacct.fields import FieldError, JobId, expand_nodes, parse_job_id
from hetsched_core.traces.sacct.layout import EXPORT, parse_fields
from hetsched_core.traces.sacct.log import SacctLog, SacctOptions, read_sacct
from hetsched_core.traces.sacct.report import (
    Flaw,
    ReadReport,
    SacctFormat,
    Unusable,
    warnings_of,
    why_no_job,
)
from hetsched_core.traces.sacct.runs import JobRuns, link_runs

__all__ = [
    "EXPORT",
    "Doubt",
    "FieldError",
    "Flaw",
    "GpuCounts",
    "JobId",
    "JobRuns",
    "LoggedAllocation",
    "LoggedState",
    "ReadReport",
    "SacctFormat",
    "SacctLog",
    "SacctOptions",
    "Unusable",
    "expand_nodes",
    "link_runs",
    "parse_fields",
    "parse_job_id",
    "parse_zone",
    "read_sacct",
    "warnings_of",
    "why_no_job",
]
