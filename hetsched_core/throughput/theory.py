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

from hetsched_core.errors import InputError
from hetsched_core.kernels import iteration as kernels
from hetsched_core.throughput.columns import floats, ints, same_length, whole
from hetsched_core.throughput.data_time import MOST_DATA_S, DataMode, check_modes
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

MOST_ITERATION_S = 86_400.0
MOST_PARAMETERS = 1e15
MOST_BATCH = 1e9
MOST_GPUS = 1_000_000
MOST_PAIRS = 2**40

_TIMES = [kernels.FORWARD, kernels.BACKWARD, kernels.UPDATE, 9, 11, 13, 15]

_BOUNDS = (
    ("overlapped", 0.0, 1.0),
    ("batch size", 1e-9, MOST_BATCH),
    ("forward time", 0.0, MOST_ITERATION_S),
    ("backward time", 0.0, MOST_ITERATION_S),
    ("update time", 0.0, MOST_ITERATION_S),
    ("time over the link", 0.0, MOST_ITERATION_S),
    ("time over the network", 0.0, MOST_ITERATION_S),
    ("network_ring", 0.0, 1.0),
    *(
        (f"{name} of the {mode} data mode", 0.0, most)
        for mode in ("first", "second")
        for name, most in (
            ("share", 1.0),
            ("mean", MOST_DATA_S),
            ("deviation", MOST_DATA_S),
            ("wait", MOST_DATA_S),
        )
    ),
)


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
        """Refuse what no measurement can give; without modes, make one of T_d and T_w."""
        if not 0 < self.batch_size <= MOST_BATCH:
            raise InputError(
                f"the batch size is {self.batch_size}; expected above 0, up to {MOST_BATCH:g}"
            )
        if not 0 <= self.parameters <= MOST_PARAMETERS:
            raise InputError(
                f"the number of parameters is {self.parameters}; expected 0 to {MOST_PARAMETERS:g}"
            )
        times = self.times
        basic = (times.forward_s, times.backward_s, times.update_s)
        for name, value in zip(("forward", "backward", "update"), basic, strict=True):
            if not 0 <= value <= MOST_ITERATION_S:
                raise InputError(
                    f"the {name} time is {value} s; expected 0 to {MOST_ITERATION_S:g} s"
                )
        for name, value in (("link", self.bandwidths.link), ("network", self.bandwidths.network)):
            if not (value > 0 or math.isnan(value)):
                raise InputError(
                    f"the {name} bandwidth is {value} parameters/s; expected above 0, or NaN where "
                    "it is not known"
                )
        if not 0 <= self.bandwidths.network_ring <= 1:
            raise InputError(f"network_ring is {self.bandwidths.network_ring}; expected 0 to 1")
        if not self.modes:
            mode = DataMode(1.0, times.data_s, 0.0, times.sync_wait_s)
            object.__setattr__(self, "modes", (mode,))
        check_modes(self.modes)
        if sum(basic) + sum(mode.data_s + mode.wait_s for mode in self.modes) <= 0:
            raise InputError("all times of an iteration are 0; expected at least one above 0")

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

    def __post_init__(self) -> None:
        """Check every number; the columns are copied and read-only from then on."""
        profile = ints("profile", self.profile, 0, MOST_PAIRS)
        gpu_type = ints("GPU type", self.gpu_type, 0, MOST_PAIRS)
        models = np.array(self.models, dtype=np.float64, order="C")
        if models.shape != (len(profile), kernels.COLUMNS):
            raise InputError(
                f"the models have shape {models.shape}; expected {(len(profile), kernels.COLUMNS)}"
            )
        same_length("the theory", profile=profile, gpu_type=gpu_type)
        for at, (name, least, most) in enumerate(_BOUNDS):
            unknown = at in (kernels.LINK, kernels.NETWORK)
            floats(name, models[:, at], least, most, or_nan=unknown)
        first, second = models[:, kernels.FIRST_MODE], models[:, kernels.FIRST_MODE + 4]
        floats("the sum of the shares of the data modes", first + second, 1 - 1e-9, 1 + 1e-9)
        times = models[:, _TIMES].sum(axis=1)
        floats("the time of an iteration without communication", times, 1e-12, np.inf)
        models.flags.writeable = False
        for name, column in (("profile", profile), ("gpu_type", gpu_type), ("models", models)):
            object.__setattr__(self, name, column)

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
        """Return samples/s per GPU of (C,) configurations; see `Theory`.

        Raises:
            InputError: a row that is none, a count below 1, or lengths that differ.
        """
        row = whole("row of the theory", row, 0, len(self.models) - 1)
        gpus = whole("number of GPUs", gpus, 1, MOST_GPUS)
        nodes = whole("number of nodes", nodes, 1, MOST_GPUS)
        same_length("the configurations", row=row, gpus=gpus, nodes=nodes)
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
