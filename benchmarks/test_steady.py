"""How long a whole decision of `steady` takes, on the rounds of `benchmarks.hops_rounds`.

Its baseline is `hops` on the same round: both solve the same kind of programme with other weights.
`benchmarks.hops_scale` measures `hops` itself.
"""

from __future__ import annotations

import time

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.conftest import least_s
from benchmarks.hops_rounds import SIZES, held_gpus, rounds
from hetsched_core.policies.steady import Steady


@pytest.mark.parametrize("gpus", [512, 2048, 16_384])
def test_a_decision(benchmark: BenchmarkFixture, gpus: int) -> None:
    offered, gap = SIZES[gpus]
    given, policy = rounds(gpus, offered, gap), Steady(gap=gap)
    plan = benchmark.pedantic(
        lambda: policy.plan(given.second), rounds=3, iterations=1, warmup_rounds=1
    )
    begun = time.perf_counter()
    given.policy.plan(given.second)
    baseline_s = time.perf_counter() - begun
    benchmark.extra_info.update(
        times_hops=round(least_s(benchmark) / baseline_s, 2),
        gap=plan.diagnostics.gap,
        method=plan.diagnostics.method,
    )
    assert held_gpus(plan) > 0.99 * gpus
    assert plan.diagnostics.gap is not None
    assert plan.diagnostics.gap <= gap * (1 + 1e-6)
