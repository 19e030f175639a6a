"""Expected run time, latency ratio, weights and finish-time fairness: worked examples W2, W3."""

import numpy as np
import pytest

from hetsched_core.measures.fairness import (
    RunTimes,
    finish_time_fairness,
    latency_ratio,
    priority_weights,
    raqlr,
)
from hetsched_core.types import Cluster, Job, Layer, Node, RequirementSet, Speeds, SpeedTable
from tests.hetsched_core.worlds import linear_speeds

SAMPLES = 1_000_000.0


def job_of(counts: tuple[int, ...] = (1, 2, 4), **known: object) -> Job:
    return Job("1", 0.0, RequirementSet(counts), "net", **known)  # type: ignore[arg-type]


CLUSTER = Cluster(
    (Node("a0", "A", 8), *(Node(f"b{k}", "B", 8, cpus=32, memory_mb=64_000) for k in range(3)))
)
LINEAR = linear_speeds(CLUSTER, {"net": {"A": 200.0, "B": 100.0}})
TIMES = RunTimes(LINEAR, CLUSTER)


def test_w2_the_expected_run_time_is_the_mean_over_types_at_the_mean_requirement() -> None:
    assert TIMES.expected_run_s(job_of(), SAMPLES) == pytest.approx(3750.0, abs=1e-9)


def test_w2_the_latency_ratio_is_wait_over_expected_run_time() -> None:
    assert latency_ratio(1200.0, 3750.0) == pytest.approx(0.32, abs=1e-9)


@pytest.mark.parametrize(
    ("priorities", "lam", "weights"),
    [
        ((0, 0.32, 1.5), 1, (0.01, 0.33, 1.51)),
        ((0.2, 0.32, 1.5), 1, (0.2, 0.32, 1.5)),
        ((-100, -50, -3), 1, (0.01, 50.01, 97.01)),
        ((0, 0.32, 1.5), 2, (0.0001, 0.1089, 2.2801)),
        ((0, 0.32, 1.5), 0, (1, 1, 1)),
        ((), 1, ()),
    ],
)
def test_w2_a_bias_makes_all_priorities_positive(
    priorities: tuple[float, ...], lam: float, weights: tuple[float, ...]
) -> None:
    assert priority_weights(np.array(priorities, float), lam) == pytest.approx(weights, abs=1e-9)


def test_w2_raqlr_is_the_mean_over_the_jobs_that_ended_lately() -> None:
    end_s = np.array([1.0, 5.0, 9.0]) * 3600
    ratios = np.array([0.2, 0.4, 1.2])
    assert raqlr(end_s, ratios, 10 * 3600, hours=6) == pytest.approx(0.8, abs=1e-9)
    assert raqlr(end_s, ratios, 10 * 3600) == pytest.approx(0.6, abs=1e-9)
    assert raqlr(end_s, ratios, 0.5 * 3600) is None


@pytest.mark.parametrize(
    ("active", "isolated_s", "ftf"),
    [
        (16, 4375.0, 1.142857),
        (20, 6125.0, 0.816327),
        (64, 17500.0, 0.285714),
        (10, 3062.5, 1.632653),
        # A share beyond the largest requirement brings nothing.
        (8, 2187.5, 2.285714),
        (5, 2187.5, 2.285714),
    ],
)
def test_w3_the_isolated_run_time_is_that_on_the_fair_share_of_gpus(
    active: float, isolated_s: float, ftf: float
) -> None:
    isolated = TIMES.isolated_run_s(job_of(), SAMPLES, CLUSTER.gpus / active)
    assert isolated == pytest.approx(isolated_s, abs=1e-9)
    assert isolated is not None
    assert finish_time_fairness(5000.0, isolated) == pytest.approx(ftf, abs=5e-7)


@pytest.mark.parametrize(
    ("job", "types"),
    [
        (job_of(gpu_types=frozenset({"B"})), {"B"}),
        (job_of((8,)), {"A", "B"}),
        (job_of((9,)), {"B"}),
        (job_of(memory_mb_per_gpu=65_000.0), {"A"}),
        (job_of(cpus_per_gpu=33.0), {"A"}),
        (job_of((20,), cpus_per_gpu=8.0), {"A", "B"}),
    ],
    ids=["refused", "just enough", "too few", "memory", "CPUs", "none is enough alone"],
)
def test_types_on_which_a_job_does_not_fit_are_left_out(job: Job, types: set[str]) -> None:
    gpus = {"A": 8, "B": 24}
    per_sample = {"A": 1 / 200, "B": 1 / 100}
    expected = sum(gpus[t] * per_sample[t] for t in types) / sum(gpus[t] for t in types)
    mean = job.requirements.mean
    assert TIMES.expected_run_s(job, SAMPLES) == pytest.approx(SAMPLES * expected / mean)
    assert TIMES.isolated_run_s(job, SAMPLES, job.requirements.largest) == pytest.approx(
        SAMPLES * expected / job.requirements.largest
    )


def test_a_type_without_speed_is_left_out_and_a_job_without_any_has_no_run_time() -> None:
    profiles = {"net": {"A": 0.0, "B": 100.0}, "dead": {"A": 0.0, "B": 0.0}}
    speeds = linear_speeds(CLUSTER, profiles)
    times = RunTimes(speeds, CLUSTER)
    assert times.expected_run_s(job_of(), SAMPLES) == pytest.approx(SAMPLES / 100 / (7 / 3))
    for profile in ("dead", "unheard of"):
        job = Job("1", 0.0, RequirementSet((1,)), profile)
        assert times.expected_run_s(job, SAMPLES) is None
        assert times.isolated_run_s(job, SAMPLES, 1.0) is None


def test_a_job_that_needs_several_types_at_once_is_judged_by_those_on_which_it_runs() -> None:
    cluster = Cluster((Node("a", "A", 8), Node("b", "B", 4), Node("c", "C", 4)))
    speeds = linear_speeds(cluster, {"net": {"A": 0.0, "B": 100.0, "C": 50.0}})
    times = RunTimes(speeds, cluster)
    assert times.expected_run_s(job_of((8,)), 800.0) == pytest.approx((1.0 + 2.0) / 2)
    assert times.expected_run_s(job_of((9,)), 800.0) is None


def test_an_isolated_job_runs_across_nodes_only_where_no_node_holds_it() -> None:
    speeds = linear_speeds(CLUSTER, {"net": {"A": 100.0, "B": 100.0}}, several_nodes=0.5)
    times = RunTimes(speeds, CLUSTER)
    on_b = frozenset({"B"})
    assert times.isolated_run_s(job_of((8,), gpu_types=on_b), 800.0, 8.0) == pytest.approx(1.0)
    assert times.isolated_run_s(job_of((16,), gpu_types=on_b), 1600.0, 16.0) == pytest.approx(2.0)
    halved = job_of((8,), gpu_types=on_b, cpus_per_gpu=8.0)
    assert times.isolated_run_s(halved, 800.0, 8.0) == pytest.approx(2.0)


def test_a_requirement_that_does_not_run_on_a_type_is_passed_over() -> None:
    table = SpeedTable(
        ("A",),
        np.array([1, 2]),
        np.array([[0.0, 100.0]]),
        np.array([[0.0, 100.0]]),
        np.full((1, 2), Layer.TRUTH, np.int8),
    )
    cluster = Cluster((Node("a0", "A", 8),))
    times = RunTimes(Speeds(cluster, {"net": table}), cluster)
    assert times.isolated_run_s(job_of((1, 2)), 200.0, 1.0) == pytest.approx(2.0)
