"""Ranges for those who ask, however long a policy thinks."""

import threading
from dataclasses import dataclass, field, replace
from typing import ClassVar

from hetsched_core.forecast import StartRange
from hetsched_core.policies.las import Las
from hetsched_core.policy import PolicyInfo
from hetsched_core.simulate import SimulationSettings
from hetsched_core.types import EMPTY_PLAN, JobView, Plan, Round, Snapshot
from slurm_plugin.api.forecasts import Forecasts, Known
from tests.hetsched_core.worlds import cluster_of, held, on, snapshot_of, view


@dataclass
class Slow:
    """A policy that takes 20 ms of a clock of its own for each plan."""

    info: ClassVar[PolicyInfo] = Las.info
    policy: Las = field(default_factory=Las)
    clock_s: float = 0.0
    began: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event | None = None

    def stopwatch(self) -> float:
        return self.clock_s

    def plan(self, snapshot: Snapshot) -> Plan:
        """Think, at the first time for as long as a test wants."""
        self.began.set()
        if self.go_on is not None:
            self.go_on.wait()
        self.clock_s += 0.02
        return self.policy.plan(snapshot)


def unsized(job: JobView) -> JobView:
    """Return a job of which nobody knows how long it takes, and which is not moved."""
    plain = replace(job.job, total_samples=None, time_limit_s=None, preemptible=False)
    return replace(job, job=plain)


def asked_for() -> tuple[Slow, Known]:
    """One job that waits for one that runs, rounds of 20 s, and who schedules them."""
    now, round_s = 3600.0, 20.0
    jobs = [view("runs", held(on(n0=4)), counts=(4,)), view("waits", counts=(4,), submit_s=3590.0)]
    snapshot = replace(
        snapshot_of(cluster_of(n0=("a100", 4)), map(unsized, jobs), now=now),
        round=Round(180, now, now + round_s),
    )
    slow = Slow()
    plan = slow.plan(replace(snapshot, previous=EMPTY_PLAN))
    jobs_there = {name: (name, each.job) for name, each in snapshot.jobs.items()}
    return slow, Known(slow, snapshot, plan, jobs_there, (), SimulationSettings(grace_s=30.0))


def test_one_job_that_waits_long_in_short_rounds_gets_a_range_in_time() -> None:
    slow, known = asked_for()
    forecasts = Forecasts(slow.stopwatch)
    forecasts.look(known)
    found = forecasts.when("waits", "ann")
    assert isinstance(found, StartRange), str(found)
    assert found.starts >= 10
    assert known.snapshot.now <= found.low_s < found.drawn_low_s < found.drawn_high_s


def test_a_range_that_has_begun_to_pass_is_given_anew_though_the_plan_is_the_same() -> None:
    slow, known = asked_for()
    forecasts = Forecasts(slow.stopwatch)
    forecasts.look(known)
    first = forecasts.when("waits", "ann")
    assert isinstance(first, StartRange)
    for at_s, new in ((first.low_s - 10.0, False), (first.low_s + 10.0, True)):
        forecasts.look(replace(known, snapshot=replace(known.snapshot, now=at_s)))
        again = forecasts.when("waits", "ann")
        assert isinstance(again, StartRange)
        assert (again.at_s == at_s) is new


def test_what_a_job_that_comes_is_given_is_not_drawn_again_for_a_question_meanwhile() -> None:
    slow, known = asked_for()
    forecasts = Forecasts(slow.stopwatch)
    forecasts.look(known)
    asks = threading.Thread(target=forecasts.when, args=("waits", "ann"))
    began = slow.began = threading.Event()
    slow.go_on = threading.Event()
    draws = threading.Thread(target=forecasts.serve)
    draws.start()
    began.wait()
    asks.start()
    slow.go_on.set()
    asks.join()
    forecasts.close()
    draws.join()
    assert len(forecasts.take()) == 1
