"""The basic times of an iteration from some measured steps: what formula (1) of Hops is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from job_wrappers.session.phases import StepTimes

WARM_UP = 3
"""Steps that are not measured: the first ones allocate memory and choose algorithms."""

ITERATIONS = 20
"""Steps that are measured; with the warm-up fewer than a profiling run of the daemon may take."""

HIDDEN = 0.8
"""Loading runs beside training where a step waits for less than this share of it."""

MOST_VALUES = 64


@dataclass(frozen=True)
class StepProfile:
    """What a spool file's `profile` line says (docs/formats/spool.md)."""

    iterations: int
    pattern: int
    forward_s: float
    backward_s: float
    update_s: float
    data_s: tuple[float, ...]
    wait_s: tuple[float, ...]


def profile_of(steps: Sequence[StepTimes], loading_s: Sequence[float], ranks: int) -> StepProfile:
    """Return the basic times behind measured steps.

    Loading that runs beside training runs beside all of a step. Formula (1) lets it run beside
    backward pass and update alone, so that what counts as T_d is what is left of it when the
    forward pass ends: the formula then gives max(T_d, T_f + T_b + T_u), which is what happens.

    Waiting for other ranks is everything beyond the least wait: that one is communication, which
    the formula has of its own.

    Args:
        steps: measured steps.
        loading_s: how long a batch of each step takes to come when none is taken; empty where
            training loads by itself.
        ranks: how many there are.
    """
    count = len(steps)
    forward_s = sum(step.forward_s for step in steps) / count
    backward_s = sum(step.backward_s for step in steps) / count
    update_s = sum(step.update_s for step in steps) / count
    taken = [step.data_s for step in steps]
    pattern = overlap_pattern(taken, loading_s)
    if pattern == 1:
        # Taking a batch over costs something however early it is there.
        forward_s += min(taken)
        data_s = beside_forward(loading_s, forward_s)
    else:
        data_s = taken
    if ranks == 1:
        # Nobody is waited for: what lies between backward pass and update is part of the update.
        update_s += sum(step.wait_s for step in steps) / count
        wait_s = [0.0] * count
    else:
        wait_s = beyond_least([step.wait_s for step in steps])
    return StepProfile(
        iterations=count,
        pattern=pattern,
        forward_s=forward_s,
        backward_s=backward_s,
        update_s=update_s,
        data_s=tuple(data_s[:MOST_VALUES]),
        wait_s=tuple(wait_s[:MOST_VALUES]),
    )


def overlap_pattern(taken_s: Sequence[float], loading_s: Sequence[float]) -> int:
    """Return 1 if loading runs beside training, 2 if training stands still for it."""
    if not loading_s:
        return 2
    wait_s, load_s = sum(taken_s) / len(taken_s), sum(loading_s) / len(loading_s)
    return 1 if wait_s < HIDDEN * load_s else 2


def beside_forward(loading_s: Sequence[float], forward_s: float) -> list[float]:
    """Return what is left of loading when the forward pass of a step ends."""
    return [max(0.0, load_s - forward_s) for load_s in loading_s]


def beyond_least(waits_s: Sequence[float]) -> list[float]:
    """Return waits without what each of them has."""
    least = min(waits_s, default=0.0)
    return [wait_s - least for wait_s in waits_s]
