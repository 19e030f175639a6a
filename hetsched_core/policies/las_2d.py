"""2D-LAS: least attained service in GPU seconds first, without queues.

Source: the rival of that name in Hare's online evaluation (TCC 2024, section VI-C), after Tiresias
(Gu et al., NSDI '19, section 3.1): GPUs times the seconds they were held. Those with the least go
first.

It knows neither sizes nor that GPU types differ in speed; that is what sets it apart from `las`,
which has the same order and takes the fastest GPUs.

Deviations. Decided when a round starts; in between, the first job that fits has what comes free.
Jobs are rigid: the lower median of the requirement set. A type is chosen by room alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched_core.placement.one_type import plan_rounds
from hetsched_core.policy import PolicyInfo
from hetsched_core.types import JobView, Plan, Snapshot, submission_order


@dataclass(frozen=True)
class Las2D:
    """Serve the job with the least attained GPU seconds first, blind to GPU types."""

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="2d-las",
        summary="least attained GPU seconds first, in rounds, blind to GPU types",
        paper="Tiresias (Gu et al., NSDI '19, section 3.1) as in Hare (TCC 2024, section VI-C)",
        takes_turns=True,
    )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Order by attained service; serve anew when a round starts, else fill what is idle."""

        def attained(view: JobView) -> tuple[float, tuple[float, str]]:
            return view.service_at(snapshot.now), submission_order(view)

        return plan_rounds(snapshot, attained)
