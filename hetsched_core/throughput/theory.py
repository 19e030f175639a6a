"""The theoretical layer: the speed of any configuration from the basic times of an iteration.

Source: Hops (SoCC '24), sections 3.3 and 3.5. A kind of workload brings a formula of its own by
being a `Theory`; training and inference are here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hetsched_core.kernels import iteration as kernels
from hetsched_core.throughput.data_time import DataMode
from hetsched_core.throughput.iteration import (
    TAIL_OF_COMMUNICATION,
    Bandwidths,
    IterationTimes,
    Pattern,
    communication_s,
    expected_iteration_s,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Theory(Protocol):
    """A formula for the speed of some (profile, GPU type) pairs in any configuration.

    Attributes:
        profile, gpu_type: (R,) indices of the pairs.
    """

    @property
    def profile(self) -> Ints:
        """(R,) index of the profile."""

    @property
    def gpu_type(self) -> Ints:
        """(R,) index of the GPU type."""

    def per_gpu(self, row: Ints, gpus: Ints, nodes: Ints) -> Floats:
        """Return samples/s per GPU of (C,) configurations; NaN where the formula cannot say.

        Args:
            row: (C,) index into the pairs.
            gpus: (C,) number of GPUs.
            nodes: (C,) number of nodes.
        """


@dataclass(frozen=True, slots=True)
class TrainingModel:
    """One model in training on one GPU type.

    `modes` replace T_d and T_w of `times`; without them these are constant. `batch_size` is per
    GPU. `parameters` and `bandwidths` matter by their ratio only.
    """

    batch_size: float
    times: IterationTimes
    parameters: float
    bandwidths: Bandwidths
    pattern: Pattern
    modes: tuple[DataMode, ...] = ()

    def __post_init__(self) -> None:
        """Without modes, make one of T_d and T_w."""
        if not self.modes:
            mode = DataMode(1.0, self.times.data_s, 0.0, self.times.sync_wait_s)
            object.__setattr__(self, "modes", (mode,))

    def per_gpu(self, gpus: int, nodes: int) -> float:
        """Return samples/s per GPU, formula (5); NaN where the bandwidth is not known."""
        communication = 0.0
        if gpus > 1:
            communication = communication_s(self.parameters, gpus, nodes, self.bandwidths)
        if math.isnan(communication):
            return math.nan
        return self.batch_size / expected_iteration_s(
            self.times, self.modes, communication, self.pattern
        )


@dataclass(frozen=True, slots=True)
class InferenceModel:
    """One model in inference on one GPU type: its workers share nothing.

    `overlapped` says whether the next batch is loaded while this one is computed.
    """

    batch_size: float
    forward_s: float
    overlapped: bool
    modes: tuple[DataMode, ...]

    def as_training(self) -> TrainingModel:
        """Return the training model of the same speed: one pass, and no gradients to average.

        What data can hide behind is the pass itself, which formula (1) has in the place of T_b.
        """
        return TrainingModel(
            self.batch_size,
            IterationTimes(0.0, 0.0, self.forward_s, 0.0, 0.0),
            parameters=1.0,
            bandwidths=Bandwidths(math.inf, math.inf),
            pattern=Pattern.OVERLAPPED_DATA if self.overlapped else Pattern.SERIAL_DATA,
            modes=self.modes,
        )


@dataclass(frozen=True, slots=True, eq=False)
class IterationTheory:
    """The models of many (profile, GPU type) pairs, as columns for the kernel.

    Attributes:
        profile: (R,) index of the profile.
        gpu_type: (R,) index of the GPU type.
        models: (R, 16) the columns that `hetsched_core.kernels.iteration` names; times in seconds,
            LINK and NETWORK are parameters / bandwidth and NaN where that is not known.
    """

    profile: Ints
    gpu_type: Ints
    models: Floats

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, TrainingModel | InferenceModel]]) -> IterationTheory:
        """Build the columns from (profile index, GPU type index, model)."""
        rows = list(rows)
        models = np.zeros((len(rows), kernels.COLUMNS))
        for at, (_, _, model) in enumerate(rows):
            training = model.as_training() if isinstance(model, InferenceModel) else model
            models[at] = _columns(training)
        profile = np.array([row[0] for row in rows], dtype=np.int64)
        gpu_type = np.array([row[1] for row in rows], dtype=np.int64)
        return cls(profile, gpu_type, models)

    def per_gpu(self, row: Ints, gpus: Ints, nodes: Ints) -> Floats:
        """Return samples/s per GPU of (C,) configurations; see `Theory`."""
        out = np.empty(len(row))
        kernels.samples_per_s_per_gpu(self.models, row, gpus, nodes, TAIL_OF_COMMUNICATION, out)
        return out


def _columns(model: TrainingModel) -> Sequence[float]:
    times, bandwidths = model.times, model.bandwidths
    modes = [
        value
        for mode in model.modes
        for value in (mode.share, mode.data_s, mode.data_sd_s, mode.wait_s)
    ]
    return [
        float(model.pattern is Pattern.OVERLAPPED_DATA),
        model.batch_size,
        times.forward_s,
        times.backward_s,
        times.update_s,
        model.parameters / bandwidths.link,
        model.parameters / bandwidths.network,
        bandwidths.network_ring,
        *modes,
        *[0.0] * (8 - len(modes)),
    ]
