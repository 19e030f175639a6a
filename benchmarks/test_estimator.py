"""Configuration estimates a second of one thread, warm, and what starting costs.

Each loop is measured against its plain twin in the same run, for a ratio does not depend on the
machine. The models are the dearest ones: data of two modes, beside the step, that matter in both.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.conftest import least_s
from hetsched_core.throughput.data_time import DataMode
from hetsched_core.throughput.estimate import Layers, SpeedEstimates, estimate
from hetsched_core.throughput.iteration import Bandwidths, IterationTimes, Pattern
from hetsched_core.throughput.measured import SpeedRows
from hetsched_core.throughput.theory import IterationTheory, TrainingModel
from hetsched_core.types import Cluster, Node

LEAST_PER_S = 10e6
MOST_LOOKUP_S = 0.2
PAIRS = 10_000
TYPES = ("a", "b", "c", "d", "e")
PROFILES = tuple(f"p{at}" for at in range(PAIRS // len(TYPES)))
CLUSTER = Cluster(tuple(Node(f"n{at}", TYPES[at % len(TYPES)], 8) for at in range(2_000)))
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)

START = """
import time
began = time.perf_counter()
import numpy as np
from hetsched_core.throughput.estimate import Layers, estimate
from hetsched_core.throughput.iteration import Bandwidths, IterationTimes, Pattern
from hetsched_core.throughput.theory import IterationTheory, TrainingModel
from hetsched_core.types import Cluster, Configuration, Node
imported = time.perf_counter()
model = TrainingModel(
    8, IterationTimes(0, 1, 2, 0, 0), 1.0, Bandwidths(1.0, 1.0), Pattern.OVERLAPPED_DATA
)
layers = Layers(("p",), ("a",), theories=[IterationTheory.of([(0, 0, model)])])
found = estimate(Cluster((Node("n", "a", 8),)), layers)
found.speeds().speed("p", Configuration.of({"n": 2}))
print(imported - began, time.perf_counter() - imported)
"""


def model(at: int) -> TrainingModel:
    rng = np.random.default_rng(at)
    forward, wait = rng.uniform(0.05, 0.15, 2)
    return TrainingModel(
        64,
        IterationTimes(0.0, forward, 2 * forward, 0.01, 0.0),
        1e8,
        Bandwidths(2e9, 5e8),
        Pattern.OVERLAPPED_DATA,
        (DataMode(0.9, 0.2, 0.05, wait), DataMode(0.1, 0.3, 0.1, wait)),
    )


@pytest.fixture(scope="module")
def theory() -> IterationTheory:
    models = [model(at) for at in range(100)]
    return IterationTheory.of(
        (p, t, models[(p + t) % 100]) for p in range(len(PROFILES)) for t in range(len(TYPES))
    )


@pytest.fixture(scope="module")
def layers(theory: IterationTheory) -> Layers:
    rng = np.random.default_rng(0)

    def measured(rows: int, places: int, nodes: int) -> SpeedRows:
        return SpeedRows(
            rng.integers(0, len(PROFILES), rows),
            rng.integers(0, places, rows),
            rng.choice([2, 4, 8], rows),
            np.full(rows, nodes),
            rng.uniform(90, 110, rows),
            rng.integers(1, 10, rows),
            np.ones(rows),
        )

    return Layers(
        PROFILES,
        TYPES,
        measured(3 * PAIRS, len(CLUSTER), 1),
        measured(2 * PAIRS, len(TYPES), 2),
        [theory],
    )


@pytest.fixture(scope="module")
def estimates(layers: Layers) -> SpeedEstimates:
    return estimate(CLUSTER, layers, COUNTS)


def seconds(act: Callable[[], object]) -> float:
    began = time.process_time()
    act()
    return time.process_time() - began


@pytest.mark.benchmark(timer=time.process_time)
def test_the_formula_gives_ten_million_estimates_a_second(
    benchmark: BenchmarkFixture, theory: IterationTheory
) -> None:
    rng = np.random.default_rng(1)
    n = 1_000_000
    row, gpus, nodes = rng.integers(0, PAIRS, n), rng.integers(2, 17, n), rng.integers(1, 3, n)
    benchmark.pedantic(theory.per_gpu, (row, gpus, nodes), rounds=10, warmup_rounds=1)
    best_s = least_s(benchmark)
    plain, few = model(0), 20_000
    shapes = list(zip(gpus[:few].tolist(), nodes[:few].tolist(), strict=True))
    naive_s = min(seconds(lambda: [plain.per_gpu(*shape) for shape in shapes]) for _ in range(3))
    ratio = (naive_s / few) / (best_s / n)
    benchmark.extra_info["estimates_per_s"] = round(n / best_s)
    benchmark.extra_info["times_its_twin"] = round(ratio, 1)
    assert n / best_s > LEAST_PER_S
    assert ratio > 20


def test_all_layers_of_ten_thousand_pairs_take_a_fifth_of_a_second(
    benchmark: BenchmarkFixture, layers: Layers
) -> None:
    found = benchmark.pedantic(estimate, (CLUSTER, layers, COUNTS), rounds=5, warmup_rounds=1)
    assert found.per_gpu.size == PAIRS * 2 * len(COUNTS)
    assert least_s(benchmark) < MOST_LOOKUP_S


def test_policies_get_their_tables_as_soon(
    benchmark: BenchmarkFixture, estimates: SpeedEstimates
) -> None:
    benchmark.pedantic(estimates.speeds, rounds=5, warmup_rounds=1)
    assert least_s(benchmark) < MOST_LOOKUP_S


def test_one_profile_is_estimated_anew_in_a_few_milliseconds(
    benchmark: BenchmarkFixture, theory: IterationTheory
) -> None:
    one = IterationTheory(theory.profile[:1], theory.gpu_type[:1], theory.models[:1])
    rows = SpeedRows(*(np.array([v]) for v in (0, 0, 2, 1, 90.0, 5, 1.0)))
    few = Layers(("p",), TYPES, rows, rows, [one])
    benchmark.pedantic(estimate, (CLUSTER, few, COUNTS), rounds=50, warmup_rounds=5)
    assert least_s(benchmark) < 0.005


def test_a_start_with_compiled_kernels_takes_less_than_one_that_compiles(
    benchmark: BenchmarkFixture, tmp_path: Path
) -> None:
    def start() -> tuple[float, float]:
        result = subprocess.run(
            [sys.executable, "-c", START],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        imports_s, first_call_s = map(float, result.stdout.split())
        return imports_s, first_call_s

    imports_s, compiling_s = start()
    cached = [start() for _ in range(3)]
    benchmark.pedantic(start, rounds=1)
    benchmark.extra_info["imports_s"] = round(min(imports_s, *(i for i, _ in cached)), 2)
    benchmark.extra_info["first_call_compiling_s"] = round(compiling_s, 2)
    benchmark.extra_info["first_call_cached_s"] = round(min(c for _, c in cached), 2)
    assert min(c for _, c in cached) < compiling_s / 2
