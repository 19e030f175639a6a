"""Jobs of training rounds, and their runs on single GPUs, for tests of Hare's policies."""

from __future__ import annotations

from hetsched_core.policy import Policy
from hetsched_core.records.runlog import RunLog
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.types import Cluster, Node, Submission, TaskShape, TaskTimes
from tests.hetsched_core.policies.worlds import task_speeds
from tests.hetsched_core.worlds import submission

UNIT = {"m": {"k80": TaskTimes(1.0, 0.0)}}


def k80s(gpus: int) -> Cluster:
    """One node with so many GPUs."""
    return Cluster((Node("n0", "k80", gpus),))


ONE = k80s(1)


def job(name: str, rounds: int, scale: int = 1, at: float = 0.0, profile: str = "m") -> Submission:
    """Build a job of so many training rounds of so many tasks."""
    shape = TaskShape(scale, rounds)
    return submission(name, float(rounds * scale), submit_s=at, profile=profile, tasks=shape)


def run(policy: Policy, jobs: list[Submission], cluster: Cluster = ONE) -> RunLog:
    """Run jobs whose tasks take a second."""
    settings = SimulationSettings(restart_cost_s=0.0, switch=0.0)
    return simulate(jobs, cluster, policy, task_speeds(cluster, UNIT), settings)


def longest_wait(log: RunLog) -> float:
    """The longest that any job has to wait for its next run, or its first."""
    at = {record.job.id: record.job.submit_s for record in log.jobs}
    longest_s = 0.0
    for each in sorted(log.runs, key=lambda each: each.since_s):
        longest_s = max(longest_s, each.since_s - at[each.job])
        at[each.job] = each.freed_s
    return longest_s
