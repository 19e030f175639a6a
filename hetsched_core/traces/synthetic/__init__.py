"""Workloads drawn by chance, with the statistics of large traces (docs/formats/workload.md)."""
