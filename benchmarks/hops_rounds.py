"""A round of Hops on clusters of any size: what `test_hops.py` and `hops_scale.py` measure.

Five GPU types on nodes of 8, requirement sets and speeds as in
`tests.hetsched_core.choose.instances`, latency ratios exponential. The round is the second one:
what the first one placed runs, and keeps its nodes or moves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hetsched_core.measures.fairness import RunTimes
from hetsched_core.policies.hops.hops import Hops
from hetsched_core.types import (
    EMPTY_PLAN,
    Cluster,
    Job,
    JobView,
    Layer,
    Node,
    Placed,
    Plan,
    RequirementSet,
    Round,
    Run,
    Snapshot,
    Speeds,
    SpeedTable,
    Trigger,
)
from tests.hetsched_core.choose.instances import NODE_GPUS, TYPES, requirement_sets, speeds
from tests.hetsched_core.worlds import snapshot_of

PROFILES = 200
ROUND_S = 360.0
RESTART_S = 10.0
FIRST_S = 1e6
SIZES = {512: (500, 5e-4), 2048: (2000, 1e-3), 16_384: (8000, 5e-3), 100_000: (50_000, 1e-2)}
"""Jobs offered and the gap asked for, by GPUs."""


@dataclass(frozen=True)
class TwoRounds:
    """The first round of a cluster, when all jobs wait, and the second one, when some run."""

    policy: Hops
    first: Snapshot
    second: Snapshot


def cluster_of(gpus: int) -> Cluster:
    """Return nodes of 8 GPUs, as many of each type as of any other, give or take one."""
    nodes = gpus // NODE_GPUS
    kinds = np.sort(np.arange(nodes) % TYPES).tolist()
    return Cluster(
        tuple(Node(f"n{at:05d}", f"type{kind}", NODE_GPUS) for at, kind in enumerate(kinds))
    )


def speeds_of(cluster: Cluster, draw: np.random.Generator) -> Speeds:
    """Return the speeds of so many profiles, all of them measured."""
    counts = np.arange(1, 17)
    near, far = (total / counts for total in speeds(draw, PROFILES))
    layers = np.full(near.shape[1:], Layer.ENTITY, np.int8)
    tables = {
        f"m{at}": SpeedTable(cluster.gpu_types, counts, near[at], far[at], layers)
        for at in range(PROFILES)
    }
    return Speeds(cluster, tables)


def rounds(gpus: int, offered: int, gap: float, seed: int = 0) -> TwoRounds:
    """Return the rounds of a cluster with so many jobs."""
    draw = np.random.default_rng(seed)
    cluster = cluster_of(gpus)
    known = speeds_of(cluster, draw)
    times = RunTimes(known, cluster)
    accepted = requirement_sets(draw, offered)
    profile = draw.integers(PROFILES, size=offered).tolist()
    samples = draw.uniform(1e3, 1e5, offered).tolist()
    ratio = draw.exponential(size=offered).tolist()
    views = []
    for at in range(offered):
        counts = tuple((1 + np.flatnonzero(accepted[at])).tolist())
        job = Job(
            f"j{at:06d}",
            FIRST_S - offered + at,
            RequirementSet(counts),
            f"m{profile[at]}",
            total_samples=samples[at],
        )
        wait_s = ratio[at] * (times.expected_run_s(job, samples[at]) or 0.0)
        views.append(JobView(job, observed_s=FIRST_S, restart_cost_s=RESTART_S, wait_s=wait_s))
    policy = Hops(gap=gap)
    first = shown(cluster, known, views, FIRST_S)
    plan = policy.plan(first)
    running = [run(view, plan, FIRST_S) for view in views]
    return TwoRounds(policy, first, shown(cluster, known, running, FIRST_S + ROUND_S, plan))


def shown(
    cluster: Cluster, known: Speeds, views: list[JobView], now: float, previous: Plan = EMPTY_PLAN
) -> Snapshot:
    """Return what the policy sees when a round begins."""
    begins = frozenset({Trigger.ROUND})
    seen = snapshot_of(cluster, views, now=now, speeds=known, triggers=begins, previous=previous)
    return replace(seen, round=Round(0, now, now + ROUND_S))


def run(view: JobView, plan: Plan, now: float) -> JobView:
    """Return what a job looks like once the plan is carried out."""
    entry = plan.entries[view.id]
    if not isinstance(entry, Placed):
        return view
    started = Run(0, entry.placements[0].configuration, now, now, 1.0)
    return replace(view, runs=(started,), first_start_s=now, observed_s=now)


def held_gpus(plan: Plan) -> int:
    """Return the GPUs of all jobs that a plan places."""
    return sum(
        entry.placements[0].configuration.gpus
        for entry in plan.entries.values()
        if isinstance(entry, Placed)
    )
