"""Reading Slurm's records one by one, so that one that cannot be read costs no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from hetsched_core.errors import described
from slurm_plugin.backend.errors import BackendError
from slurm_plugin.backend.state import JobState, SlurmJob, SlurmNode, SlurmState

NodeRow = TypeVar("NodeRow")
JobRow = TypeVar("JobRow")
Row = TypeVar("Row")
Record = TypeVar("Record")


def state_of(
    nodes: Iterable[tuple[object, NodeRow]],
    node_of: Callable[[NodeRow], SlurmNode],
    jobs: Iterable[tuple[object, JobRow]],
    job_of: Callable[[JobRow], SlurmJob],
) -> SlurmState:
    """Return what can be read, and what cannot.

    Args:
        nodes: each node's name and record.
        node_of: reads a record of a node.
        jobs: each job's number and record.
        job_of: reads a record of a job.

    Raises:
        BackendError: none of the nodes, or of the jobs, can be read: this is another Slurm.
    """
    unread: dict[str, str] = {}
    read_nodes = _one_by_one("node", nodes, node_of, unread)
    read_jobs = _one_by_one("job", jobs, job_of, unread)
    found = {job.id: job for job in read_jobs}
    # What is left of an array whose last element was cancelled looks like its element 0.
    found |= {job.id: job for job in read_jobs if job.state is not JobState.ENDED}
    return SlurmState(tuple(read_nodes), found, unread=unread)


def _one_by_one(
    kind: str,
    rows: Iterable[tuple[object, Row]],
    read: Callable[[Row], Record],
    unread: dict[str, str],
) -> list[Record]:
    found, failed = [], ""
    for name, row in rows:
        try:
            found.append(read(row))
        except Exception as error:
            failed = f"{kind} {name}"
            unread[failed] = f"it cannot be read: {described(error)}"
    if failed and not found:
        raise BackendError(f"no {kind} of Slurm's can be read, such as {failed}: {unread[failed]}")
    return found
