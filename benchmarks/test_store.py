"""The throughput database: how fast measurements go in and layers come out.

Each measure is taken against a plain piece of the same work, in the same run: a ratio does not
depend on the machine.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.conftest import least_s
from hetsched_core.records.spool import SCHEMA
from hetsched_core.store import (
    BasicTimes,
    DataTimes,
    Measurement,
    Mode,
    Moments,
    ProfileKey,
    SpoolRun,
    Store,
)
from hetsched_core.throughput.iteration import Pattern
from hetsched_core.types import Node

MEASUREMENTS = 50_000
PROFILES = 2_500
TYPES = ("a100", "v100", "p100", "k80")
KEYS = [ProfileKey(f"model-{number}", f"user-{number % 50}") for number in range(PROFILES)]

RECORD_TO_MAKING = 4.0
INGEST_TO_PARSING = 40.0
LAYERS_TO_FETCHING = 25.0


def best_s(work: Callable[[], object], times: int = 5) -> float:
    """Shortest of several runs, in seconds."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return min(took)


def measurements(seed: int, number: int = MEASUREMENTS) -> list[Measurement]:
    """Speeds on single nodes, of any profile on any type and at any count."""
    rng = np.random.default_rng(seed)
    columns = zip(
        rng.integers(0, PROFILES, number).tolist(),
        rng.choice(TYPES, number).tolist(),
        rng.integers(0, 10, number).tolist(),
        (2 ** rng.integers(0, 4, number)).tolist(),
        rng.uniform(1.0, 1e4, number).tolist(),
        strict=True,
    )
    return [
        Measurement(
            KEYS[profile], kind, gpus, 1, Moments(1, speed), 1.7e9, nodes=(f"{kind}-{node}",)
        )
        for profile, kind, node, gpus, speed in columns
    ]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store.duckdb", Mode.WRITE) as store:
        yield store


def test_recording_costs_a_few_times_what_making_the_records_costs(
    benchmark: BenchmarkFixture, store: Store
) -> None:
    making_s = best_s(lambda: measurements(0), times=3)
    batches = [(measurements(seed),) for seed in range(6)]
    fresh = iter(batches)
    benchmark.pedantic(store.record, setup=lambda: (next(fresh), {}), rounds=6)
    assert store.summary().measurements == 6 * MEASUREMENTS
    took_s = least_s(benchmark)
    benchmark.extra_info["measurements_per_s"] = round(MEASUREMENTS / took_s)
    benchmark.extra_info["times_making"] = round(took_s / making_s, 2)
    assert took_s / making_s < RECORD_TO_MAKING


@pytest.mark.parametrize("pairs", [0, 8])
def test_taking_in_spool_files_costs_a_few_times_what_parsing_their_lines_costs(
    benchmark: BenchmarkFixture, store: Store, tmp_path: Path, pairs: int
) -> None:
    jobs, lines = 500, 100
    node = Node("n1", "a100", 4)
    runs = {
        (str(job), 0): SpoolRun(tmp_path.stat().st_uid, "nonce-123", KEYS[job % 100], ((node, 4),))
        for job in range(jobs)
    }
    rng = np.random.default_rng(1)
    texts = []
    for job in range(jobs):
        start = {
            "type": "start",
            "schema": SCHEMA,
            "job": str(job),
            "run": 0,
            "rank": 0,
            "world_size": 4,
            "nonce": "nonce-123",
            "host": "n1",
            "pid": 1,
            "at_s": 1.7e9,
        }
        progress = [
            {
                "type": "progress",
                "t_s": 10.0 * at,
                "samples": 4000.0 * at,
                "samples_per_s": speed,
                "data_s": data_s,
                "wait_s": data_s,
            }
            for at, (speed, data_s) in enumerate(
                zip(
                    rng.uniform(300, 500, lines).tolist(),
                    rng.uniform(0.01, 0.02, (lines, pairs)).tolist(),
                    strict=True,
                )
            )
        ]
        texts += [json.dumps(line).encode() + b"\n" for line in (start, *progress)]
        (tmp_path / f"{job}.0.0.jsonl").write_bytes(b"".join(texts[-lines - 1 :]))
    paths = [tmp_path / f"{job}.0.0.jsonl" for job in range(jobs)]

    def parse() -> None:
        for text in texts:
            json.loads(text)

    parsing_s = best_s(parse, times=3)
    ingested = benchmark.pedantic(store.ingest, (paths, runs, 1.7e9), rounds=1)
    assert ingested.rejected == ()
    assert ingested.measurements == jobs * lines * (1 + pairs)
    took_s = least_s(benchmark)
    benchmark.extra_info["lines_per_s"] = round(len(texts) / took_s)
    benchmark.extra_info["measurements_per_s"] = round(ingested.measurements / took_s)
    benchmark.extra_info["times_parsing"] = round(took_s / parsing_s, 2)
    assert took_s / parsing_s < INGEST_TO_PARSING


def test_layers_of_10_000_pairs_cost_a_few_times_what_fetching_their_rows_costs(
    benchmark: BenchmarkFixture, store: Store, tmp_path: Path
) -> None:
    for seed in range(3):
        store.record(measurements(seed))
    one = Moments(1, 0.1)
    pairs = [(key, kind) for key in KEYS for kind in TYPES]
    store.record_basic_times(
        [
            BasicTimes(key, kind, 64, 10**7, Pattern.OVERLAPPED_DATA, one, one, one, 1.7e9)
            for key, kind in pairs
        ]
    )
    store.record_data_times([DataTimes(key, kind, (0.01,), (0.001,)) for key, kind in pairs])

    columns = [f"a{number}" for number in range(10)]
    with duckdb.connect(tmp_path / "plain.duckdb", config={"threads": 1}) as plain:
        rows = store.summary().entity_rows
        plain.execute(
            f"CREATE TABLE t AS SELECT {', '.join(f'range AS {name}' for name in columns)} "
            f"FROM range({rows})"
        )
        fetching_s = best_s(lambda: plain.execute("FROM t").fetchnumpy())

    layers = benchmark.pedantic(store.layers, (KEYS, TYPES), rounds=5, warmup_rounds=1)
    assert len(layers.theory) == len(pairs) == 10_000
    assert len(layers.by_entity) == rows
    assert layers.by_type.count.sum() == 3 * MEASUREMENTS
    took_s = least_s(benchmark)
    benchmark.extra_info["seconds"] = round(took_s, 3)
    benchmark.extra_info["entity_rows"] = rows
    benchmark.extra_info["times_fetching"] = round(took_s / fetching_s, 2)
    assert took_s / fetching_s < LAYERS_TO_FETCHING
