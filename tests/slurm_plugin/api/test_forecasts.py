"""Ranges for those who ask, however long a policy thinks."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from hetsched_core.forecast import StartRange
from hetsched_core.policies.las import Las
from hetsched_core.policy import PolicyInfo
from hetsched_core.simulate import Settings
from hetsched_core.types import EMPTY_PLAN, JobView, Plan, Round, Snapshot
from slurm_plugin.api.forecasts import Forecasts, Known
from tests.hetsched_core.worlds import cluster_of, held, on, snapshot_of, view


@dataclass
class Slow:
    """A policy that takes 20 ms of a clock of its own for each plan."""

    info: ClassVar[PolicyInfo] = Las.info
    policy: Las = field(default_factory=Las)
    clock_s: float = 0.0

    def stopwatch(self) -> float:
        """Return the time."""
        return self.clock_s

    def plan(self, snapshot: Snapshot) -> Plan:
        """Think."""
        self.clock_s += 0.02
        return self.policy.plan(snapshot)


def unsized(job: JobView) -> JobView:
    """Return a job of which nobody knows how long it takes, and which is not moved."""
    plain = replace(job.job, total_samples=None, time_limit_s=None, preemptible=False)
    return replace(job, job=plain)


def test_one_job_that_waits_long_in_short_rounds_gets_a_range_in_time() -> None:
    now, round_s = 3600.0, 20.0
    jobs = [view("runs", held(on(n0=4)), counts=(4,)), view("waits", counts=(4,), submit_s=3590.0)]
    snapshot = replace(
        snapshot_of(cluster_of(n0=("a100", 4)), map(unsized, jobs), now=now),
        round=Round(180, now, now + round_s),
    )
    slow = Slow()
    plan = slow.plan(replace(snapshot, previous=EMPTY_PLAN))
    forecasts = Forecasts(slow.stopwatch)
    known = {name: (name, each.job) for name, each in snapshot.jobs.items()}
    forecasts.look(Known(slow, snapshot, plan, known, (), Settings(grace_s=30.0)))
    found = forecasts.when("waits")
    assert isinstance(found, StartRange), str(found)
    assert found.starts >= 10
    assert now <= found.low_s < found.drawn_low_s < found.drawn_high_s
