"""Widest first: the job that wants the most GPUs goes first, the older of two equals.

An example to start from. It opens as every policy should: with where the idea comes from (common
practice: wide jobs fit least easily) and what it costs (narrow jobs wait behind wide ones).
"""

from dataclasses import dataclass
from typing import ClassVar

from hetsched_core.placement import Packing, pack
from hetsched_core.policy import PolicyInfo, parameter
from hetsched_core.types import JobView, Plan, Replan, Snapshot, submission_order


@dataclass(frozen=True)
class WidestFirst:
    """Serve the job that accepts the most GPUs first, up to a width that counts."""

    most: int = parameter(64, "GPUs beyond which a job counts as no wider")
    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="widest-first", summary="jobs that want the most GPUs first, no preemption", paper=""
    )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Keep what runs; start the widest that fit."""

        def width(view: JobView) -> tuple[int, tuple[float, str]]:
            return -min(view.job.requirements.largest, self.most), submission_order(view)

        order = sorted(snapshot.jobs.values(), key=width)
        return pack(snapshot, order, Packing.STRICT_ORDER, Replan())
