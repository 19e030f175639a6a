"""How long a whole decision of Hops takes: configurations, estimates, programme, nodes, reasons.

The round is that of `benchmarks.hops_rounds`: five GPU types, 200 profiles, up to eight
requirements a job; jobs run, and keep their nodes or move. Its baseline is sorting the jobs by
submission, which any policy has to do.
"""

from __future__ import annotations

import time

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.hops_rounds import SIZES, held_gpus, rounds


@pytest.mark.parametrize("gpus", SIZES)
def test_a_decision(benchmark: BenchmarkFixture, gpus: int) -> None:
    offered, gap = SIZES[gpus]
    given = rounds(gpus, offered, gap)
    plan = benchmark.pedantic(
        lambda: given.policy.plan(given.second), rounds=3, iterations=1, warmup_rounds=1
    )
    begun = time.perf_counter()
    given.second.by_submission()
    baseline_s = time.perf_counter() - begun
    diagnostics = plan.diagnostics
    benchmark.extra_info.update(
        times_sorting=round(benchmark.stats.stats.min / baseline_s),
        gap=diagnostics.gap,
        method=diagnostics.method,
    )
    assert held_gpus(plan) > 0.99 * gpus
    assert diagnostics.gap is not None
    assert diagnostics.gap <= gap * (1 + 1e-6)
