"""How long offline Hare and HLAS take to decide.

Baselines: for the offline plan, the list schedule alone, without programme and sequences; for HLAS,
copying what it remembers of 10,000 jobs.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from immutables import Map
from pytest_benchmark.fixture import BenchmarkFixture

from hetsched_core.policies.hare.hlas import Hlas
from hetsched_core.policies.hare.hlas_p import HlasP
from hetsched_core.policies.hare.instance import Instance
from hetsched_core.policies.hare.offline import Hare
from hetsched_core.policies.hare.order import by_fluid_wspt
from hetsched_core.policies.hare.queues import Queues
from hetsched_core.policies.hare.schedule import GpuChoice, schedule
from hetsched_core.types import (
    EMPTY_PLAN,
    Cluster,
    Configuration,
    Job,
    JobView,
    Node,
    NodeView,
    RequirementSet,
    Round,
    Run,
    Snapshot,
    Speeds,
    TaskProgress,
    TaskShape,
    TaskTimes,
    Trigger,
)
from tests.hetsched_core.worlds import linear_speeds

GPU_TYPES = ("v100", "t4", "k80", "m60")
CLUSTER = Cluster(tuple(Node(f"n{n:02d}", GPU_TYPES[n % 4], 4) for n in range(40)))
PROFILES = 26


@cache
def speeds() -> Speeds:
    rng = np.random.default_rng(0)
    ones, tasks = {}, {}
    for p in range(PROFILES):
        base = rng.uniform(0.5, 5.0)
        factors = np.array([1.0, 3.0, 7.0, 5.0]) * rng.uniform(0.6, 1.4, 4)
        ones[f"p{p:02d}"] = dict.fromkeys(GPU_TYPES, 1.0)
        tasks[f"p{p:02d}"] = {
            g: TaskTimes(float(base * f), float(base * 0.1))
            for g, f in zip(GPU_TYPES, factors, strict=True)
        }
    return linear_speeds(CLUSTER, ones, tasks=tasks)


def views(jobs: int, rounds: bool) -> dict[str, JobView]:
    rng = np.random.default_rng(1)
    found = {}
    for n in range(jobs):
        shape = TaskShape(int(rng.integers(1, 9)), int(rng.integers(50, 1000)) if rounds else None)
        job = Job(
            f"j{n:05d}",
            float(n) * 1e-3,
            RequirementSet((1,)),
            f"p{int(rng.integers(PROFILES)):02d}",
            weight=float(rng.integers(1, 4)),
            tasks=shape,
            user=f"u{n % 50}",
        )
        done = 0 if rounds else int(rng.integers(0, 200))
        found[job.id] = JobView(job, 0.0, progress=TaskProgress(done))
    return found


def snapshot_of(jobs: dict[str, JobView]) -> Snapshot:
    return Snapshot(
        now=100.0,
        triggers=frozenset({Trigger.ARRIVAL}),
        round=Round(0, 0.0, 360.0),
        cluster=CLUSTER,
        nodes=Map({node.name: NodeView(node) for node in CLUSTER}),
        jobs=Map(jobs),
        speeds=speeds(),
        effective_s=100.0,
        previous=EMPTY_PLAN,
        changed=frozenset(jobs),
    )


def test_offline_300_jobs_on_160_gpus(benchmark: BenchmarkFixture) -> None:
    snapshot = snapshot_of(views(300, rounds=True))
    plan = benchmark.pedantic(Hare().plan, args=(snapshot,), rounds=1)
    found = plan.diagnostics
    assert found.bound is not None
    shapes = [v.job.tasks for v in snapshot.jobs.values() if v.job.tasks]
    rng = np.random.default_rng(2)
    train = rng.uniform(1.0, 5.0, (300, 160))
    scale = np.array([shape.scale for shape in shapes])
    rounds = np.array([shape.rounds for shape in shapes])
    tasks = int(scale @ rounds)
    instance = Instance.fresh(np.zeros(300), np.ones(300), rounds, scale, train, 0.1 * train)
    order = by_fluid_wspt(instance)
    begun = time.perf_counter()
    schedule(instance, order, GpuChoice.EARLIEST_FINISH)
    benchmark.extra_info["list schedule alone, s"] = round(time.perf_counter() - begun, 2)
    benchmark.extra_info["tasks"] = tasks
    benchmark.extra_info["schedule / bound"] = round(found.objective / found.bound, 3)
    benchmark.extra_info["blocks"] = sum(len(s.blocks) for s in plan.sequences)


def second_decision(policy: Hlas, jobs: int) -> Snapshot:
    """A snapshot in which every group works but the one that has just done a round."""
    first = snapshot_of(views(jobs, rounds=False))
    plan = policy.plan(first)
    now = first.jobs
    for sequence in plan.sequences:
        name = sequence.blocks[0].items[0].job
        view, copy = now[name], 4 * int(sequence.node[1:]) + sequence.gpu
        where = Configuration(((sequence.node, 1),))
        run = Run(len(view.runs), where, first.now, first.now, 1.0, copy=copy)
        now = now.set(name, replace(view, runs=(*view.runs, run)))
    chosen = min(s.blocks[0].items[0].job for s in plan.sequences)
    done = first.jobs[chosen].progress or TaskProgress()
    over = replace(first.jobs[chosen], progress=TaskProgress(done.rounds_done + 1))
    return replace(
        first,
        jobs=now.set(chosen, over),
        previous=plan,
        changed=frozenset({chosen}),
        triggers=frozenset({Trigger.BUDGET}),
    )


@pytest.mark.parametrize("jobs", [100, 1000, 10_000])
@pytest.mark.parametrize("policy", [Hlas(groups=40), HlasP(groups=40)], ids=lambda p: p.info.name)
def test_one_decision_of_hlas(benchmark: BenchmarkFixture, policy: Hlas, jobs: int) -> None:
    snapshot = second_decision(policy, jobs)
    plan = benchmark(policy.plan, snapshot)
    assert len(plan.entries) == jobs
    begun = time.perf_counter()
    for _ in range(20):
        Queues.read(snapshot.previous.memory, policy.queues)
    benchmark.extra_info["copying its memory alone, ms"] = round(
        (time.perf_counter() - begun) * 50, 3
    )
