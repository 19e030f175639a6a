"""What a policy is shown: everything it is allowed to know, at one instant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from immutables import Map

from hetsched_core.types.cluster import ALL_SHAPES, Cluster, NodeView, Shape
from hetsched_core.types.ended import NONE_ENDED, EndedJobs
from hetsched_core.types.job import Job, JobView, Submission
from hetsched_core.types.making import cheaply_made
from hetsched_core.types.plan import EMPTY_PLAN, Plan, Trigger
from hetsched_core.types.site import Site
from hetsched_core.types.speeds import Speeds
from hetsched_core.types.window import Window


@dataclass(frozen=True, slots=True)
class Round:
    """A scheduling round: number and bounds (seconds UTC) on the grid of `round_s`."""

    index: int
    start_s: float
    end_s: float


@cheaply_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that is known at `now`, for one policy.

    A snapshot is persistent: it may be kept, sent to a thread or recorded, and costs by the number
    of changes since the last one. `jobs` and `nodes` have no order of their own; every loop over
    jobs sorts by a key that ends in `submission_order`.

    Attributes:
        now: seconds UTC.
        triggers: why a plan is asked for.
        round: the present round.
        cluster: all nodes, whatever their condition.
        nodes: node name -> how it stands.
        jobs: job id -> what is known of each active job.
        speeds: estimates of samples/s; in a replay `profiles` lists those of the whole workload,
            also of jobs that have not arrived.
        ended: the latest jobs that told no size and ended with their work done: they stand in for
            the sizes of the next ones.
        effective_s: when a plan made now takes effect (UTC).
        grace_s: how long a stopped run is expected to keep its GPUs.
        shapes: the shapes of configuration that can be realised here for every job. They, and those
            of a job, may change; a job for which `shapes_for` says other ones is in `changed`.
        runs_per_job: how many runs one job may have at a time, profiling runs counted; None for
            any number. Live it is 1, but for copies: a gang is one Slurm job.
        seed: for policies that draw random numbers.
        previous: the plan in force; its `memory` is the policy's own.
        changed: jobs that are new or whose view was replaced since `previous` was asked for.
        gone: jobs of `previous` that are no longer active.
        nodes_changed: whether a node's condition or foreign use has changed since `previous` was
            asked for; what runs of ours hold does not count.
        windows: spans in which nodes are closed, that have not ended. What they close to a job now
            stands in `Job.closed`; a policy that looks ahead may look at them.
        site: what the site says of who comes first and who may have how much, with use of late in
            steps of minutes; None where it says nothing, and all jobs are of one tier.
        asleep: nodes that a job would have to wake; they count as open.
    """

    now: float
    triggers: frozenset[Trigger]
    round: Round
    cluster: Cluster
    nodes: Map[str, NodeView]
    jobs: Map[str, JobView]
    speeds: Speeds
    effective_s: float
    grace_s: float = 0.0
    shapes: frozenset[Shape] = ALL_SHAPES
    runs_per_job: int | None = None
    seed: int = 0
    ended: EndedJobs = NONE_ENDED
    previous: Plan = EMPTY_PLAN
    changed: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    nodes_changed: bool = True
    windows: tuple[Window, ...] = ()
    site: Site | None = None
    asleep: frozenset[str] = frozenset()

    def shapes_for(self, job: Job) -> frozenset[Shape]:
        """Return the shapes that can be realised for a job."""
        return self.shapes | job.shapes if job.shapes else self.shapes

    def by_submission(self) -> list[JobView]:
        """Return the active jobs in the order of submission."""
        return sorted(self.jobs.values(), key=submission_order)

    def node_views(self) -> Iterator[NodeView]:
        """Yield the nodes as they stand, in the cluster's order."""
        for node in self.cluster:
            yield self.nodes[node.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineSnapshot(Snapshot):
    """A snapshot that also shows the future: every job still to arrive, with its true size.

    Only a policy that declares `Knowledge.FUTURE_ARRIVALS` gets one, and only in a replay.
    """

    future: tuple[Submission, ...] = ()

    @classmethod
    def of(cls, snapshot: Snapshot, future: tuple[Submission, ...]) -> OfflineSnapshot:
        """Return the snapshot with the future added."""
        known = {field.name: getattr(snapshot, field.name) for field in fields(Snapshot)}
        return cls(**known, future=future)


def submission_order(view: JobView) -> tuple[float, str]:
    """Key that sorts jobs by submission and tells apart those of the same instant."""
    return (view.job.submit_s, view.job.id)
