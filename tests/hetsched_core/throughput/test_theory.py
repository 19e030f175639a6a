"""Worked examples W8 and W9 by the plain formulas and through the compiled one, and its twin."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched_core.throughput.data_time import DataMode
from hetsched_core.throughput.iteration import (
    Bandwidths,
    IterationTimes,
    Pattern,
    communication_s,
    inference_s,
    iteration_s,
)
from hetsched_core.throughput.theory import InferenceModel, IterationTheory, TrainingModel

TIMES = IterationTimes(data_s=0.05, forward_s=0.1, backward_s=0.2, update_s=0.01, sync_wait_s=0.005)
W8 = TrainingModel(64, TIMES, 1e8, Bandwidths(link=2e9, network=5e8), Pattern.OVERLAPPED_DATA)
SLOW = replace(W8, bandwidths=Bandwidths(link=2e9, network=1e8))
HIT = DataMode(0.9, 0.02, 0.005, 0.002)
MISS = DataMode(0.1, 0.30, 0.10, 0.02)
W9 = replace(W8, modes=(HIT, MISS))


def serial(model: TrainingModel) -> TrainingModel:
    return replace(model, pattern=Pattern.SERIAL_DATA)


def compiled_s(model: TrainingModel, gpus: int, nodes: int) -> float:
    """Seconds of an iteration, from the kernel."""
    theory = IterationTheory.of([(0, 0, model)])
    (per_gpu,) = theory.per_gpu(np.array([0]), np.array([gpus]), np.array([nodes]))
    return float(model.batch_size / per_gpu)


@pytest.mark.parametrize(
    ("model", "gpus", "nodes", "communication", "overlapped", "serially"),
    [
        pytest.param(W8, 1, 1, 0.0, 0.315, 0.365, id="1 GPU"),
        pytest.param(W8, 2, 1, 0.025, 0.320, 0.370, id="2 on one node"),
        pytest.param(W8, 4, 1, 0.0375, 0.3225, 0.3725, id="4 on one node"),
        pytest.param(W8, 8, 1, 0.04375, 0.32375, 0.37375, id="8 on one node"),
        pytest.param(W8, 2, 2, 0.2, 0.355, 0.405, id="1+1 on two nodes"),
        pytest.param(SLOW, 2, 2, 1.0, 1.115, 1.165, id="1+1 over a slow network"),
    ],
)
def test_the_table_of_w8_comes_out_plain_and_compiled(
    model: TrainingModel,
    gpus: int,
    nodes: int,
    communication: float,
    overlapped: float,
    serially: float,
) -> None:
    found = communication_s(1e8, gpus, nodes, model.bandwidths)
    assert found == pytest.approx(communication, abs=1e-9)
    assert iteration_s(TIMES, found, Pattern.OVERLAPPED_DATA) == pytest.approx(overlapped, abs=1e-9)
    assert iteration_s(TIMES, found, Pattern.SERIAL_DATA) == pytest.approx(serially, abs=1e-9)
    assert compiled_s(model, gpus, nodes) == pytest.approx(overlapped, abs=1e-9)
    assert compiled_s(serial(model), gpus, nodes) == pytest.approx(serially, abs=1e-9)


def test_the_speed_the_data_bound_and_the_sensitivities_of_w8_come_out() -> None:
    assert 4 * 64 / compiled_s(W8, 4, 1) == pytest.approx(793.798450, abs=5e-7)
    waiting = replace(W8, modes=(DataMode(1.0, 0.5, 0.0, 0.005),))
    assert compiled_s(waiting, 4, 1) == pytest.approx(0.605, abs=1e-9)
    plain_s = iteration_s(replace(TIMES, data_s=0.5), 0.0375, Pattern.OVERLAPPED_DATA)
    assert plain_s == pytest.approx(0.605, abs=1e-9)
    sensitivities = ((W8, 1.126984), (SLOW, 3.539683))
    for model, expected in (*sensitivities, (serial(W8), 1.109589), (serial(SLOW), 3.191781)):
        found = compiled_s(model, 2, 2) / compiled_s(model, 1, 1)
        assert found == pytest.approx(expected, abs=5e-7)


def test_inference_takes_what_w8_says() -> None:
    for pattern, expected in ((Pattern.OVERLAPPED_DATA, 0.1), (Pattern.SERIAL_DATA, 0.15)):
        assert inference_s(0.05, 0.1, pattern) == pytest.approx(expected, abs=1e-9)
        overlapped = pattern is Pattern.OVERLAPPED_DATA
        model = InferenceModel(64, 0.1, overlapped, (DataMode(1.0, 0.05),)).as_training()
        for gpus, nodes in ((1, 1), (8, 1), (8, 2)):
            assert compiled_s(model, gpus, nodes) == pytest.approx(expected, abs=1e-9)


def test_the_mixture_of_w9_comes_out() -> None:
    for mode, expected in ((HIT, 0.3195), (MISS, 0.4315000772)):
        alone = replace(W8, modes=(replace(mode, share=1.0),))
        assert compiled_s(alone, 4, 1) == pytest.approx(expected, abs=5e-11)
    assert compiled_s(W9, 4, 1) == pytest.approx(0.3307000077, abs=5e-11)
    assert 64 / compiled_s(W9, 4, 1) == pytest.approx(193.528874, abs=5e-7)
    assert compiled_s(serial(W9), 4, 1) == pytest.approx(0.3693, abs=1e-9)


def test_a_ring_between_nodes_grows_with_the_gpus_and_is_hops_at_two() -> None:
    ring = replace(W8, bandwidths=Bandwidths(2e9, 5e8, network_ring=1.0))
    assert compiled_s(ring, 2, 2) == pytest.approx(compiled_s(W8, 2, 2), abs=1e-12)
    # T_c = 0.2 s x 2 (N-1)/N = 0.35 s at 8 GPUs, which the backward pass no longer hides.
    assert compiled_s(ring, 8, 8) == pytest.approx(0.1 + 0.35 + 0.01 + 0.005, abs=1e-9)


seconds = st.floats(0, 10)


modes = st.one_of(
    st.tuples(st.builds(DataMode, st.just(1.0), seconds, seconds, seconds)),
    st.floats(0.01, 0.99).flatmap(
        lambda share: st.tuples(
            st.builds(DataMode, st.just(share), seconds, seconds, seconds),
            st.builds(DataMode, st.just(1 - share), seconds, seconds, seconds),
        )
    ),
)
training = st.builds(
    TrainingModel,
    st.floats(1, 4096),
    st.builds(IterationTimes, seconds, st.floats(1e-3, 10), seconds, seconds, seconds),
    st.floats(0, 1e10),
    st.builds(
        Bandwidths,
        st.floats(1e7, 1e12) | st.just(math.nan),
        st.floats(1e7, 1e12) | st.just(math.nan),
        st.floats(0, 1),
    ),
    st.sampled_from(Pattern),
    modes,
)


@settings(max_examples=200)
@given(st.lists(training, min_size=1, max_size=5))
def test_the_kernel_agrees_with_its_twin(models: list[TrainingModel]) -> None:
    shapes = [(1, 1), (2, 1), (5, 1), (2, 2), (16, 3)]
    theory = IterationTheory.of([(0, 0, model) for model in models])
    row = np.repeat(np.arange(len(models)), len(shapes))
    gpus, nodes = (np.array([s[i] for s in shapes] * len(models)) for i in (0, 1))
    expected = [model.per_gpu(*shape) for model in models for shape in shapes]
    assert theory.per_gpu(row, gpus, nodes) == pytest.approx(expected, rel=1e-12, nan_ok=True)
