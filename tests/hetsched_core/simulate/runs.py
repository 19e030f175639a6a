"""Runs of the simulator on two nodes, and what their logs say."""

from __future__ import annotations

from typing import Any

from hetsched_core.policy import Policy, make_policy
from hetsched_core.records.runlog import JobRecord, RunEnd, RunLog
from hetsched_core.simulate import Incident, SimulationSettings, simulate
from hetsched_core.types import Cluster, Placed, Placement, Submission
from tests.hetsched_core.worlds import cluster_of, linear_speeds, on

PAIR = cluster_of(a=("v100", 4), b=("v100", 4))
FIFO = make_policy("fifo")


def run(
    submissions: list[Submission],
    policy: Policy = FIFO,
    *,
    cluster: Cluster = PAIR,
    incidents: tuple[Incident, ...] = (),
    several_nodes: float = 1.0,
    **settings: Any,
) -> RunLog:
    speeds = linear_speeds(cluster, {"m": dict.fromkeys(cluster.gpu_types, 1.0)}, several_nodes)
    chosen = SimulationSettings(**{"restart_cost_s": 10.0, **settings})
    return simulate(submissions, cluster, policy, speeds, chosen, incidents=incidents)


def ends(log: RunLog) -> dict[str, float | None]:
    return {record.job.id: record.end_s for record in log.jobs}


def record(log: RunLog, job: str = "j") -> JobRecord:
    (found,) = (r for r in log.jobs if r.job.id == job)
    return found


def held(log: RunLog, job: str = "j") -> list[tuple[str, float, float]]:
    """Where a job held GPUs, from when until when."""
    return [(str(r.configuration), r.since_s, r.freed_s) for r in log.runs if r.job == job]


def productive(log: RunLog) -> list[tuple[float, float, RunEnd]]:
    return [(r.productive_s, r.samples, r.ended_by) for r in log.runs]


def copies(**budgets: float | None) -> Placed:
    """A copy on each of these nodes of four GPUs, numbered in order, with so many samples to do."""
    return Placed(
        tuple(
            Placement(on(**{node: 4}), n, budget=b) for n, (node, b) in enumerate(budgets.items())
        )
    )
