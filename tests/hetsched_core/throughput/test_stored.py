"""From a real store to speeds that a policy can plan with."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.store import (
    BandwidthMeasurement,
    BandwidthTerm,
    BasicTimes,
    DataTimes,
    Measurement,
    Mode,
    Moments,
    ProfileKey,
    Store,
)
from hetsched_core.throughput.builtin import bandwidths
from hetsched_core.throughput.estimate import SpeedEstimates, estimate
from hetsched_core.throughput.gpus import match_gpu
from hetsched_core.throughput.iteration import Bandwidths, IterationTimes, Pattern
from hetsched_core.throughput.stored import layers_of
from hetsched_core.throughput.theory import TrainingModel
from hetsched_core.types import Layer
from tests.hetsched_core.worlds import cluster_of, on

KEY, OTHER = ProfileKey("resnet", "alice"), ProfileKey("bert", "alice")
CLUSTER = cluster_of(a0=("v100", 4), a1=("v100", 4), b0=("p100", 4))
TYPES = ("v100", "p100")
NOW = 1e9


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store.duckdb", Mode.WRITE) as store:
        yield store


def estimates(store: Store) -> SpeedEstimates:
    stored = store.layers([KEY, OTHER], TYPES)
    layers = layers_of(stored, store.bandwidths(TYPES), CLUSTER, ["resnet", "bert"])
    return estimate(CLUSTER, layers, (1, 2, 4))


def measured(gpus: int, *nodes: str, speed: float) -> Measurement:
    return Measurement(KEY, "v100", gpus, len(nodes), Moments(20, speed), NOW, nodes)


def known_times(store: Store, pattern: Pattern) -> TrainingModel:
    """Give the store the times of W8; return what they make with the published bandwidths."""
    forward, backward, update = (Moments(10, seconds) for seconds in (0.1, 0.2, 0.01))
    store.record_basic_times(
        [BasicTimes(KEY, "v100", 64, 10**8, pattern, forward, backward, update, NOW)]
    )
    store.record_data_times([DataTimes(KEY, "v100", (0.05,) * 20, (0.005,) * 20)])
    known = bandwidths(match_gpu("v100").spec)
    return TrainingModel(64, IterationTimes(0.05, 0.1, 0.2, 0.01, 0.005), 1e8, known, pattern)


def test_measured_speeds_come_back_with_their_layers(store: Store) -> None:
    store.record([measured(1, "a0", speed=90.0), measured(1, "a1", speed=110.0)])
    store.record([measured(4, "a0", "a1", speed=70.0)])
    found = estimates(store)
    slow, fast = (found.answer("resnet", on(**{node: 1})) for node in ("a0", "a1"))
    assert slow.layer is fast.layer is Layer.ENTITY
    assert 90 < slow.samples_per_s < 93
    assert 107 < fast.samples_per_s < 110
    spread = found.table("resnet").per_gpu("v100", 4, 2)
    assert spread == pytest.approx(70.0)
    assert found.answer("bert", on(a0=1)).layer is Layer.FIRST_ESTIMATE


def test_a_node_whose_runs_vary_much_is_thought_less_special(store: Store) -> None:
    def factor(name: str, m2: float) -> float:
        key = ProfileKey(name, "alice")
        for node, speed in (("a0", 90.0), ("a1", 110.0)):
            moments = Moments(20, speed, m2)
            store.record([Measurement(key, "v100", 1, 1, moments, NOW, (node,))])
        layers = layers_of(store.layers([key], TYPES), store.bandwidths(TYPES), CLUSTER, [name])
        return estimate(CLUSTER, layers).table(name).node_factor["a0"]

    assert factor("steady", 0.0) == pytest.approx(0.9, abs=0.005)
    assert 0.95 < factor("wild", 20 * 40.0**2) < 1.0


@pytest.mark.parametrize("pattern", Pattern)
def test_profiled_times_answer_through_the_formula_of_w8(store: Store, pattern: Pattern) -> None:
    true = known_times(store, pattern)
    # Bandwidths that nobody measured are the published ones.
    assert true.bandwidths.network != pytest.approx(5e8)
    for measured in (False, True):
        if measured:
            true = replace(true, bandwidths=Bandwidths(2e9, 5e8))
            for term, worth in ((BandwidthTerm.LINK, 2e9), (BandwidthTerm.NETWORK, 5e8)):
                store.record_bandwidths(
                    [BandwidthMeasurement("v100", term, Moments(3, worth), NOW)]
                )
        found = estimates(store)
        for configuration in (on(a0=1), on(a0=4), on(a0=1, a1=1)):
            answer, gpus = found.answer("resnet", configuration), configuration.gpus
            assert answer.layer is Layer.THEORY
            expected = gpus * true.per_gpu(gpus, len(configuration))
            assert answer.samples_per_s == pytest.approx(expected)


def test_a_node_that_is_gone_or_has_other_gpus_now_counts_for_its_type(store: Store) -> None:
    store.record([measured(1, "a9", speed=90.0), measured(1, "b0", speed=90.0)])
    found = estimates(store)
    assert found.answer("resnet", on(a0=1)).samples_per_s == pytest.approx(90.0)
    assert found.answer("resnet", on(a0=1)).layer is Layer.GPU_TYPE
    assert found.table("resnet").node_factor == {}


def test_runs_shared_out_among_many_nodes_still_count(store: Store) -> None:
    nodes = ("a0", "a1", "x0", "x1", "x2")
    store.record([Measurement(KEY, "v100", 5, 5, Moments(1, 70.0), NOW, nodes)])
    assert estimates(store).table("resnet").per_gpu("v100", 5, 5) == pytest.approx(70.0)


def test_times_that_are_all_zero_say_as_much_as_an_empty_store(store: Store) -> None:
    nothing = estimates(store).answer("resnet", on(a0=1))
    assert nothing.layer is Layer.FIRST_ESTIMATE
    zero = Moments(1, 0.0)
    store.record_basic_times(
        [BasicTimes(KEY, "v100", 64, 10**8, Pattern.SERIAL_DATA, zero, zero, zero, NOW)]
    )
    assert estimates(store).answer("resnet", on(a0=1)) == nothing
