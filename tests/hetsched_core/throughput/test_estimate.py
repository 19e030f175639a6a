"""Looking a speed up: entity, type, theory, first estimate, and which of them answered."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hetsched_core.errors import InputError
from hetsched_core.kernels import lookup
from hetsched_core.throughput.estimate import Layers, SpeedEstimate, estimate
from hetsched_core.throughput.first_estimate import (
    DatasetSize,
    GpuFacts,
    ModelWeight,
    ProfileFacts,
    first_estimate,
)
from hetsched_core.throughput.iteration import Bandwidths, IterationTimes, Pattern
from hetsched_core.throughput.theory import IterationTheory, TrainingModel
from hetsched_core.types import Layer
from tests.hetsched_core.throughput import naive
from tests.hetsched_core.throughput.naive import Floats
from tests.hetsched_core.throughput.test_measured import Row, rows
from tests.hetsched_core.worlds import cluster_of, on

CLUSTER = cluster_of(a0=("v100", 4), a1=("v100", 4), b0=("p100", 4), c0=("k80", 8))
V100, P100 = range(2)
W8 = TrainingModel(
    64, IterationTimes(0.05, 0.1, 0.2, 0.01, 0.005), 1e8, Bandwidths(2e9, 5e8), Pattern(1)
)
CERTAIN = 10**9
ONE = Layers(("job",), ("v100", "p100", "k80"))
BY_FORMULA = replace(ONE, theories=[IterationTheory.of([(0, V100, W8)])])


def typed(*entries: tuple[int, int, float]) -> Layers:
    """Layers of one measurement on v100 for each (GPUs, nodes, samples/s per GPU)."""
    full: list[Row] = [(0, V100, gpus, nodes, speed, 1, 0) for gpus, nodes, speed in entries]
    return replace(ONE, by_type=rows(*full))


def check(answer: SpeedEstimate, samples_per_s: float, layer: Layer, rel: float = 1e-6) -> None:
    assert answer.samples_per_s == pytest.approx(samples_per_s, rel=rel)
    assert answer.layer is layer


def test_per_gpu_speeds_of_w8_on_mixed_nodes_give_600() -> None:
    by_type = rows((0, V100, 6, 2, 120.0, 1, 0), (0, P100, 6, 2, 100.0, 1, 0))
    found = estimate(CLUSTER, replace(ONE, by_type=by_type))
    check(found.answer("job", on(a0=2, b0=4)), 600.0, Layer.GPU_TYPE)


def test_the_formula_answers_where_nothing_was_measured() -> None:
    found = estimate(CLUSTER, BY_FORMULA, (4,))
    check(found.answer("job", on(a0=4)), 793.798450, Layer.THEORY, rel=5e-10)
    check(found.answer("job", on(a0=2, a1=2)), 4 * W8.per_gpu(4, 2), Layer.THEORY)


def test_a_measured_type_goes_before_the_formula_and_mends_it() -> None:
    layers = replace(BY_FORMULA, by_type=typed((1, 1, 0.9 * W8.per_gpu(1, 1))).by_type)
    found = estimate(CLUSTER, layers, (1, 2, 4))
    check(found.answer("job", on(a0=1)), 0.9 * W8.per_gpu(1, 1), Layer.GPU_TYPE)
    check(found.answer("job", on(a0=4)), 0.9 * 4 * W8.per_gpu(4, 1), Layer.THEORY)
    check(found.answer("job", on(a0=1, a1=1)), 0.9 * 2 * W8.per_gpu(2, 2), Layer.THEORY)


def test_a_node_with_runs_of_its_own_answers_for_itself_alone() -> None:
    by_node = rows((0, 0, 1, 1, 90.0, CERTAIN, 0))
    by_type = rows((0, V100, 1, 1, 100.0, 1000 * CERTAIN, 0), (0, V100, 2, 2, 80.0, CERTAIN, 0))
    found = estimate(CLUSTER, replace(ONE, by_node=by_node, by_type=by_type))
    check(found.answer("job", on(a0=1)), 90.0, Layer.ENTITY, rel=2e-3)
    check(found.answer("job", on(a1=1)), 100.0, Layer.GPU_TYPE, rel=2e-3)
    check(found.answer("job", on(a0=1, a1=1)), 2 * 72.0, Layer.GPU_TYPE, rel=2e-3)
    assert found.table("job").node_factor == pytest.approx({"a0": 0.9}, rel=2e-3)


def test_a_nodes_factor_does_not_make_a_formula_certain() -> None:
    found = estimate(CLUSTER, replace(BY_FORMULA, by_node=rows((0, 0, 1, 1, 90.0, 50, 0))), (1, 4))
    assert found.answer("job", on(a0=1)).layer is Layer.ENTITY
    assert found.answer("job", on(a0=4)).layer is Layer.THEORY


def test_between_measured_counts_speeds_are_interpolated_and_beyond_them_guessed() -> None:
    found = estimate(CLUSTER, typed((1, 1, 100.0), (4, 1, 70.0)), (2, 8))
    check(found.answer("job", on(a0=2)), 2 * 90.0, Layer.GPU_TYPE)
    assert found.table("job").per_gpu("v100", 8, 1) == pytest.approx(70.0)
    check(found.answer("job", on(a0=2, a1=2)), 400.0, Layer.FIRST_ESTIMATE)
    # More than any count that is known.
    check(found.answer("job", on(a0=16)), 16 * 70.0, Layer.FIRST_ESTIMATE)


@pytest.mark.parametrize(("measured", "exact"), [(1, Layer.THEORY), (4, Layer.GPU_TYPE)])
def test_a_count_between_two_layers_has_the_less_certain_one(measured: int, exact: Layer) -> None:
    layers = replace(BY_FORMULA, by_type=typed((measured, 1, 90.0)).by_type)
    found = estimate(CLUSTER, layers, (4,))
    assert found.counts.tolist() == [1, 4]
    assert found.answer("job", on(a0=3)).layer is Layer.THEORY
    assert found.answer("job", on(a0=4)).layer is exact


def test_an_unknown_type_is_scaled_from_the_types_that_are_known() -> None:
    v100, p100, k80 = (
        first_estimate(GpuFacts.published(name), ProfileFacts()) for name in ONE.gpu_types
    )
    layers = typed((1, 1, 80.0))
    expected = 80.0 * p100 / v100
    check(estimate(CLUSTER, layers).answer("job", on(b0=1)), expected, Layer.FIRST_ESTIMATE)
    both = rows((0, V100, 1, 1, 80.0, 1, 0), (0, P100, 1, 1, 10.0, 1, 0))
    found = estimate(CLUSTER, replace(layers, by_type=both))
    # Each of the two says another scale; their geometric mean is taken.
    scale = math.sqrt(80.0 / v100 * 10.0 / p100)
    check(found.answer("job", on(c0=1)), scale * k80, Layer.FIRST_ESTIMATE)


def test_one_profile_learns_nothing_from_another() -> None:
    layers = Layers(("job", "other"), ONE.gpu_types, by_type=rows((1, V100, 1, 1, 7.0, 1, 0)))
    found = estimate(CLUSTER, layers)
    assert found.answer("job", on(a0=1)) == estimate(CLUSTER, ONE).answer("job", on(a0=1))
    check(found.answer("other", on(a0=1)), 7.0, Layer.GPU_TYPE)


@dataclass(frozen=True)
class Linear:
    """A formula of somebody else: so many samples/s on any number of GPUs."""

    speed: float
    profile: NDArray[np.int64]
    gpu_type: NDArray[np.int64]

    def per_gpu(
        self, row: NDArray[np.int64], gpus: NDArray[np.int64], nodes: NDArray[np.int64]
    ) -> Floats:
        return np.full(len(row), self.speed)


def linear(speed: float) -> Layers:
    own, other = (Linear(each, np.array([0]), np.array([V100])) for each in (speed, 9.0))
    return replace(ONE, theories=[own, other])


@pytest.mark.parametrize("speed", [5.0, 0.0])
def test_a_workload_plugs_in_a_formula_of_its_own_which_may_say_that_a_job_cannot_run(
    speed: float,
) -> None:
    found = estimate(CLUSTER, linear(speed), (8,))
    check(found.answer("job", on(a0=4, a1=4)), 8 * speed, Layer.THEORY)


@pytest.mark.parametrize("speed", [-1.0, math.inf])
def test_a_formula_that_gives_no_speed_is_named(speed: float) -> None:
    with pytest.raises(InputError, match="Linear gives a speed that is infinite or below 0"):
        estimate(CLUSTER, linear(speed))


speed = st.floats(1, 1000) | st.just(math.nan)


@settings(max_examples=200)
@given(st.data(), st.lists(st.integers(1, 64), min_size=1, max_size=6, unique=True).map(sorted))
def test_the_layers_are_filled_as_by_the_twin(data: st.DataObject, counts: list[int]) -> None:
    shape = (2, 2, len(counts))
    table = st.lists(speed, min_size=4 * len(counts), max_size=4 * len(counts))
    measured, theory = (np.array(data.draw(table)).reshape(shape) for _ in range(2))
    if data.draw(st.booleans()):
        measured[:, data.draw(st.integers(0, 1))] = np.nan
    out, layer = np.empty(shape), np.empty(shape, dtype=np.int64)
    lookup.fill_from_above(measured, theory, np.array(counts), out, layer)
    for pair in range(2):
        speeds, layers = naive.fill_from_above(measured[pair], theory[pair], counts)
        np.testing.assert_allclose(out[pair], speeds, rtol=1e-12)
        assert layer[pair].tolist() == layers


def test_a_table_shows_the_less_certain_layer_of_its_halves() -> None:
    found = estimate(CLUSTER, typed((2, 1, 100.0)))
    at = found.counts.tolist().index(2)
    assert found.layers[0, V100, :, at].tolist() == [Layer.GPU_TYPE, Layer.FIRST_ESTIMATE]
    assert found.table("job").layers[V100, at] == Layer.FIRST_ESTIMATE


def test_a_type_that_only_the_layers_know_keeps_its_speeds() -> None:
    layers = Layers(("job",), ("h100",), by_type=rows((0, 0, 1, 1, 50.0, 1, 0)))
    found = estimate(CLUSTER, layers)
    assert found.gpu_types == ("h100", "v100", "p100", "k80")
    assert found.table("job").per_gpu("h100", 1, 1) == pytest.approx(50.0)


H7 = ProfileFacts(32, ModelWeight.MODEST, DatasetSize.L)


def test_formula_10_gives_what_h7_says_and_follows_each_of_its_parts() -> None:
    for gpu, profile, expected in (
        (GpuFacts(120, 16, 3), H7, 160),
        (GpuFacts(240, 16), H7, 320),
        (GpuFacts(120, 64), H7, 80),
        (GpuFacts(120, 16, 5), H7, 640),
        (GpuFacts(120, 16), ProfileFacts(64), 480),
        (GpuFacts(120, 16), ProfileFacts(32, ModelWeight.EXTRA_HIGH, DatasetSize.XL), 60),
    ):
        assert first_estimate(gpu, profile) == pytest.approx(expected, abs=1e-9)


def test_a_gpu_without_tensor_cores_counts_its_cores() -> None:
    assert GpuFacts.published("p100") == GpuFacts(9.3, 16)
    assert GpuFacts.published("v100") == GpuFacts(125, 16)
