"""Estimates that are learned in a replay: what they know, when, and how well."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched_core.errors import InputError
from hetsched_core.simulate import RunMeasurement
from hetsched_core.simulate.learned import LearnedSpeeds
from hetsched_core.throughput import builtin_speeds
from hetsched_core.throughput.first_estimate import GpuFacts, ProfileFacts, first_estimate
from hetsched_core.types import (
    Configuration,
    Layer,
    Purpose,
    Speeds,
    SpeedTable,
    TaskTimes,
)
from tests.hetsched_core.worlds import cluster_of, linear_speeds, on, submission

MIXED = cluster_of(v1=("v100", 8), v2=("v100", 8), k1=("k80", 8), k2=("k80", 8))
TRUTH = builtin_speeds(MIXED)
MODEL = "resnet50-imagenet"
OTHER = "bert-base-squad"


def run(
    configuration: Configuration,
    truth: Speeds = TRUTH,
    *,
    profile: str = MODEL,
    purpose: Purpose = Purpose.RUN,
    iterations: float = 100.0,
) -> RunMeasurement:
    """A run as the simulator would tell of it."""
    speed = truth.speed(profile, configuration)
    samples = iterations * truth.table(profile).batch_size * configuration.gpus
    job = submission("j", 1.0, profile=profile).job
    return RunMeasurement(job, purpose, configuration, samples, samples / speed)


def learned(runs: Sequence[RunMeasurement], truth: Speeds = TRUTH, **options: float) -> Speeds:
    estimates = LearnedSpeeds(MIXED, truth, **options)  # type: ignore[arg-type]
    for measured in runs:
        estimates.observe(measured)
    return estimates.speeds(0.0)


def same(one: SpeedTable, other: SpeedTable) -> bool:
    return (
        np.array_equal(one.one_node, other.one_node)
        and np.array_equal(one.several_nodes, other.several_nodes)
        and np.array_equal(one.layers, other.layers)
        and one.node_factor == other.node_factor
    )


def error(speeds: Speeds, configuration: Configuration, profile: str = MODEL) -> float:
    return abs(speeds.speed(profile, configuration) / TRUTH.speed(profile, configuration) - 1)


def test_at_first_formula_10_is_all_there_is() -> None:
    table = learned([]).table(MODEL)
    assert set(table.layers.flatten()) == {Layer.FIRST_ESTIMATE}
    assert not any(table.profiled(t) for t in MIXED.gpu_types)
    facts = ProfileFacts(batch_size=TRUTH.table(MODEL).batch_size)
    for gpu_type in MIXED.gpu_types:
        expected = first_estimate(GpuFacts.published(gpu_type), facts)
        assert table.per_gpu(gpu_type, 4, 1) == pytest.approx(expected)


def test_a_profiling_run_gives_the_formula_for_its_type_and_a_ratio_for_the_others() -> None:
    speeds = learned([run(on(v1=1), purpose=Purpose.PROFILE)], noise=0.0)
    table = speeds.table(MODEL)
    assert (table.profiled("v100"), table.profiled("k80")) == (True, False)
    assert set(table.layers[table.gpu_types.index("v100")]) == {Layer.THEORY}
    for configuration in (on(v1=1), on(v1=8), on(v1=4, v2=4), on(v1=8, v2=8)):
        assert error(speeds, configuration) < 0.02
    first = learned([])
    # What is known of one key says nothing of another.
    assert same(speeds.table(OTHER), first.table(OTHER))
    assert table.per_gpu("k80", 1, 1) / first.per_gpu(MODEL, "k80", 1) == pytest.approx(
        table.per_gpu("v100", 1, 1) / first.per_gpu(MODEL, "v100", 1)
    )


def test_a_profiling_run_is_off_by_as_much_as_its_node_and_its_noise() -> None:
    table = TRUTH.table(MODEL)
    slow = TRUTH.revised({MODEL: replace(table, node_factor={"v1": 0.8})})
    for truth, noise, least, most in ((slow, 0.0, 0.79, 0.81), (TRUTH, 0.05, 1.005, 1.02)):
        found = learned([run(on(v1=1), truth, purpose=Purpose.PROFILE)], truth, noise=noise, seed=2)
        for count in (1, 2, 8):
            ratio = found.per_gpu(MODEL, "v100", count) / TRUTH.per_gpu(MODEL, "v100", count)
            assert least < ratio < most


def test_too_few_iterations_say_nothing() -> None:
    for purpose in Purpose:
        few, enough = (run(on(v1=2), purpose=purpose, iterations=n) for n in (9.0, 10.0))
        assert same(learned([few]).table(MODEL), learned([]).table(MODEL))
        assert not same(learned([enough]).table(MODEL), learned([]).table(MODEL))


def test_a_run_is_measured_for_its_type_and_on_one_node_for_that_node() -> None:
    table = learned([run(on(v1=4))], noise=0.0).table(MODEL)
    row, column = table.gpu_types.index("v100"), table.counts.tolist().index(4)
    assert table.one_node[row, column] == pytest.approx(TRUTH.per_gpu(MODEL, "v100", 4))
    assert set(table.node_factor) == {"v1"}
    # The other counts are not known, so that a profiling run is still worth it.
    assert not table.profiled("v100")
    apart = learned([run(on(v1=2, v2=2))], noise=0.0).table(MODEL)
    assert apart.several_nodes[row, column] == pytest.approx(TRUTH.per_gpu(MODEL, "v100", 4, 2))
    assert apart.node_factor == {}


def test_a_run_on_two_types_says_of_neither_how_fast_it_is() -> None:
    assert same(learned([run(on(v1=2, k1=2))]).table(MODEL), learned([]).table(MODEL))


@pytest.mark.parametrize(
    ("per_gpu", "several_nodes"), [({"v100": 1.0, "k80": 0.0}, 1.0), ({"v100": 1.0}, 0.0)]
)
def test_a_job_has_no_speed_where_it_cannot_run(
    per_gpu: dict[str, float], several_nodes: float
) -> None:
    table = linear_speeds(MIXED, {"m": per_gpu}, several_nodes).table("m")
    truth = Speeds(MIXED, {"m": replace(table, batch_size=8.0)})
    for runs in ([], *([run(on(v1=1), truth, profile="m", purpose=p)] for p in Purpose)):
        speeds = learned(runs, truth)
        assert speeds.table("m").gpu_types == ("v100", "k80")
        assert not speeds.table("m").runs_on("k80")
        assert speeds.speed("m", on(v1=4)) > 0.0
        assert (speeds.speed("m", on(v1=2, v2=2)) > 0.0) is (several_nodes > 0.0)
        for nowhere in (on(k1=1), on(k1=4, k2=4)):
            assert speeds.speed("m", nowhere) == 0.0


def test_the_batch_and_the_times_of_tasks_are_given() -> None:
    tasks = {"v100": TaskTimes(2.0, 0.5)}
    table = replace(TRUTH.table(MODEL), tasks=tasks)
    for runs in ([], [run(on(v1=4))]):
        found = learned(runs, TRUTH.revised({MODEL: table})).table(MODEL)
        assert found.batch_size == table.batch_size != 1.0
        assert found.tasks == tasks


def test_equal_seeds_measure_equally() -> None:
    runs = [run(on(v1=4)), run(on(v2=4)), run(on(k1=1), purpose=Purpose.PROFILE)]
    assert same(learned(runs, seed=1).table(MODEL), learned(runs, seed=1).table(MODEL))
    assert not same(learned(runs, seed=1).table(MODEL), learned(runs, seed=2).table(MODEL))


def test_learning_does_without_the_database() -> None:
    program = "import sys, hetsched_core.simulate.learned; print('duckdb' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_a_noise_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match=r"noise of -0\.1"):
        LearnedSpeeds(MIXED, TRUTH, noise=-0.1)


# -- nothing of the future -------------------------------------------------------------------------

PIECES = st.sampled_from([on(v1=1), on(v1=4), on(v2=8), on(v1=2, v2=2), on(v1=8, v2=8)])


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(PIECES, st.sampled_from(Purpose), st.floats(1, 1000)), max_size=6),
    st.floats(0.2, 5.0),
)
def test_what_has_not_run_has_no_part_in_any_estimate(
    seen: list[tuple[Configuration, Purpose, float]], factor: float
) -> None:
    """Runs are of one model on V100; everything else could be as fast as it likes."""
    runs = [run(c, purpose=purpose, iterations=n) for c, purpose, n in seen]
    elsewhere = {}
    for profile in TRUTH.profiles:
        table = TRUTH.table(profile)
        kept = ("v100",) if profile == MODEL else ()
        by = np.array([[1.0 if t in kept else factor] for t in table.gpu_types])
        elsewhere[profile] = replace(
            table, one_node=by * table.one_node, several_nodes=by * table.several_nodes
        )
    one, other_truth = learned(runs), learned(runs, TRUTH.revised(elsewhere))
    assert all(same(one.table(p), other_truth.table(p)) for p in TRUTH.profiles)
