"""How many plans a second a replay makes, everything included, at about 100 active jobs.

The baseline is what no scheduler can do without in the same run: sorting 100 jobs by a key, for
every plan. Figures: docs/benchmarks.md.
"""

from __future__ import annotations

import random
from time import perf_counter

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.conftest import least_s
from hetsched_core.policy import make_policy
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.types import Cluster, Node, Submission
from tests.hetsched_core.worlds import linear_speeds, submission

CLUSTER = Cluster(
    tuple(
        Node(f"{gpu_type}-{number}", gpu_type, gpus=4, cpus=64, memory_mb=512_000)
        for gpu_type, nodes in (("a100", 4), ("v100", 6), ("t4", 6))
        for number in range(nodes)
    )
)
SPEEDS = linear_speeds(
    CLUSTER, {f"m{k}": {"a100": 10.0 + k, "v100": 6.0, "t4": 3.0} for k in range(6)}, 0.7
)


def jobs(number: int, interval_s: float) -> list[Submission]:
    """Log-normal sizes, 1 to 8 GPUs, 60 jobs at the start and then one every `interval_s`."""
    draw = random.Random(1)
    made = []
    for n in range(number):
        gpus = draw.choice([1, 1, 1, 1, 2, 2, 4, 8])
        made.append(
            submission(
                f"j{n}",
                draw.lognormvariate(8, 1) * 3.2 * gpus,
                (gpus,),
                submit_s=max(0, n - 60) * interval_s,
                profile=f"m{draw.randrange(6)}",
                cpus_per_gpu=8.0,
                memory_mb_per_gpu=32_000.0,
            )
        )
    return made


@pytest.mark.parametrize(("policy", "interval_s"), [("fifo", 115.0), ("las", 86.0)])
def test_plans_a_second(benchmark: BenchmarkFixture, policy: str, interval_s: float) -> None:
    workload = jobs(3000, interval_s)
    log = benchmark.pedantic(
        lambda: simulate(workload, CLUSTER, make_policy(policy), SPEEDS, SimulationSettings()),
        rounds=3,
        warmup_rounds=1,
    )
    active = sum(plan.placed + plan.waiting for plan in log.plans) / len(log.plans)
    keys = [(random.random(), str(n)) for n in range(100)]
    begun = perf_counter()
    for _ in log.plans:
        sorted(keys, key=lambda key: key)
    baseline_s = perf_counter() - begun
    took_s = least_s(benchmark)
    benchmark.extra_info.update(
        plans=len(log.plans),
        mean_active_jobs=round(active, 1),
        plans_per_second=round(len(log.plans) / took_s),
        times_the_baseline=round(took_s / baseline_s, 1),
    )
    assert all(record.end_s is not None for record in log.jobs)
