"""What the tests of single policies share: jobs, speeds of tasks, and what plans and runs say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from hetsched_core.policy import Policy, PolicyInfo, check_plan
from hetsched_core.records.runlog import RunLog
from hetsched_core.types import (
    Cluster,
    Entry,
    JobView,
    Placed,
    Placement,
    Plan,
    Reason,
    Snapshot,
    Speeds,
    Submission,
    TaskTimes,
    Trigger,
    Waiting,
)
from tests.hetsched_core.worlds import NO_ROOM, linear_speeds, plan_of, snapshot_of

ROUND = frozenset({Trigger.ROUND})
END = frozenset({Trigger.END})
ARRIVAL = frozenset({Trigger.ARRIVAL})

Of = TypeVar("Of", JobView, Submission)


def with_job(found: Of, **fields: object) -> Of:
    """Return it with other fields of its job."""
    return replace(found, job=replace(found.job, **fields))  # type: ignore[arg-type]


def task_speeds(cluster: Cluster, times: Mapping[str, Mapping[str, TaskTimes]]) -> Speeds:
    """Build speeds of 1 sample/s of each GPU, with the times of tasks by profile and GPU type."""
    per_gpu = {profile: dict.fromkeys(cluster.gpu_types, 1.0) for profile in times}
    return linear_speeds(cluster, per_gpu, tasks=times)


def shown(cluster: Cluster, *views: JobView, **more: Any) -> Snapshot:
    """What a policy sees of jobs; the plan before placed those that run."""
    before: dict[str, Entry] = {
        each.id: NO_ROOM if each.configuration is None else Placed((Placement(each.configuration),))
        for each in views
    }
    return snapshot_of(cluster, views, **({"previous": plan_of(before)} | more))


def answer(policy: Policy, snapshot: Snapshot) -> Plan:
    """The plan, which is a valid one."""
    plan = policy.plan(snapshot)
    assert check_plan(snapshot, plan, policy.info.model) == ()
    return plan


def planned(policy: Policy, cluster: Cluster, *views: JobView, **more: Any) -> Plan:
    """The valid plan of a policy for what it is shown."""
    return answer(policy, shown(cluster, *views, **more))


def watched(policy: Policy) -> tuple[Policy, list[tuple[Snapshot, Plan]]]:
    """The policy, and what it will be shown and have answered."""
    seen: list[tuple[Snapshot, Plan]] = []

    @dataclass(frozen=True)
    class Watched:
        info: ClassVar[PolicyInfo] = policy.info

        def plan(self, snapshot: Snapshot) -> Plan:
            plan = policy.plan(snapshot)
            seen.append((snapshot, plan))
            return plan

    return Watched(), seen


def reason(plan: Plan, job: str) -> Reason:
    """Why a job waits."""
    entry = plan.entries[job]
    assert isinstance(entry, Waiting)
    return entry.reason


def reasons(plan: Plan) -> dict[str, str]:
    """Why jobs wait, in a word each."""
    waiting = [job for job, entry in sorted(plan.entries.items()) if isinstance(entry, Waiting)]
    return {job: reason(plan, job).code.word for job in waiting}


def ends(log: RunLog) -> dict[str, float | None]:
    """When each job ended."""
    return {record.job.id: record.end_s for record in log.jobs}


def order(log: RunLog) -> list[str]:
    """Whose runs began, one after the other."""
    return [run.job for run in sorted(log.runs, key=lambda run: run.since_s)]
