"""From the partitions that jobs name to the nodes on which they may run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hetsched_core.errors import InputError
from hetsched_core.traces.cluster_file import ClusterFile
from hetsched_core.traces.workload import Workload
from hetsched_core.types import Cluster, Submission


def limited_to_partitions(workload: Workload, file: ClusterFile) -> Workload:
    """Return the workload with each job on the nodes of its partitions, where these are described.

    A job that says itself on which nodes it may run keeps to what it says; one may name several
    partitions, with commas between them, and runs on the nodes of all of them. Jobs of partitions
    that are not described may run on all nodes, and an assumption says how many these are.

    Raises:
        InputError: A job says that it may run on a node that the cluster does not have.
    """
    _require_nodes(workload, file.cluster)
    if not file.partitions:
        return workload
    everything = frozenset(file.cluster.names)
    sets: dict[str, frozenset[str] | None] = {}
    unknown: Counter[str] = Counter()
    submissions = []
    for submission in workload.submissions:
        job = submission.job
        if job.nodes is None and job.partition:
            if job.partition not in sets:
                sets[job.partition] = _nodes_of(job.partition, file, everything, sets)
            nodes = sets[job.partition]
            if not any(name in file.partitions for name in job.partition.split(",")):
                unknown[job.partition] += 1
            if nodes is not None:
                submission = replace(submission, job=replace(job, nodes=nodes))
        submissions.append(submission)
    assumptions = workload.assumptions
    if unknown:
        names = ", ".join(sorted(unknown))
        said = f"{unknown.total()} jobs of partitions without nodes in the cluster file ({names})"
        assumptions = (*assumptions, f"{said} may run on all nodes.")
    return replace(workload, submissions=tuple(submissions), assumptions=assumptions)


def _nodes_of(
    partition: str,
    file: ClusterFile,
    everything: frozenset[str],
    known: dict[str, frozenset[str] | None],
) -> frozenset[str] | None:
    """The nodes of these partitions, the same object as for others with just these; None: all."""
    mine = [file.partitions[name] for name in partition.split(",") if name in file.partitions]
    nodes = frozenset().union(*mine)
    if not mine or nodes == everything:
        return None
    return next((other for other in known.values() if other == nodes), nodes)


def _require_nodes(workload: Workload, cluster: Cluster) -> None:
    looked_at: set[frozenset[str]] = set()

    def strange(submission: Submission) -> list[str]:
        nodes = submission.job.nodes
        if nodes is None or nodes in looked_at:
            return []
        looked_at.add(nodes)
        return sorted(name for name in nodes if name not in cluster)

    for submission in workload.submissions:
        if names := strange(submission):
            raise InputError(
                f"job {submission.job.id!r} may run on {', '.join(names[:5])}: no such node in "
                f"cluster {cluster.name!r}, which has {', '.join(cluster.names[:5])} and so on; "
                "mend its key nodes, or give the cluster that it is for"
            )
