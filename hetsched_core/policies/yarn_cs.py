"""YARN-CS: a capacity scheduler with one queue, as deep-learning papers compare with.

Source: Apache Hadoop's capacity scheduler, as configured in the evaluations of Tiresias (Gu et al.,
NSDI '19, section 5) and Hadar (IPDPS '24): first in, first out, no preemption. GPUs are all the
same to it: a job takes the first node, in the cluster's order, that holds it.

It knows neither speeds nor sizes (of speeds only on which types a job runs at all).

Deviations. One queue, so that no shares of queues come into it. A job is all on one GPU type, in
the order in which the cluster names them. A job that no node holds alone takes the fewest nodes.
Jobs are rigid: the lower median of the requirement set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched_core.placement.free import FreeGpus, on_one_node
from hetsched_core.placement.one_type import serve_line
from hetsched_core.placement.ways import Way
from hetsched_core.policy import PolicyInfo
from hetsched_core.types import Configuration, Job, Plan, Shape, Snapshot


@dataclass(frozen=True)
class YarnCs:
    """Serve one line, each job on the first nodes that hold it."""

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="yarn-cs",
        summary="one line by submission, no preemption, first nodes that fit, blind to GPU types",
        paper="YARN capacity scheduler as in Tiresias (Gu et al., NSDI '19, section 5)",
        replay_only="it is a rival for comparisons; Slurm itself does better with `sched/builtin`",
    )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Keep what runs; start what is first."""
        return serve_line(snapshot, first_fit)


def first_fit(
    snapshot: Snapshot, free: FreeGpus, job: Job, way: Way, types: tuple[str, ...]
) -> Configuration | None:
    """Return the first node of these types that holds the job, else the fewest nodes of one."""
    for node in snapshot.cluster if job.min_nodes == 1 else ():
        if not job.may_start_on(node.name):
            continue
        if node.gpu_type in types and node.gpus >= way.count:
            found = on_one_node(node.name, way.count)
            if free.fits(job, found) and not free.closed(node.name):
                return found
    if way.count < 2 or Shape.EVEN not in snapshot.shapes:
        return None
    even = Shape.UNEVEN not in snapshot.shapes
    for gpu_type in snapshot.cluster.gpu_types:
        if gpu_type not in types:
            continue
        if snapshot.speeds.per_gpu(job.profile, gpu_type, way.count, nodes=2) <= 0:
            continue
        several = free.fewest_nodes(job, (gpu_type,), way.count, even=even)
        if several is not None:
            return several
    return None
