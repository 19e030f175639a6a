"""How long one training iteration takes: formulas (1) to (4) of the Hops throughput estimator.

Source: Hops (SoCC '24), section 3.5. All times are seconds per iteration of one worker, bandwidths
parameters/s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from hetsched_core.throughput.data_time import DataMode, expected_max

TAIL_OF_COMMUNICATION = 0.2
"""Share of the communication that is left when the backward pass ends, however fast the link is."""


class Pattern(IntEnum):
    """Whether loading the next batch runs beside the training step (1) or before it (2)."""

    OVERLAPPED_DATA = 1
    SERIAL_DATA = 2


@dataclass(frozen=True, slots=True)
class IterationTimes:
    """The basic times of an iteration: T_d, T_f, T_b, T_u and T_w of Hops."""

    data_s: float
    forward_s: float
    backward_s: float
    update_s: float
    sync_wait_s: float


@dataclass(frozen=True, slots=True)
class Bandwidths:
    """Parameters/s that are averaged between the GPUs of one node, and between nodes.

    `network` holds for two GPUs. `network_ring` is the share of that time which grows with the
    number of GPUs as in a ring, by 2(N-1)/N: 0 in formula (2) of Hops, where more nodes cost no
    more, 1 for a ring of one GPU on each node. NaN means that a bandwidth is not known.
    """

    link: float
    network: float
    network_ring: float = 0.0


def communication_s(parameters: float, gpus: int, nodes: int, bandwidths: Bandwidths) -> float:
    """Return T_c, the time in which all workers average the gradients of `parameters`."""
    if nodes > 1:
        growth = 1 + bandwidths.network_ring * (gpus - 2) / gpus
        return parameters / bandwidths.network * growth
    return parameters / bandwidths.link * (gpus - 1) / gpus


def iteration_s(times: IterationTimes, communication: float, pattern: Pattern) -> float:
    """Return T_iter of a training job whose gradients take `communication` seconds to average.

    For pattern 2 T_u is part of the sum: one extraction of the paper leaves it out, but the update
    cannot vanish.
    """
    step = _step_s(times, communication)
    if pattern is Pattern.OVERLAPPED_DATA:
        return max(times.data_s, step) + times.forward_s + times.sync_wait_s
    return times.data_s + step + times.forward_s + times.sync_wait_s


def expected_iteration_s(
    times: IterationTimes, modes: Sequence[DataMode], communication: float, pattern: Pattern
) -> float:
    """Return E(T_iter), formula (4): T_d and T_w of `times` are replaced by those of `modes`."""
    step = _step_s(times, communication)
    expected = times.forward_s
    for mode in modes:
        if pattern is Pattern.OVERLAPPED_DATA:
            data_and_step = expected_max(mode.data_s, mode.data_sd_s, step)
        else:
            data_and_step = mode.data_s + step
        expected += mode.share * (data_and_step + mode.wait_s)
    return expected


def inference_s(data_s: float, forward_s: float, pattern: Pattern) -> float:
    """Return the time of one batch of an inference job: no gradients, nothing to average."""
    if pattern is Pattern.OVERLAPPED_DATA:
        return max(data_s, forward_s)
    return data_s + forward_s


def _step_s(times: IterationTimes, communication: float) -> float:
    """Return the time of backward pass, communication and update."""
    backward = max(times.backward_s + TAIL_OF_COMMUNICATION * communication, communication)
    return backward + times.update_s
