"""How fast a model may run when nothing was ever measured of it: formula (10) of Hadar.

Source: "Hadar" (IEEE TC), section V-A, formula (10); the ranks of models and data sets are those of
its Table II. The figure has no unit of its own: between GPU types its ratio is what counts, so as
soon as a speed is known on one type, the others are scaled from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

from hetsched_core.throughput.gpus import match_gpu

PCIE_SCALING = {3: 1.0, 4: 2.0, 5: 4.0}
"""PCIe generation -> scaling."""

ASSUMED_PCIE_GENERATION = 3


class ModelWeight(IntEnum):
    """How complicated a model is."""

    SMALL = 1
    MODEST = 2
    HIGH = 3
    EXTRA_HIGH = 4


class DatasetSize(IntEnum):
    """How large a data set is."""

    S = 1
    M = 2
    L = 3
    XL = 4


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What formula (10) asks of a GPU: TFLOP/s on tensor cores, GB of memory, PCIe generation."""

    tensor_tflops: float
    memory_gb: float
    pcie_generation: int = ASSUMED_PCIE_GENERATION

    @classmethod
    def published(cls, gpu_type: str) -> GpuFacts:
        """Return what is published of a GPU type; a type without tensor cores counts its cores."""
        spec = match_gpu(gpu_type).spec
        return cls(spec.half_tflops or spec.single_tflops, spec.memory_gb)

    @property
    def performance_memory_index(self) -> float:
        """Tensor-core TFLOP/s over the square root of the memory in GB (PMI)."""
        return self.tensor_tflops / math.sqrt(self.memory_gb)


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """What formula (10) asks of a job; the defaults are its middle ranks."""

    batch_size: float = 32.0
    model_weight: ModelWeight = ModelWeight.MODEST
    dataset_size: DatasetSize = DatasetSize.M


def first_estimate(gpu: GpuFacts, profile: ProfileFacts) -> float:
    """Return formula (10), taken as samples/s per GPU."""
    numerator = (
        gpu.performance_memory_index * profile.batch_size * PCIE_SCALING[gpu.pcie_generation]
    )
    return numerator / (profile.model_weight * profile.dataset_size)
