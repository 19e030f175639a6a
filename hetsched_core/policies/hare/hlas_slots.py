"""HLAS at the grain of slots: least attained service in queues, for whole jobs on a real cluster.

Source: Hare's extension in TCC 2024, section IV, as in `hlas`. What takes turns there are training
tasks of a second, on executors that change models in milliseconds. Where a job is stopped and
queued again to make room, as Slurm does it, a turn must last for longer: here it is a scheduling
round, the *slot*, and what runs in it is the job as a gang.

The queues are those of the paper: by attained service in time of a mean group of GPUs, so that it
does not matter which GPUs a job has had; after a slot a job is queued again at the tail, demoted
when its size exceeds the threshold; the highest queue is served first. It knows neither sizes nor
arrivals.

Deviations. A gang is not tied to one group, nor a group to one gang; groups are the unit of service
alone. Jobs are rigid, the lower median of the requirement set, on the fastest idle GPUs. What comes
during a slot gets what is idle. Trace: docs/policies/hare.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hetsched_core.placement.pack import pack_rounds
from hetsched_core.policies.hare.queues import Thresholds, check_parameters
from hetsched_core.policy import PolicyInfo, parameter
from hetsched_core.types import (
    JobView,
    Plan,
    Purpose,
    Snapshot,
    Trigger,
    submission_order,
)

_VERSION = 1


@dataclass(frozen=True)
class HlasSlots:
    """Least attained service first, in slots of whole jobs."""

    groups: int = parameter(0, "groups of GPUs; 0 for a quarter of the GPUs")
    queues: int = parameter(8, "number of queues")
    first_threshold_s: float = parameter(60.0, "attained service that the first queue holds")
    threshold_factor: float = parameter(4.0, "how much more each further queue holds")
    ageing_s: float | None = parameter(None, "serve what has been queued for longer first")

    info: ClassVar[PolicyInfo] = PolicyInfo(
        name="hlas-slots",
        summary="hlas with a round as its slot and whole jobs in it, by requeue: runs live",
        paper="Hare (TCC 2024, section IV)",
        takes_turns=True,
    )

    def __post_init__(self) -> None:
        """Refuse queues and groups that cannot be, and times that are none."""
        check_parameters(self)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Queue those whose slot is over again, and serve the queues in order."""
        slot_over = Trigger.ROUND in snapshot.triggers
        line = _line(snapshot, slot_over)
        at = {job: number for number, job in enumerate(line)}

        def turn(view: JobView) -> tuple[float, int, int]:
            since_s = line[view.id]
            if self.ageing_s is not None and snapshot.now - since_s > self.ageing_s:
                return since_s, -1, at[view.id]
            return math.inf, self.queue_of(snapshot, view), at[view.id]

        plan = pack_rounds(snapshot, turn)
        return replace(plan, memory={"version": _VERSION, "line": [*map(list, line.items())]})

    def queue_of(self, snapshot: Snapshot, view: JobView) -> int:
        """Return the queue of a job, from 0."""
        thresholds = Thresholds(self.queues, self.first_threshold_s, self.threshold_factor)
        return thresholds.level(self.size_s(snapshot, view))

    def size_s(self, snapshot: Snapshot, view: JobView) -> float:
        """Return the attained service: in what time a mean group does what the job has done.

        With rounds of equal tasks it is the paper's rounds run x mean round time.
        """
        speeds, cluster, profile = snapshot.speeds, snapshot.cluster, view.job.profile
        count = view.job.requirements.lower_median
        gpus = cluster.gpus_by_type()
        speed = {name: speeds.per_gpu(profile, name, count) for name in gpus}
        mean_group = math.fsum(gpus[name] * speed[name] for name in gpus) / self._groups(snapshot)
        attained = view.attained_at(snapshot.now, cluster)
        # Of a type that has left the cluster nothing is known any more.
        done = math.fsum(gpu_s * speed.get(name, 0.0) for name, gpu_s in attained.items())
        return done / mean_group if mean_group > 0 else 0.0

    def _groups(self, snapshot: Snapshot) -> int:
        return self.groups or max(1, snapshot.cluster.gpus // 4)


def _line(snapshot: Snapshot, slot_over: bool) -> dict[str, float]:
    """Return all jobs in the order in which they were queued last, and since when (UTC).

    The queues are this line cut by size: a job that is queued again goes to the end of it.
    """
    before = _remembered(snapshot.previous.memory)
    line = {job: since_s for job, since_s in before.items() if job in snapshot.jobs}
    for view in sorted(
        (view for view in snapshot.jobs.values() if view.id not in line), key=submission_order
    ):
        line[view.id] = view.job.submit_s
    if slot_over:
        for job in [job for job in line if _served(snapshot.jobs[job])]:
            del line[job]
            line[job] = snapshot.now
    return line


def _remembered(memory: Mapping[str, Any]) -> dict[str, float]:
    """Return the line that a plan remembers; empty if it is lost."""
    return dict(memory["line"]) if memory.get("version") == _VERSION else {}


def _served(view: JobView) -> bool:
    """Whether a job has had the slot that is over; one that drains has lost it before."""
    return any(
        run.begun and run.purpose is Purpose.RUN and run.draining_until_s is None
        for run in view.runs
    )
