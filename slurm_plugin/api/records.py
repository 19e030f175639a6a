"""Slurm's own records of jobs, as questions name them."""

from __future__ import annotations

from collections.abc import Mapping

from slurm_plugin.backend import SlurmJob
from slurm_plugin.backend.arrays import MOST


def record_of(records: Mapping[str, SlurmJob], job: str) -> SlurmJob | None:
    """Return Slurm's record of a job: that of a gang's leader, or of elements kept as one."""
    if found := records.get(job) or records.get(f"{job}_0"):
        return found
    array, _, element = job.partition("_")
    return next(
        (
            each
            for each in records.values()
            if each.unsplit and each.array == array and _stands_for(each, element)
        ),
        None,
    )


def _stands_for(record: SlurmJob, element: str) -> bool:
    """Whether an element, or the array itself, is among those that a record stands for."""
    if not element.isdecimal():
        return not element
    number = int(element)
    # Of many elements only the first are told.
    return number in record.unsplit or (len(record.unsplit) >= MOST and number > record.unsplit[-1])
