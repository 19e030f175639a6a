"""Shortest remaining time first, decided anew at every round.

Source: common practice; a priority of Hops (SoCC '24, section 3.6) and a rival in Hare's evaluation
(HPDC '22, section 7). At the start of a round the order alone decides what runs; between rounds
no job is preempted and idle GPUs go to what fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched_core.placement.pack import pack_rounds
from hetsched_core.policies.job_size import expected_run_s
from hetsched_core.policy import PolicyInfo
from hetsched_core.types import (
    JobView,
    Knowledge,
    Plan,
    Snapshot,
    submission_order,
)


@dataclass(frozen=True)
class Srtf:
    """Serve the job with the least expected time left first."""

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="srtf",
        summary="shortest remaining time first, preemption at the start of a round",
        paper="",
        knows=frozenset({Knowledge.TOTAL_SAMPLES, Knowledge.TIME_LIMIT}),
    )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Order by what is left of the expected run time."""

        def remaining_s(view: JobView) -> tuple[float, tuple[float, str]]:
            whole = expected_run_s(view.job, snapshot)
            total = view.job.total_samples
            left = 1.0 if not total else max(0.0, 1.0 - view.samples_at(snapshot.now) / total)
            return whole * left, submission_order(view)

        return pack_rounds(snapshot, remaining_s)
