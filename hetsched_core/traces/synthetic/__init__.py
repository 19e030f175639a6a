"""Workloads drawn by chance, with the statistics of large traces (docs/formats/workload.md)."""

from hetsched_core.traces.synthetic.cluster import synthetic_cluster
from hetsched_core.traces.synthetic.jobs import SyntheticWorkload
from hetsched_core.traces.synthetic.options import (
    TRACES,
    GpuClass,
    SyntheticOptions,
    TraceStatistics,
)

__all__ = [
    "TRACES",
    "GpuClass",
    "SyntheticOptions",
    "SyntheticWorkload",
    "TraceStatistics",
    "synthetic_cluster",
]
