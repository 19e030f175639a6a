"""Worked example H7 of Hadar, and what its formula refuses."""

import math

import pytest

from hetsched_core.errors import InputError
from hetsched_core.throughput.first_estimate import (
    DatasetSize,
    GpuFacts,
    ModelWeight,
    ProfileFacts,
    first_estimate,
)


def test_formula_10_gives_what_h7_says() -> None:
    gpu = GpuFacts(tensor_tflops=120, memory_gb=16, pcie_generation=3)
    profile = ProfileFacts(32, ModelWeight.MODEST, DatasetSize.L)
    assert first_estimate(gpu, profile) == pytest.approx(160, abs=1e-9)


def test_the_formula_follows_each_of_its_parts() -> None:
    gpu, profile = GpuFacts(120, 16), ProfileFacts()
    base = first_estimate(gpu, profile)
    assert first_estimate(GpuFacts(240, 16), profile) == pytest.approx(2 * base)
    assert first_estimate(GpuFacts(120, 64), profile) == pytest.approx(base / 2)
    assert first_estimate(GpuFacts(120, 16, 5), profile) == pytest.approx(4 * base)
    assert first_estimate(gpu, ProfileFacts(64)) == pytest.approx(2 * base)
    heavy = ProfileFacts(32, ModelWeight.EXTRA_HIGH, DatasetSize.XL)
    assert first_estimate(gpu, heavy) == pytest.approx(base / 4)


def test_a_gpu_without_tensor_cores_counts_its_cores() -> None:
    assert GpuFacts.published("p100") == GpuFacts(9.3, 16)
    assert GpuFacts.published("v100") == GpuFacts(125, 16)


@pytest.mark.parametrize(
    ("tflops", "memory_gb", "pcie", "message"),
    [
        (0, 16, 3, "0 TFLOP/s"),
        (math.nan, 16, 3, "nan TFLOP/s"),
        (120, -1, 3, "-1 GB"),
        (120, math.inf, 3, "inf GB"),
        (120, 16, 2, "PCIe generation 2; valid: 3, 4, 5"),
    ],
)
def test_an_impossible_gpu_is_refused(
    tflops: float, memory_gb: float, pcie: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        GpuFacts(tflops, memory_gb, pcie)


@pytest.mark.parametrize("batch", [0, -1, math.nan, math.inf])
def test_an_impossible_batch_is_refused(batch: float) -> None:
    with pytest.raises(InputError, match="batch"):
        ProfileFacts(batch)
