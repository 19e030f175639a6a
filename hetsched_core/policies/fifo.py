"""First in, first out, on the fastest idle GPUs that fit.

Source: common practice; Gavel's evaluation calls it FIFO (Narayanan et al., OSDI '20, section 7).
Running jobs are never preempted. A job that does not fit keeps later jobs off the GPU types it
could use, so no job is overtaken for the same GPUs, while other types stay usable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from hetsched_core.placement import StrictOrder
from hetsched_core.policy import PolicyInfo
from hetsched_core.types import JobView, Plan, Replan, Snapshot, submission_order


@dataclass(frozen=True)
class Fifo:
    """Serve jobs in the order of submission."""

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="fifo",
        summary="order of submission, no preemption, fastest idle GPUs that fit",
        paper="",
    )
    _strict: StrictOrder = field(
        default_factory=lambda: StrictOrder(_submitted), init=False, repr=False, compare=False
    )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Keep what runs; start what is first."""
        return self._strict.plan(snapshot, Replan())


def _submitted(view: JobView, snapshot: Snapshot) -> tuple[float, str]:
    del snapshot
    return submission_order(view)
