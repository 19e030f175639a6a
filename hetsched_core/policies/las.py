"""Least attained service: the job that has used the fewest GPU seconds goes first.

Source: common practice; two-dimensional as in Tiresias (NSDI '19, section 4.1: GPUs x time),
without its queues; a priority of Hops (SoCC '24, section 3.6). Needs to know no sizes. At the start
of a round the order alone decides what runs; between rounds no job is preempted and idle GPUs go to
what fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched_core.placement.pack import pack_rounds
from hetsched_core.policy import PolicyInfo
from hetsched_core.types import JobView, Plan, Snapshot, submission_order


@dataclass(frozen=True)
class Las:
    """Serve the job with the least attained GPU seconds first."""

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="las",
        summary="least attained GPU seconds first, preemption at the start of a round",
        paper="",
        takes_turns=True,
    )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Order by attained service."""

        def attained(view: JobView) -> tuple[float, tuple[float, str]]:
            return view.service_at(snapshot.now), submission_order(view)

        return pack_rounds(snapshot, attained)
