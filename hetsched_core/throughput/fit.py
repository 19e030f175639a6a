"""The basic times and bandwidths behind measured speeds, where nobody profiled them.

Source: Hops (SoCC '24), section 3.5, formulas (1) to (5), solved for their parameters. Two speeds
cannot determine six parameters, so what is known beforehand takes part: a backward pass is two
forward passes, gradients of one model travel about equally fast at every batch size, data takes a
minor share of an iteration. What is found is the most probable parameters given both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.special import expit

from hetsched_core.errors import InputError
from hetsched_core.throughput.iteration import (
    Bandwidths,
    IterationTimes,
    Pattern,
    communication_s,
)
from hetsched_core.throughput.theory import IterationTheory, TrainingModel

Floats = NDArray[np.float64]

FORWARD_SHARE = 1 / 3
"""Of the time of a forward and a backward pass (Kaplan et al. 2020, section 2.1)."""

_LOG_S = (-30.0, 10.0)
"""Bounds of the logarithm of any time, so that no step of the search leaves what is possible."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A measured speed: samples/s per GPU on `gpus` GPUs of one type on `nodes` nodes."""

    gpus: int
    nodes: int
    per_gpu: float


@dataclass(frozen=True, slots=True)
class Variant:
    """One batch size (per GPU) of a model, and its measured speeds on one GPU type."""

    batch_size: float
    rates: tuple[Rate, ...]

    def __post_init__(self) -> None:
        """Refuse a variant that says nothing."""
        if not self.rates:
            raise InputError("no measured speed to fit anything to; give at least one")


@dataclass(frozen=True, slots=True)
class Prior:
    """What is believed before anything is measured.

    Attributes:
        noise: relative deviation of a measured iteration from the formula.
        bandwidth_spread: relative deviation of the time that the same gradients take at different
            batch sizes.
        data_share: log odds of the share of an iteration that data takes, which 1 is the deviation
            of; -1 is 27 %, and 95 % of the models are between 5 % and 73 %.
        network_ring: see `Bandwidths`.
    """

    noise: float = 0.05
    bandwidth_spread: float = 0.5
    data_share: float = -1.0
    network_ring: float = 1.0


USUAL = Prior()


def fit_training(
    variants: Sequence[Variant], parameters: float = 1.0, prior: Prior = USUAL
) -> tuple[TrainingModel, ...]:
    """Return the most probable model behind the speeds of each variant.

    Args:
        variants: batch sizes of one model on one GPU type. They share the overlap pattern, the
            share of data, and within `bandwidth_spread` the time that their gradients take.
        parameters: of the model; bandwidths are in proportion to it.
        prior: what is believed beforehand.

    Returns:
        One model for each variant. A bandwidth that no speed depends on is NaN.
    """
    problem = _Problem(variants, parameters, prior)
    found = (
        problem.solve(pattern, exposed)
        for pattern in (Pattern.SERIAL_DATA, Pattern.OVERLAPPED_DATA)
        for exposed in (True, False)
    )
    # Where the speeds cannot tell, the first one is taken and not the one that rounding favours.
    _, pattern, vector = min(found, key=lambda solution: round(solution[0], 3))
    return problem.models(pattern, vector)


class _Problem:
    """The parameters as one vector, and how far it is from what was measured and is believed.

    The vector holds log T_1 of each variant, log of each variant's T_c of two GPUs over the link
    and over the network where a speed depends on it, and the log odds of the share of data.
    """

    def __init__(self, variants: Sequence[Variant], parameters: float, prior: Prior) -> None:
        self._parameters = parameters
        self._prior = prior
        self._batch = np.array([variant.batch_size for variant in variants])
        rates = [(at, rate) for at, variant in enumerate(variants) for rate in variant.rates]
        self._variant = np.array([at for at, _ in rates])
        self._gpus = np.array([rate.gpus for _, rate in rates])
        self._nodes = np.array([rate.nodes for _, rate in rates])
        per_gpu = np.array([rate.per_gpu for _, rate in rates])
        self._log_s = np.log(self._batch[self._variant] / per_gpu)
        alone, several = self._gpus == 1, self._nodes > 1
        self._over = (~alone & ~several, several)
        self._fits = tuple(bool(over.any()) for over in self._over)

    def solve(self, pattern: Pattern, exposed: bool) -> tuple[float, Pattern, Floats]:
        """Return cost, pattern and vector of the best fit near a start.

        There are two starts, for a speed seldom tells hidden gradients that take long from exposed
        ones that take a fifth of it.
        """
        found = least_squares(
            lambda vector: self._residuals(pattern, vector), self._start(exposed), method="lm"
        )
        return float(found.cost), pattern, found.x

    def models(self, pattern: Pattern, vector: Floats) -> tuple[TrainingModel, ...]:
        """Return the models that a vector stands for."""
        alone_s, link_s, network_s, share = self._parts(vector)
        return tuple(
            self._model(pattern, *values, share)
            for values in zip(
                self._batch.tolist(),
                alone_s.tolist(),
                link_s.tolist(),
                network_s.tolist(),
                strict=True,
            )
        )

    def _start(self, exposed: bool) -> Floats:
        fastest = np.full(len(self._batch), np.inf)
        np.minimum.at(fastest, self._variant, self._log_s)
        parts = [fastest]
        for over, fits in zip(self._over, self._fits, strict=True):
            if fits:
                lost = np.exp(self._log_s[over]) - np.exp(fastest[self._variant[over]])
                least = 0.05 * np.exp(fastest[self._variant[over]])
                usual = np.median(np.log(np.maximum(lost, least)))
                parts.append(np.full(len(self._batch), usual + (0.0 if exposed else math.log(5))))
        return np.concatenate([*parts, [self._prior.data_share]])

    def _parts(self, vector: Floats) -> tuple[Floats, Floats, Floats, float]:
        """Return T_1, T_c over link and network for two GPUs, and the share of data."""
        blocks = iter(vector[:-1].clip(*_LOG_S).reshape(-1, len(self._batch)))
        alone_s = np.exp(next(blocks))
        unknown = np.full(len(self._batch), np.nan)
        link_s, network_s = (np.exp(next(blocks)) if fits else unknown for fits in self._fits)
        return alone_s, link_s, network_s, float(expit(vector[-1]))

    def _residuals(self, pattern: Pattern, vector: Floats) -> Floats:
        prior = self._prior
        theory = IterationTheory.of((0, 0, model) for model in self.models(pattern, vector))
        per_gpu = theory.per_gpu(self._variant, self._gpus, self._nodes)
        predicted = np.log(self._batch[self._variant] / per_gpu)
        parts = [(predicted - self._log_s) / prior.noise, vector[-1:] - prior.data_share]
        times = vector[len(self._batch) : -1].reshape(-1, len(self._batch))
        apart = (times - times.mean(axis=1, keepdims=True)) / prior.bandwidth_spread
        return np.concatenate([*parts, apart.ravel()])

    def _model(
        self,
        pattern: Pattern,
        batch_size: float,
        alone_s: float,
        link_s: float,
        network_s: float,
        share: float,
    ) -> TrainingModel:
        """Return the model whose iteration takes `alone_s` on one GPU."""
        if pattern is Pattern.SERIAL_DATA:
            data_s = share * alone_s
            forward_s = (alone_s - data_s) * FORWARD_SHARE
            backward_s = alone_s - data_s - forward_s
        else:
            # Data is what the iteration waits for: it takes 1 / (1 - share) of the backward pass.
            backward_to_forward = (1 - FORWARD_SHARE) / FORWARD_SHARE
            forward_s = alone_s / (1 + backward_to_forward / (1 - share))
            backward_s = forward_s * backward_to_forward
            data_s = alone_s - forward_s
        return TrainingModel(
            batch_size,
            IterationTimes(data_s, forward_s, backward_s, 0.0, 0.0),
            self._parameters,
            # Half of what a ring carries goes over the link of two GPUs: (N-1)/N is 1/2.
            Bandwidths(
                self._parameters / (2 * link_s),
                self._parameters / network_s,
                self._prior.network_ring,
            ),
            pattern,
        )


@dataclass(frozen=True, slots=True)
class CommunicationTime:
    """Seconds in which `gpus` GPUs on `nodes` nodes average the gradients of `parameters`."""

    parameters: float
    gpus: int
    nodes: int
    seconds: float


def fit_bandwidths(measured: Iterable[CommunicationTime], network_ring: float = 0.0) -> Bandwidths:
    """Return the bandwidths of a GPU type from models of different size (Hops section 3.3).

    Each measurement is worth a bandwidth by formula (2); the median of them is taken, so that one
    disturbed run spoils nothing. NaN where there is no measurement.
    """
    unit = Bandwidths(1.0, 1.0, network_ring)
    link: list[float] = []
    network: list[float] = []
    for time in measured:
        worth = communication_s(time.parameters, time.gpus, time.nodes, unit) / time.seconds
        (network if time.nodes > 1 else link).append(worth)
    return Bandwidths(
        float(np.median(link)) if link else math.nan,
        float(np.median(network)) if network else math.nan,
        network_ring,
    )
