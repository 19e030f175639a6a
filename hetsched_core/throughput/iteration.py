"""How long one training iteration takes: the deterministic part of the Hops throughput estimator.

Source: Hops (SoCC '24), section 3.5, formulas (1) to (5). All times are seconds per iteration of
one worker, bandwidths parameters/s.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

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
    """Parameters/s that are averaged between the GPUs of one node, and between nodes."""

    link: float
    network: float


def communication_s(parameters: float, gpus: int, nodes: int, bandwidths: Bandwidths) -> float:
    """Return T_c, the time in which all workers average the gradients of `parameters`."""
    if nodes > 1:
        return parameters / bandwidths.network
    return parameters / bandwidths.link * (gpus - 1) / gpus


def iteration_s(times: IterationTimes, communication: float, pattern: Pattern) -> float:
    """Return T_iter of a training job whose gradients take `communication` seconds to average.

    For pattern 2 T_u is part of the sum: one extraction of the paper leaves it out, but the update
    cannot vanish.
    """
    backward = max(times.backward_s + TAIL_OF_COMMUNICATION * communication, communication)
    step = backward + times.update_s
    if pattern is Pattern.OVERLAPPED_DATA:
        return max(times.data_s, step) + times.forward_s + times.sync_wait_s
    return times.data_s + step + times.forward_s + times.sync_wait_s


def inference_s(data_s: float, forward_s: float, pattern: Pattern) -> float:
    """Return the time of one batch of an inference job: no gradients, nothing to average."""
    if pattern is Pattern.OVERLAPPED_DATA:
        return max(data_s, forward_s)
    return data_s + forward_s
