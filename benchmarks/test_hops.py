"""How long a whole decision of Hops takes: configurations, estimates, programme, nodes, reasons.

Three GPU types in five kinds of host (Hops, section 4.3), 20 profiles, up to eight requirements a
job. The decision is that of a second round: jobs run, and keep their nodes or move. Its baseline is
sorting the jobs by submission, which any policy has to do.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace

import numpy as np
import pytest
from immutables import Map
from pytest_benchmark.fixture import BenchmarkFixture

from hetsched_core.policies.hops.hops import Hops
from hetsched_core.types import (
    EMPTY_PLAN,
    Cluster,
    Job,
    JobView,
    Layer,
    Node,
    NodeView,
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

TYPES = (("gtx1080ti", 1.0), ("titanxp", 1.4), ("rtx3090", 2.6))
ROUND_S = 360.0


def cluster_of(gpus: int) -> Cluster:
    nodes = gpus // 8
    kinds = [0 if k < nodes // 4 else 1 if k < nodes // 2 else 2 for k in range(nodes)]
    return Cluster(tuple(Node(f"n{k:05d}", TYPES[kind][0], 8) for k, kind in enumerate(kinds)))


def speeds_of(cluster: Cluster, draw: random.Random) -> Speeds:
    nodes = len(cluster)
    factor = {
        cluster.nodes[k].name: 1.0 if k < 3 * nodes // 4 else 0.9 if k < 7 * nodes // 8 else 0.8
        for k in range(nodes // 2, nodes)
    }
    tables = {}
    for at in range(20):
        each = np.array([[draw.uniform(20, 200) * s * draw.uniform(0.8, 1.2)] for _, s in TYPES])
        one = each * np.array([1.0, 0.97, 0.94, 0.9, 0.85])
        tables[f"m{at}"] = SpeedTable(
            tuple(name for name, _ in TYPES),
            np.array([1, 2, 4, 8, 16], np.int64),
            one,
            one * draw.uniform(0.5, 0.95),
            np.full(one.shape, Layer.ENTITY, np.int8),
            node_factor=factor,
        )
    return Speeds(cluster, tables)


def jobs_of(number: int, draw: random.Random) -> list[JobView]:
    views = []
    for at in range(number):
        counts = RequirementSet(tuple(sorted(draw.sample(range(1, 17), draw.randint(1, 8)))))
        job = Job(
            f"j{at:06d}",
            at * 3600.0 / number,
            counts,
            f"m{draw.randrange(20)}",
            total_samples=draw.uniform(1e5, 1e7),
        )
        views.append(JobView(job, observed_s=job.submit_s, restart_cost_s=10.0))
    return views


def shown(
    cluster: Cluster, speeds: Speeds, views: list[JobView], now: float, previous: Plan = EMPTY_PLAN
) -> Snapshot:
    return Snapshot(
        now=now,
        triggers=frozenset({Trigger.ROUND}),
        round=Round(0, now, now + ROUND_S),
        cluster=cluster,
        nodes=Map({node.name: NodeView(node) for node in cluster}),
        jobs=Map({view.id: view for view in views}),
        speeds=speeds,
        effective_s=now,
        previous=previous,
        changed=frozenset(view.id for view in views),
    )


def run(view: JobView, plan: Plan, now: float) -> JobView:
    entry = plan.entries[view.id]
    if not isinstance(entry, Placed):
        return view
    started = Run(0, entry.placements[0].configuration, now, now, 1.0)
    return replace(view, runs=(started,), observed_s=now, wait_s=now - view.job.submit_s)


@pytest.mark.parametrize(("gpus", "jobs"), [(512, 370), (2048, 1500), (16384, 8000)])
def test_a_decision(benchmark: BenchmarkFixture, gpus: int, jobs: int) -> None:
    draw = random.Random(0)
    cluster = cluster_of(gpus)
    speeds, views, policy = speeds_of(cluster, draw), jobs_of(jobs, draw), Hops()
    first = policy.plan(shown(cluster, speeds, views, 4000.0))
    running = [run(view, first, 4000.0) for view in views]
    second = shown(cluster, speeds, running, 4000.0 + ROUND_S, first)
    plan = benchmark.pedantic(lambda: policy.plan(second), rounds=3, warmup_rounds=1)
    begun = time.perf_counter()
    second.by_submission()
    baseline_s = time.perf_counter() - begun
    diagnostics = plan.diagnostics
    benchmark.extra_info.update(
        times_sorting=round(benchmark.stats.stats.min / baseline_s),
        gap=diagnostics.gap,
        method=diagnostics.method,
    )
    used = sum(
        entry.placements[0].configuration.gpus
        for entry in plan.entries.values()
        if isinstance(entry, Placed)
    )
    assert used > 0.99 * gpus
    assert diagnostics.gap is not None
    assert diagnostics.gap < 0.01
