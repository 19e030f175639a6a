"""Worked example H7 of Hadar."""

import pytest

from hetsched_core.throughput.first_estimate import (
    DatasetSize,
    GpuFacts,
    ModelWeight,
    ProfileFacts,
    first_estimate,
)

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
