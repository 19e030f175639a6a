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

H7 = ProfileFacts(32, ModelWeight.MODEST, DatasetSize.L)


@pytest.mark.parametrize(
    ("gpu", "profile", "expected"),
    [
        pytest.param(GpuFacts(120, 16, 3), H7, 160, id="H7"),
        pytest.param(GpuFacts(240, 16), H7, 320, id="twice the TFLOP/s"),
        pytest.param(GpuFacts(120, 64), H7, 80, id="four times the memory"),
        pytest.param(GpuFacts(120, 16, 5), H7, 640, id="two generations of PCIe later"),
        pytest.param(GpuFacts(120, 16), ProfileFacts(64), 480, id="twice the batch, less data"),
        pytest.param(
            GpuFacts(120, 16), ProfileFacts(32, ModelWeight(4), DatasetSize.XL), 60, id="heavy"
        ),
    ],
)
def test_formula_10_gives_what_h7_says_and_follows_each_of_its_parts(
    gpu: GpuFacts, profile: ProfileFacts, expected: float
) -> None:
    assert first_estimate(gpu, profile) == pytest.approx(expected, abs=1e-9)


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
def test_an_impossible_gpu_or_batch_is_refused(
    tflops: float, memory_gb: float, pcie: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        GpuFacts(tflops, memory_gb, pcie)
    for batch in (0, math.nan, math.inf):
        with pytest.raises(InputError, match=f"a batch of {batch}"):
            ProfileFacts(batch)
