"""How long Hadar takes over one decision, 32 to 2,048 jobs with the cluster growing with them.

The paper: less than 7 minutes at 2,000 jobs, similar to Gavel. The baseline of the same run is
`gavel`, its shares computed anew. `pytest benchmarks/test_hadar.py --benchmark-only`.
"""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace

import pytest
from immutables import Map
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.conftest import least_s
from benchmarks.test_policies import ROUND_S, big_snapshot, profiles
from hetsched_core.policy import make_policy
from hetsched_core.types import (
    Cluster,
    Job,
    JobView,
    Node,
    Placed,
    Plan,
    RequirementSet,
    Run,
    Snapshot,
    Speeds,
    Trigger,
)

SIZES = (32, 128, 512, 2048)
GPUS_A_NODE = 8
KINDS = 26


def cluster_for(gpus: int) -> Cluster:
    """Three types in turn, nodes of 8 GPUs."""
    types = ("v100", "p100", "k80")
    return Cluster(
        tuple(Node(f"n{at}", types[at % 3], GPUS_A_NODE) for at in range(gpus // GPUS_A_NODE))
    )


def first_round(jobs: int) -> Snapshot:
    """All jobs wait for an idle cluster of as many GPUs; they want 1.8 times as many."""
    draw = random.Random(7)
    cluster = cluster_for(jobs)
    views = []
    for at in range(jobs):
        count = draw.choice((1, 1, 1, 1, 2, 4, 8)) if at % 2 else 1
        job = Job(
            f"j{at:05}",
            float(at),
            RequirementSet((count,)),
            f"m{at % KINDS}",
            total_samples=10 ** draw.uniform(4, 7),
        )
        views.append(JobView(job, 3600.0))
    return big_snapshot(views, cluster, Speeds(cluster, profiles(KINDS, draw)), 3600.0)


def later_round(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """A round later: who was placed runs, a tenth of them has ended."""
    draw = random.Random(11)
    now = snapshot.now + ROUND_S
    jobs, nodes = {}, dict(snapshot.nodes)
    for name, view in snapshot.jobs.items():
        entry = plan.entries[name]
        if isinstance(entry, Placed):
            if draw.random() < 0.1:
                continue
            where = entry.placements[0].configuration
            run = Run(0, where, snapshot.now, snapshot.now, 1.0)
            view = replace(view, observed_s=now, runs=(run,), first_start_s=snapshot.now)
            for node, gpus in where:
                nodes[node] = nodes[node].holding(gpus, 0.0, 0.0)
        jobs[name] = view
    return replace(
        snapshot,
        now=now,
        jobs=Map(jobs),
        nodes=Map(nodes),
        previous=plan,
        triggers=frozenset({Trigger.ROUND}),
        changed=frozenset(jobs),
        gone=frozenset(plan.entries) - frozenset(jobs),
    )


@pytest.mark.parametrize("moment", ["first", "later"])
@pytest.mark.parametrize("jobs", SIZES)
@pytest.mark.parametrize(
    ("policy", "settings", "most_s"),
    [
        ("hadar", {}, 1.0),
        ("hadar", {"replan": "full"}, None),
        ("gavel", {"reallocate_s": "0"}, None),
    ],
    ids=["hadar", "hadar-full", "gavel"],
)
def test_one_decision(
    benchmark: BenchmarkFixture,
    policy: str,
    settings: dict[str, str],
    most_s: float | None,
    jobs: int,
    moment: str,
) -> None:
    scheduler = make_policy(policy, settings)
    snapshot = first_round(jobs)
    if moment == "later":
        snapshot = later_round(snapshot, scheduler.plan(snapshot))
    plan = benchmark.pedantic(lambda: scheduler.plan(snapshot), rounds=5, warmup_rounds=1)
    tracemalloc.start()
    scheduler.plan(snapshot)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    benchmark.extra_info.update(
        placed=sum(isinstance(entry, Placed) for entry in plan.entries.values()),
        method=plan.diagnostics.method,
        peak_mib=round(peak / 2**20, 1),
    )
    assert len(plan.entries) == len(snapshot.jobs)
    if most_s is not None:
        assert least_s(benchmark) <= most_s
