"""First in, first out, on the fastest idle GPUs that fit.

Source: common practice; Gavel's evaluation calls it FIFO (Narayanan et al., OSDI '20, section 7).
Running jobs are never preempted. A job that does not fit keeps later jobs off the GPU types it
could use, so nobody is overtaken for the same GPUs, while other types stay usable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched_core.placement import Packing, pack
from hetsched_core.policy import PolicyInfo
from hetsched_core.types import Plan, Replan, Snapshot


@dataclass(frozen=True)
class Fifo:
    """Serve jobs in the order of submission."""

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="fifo",
        summary="order of submission, no preemption, fastest idle GPUs that fit",
        paper="",
    )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Keep what runs; start who is first."""
        return pack(snapshot, snapshot.by_submission(), Packing.IN_TURN, Replan())
