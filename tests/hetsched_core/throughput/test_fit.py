"""Parameters found again from the speeds that they give."""

import math
from dataclasses import replace

import pytest

from hetsched_core.errors import InputError
from hetsched_core.throughput.fit import (
    CommunicationTime,
    Prior,
    Rate,
    Variant,
    fit_bandwidths,
    fit_training,
)
from hetsched_core.throughput.iteration import Bandwidths, IterationTimes, Pattern
from hetsched_core.throughput.theory import TrainingModel

CONFIGURATIONS = ((1, 1), (2, 1), (2, 2))
BATCHES = (8.0, 32.0, 128.0)


def truth(batch: float, pattern: Pattern = Pattern.SERIAL_DATA, data: float = 0.3) -> TrainingModel:
    """A model whose batch of one takes 1 ms of computing, and 20 ms (link) to average."""
    compute = 1e-3 * batch
    times = IterationTimes(
        data_s=data * compute / (1 - data),
        forward_s=compute / 3,
        backward_s=2 * compute / 3,
        update_s=0.0,
        sync_wait_s=0.0,
    )
    return TrainingModel(batch, times, 1e8, Bandwidths(5e9, 2e9, network_ring=1.0), pattern)


def variant(model: TrainingModel) -> Variant:
    rates = (Rate(gpus, nodes, model.per_gpu(gpus, nodes)) for gpus, nodes in CONFIGURATIONS)
    return Variant(model.batch_size, tuple(rates))


def error(found: TrainingModel, true: TrainingModel, gpus: int, nodes: int) -> float:
    return abs(found.per_gpu(gpus, nodes) / true.per_gpu(gpus, nodes) - 1)


@pytest.mark.parametrize("pattern", Pattern)
def test_one_and_two_gpus_of_a_few_batch_sizes_predict_four_and_eight(pattern: Pattern) -> None:
    models = [truth(batch, pattern) for batch in BATCHES]
    variants = [variant(model) for model in models]
    fitted = fit_training(variants, parameters=1e8)
    assert fit_training(variants, parameters=1e8) == fitted
    for found, true in zip(fitted, models, strict=True):
        assert max(error(found, true, *shape) for shape in CONFIGURATIONS) < 0.01
        assert max(error(found, true, *shape) for shape in ((4, 1), (8, 1), (4, 4), (8, 8))) < 0.06
        if pattern is Pattern.SERIAL_DATA:
            assert found.bandwidths.link == pytest.approx(5e9, rel=0.35)
            assert found.bandwidths.network == pytest.approx(2e9, rel=0.35)
            compute = (found.times.forward_s + found.times.backward_s) / found.batch_size
            assert compute == pytest.approx(1e-3, rel=0.2)


def test_the_pattern_is_found_where_the_speeds_tell_it() -> None:
    # Data takes longer than the backward pass: beside it, gradients are free up to a point.
    for pattern in Pattern:
        models = [truth(batch, pattern, data=0.6) for batch in BATCHES]
        found = fit_training([variant(m) for m in models], 1e8, Prior(noise=0.01, data_share=0.4))
        assert {model.pattern for model in found} == {pattern}


def test_a_noisy_batch_size_borrows_from_its_siblings() -> None:
    models = [truth(batch) for batch in BATCHES]
    *good, last = map(variant, models)
    # Hidden gradients cost a fifth of their time, so 3 % of noise looks like far slower ones.
    single, double, _ = last.rates
    noisy = replace(last, rates=(single, replace(double, per_gpu=double.per_gpu * 0.97)))
    (alone,) = fit_training([noisy], 1e8)
    together = fit_training([*good, noisy], 1e8)[2]
    assert error(together, models[2], 8, 1) < error(alone, models[2], 8, 1)
    assert error(together, models[2], 8, 1) < 0.03


def test_bandwidths_that_no_speed_depends_on_are_unknown() -> None:
    (found,) = fit_training([Variant(8, (Rate(1, 1, 100.0),))])
    assert found.per_gpu(1, 1) == pytest.approx(100.0, rel=1e-3)
    assert math.isnan(found.per_gpu(2, 1))
    assert math.isnan(found.per_gpu(2, 2))
    (found,) = fit_training([Variant(8, (Rate(1, 1, 100.0), Rate(2, 2, 80.0)))])
    assert found.per_gpu(2, 2) == pytest.approx(80.0, rel=0.03)
    assert math.isnan(found.per_gpu(2, 1))


def test_more_gpus_that_are_faster_each_fit_free_gradients() -> None:
    (found,) = fit_training([Variant(8, (Rate(1, 1, 100.0), Rate(2, 1, 103.0)))])
    assert found.per_gpu(2, 1) == pytest.approx(101.5, rel=0.01)
    assert found.per_gpu(8, 1) == pytest.approx(found.per_gpu(1, 1), rel=0.02)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_unit_of_work_does_not_matter(scale: float) -> None:
    rates = tuple(Rate(n, nodes, truth(8).per_gpu(n, nodes) * scale) for n, nodes in CONFIGURATIONS)
    (found,) = fit_training([Variant(8 * scale, rates)])
    (plain,) = fit_training([variant(truth(8))])
    assert found.per_gpu(8, 1) == pytest.approx(scale * plain.per_gpu(8, 1), rel=1e-3)


def times(*entries: tuple[float, int, int, float]) -> list[CommunicationTime]:
    return [CommunicationTime(*entry) for entry in entries]


def test_bandwidths_come_from_models_of_different_size() -> None:
    # W8: 1e8 parameters take 0.025 s on two GPUs, 0.0375 s on four, 0.2 s over the network.
    w8 = [(1e8, 2, 1, 0.025), (1e8, 4, 1, 0.0375), (5e7, 2, 1, 0.0125), (1e8, 2, 2, 0.2)]
    found = fit_bandwidths(times(*w8))
    assert (found.link, found.network) == pytest.approx((2e9, 5e8))
    # One disturbed run spoils none, and what was not measured has none.
    found = fit_bandwidths(times(*w8[:3], (1e8, 2, 1, 60.0)))
    assert found.link == pytest.approx(2e9)
    assert math.isnan(found.network)
    ring = fit_bandwidths(times((1e8, 8, 8, 0.35)), network_ring=1.0)
    assert ring.network == pytest.approx(5e8)


def test_a_batch_size_without_a_speed_is_refused() -> None:
    with pytest.raises(InputError, match="no measured speed"):
        Variant(8, ())
