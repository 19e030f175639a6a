"""Worked example W9 of the Hops estimator, and modes of data times that are found again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.kernels import iteration as kernels
from hetsched_core.throughput.data_time import (
    LEAST_SAMPLES,
    expected_max,
    fit_modes,
)
from tests.hetsched_core.throughput import naive
from tests.hetsched_core.throughput.naive import Floats


@pytest.mark.parametrize(
    ("mean", "sd", "constant", "expected"),
    [
        (0.3, 0.1, 0.2, 0.3083315471),
        (0.3, 0.1, 0.3, 0.3398942280),
        (0.3, 0.1, 0.4, 0.4083315471),
        (0.3, 0.0, 0.2, 0.3),
        (0.05, 0.01, 0.2175, 0.2175),
        (1.0, 0.5, 0.0, 1.0042453513),
    ],
)
def test_the_expected_maxima_of_w9_come_out(
    mean: float, sd: float, constant: float, expected: float
) -> None:
    assert expected_max(mean, sd, constant) == pytest.approx(expected, abs=5e-11)


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0, 10))
def test_the_closed_forms_plain_and_compiled_are_the_integral(
    mean: float, sd: float, constant: float
) -> None:
    sd = 0.0 if sd < 1e-3 else sd
    integral = pytest.approx(naive.expected_max(mean, sd, constant), rel=1e-9, abs=1e-12)
    assert expected_max(mean, sd, constant) == integral
    assert kernels.expected_max(mean, sd, constant) == integral


def two_modes(n: int, seed: int) -> tuple[Floats, Floats]:
    """Hits of 20 ms in 90 % of the iterations, misses of 300 ms."""
    rng = np.random.default_rng(seed)
    hit = rng.random(n) < 0.9
    data = np.where(hit, rng.normal(0.02, 0.005, n), rng.normal(0.3, 0.05, n))
    return np.abs(data), np.where(hit, 0.002, 0.02)


@pytest.mark.parametrize("seed", range(3))
def test_two_modes_are_found_with_their_waits_and_have_the_mean_of_the_samples(seed: int) -> None:
    data, wait = two_modes(2000, seed)
    hit, miss = found = fit_modes(data, wait)
    assert hit.share + miss.share == pytest.approx(1)
    assert hit.share == pytest.approx(0.9, abs=0.03)
    assert (hit.data_s, hit.data_sd_s) == pytest.approx((0.02, 0.005), rel=0.05)
    assert (miss.data_s, miss.data_sd_s) == pytest.approx((0.3, 0.05), rel=0.15)
    assert (hit.wait_s, miss.wait_s) == pytest.approx((0.002, 0.02), rel=0.02)
    assert sum(m.share * m.data_s for m in found) == pytest.approx(data.mean())
    assert sum(m.share * m.wait_s for m in found) == pytest.approx(wait.mean())


def test_one_normal_distribution_is_hardly_ever_taken_for_two() -> None:
    rng = np.random.default_rng(3)
    found = [len(fit_modes(np.abs(rng.normal(0.1, 0.01, 60)))) for _ in range(200)]
    assert found.count(2) <= 4


def test_neither_the_order_of_the_samples_nor_an_outlier_changes_the_modes() -> None:
    data, wait = two_modes(400, 4)
    order = np.random.default_rng(2).permutation(400)
    assert fit_modes(data[order], wait[order]) == fit_modes(data, wait)
    assert fit_modes(np.append(data, 60.0), np.append(wait, 0.0)) == fit_modes(data, wait)


@pytest.mark.parametrize("warm_up", [3.28, 500.0])
def test_a_first_batch_that_takes_long_is_left_out(warm_up: float) -> None:
    rng = np.random.default_rng(5)
    steady = np.abs(rng.normal(0.18, 0.002, 30))
    (mode,) = fit_modes(np.concatenate([[warm_up], steady]))
    assert mode.data_s == pytest.approx(steady.mean())
    (mode,) = fit_modes(np.array([warm_up, 0.18, 0.181, 0.179, 0.18]))
    assert mode.data_s == pytest.approx(0.18, abs=1e-3)


def test_a_sample_that_is_merely_slow_is_no_outlier() -> None:
    data = np.array([0.178, 0.179, 0.18, 0.181, 0.182] * 3 + [0.19])
    (mode,) = fit_modes(data)
    assert mode.data_s == pytest.approx(data.mean(), rel=1e-12)


def test_stalls_that_come_again_are_a_mode_and_no_outliers() -> None:
    rng = np.random.default_rng(6)
    data = np.abs(np.concatenate([rng.normal(0.1, 0.01, 95), rng.normal(2.0, 0.1, 5)]))
    _, stall = fit_modes(data)
    assert stall.share == pytest.approx(0.05)
    assert stall.data_s == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize(
    "data", [[0.1], [0.1] * 3, [0.1] * 50, [0.0] * 50, [0.1, 0.12, 0.3, 0.32]], ids=str
)
def test_few_samples_and_equal_ones_are_one_mode_of_their_mean(data: list[float]) -> None:
    assert len(data) < LEAST_SAMPLES or len(set(data)) == 1
    (mode,) = fit_modes(np.array(data))
    assert mode.share == 1
    assert (mode.data_s, mode.data_sd_s) == pytest.approx((np.mean(data), np.std(data)), abs=1e-15)


def test_two_constants_are_two_modes() -> None:
    first, second = fit_modes(np.array([0.1] * 15 + [0.3] * 5))
    assert (first.data_s, second.data_s) == pytest.approx((0.1, 0.3))
    assert (first.share, second.share) == pytest.approx((0.75, 0.25))


@given(st.lists(st.floats(0, 86_400.0), min_size=1, max_size=60))
def test_whatever_the_samples_the_modes_are_valid(data: list[float]) -> None:
    modes = fit_modes(np.array(data))
    assert sum(mode.share for mode in modes) == pytest.approx(1.0)
    tolerance = 1e-9 * max(data)
    assert all(min(data) - tolerance <= m.data_s <= max(data) + tolerance for m in modes)
