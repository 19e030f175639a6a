"""Looking a speed up: entity, type, theory, first estimate, and which of them answered."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hetsched_core.errors import InputError, UnknownNameError
from hetsched_core.kernels import lookup
from hetsched_core.throughput.estimate import Estimates, Layers, estimate
from hetsched_core.throughput.first_estimate import GpuFacts, ModelWeight, ProfileFacts
from hetsched_core.throughput.iteration import Bandwidths, IterationTimes, Pattern
from hetsched_core.throughput.measured import SpeedRows
from hetsched_core.throughput.theory import IterationTheory, TrainingModel
from hetsched_core.types import Cluster, Configuration, Layer, Node
from tests.hetsched_core.throughput import naive
from tests.hetsched_core.throughput.naive import Floats
from tests.hetsched_core.throughput.test_measured import CERTAIN, rows

CLUSTER = Cluster(
    (
        Node("a0", "v100", 4),
        Node("a1", "v100", 4),
        Node("b0", "p100", 4),
        Node("c0", "k80", 8),
    )
)
A0, A1, B0, C0 = range(4)
V100, P100, K80 = range(3)
W8 = TrainingModel(
    64, IterationTimes(0.05, 0.1, 0.2, 0.01, 0.005), 1e8, Bandwidths(2e9, 5e8), Pattern(1)
)
ONE = Layers(("job",), ("v100", "p100", "k80"))


def one(gpus: int, node: str = "a0") -> Configuration:
    return Configuration.of({node: gpus})


def across(**pieces: int) -> Configuration:
    return Configuration.of(pieces)


def test_per_gpu_speeds_of_w8_on_mixed_nodes_give_600() -> None:
    by_type = rows((0, V100, 6, 2, 120.0, 1, 0), (0, P100, 6, 2, 100.0, 1, 0))
    found = estimate(CLUSTER, replace(ONE, by_type=by_type))
    answer = found.answer("job", across(a0=2, b0=4))
    assert answer.samples_per_s == pytest.approx(600.0)
    assert answer.layer is Layer.GPU_TYPE


def test_the_formula_answers_where_nothing_was_measured() -> None:
    found = estimate(CLUSTER, replace(ONE, theories=[IterationTheory.of([(0, V100, W8)])]), (4,))
    answer = found.answer("job", one(4))
    assert answer.samples_per_s == pytest.approx(793.798450, abs=5e-7)
    assert answer.layer is Layer.THEORY
    spread = found.answer("job", across(a0=2, a1=2))
    assert spread.samples_per_s == pytest.approx(4 * W8.per_gpu(4, 2))


def test_a_measured_type_goes_before_the_formula_and_mends_it() -> None:
    wrong = IterationTheory.of([(0, V100, W8)])
    by_type = rows((0, V100, 1, 1, 0.9 * W8.per_gpu(1, 1), 5, 0.1))
    found = estimate(CLUSTER, replace(ONE, theories=[wrong], by_type=by_type), (1, 2, 4))
    assert found.answer("job", one(1)).layer is Layer.GPU_TYPE
    assert found.answer("job", one(1)).samples_per_s == pytest.approx(0.9 * W8.per_gpu(1, 1))
    for configuration in (one(4), across(a0=1, a1=1)):
        answer = found.answer("job", configuration)
        n, nodes = configuration.gpus, len(configuration)
        assert answer.layer is Layer.THEORY
        assert answer.samples_per_s == pytest.approx(0.9 * n * W8.per_gpu(n, nodes))


def test_between_two_measured_counts_the_formula_is_bent_to_both() -> None:
    by_type = rows(
        (0, V100, 1, 1, W8.per_gpu(1, 1), 1, 0), (0, V100, 4, 1, 0.81 * W8.per_gpu(4, 1), 1, 0)
    )
    layers = replace(ONE, theories=[IterationTheory.of([(0, V100, W8)])], by_type=by_type)
    found = estimate(CLUSTER, layers, (2, 8))
    assert found.answer("job", one(2)).samples_per_s == pytest.approx(2 * 0.9 * W8.per_gpu(2, 1))
    eight = found.answer("job", one(8, "c0"))
    assert eight.layer is Layer.FIRST_ESTIMATE
    assert found.table("job").per_gpu("v100", 8, 1) == pytest.approx(0.81 * W8.per_gpu(8, 1))


def test_a_node_with_runs_of_its_own_answers_for_itself_alone() -> None:
    by_node = rows((0, A0, 1, 1, 90.0, CERTAIN, 0))
    by_type = rows((0, V100, 1, 1, 100.0, 1000 * CERTAIN, 0), (0, V100, 2, 2, 80.0, CERTAIN, 0))
    found = estimate(CLUSTER, replace(ONE, by_node=by_node, by_type=by_type))
    slow, other = found.answer("job", one(1)), found.answer("job", one(1, "a1"))
    assert slow.samples_per_s == pytest.approx(90.0, rel=2e-3)
    assert slow.layer is Layer.ENTITY
    assert other.samples_per_s == pytest.approx(100.0, rel=2e-3)
    assert other.layer is Layer.GPU_TYPE
    mixed = found.answer("job", across(a0=1, a1=1))
    assert mixed.samples_per_s == pytest.approx(2 * 72.0, rel=2e-3)
    assert mixed.layer is Layer.GPU_TYPE
    assert found.table("job").node_factor == pytest.approx({"a0": 0.9}, rel=2e-3)


def test_a_nodes_factor_does_not_make_a_formula_certain() -> None:
    by_node = rows((0, A0, 1, 1, 90.0, 50, 0))
    layers = replace(ONE, by_node=by_node, theories=[IterationTheory.of([(0, V100, W8)])])
    found = estimate(CLUSTER, layers, (1, 4))
    assert found.answer("job", one(1)).layer is Layer.ENTITY
    assert found.answer("job", one(4)).layer is Layer.THEORY


def test_between_measured_counts_speeds_are_interpolated_and_beyond_them_guessed() -> None:
    by_type = rows((0, V100, 1, 1, 100.0, 1, 0), (0, V100, 4, 1, 70.0, 1, 0))
    found = estimate(CLUSTER, replace(ONE, by_type=by_type), (2, 8))
    assert found.answer("job", one(2)).samples_per_s == pytest.approx(2 * 90.0)
    assert found.answer("job", one(2)).layer is Layer.GPU_TYPE
    table = found.table("job")
    assert table.per_gpu("v100", 8, 1) == pytest.approx(70.0)
    spread = found.answer("job", across(a0=2, a1=2))
    assert spread.samples_per_s == pytest.approx(4 * 100.0)
    assert spread.layer is Layer.FIRST_ESTIMATE


def test_a_count_between_two_layers_has_the_less_certain_one() -> None:
    by_type = rows((0, V100, 1, 1, 100.0, 1, 0))
    layers = replace(ONE, by_type=by_type, theories=[IterationTheory.of([(0, V100, W8)])])
    found = estimate(CLUSTER, layers, (4,))
    assert found.counts.tolist() == [1, 4]
    assert found.answer("job", one(3)).layer is Layer.THEORY
    assert found.answer("job", one(4)).layer is Layer.THEORY
    found = estimate(CLUSTER, replace(layers, by_type=rows((0, V100, 4, 1, 90.0, 1, 0))))
    assert found.counts.tolist() == [1, 4]
    assert found.answer("job", one(3)).layer is Layer.THEORY
    assert found.answer("job", one(4)).layer is Layer.GPU_TYPE


def test_one_gpu_is_as_fast_whatever_table_is_asked() -> None:
    found = estimate(CLUSTER, replace(ONE, by_type=rows((0, V100, 1, 1, 100.0, 1, 0))))
    assert found.per_gpu[0, V100, 1, 0] == found.per_gpu[0, V100, 0, 0] == pytest.approx(100.0)
    assert found.layers[0, V100, :, 0].tolist() == [Layer.GPU_TYPE, Layer.GPU_TYPE]


def test_where_nothing_at_all_is_known_formula_10_answers_as_in_h7() -> None:
    layers = Layers(
        ("job",),
        ("v100",),
        profile_facts=[ProfileFacts(32, ModelWeight.MODEST, dataset_size=3)],  # type: ignore[arg-type]
        gpu_facts=[GpuFacts(120, 16, 3)],
    )
    found = estimate(Cluster((Node("n", "v100", 4),)), layers)
    answer = found.answer("job", one(1, "n"))
    assert answer.samples_per_s == pytest.approx(160.0)
    assert answer.layer is Layer.FIRST_ESTIMATE


def test_an_unknown_type_is_scaled_from_the_types_that_are_known() -> None:
    facts = [GpuFacts(100, 16), GpuFacts(50, 16), GpuFacts(25, 16)]
    layers = replace(ONE, gpu_facts=facts, by_type=rows((0, V100, 1, 1, 80.0, 1, 0)))
    found = estimate(CLUSTER, layers)
    assert found.answer("job", one(1, "b0")).samples_per_s == pytest.approx(40.0)
    assert found.answer("job", one(1, "b0")).layer is Layer.FIRST_ESTIMATE
    both = rows((0, V100, 1, 1, 80.0, 1, 0), (0, P100, 1, 1, 10.0, 1, 0))
    found = estimate(CLUSTER, replace(layers, by_type=both))
    # 80 at 100 TFLOP/s says 20, 10 at 50 says 5; their geometric mean is 10.
    assert found.answer("job", one(1, "c0")).samples_per_s == pytest.approx(10.0)


def test_one_profile_learns_nothing_from_another() -> None:
    layers = Layers(("job", "other"), ONE.gpu_types, by_type=rows((1, V100, 1, 1, 7.0, 1, 0)))
    found = estimate(CLUSTER, layers)
    alone = estimate(CLUSTER, ONE)
    assert found.answer("job", one(1)) == alone.answer("job", one(1))
    assert found.answer("other", one(1)).samples_per_s == pytest.approx(7.0)


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


def linear(speed: float) -> Linear:
    return Linear(speed, np.array([0]), np.array([V100]))


def test_a_workload_plugs_in_a_formula_of_its_own() -> None:
    found = estimate(CLUSTER, replace(ONE, theories=[linear(5.0), linear(9.0)]), (8,))
    answer = found.answer("job", across(a0=4, a1=4))
    assert answer.samples_per_s == pytest.approx(8 * 5.0)
    assert answer.layer is Layer.THEORY


def test_a_formula_may_say_that_a_job_cannot_run() -> None:
    found = estimate(CLUSTER, replace(ONE, theories=[linear(0.0)]))
    assert found.answer("job", one(1)).samples_per_s == 0
    assert found.answer("job", one(1)).layer is Layer.THEORY


@pytest.mark.parametrize("speed", [-1.0, math.inf])
def test_a_formula_that_says_nonsense_is_refused(speed: float) -> None:
    with pytest.raises(InputError, match="Linear gives a speed that is infinite or below 0"):
        estimate(CLUSTER, replace(ONE, theories=[linear(speed)]))


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


def many() -> Estimates:
    """Two profiles with everything that can differ."""
    by_node = rows(
        (0, A0, 1, 1, 90.0, 5, 1.0), (0, C0, 2, 1, 20.0, 50, 1.0), (1, A1, 4, 1, 30.0, 9, 2.0)
    )
    layers = Layers(
        ("job", "other"),
        ONE.gpu_types,
        by_node=by_node,
        by_type=rows((0, V100, 1, 1, 100.0, 50, 1.0), (0, P100, 4, 1, 60.0, 5, 1.0)),
        theories=[IterationTheory.of([(0, V100, W8), (1, K80, W8), (1, P100, W8)])],
    )
    return estimate(CLUSTER, layers, (1, 2, 4, 8))


MANY = many()


def test_more_gpus_than_any_known_count_are_as_fast_each_as_at_the_largest() -> None:
    largest = MANY.table("job").per_gpu("k80", 8, 2)
    answer = MANY.answer("job", across(a0=30, c0=30))
    expected = 60 * min(MANY.speeds().speed("job", one(30, node)) for node in ("a0", "c0")) / 30
    assert answer.samples_per_s <= expected * 1.000001
    assert answer.samples_per_s == pytest.approx(MANY.speeds().speed("job", across(a0=30, c0=30)))
    assert largest > 0


def test_a_table_shows_the_less_certain_layer_of_its_halves() -> None:
    found = estimate(CLUSTER, replace(ONE, by_type=rows((0, V100, 2, 1, 100.0, 1, 0))))
    at = found.counts.tolist().index(2)
    assert found.layers[0, V100, :, at].tolist() == [Layer.GPU_TYPE, Layer.FIRST_ESTIMATE]
    assert found.table("job").layers[V100, at] == Layer.FIRST_ESTIMATE


def test_a_type_that_only_the_layers_know_keeps_its_speeds() -> None:
    layers = Layers(("job",), ("h100",), by_type=rows((0, 0, 1, 1, 50.0, 1, 0)))
    found = estimate(CLUSTER, layers)
    assert found.gpu_types == ("h100", "v100", "p100", "k80")
    assert found.table("job").per_gpu("h100", 1, 1) == pytest.approx(50.0)


def test_results_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        MANY.per_gpu[0, 0, 0, 0] = 1.0


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (replace(ONE, by_type=rows((1, 0, 1, 1, 5.0, 1, 0))), "row 0 names profile 1; there are 1"),
        (replace(ONE, by_type=rows((0, 3, 1, 1, 5.0, 1, 0))), "names GPU type 3; there are 3"),
        (replace(ONE, by_node=rows((0, 4, 1, 1, 5.0, 1, 0))), "names node 4; there are 4"),
        (replace(ONE, theories=[IterationTheory.of([(1, 0, W8)])]), "names profile 1"),
        (replace(ONE, theories=[IterationTheory.of([(0, 9, W8)])]), "names GPU type 9"),
    ],
)
def test_rows_that_name_what_does_not_exist_are_refused(layers: Layers, message: str) -> None:
    with pytest.raises(InputError, match=message):
        estimate(CLUSTER, layers)


def test_impossible_layers_are_refused() -> None:
    with pytest.raises(InputError, match="no profile"):
        Layers(())
    with pytest.raises(InputError, match="profile 'a' is listed twice"):
        Layers(("a", "b", "a"))
    with pytest.raises(InputError, match="GPU type 'v100' is listed twice"):
        Layers(("a",), ("v100", "v100"))
    with pytest.raises(InputError, match="profile_facts has 1 entries for 2 names"):
        Layers(("a", "b"), profile_facts=[ProfileFacts()])


@pytest.mark.parametrize("count", [0, -1, 10**9])
def test_an_impossible_count_is_refused(count: int) -> None:
    with pytest.raises(InputError, match=f"GPU count in row 0 is {count}"):
        estimate(CLUSTER, ONE, (count,))


def test_an_unknown_profile_or_node_is_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'job'"):
        MANY.answer("jbo", one(1))
    with pytest.raises(UnknownNameError, match="node"):
        MANY.answer("job", one(1, "a9"))


def test_an_empty_layer_is_one_without_rows() -> None:
    assert len(SpeedRows.none()) == 0
