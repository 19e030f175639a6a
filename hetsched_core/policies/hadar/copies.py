"""The arithmetic of HadarE's copies: how many steps each does, and how long merging takes.

Source: Sultana et al., "Resource Heterogeneity-Aware and Utilization-Enhanced Scheduling for Deep
Learning Clusters" (HadarE), sections V-A and V-B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hetsched_core.throughput.profiles import ModelProfile, builtin_profiles, gavel_profile

BYTES_A_PARAMETER = 4.0
"""Parameters are averaged in single precision."""

USUAL_PARAMETERS = 25e6
"""Parameters of a model that is not known: those of ResNet-50."""


def known_profile(name: str) -> ModelProfile | None:
    """Return the built-in profile of this name, ours or Gavel's."""
    return gavel_profile(name) or next((p for p in builtin_profiles() if p.name == name), None)


def split_steps(steps: int, rates: Sequence[float]) -> list[int]:
    """Return the steps of each copy: in proportion to the rates, by largest remainder.

    Ties go to the lower index. The steps add up to `steps` if any rate is above 0.

    Args:
        steps: the steps that are left, 0 or more.
        rates: the throughput of each copy's node, 0 or more, in any one unit.
    """
    total = math.fsum(rates)
    if total <= 0:
        return [0] * len(rates)
    quotas = [steps * rate / total for rate in rates]
    parts = [math.floor(quota) for quota in quotas]
    # Rounded, so that equal remainders are equal whatever the size of their quotas.
    by_remainder = sorted(range(len(rates)), key=lambda i: (round(parts[i] - quotas[i], 6), i))
    for at in by_remainder[: steps - sum(parts)]:
        parts[at] += 1
    return parts


def within_slot(parts: Sequence[int], rates: Sequence[float], slot_s: float) -> list[int]:
    """Return the steps that each copy gets through in a slot, at most those assigned.

    A copy that cannot do one step in a slot still starts one, and goes on with it in the next.
    """
    return [
        min(part, max(1, math.floor(rate * slot_s + 1e-9))) if rate > 0 else 0
        for part, rate in zip(parts, rates, strict=True)
    ]


def consolidation_s(profile: str, bandwidth_gb_s: float) -> float:
    """Return the seconds in which a copy sends its parameters and gets the averaged ones.

    Args:
        profile: the model; one that is not built in counts as `USUAL_PARAMETERS`.
        bandwidth_gb_s: what a node's link moves, 1e9 bytes/s; infinity for no cost.
    """
    known = known_profile(profile)
    parameters = USUAL_PARAMETERS if known is None else known.parameters
    return 2.0 * BYTES_A_PARAMETER * parameters / (bandwidth_gb_s * 1e9)
