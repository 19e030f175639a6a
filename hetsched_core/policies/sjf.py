"""Shortest job first: by the expected run time of the whole job.

Source: common practice; a priority of Hops (SoCC '24, section 3.6). Running jobs are never
preempted. As in `fifo`, a job that does not fit keeps those behind it off the GPU types it could
use, so a wide job is delayed by shorter ones but not passed by longer ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from hetsched_core.placement import StrictOrder
from hetsched_core.policies.job_size import expected_run_s
from hetsched_core.policy import PolicyInfo
from hetsched_core.types import JobView, Knowledge, Plan, Replan, Snapshot, submission_order


@dataclass(frozen=True)
class Sjf:
    """Serve the job with the least expected run time first."""

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="sjf",
        summary="shortest expected run time first, no preemption",
        paper="",
        knows=frozenset({Knowledge.TOTAL_SAMPLES, Knowledge.TIME_LIMIT}),
    )
    _strict: StrictOrder = field(
        default_factory=lambda: StrictOrder(_size), init=False, repr=False, compare=False
    )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Keep what runs; start the shortest."""
        return self._strict.plan(snapshot, Replan())


def _size(view: JobView, snapshot: Snapshot) -> tuple[float, tuple[float, str]]:
    return expected_run_s(view.job, snapshot), submission_order(view)
