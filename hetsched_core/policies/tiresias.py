"""Tiresias: attained service in discrete queues, and jobs kept together where it matters.

Source: Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI '19:
discretised 2D-LAS (section 3.2), placement by profile (section 3.3). A job's service is its GPUs
times the seconds it has held them. Whoever has had less than the threshold is in the first queue,
which goes before the second; inside a queue, first started is first served, so that no job there is
stopped for an equal. A job that suffers from being spread is placed on as few nodes as can hold it,
or waits.

It knows which jobs suffer from being spread, and neither sizes nor that GPU types differ in speed.

Deviations. Tiresias reads the skew of a model's tensors; here a job suffers whose speed per GPU on
one node is more than `sensitive_above` times that on several. The paper names no thresholds; 3,250
GPU seconds is the first of its published simulator. Queues are looked at when a round starts; in
between, the first job that fits has GPUs that come free. No promotion (PromoteKnob is off), and no
Gittins index, which needs the distribution of sizes. Jobs are rigid: the lower median of the
requirement set. A type is chosen by room alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hetsched_core.errors import InputError
from hetsched_core.placement.fewest import fewest_of_idle
from hetsched_core.placement.free import PerGpu
from hetsched_core.placement.one_type import plan_rounds
from hetsched_core.policy import PolicyInfo, parameter
from hetsched_core.types import (
    JobView,
    Plan,
    Snapshot,
    submission_order,
)

SEVERAL_NODES = 2


@dataclass(frozen=True)
class Tiresias:
    """Serve the queue of those with little attained service first."""

    queues: int = parameter(2, "number of queues, 1 or more")
    threshold_gpu_s: float = parameter(
        3250.0, "GPU seconds of service at which the first queue ends"
    )
    factor: float = parameter(4.0, "how much later each further queue ends than the one before")
    sensitive_above: float = parameter(
        1.1, "speed per GPU on one node over several, above which a job is kept together"
    )

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="tiresias",
        summary="discrete queues by attained GPU seconds, sensitive jobs kept together",
        paper="Tiresias (Gu et al., NSDI '19, sections 3.2 and 3.3)",
        takes_turns=True,
    )

    def __post_init__(self) -> None:
        """Refuse queues that no job could leave or enter."""
        if self.queues < 1 or not self.threshold_gpu_s > 0 or not self.factor > 1:
            raise InputError(
                f"tiresias: queues={self.queues}, threshold_gpu_s={self.threshold_gpu_s} and "
                f"factor={self.factor} make no queues; use at least 1, more than 0, more than 1"
            )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Order by queue; serve anew when a round starts, else fill what is idle."""

        def place(view: JobView) -> tuple[int, float, tuple[float, str]]:
            started = view.started_at(snapshot.now)
            return (
                self.queue_of(view.service_at(snapshot.now)),
                float("inf") if started is None else started,
                submission_order(view),
            )

        return plan_rounds(snapshot, place, self._most_nodes)

    def queue_of(self, service_gpu_s: float) -> int:
        """Return the number of the queue, from 0, for an attained service in GPU seconds."""
        queue, ends = 0, self.threshold_gpu_s
        while queue < self.queues - 1 and service_gpu_s >= ends:
            queue, ends = queue + 1, ends * self.factor
        return queue

    def _most_nodes(
        self, snapshot: Snapshot, view: JobView, gpu_type: str, count: int
    ) -> int | None:
        job, speeds = view.job, snapshot.speeds
        together = speeds.per_gpu(job.profile, gpu_type, count)
        apart = speeds.per_gpu(job.profile, gpu_type, count, SEVERAL_NODES)
        if together <= self.sensitive_above * apart:
            return None
        shapes, needs = snapshot.shapes_for(job), PerGpu.of(job)
        return fewest_of_idle(snapshot.cluster, shapes, (gpu_type,), count, needs) or None
