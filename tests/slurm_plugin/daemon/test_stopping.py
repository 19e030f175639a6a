"""Jobs are warned and stopped, once, on a fake Slurm."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
from immutables import Map

from hetsched_core.policy import PolicyInfo
from hetsched_core.types import Placed, Placement, Plan, Snapshot, Waiting
from slurm_plugin.backend import (
    ApplyResult,
    JobState,
    Recipients,
    Requeue,
    RequeueEnded,
    Signal,
    SlurmSite,
)
from slurm_plugin.backend.shares import SlurmShares
from slurm_plugin.daemon.changes import warned_jobs
from tests.slurm_plugin.daemon.fake_slurm import (
    MOVABLE,
    RIGID,
    SETTINGS,
    WAITING,
    Evict,
    Site,
    left,
    node,
    placed,
    running,
)

USED = (node("n0", used=4),)
FOUR = MOVABLE.mark.replace('"1,2"', '"4"')
RUNS = running(MOVABLE, "n0", since_s=950.0)
WHOLE = running(replace(MOVABLE, mark=FOUR), "n0", since_s=950.0, gpus=4)
BEHIND = replace(
    WAITING, id="2", mark=FOUR.replace("a1", "b2").replace(',"can-checkpoint":true', "")
)
"""A job that needs the node on which `WHOLE` runs."""

WARNED = replace(SETTINGS, checkpoint_signal="USR1", checkpoint_wait_s=5.0)
SIGNAL = Signal("1", "USR1", Recipients.ALL)


def test_a_stopped_job_is_requeued_once_and_then_leaves_its_place() -> None:
    site = Site(RUNS, nodes=(node("n0", used=1),), policy=Evict())
    assert site.cycle() == [Requeue("1")]
    assert site.see(replace(RUNS, state=JobState.COMPLETING), seconds=3) == []
    again = replace(MOVABLE, begin_s=site.clock.now + 16, restarts=1)
    assert site.see(placed(again, "n0")) == [left(WAITING)]


def test_a_job_is_warned_and_given_its_time_before_it_is_stopped() -> None:
    site = Site(RUNS, nodes=(node("n0", used=1),), policy=Evict(), settings=WARNED)
    assert site.cycle() == [SIGNAL]
    assert site.until_called(20) == (5.0, [Requeue("1")])


def test_a_job_that_saves_its_state_frees_its_gpus_when_its_time_is_over() -> None:
    site = Site(RUNS, nodes=(node("n0", used=1),), policy=Evict(), settings=WARNED)
    warned_s = site.clock.now
    assert site.cycle() == [SIGNAL]
    (run,) = warned_jobs(site.world, WARNED)["1"].runs
    assert run.draining_until_s == warned_s + WARNED.checkpoint_wait_s + WARNED.grace_s


@dataclass(frozen=True)
class WatchedEvict(Evict):
    """Tells what it was asked."""

    asked: list[Snapshot] = field(default_factory=list)

    def plan(self, snapshot: Snapshot) -> Plan:
        self.asked.append(snapshot)
        return super().plan(snapshot)


def test_a_job_that_saves_its_state_is_told_as_changed_while_it_does_and_when_it_does_not() -> None:
    policy = WatchedEvict()
    site = Site(RUNS, nodes=(node("n0", used=1),), policy=policy, settings=WARNED)
    assert site.cycle() == [SIGNAL]
    new = [replace(RIGID, id=str(number)) for number in (8, 9)]
    site.see(RUNS, new[0], seconds=1)
    # It was not stopped after all.
    site.world.managed["1"].warned_s = None
    site.see(RUNS, *new, seconds=1)
    drains = [
        ("1" in each.changed, each.jobs["1"].runs[0].draining_until_s is not None)
        for each in policy.asked
    ]
    assert drains == [(True, False), (True, True), (True, False)]


@pytest.mark.parametrize("policy", ["las", "gavel"])
def test_what_comes_while_a_job_saves_its_state_does_not_take_its_stop_back(policy: str) -> None:
    settings = replace(WARNED, checkpoint_wait_s=50.0)
    site = Site(WHOLE, nodes=USED, policy=policy, settings=settings)
    site.backend.where = SlurmSite(10.0, {"gpu": None}, shares=SlurmShares(qos={"normal": 0}))
    site.cycle()
    site.show(WHOLE, BEHIND)
    for _ in range(20):
        site.clock.now += SETTINGS.round_s
        if site.cycle() == [SIGNAL]:
            break
    site.show(WHOLE, BEHIND, replace(RIGID, id="9"))
    waited_s, calls = site.until_called(60)
    assert calls == [Requeue("1")]
    assert waited_s > 40
    assert isinstance(site.daemon.plan.entries["2"], Placed)


def test_a_job_is_stopped_for_another_only_while_it_is_neither_suspended_nor_held() -> None:
    site = Site(WHOLE, nodes=USED, policy="las")
    site.cycle()
    suspended = replace(WHOLE, state=JobState.SUSPENDED)
    # Once stopped, one that was held as it ran would not start again.
    for now, stopped in ((suspended, False), (replace(WHOLE, held=True), False), (WHOLE, True)):
        site.clock.now += SETTINGS.round_s
        calls = site.see(now, BEHIND)
        entries = site.daemon.plan.entries
        assert isinstance(entries["1"], Waiting) is stopped
        assert isinstance(entries["2"], Waiting) is not stopped
        assert calls == [Requeue("1")] * stopped


@pytest.mark.parametrize(
    ("changed", "stopped"),
    [
        ({}, True),
        ({"qos": "normal"}, False),
        ({"requeues": False}, False),
        ({"state": JobState.SUSPENDED}, False),
    ],
)
def test_what_saves_nothing_is_stopped_where_the_site_s_preemption_requeues_it_and_not_warned(
    changed: dict[str, Any], stopped: bool
) -> None:
    low = running(RIGID, "n0", since_s=950.0, gpus=4)
    low = replace(low, **{"id": "1", "qos": "scavenger", **changed})
    site = Site(low, nodes=USED, policy="fifo", settings=WARNED)
    qos = {"normal": 0, "scavenger": 0, "high": 9}
    shares = SlurmShares(qos=qos, requeued_qos=frozenset({"scavenger"}))
    site.backend.where = SlurmSite(10.0, {"gpu": None}, shares=shares)
    site.cycle()
    assert site.see(low, replace(BEHIND, qos="normal"), seconds=30) == []
    # Its QOS was changed while it waits. The fake's job runs on, and is told again.
    assert set(site.see(low, replace(BEHIND, qos="high"), seconds=3)) == (
        {Requeue("1")} if stopped else set()
    )


def test_a_job_of_several_partitions_has_the_highest_tier_while_it_waits() -> None:
    waits = replace(RIGID, partitions=("gpu", "vip"))
    site = Site(waits, nodes=USED, policy="fifo")
    shares = SlurmShares(partitions={"gpu": 1, "vip": 10})
    site.backend.where = SlurmSite(10.0, {"gpu": None, "vip": None}, shares=shares)
    site.cycle()
    assert site.world.managed[RIGID.id].job.tier == 1
    site.see(running(waits, "n0"), nodes=USED)
    assert site.world.managed[RIGID.id].job.tier == 0


def test_the_service_of_a_job_stands_still_while_it_is_suspended() -> None:
    had = running(MOVABLE, "n0", since_s=1000.0)
    site, attained = Site(nodes=(node("n0", used=1),), policy="las"), []
    for now in (JobState.RUNNING, JobState.SUSPENDED, JobState.SUSPENDED, JobState.RUNNING):
        site.see(replace(had, state=now))
        attained.append(site.world.jobs["1"].service_at(site.clock.now))
        site.clock.now += 5
    attained.append(site.world.jobs["1"].service_at(site.clock.now))
    assert attained == [0.0, 5.0, 5.0, 5.0, 10.0]


def test_the_next_daemon_knows_what_service_a_job_has_had_since_its_run_began() -> None:
    for gpus in (1, 2):
        site = Site(running(MOVABLE, "n0", since_s=954.0, gpus=gpus), policy="las")
        for seconds in (0.0, 10.0):
            site.cycle(seconds)
            had = site.world.jobs["1"].service_at(site.clock.now)
            assert had == gpus * (46.0 + seconds)


@pytest.mark.parametrize("policy", ["las", "srtf", "2d-las", "tiresias", "hlas-slots"])
def test_a_job_that_is_suspended_when_it_was_to_be_stopped_keeps_its_gpus(policy: str) -> None:
    settings = replace(WARNED, checkpoint_wait_s=50.0)
    site = Site(WHOLE, nodes=(*USED, node("n1", used=4)), policy=policy, settings=settings)
    for now in (JobState.RUNNING, JobState.RUNNING, JobState.SUSPENDED):
        site.cycle()
        site.clock.now += SETTINGS.round_s
        site.show(replace(WHOLE, state=now), BEHIND)
    for seconds in (0, 1):
        site.cycle(seconds)
        assert isinstance(site.daemon.plan.entries["1"], Placed)
        assert isinstance(site.daemon.plan.entries["2"], Waiting)


@dataclass
class EvictNowAndThen:
    """A policy that stops whatever runs, unless it is told to let it run."""

    info: ClassVar[PolicyInfo] = PolicyInfo("evict-now-and-then", "", "")
    lets_run: bool = False

    def plan(self, snapshot: Snapshot) -> Plan:
        """Let everybody wait, or everybody run where it does."""
        if not self.lets_run:
            return Evict().plan(snapshot)
        runs = {job: view.runs[0].configuration for job, view in snapshot.jobs.items()}
        return Plan(Map({job: Placed((Placement(where),)) for job, where in runs.items()}))


def test_a_job_that_was_warned_and_then_left_alone_is_warned_anew_the_next_time() -> None:
    policy = EvictNowAndThen()
    site = Site(policy=policy, settings=WARNED)
    for lets_run, used, calls in ((False, 1, [SIGNAL]), (True, 2, []), (False, 3, [SIGNAL])):
        policy.lets_run = lets_run
        # GPUs of somebody else's are a reason to plan.
        assert site.see(RUNS, nodes=(node("n0", used=used),)) == calls
        site.clock.now += 60


def test_a_run_that_a_controller_has_forgotten_to_have_stopped_is_stopped_again() -> None:
    site = Site(WHOLE, nodes=USED)
    assert site.cycle() == []
    site.daemon._carried_out((), ApplyResult((Requeue("1"),), (), ()), site.clock.now)
    assert site.cycle() == [Requeue("1")]
    # The next run is another.
    assert site.see(replace(WHOLE, restarts=1)) == []


@pytest.mark.parametrize(
    ("ended_s", "seen", "again"),
    [
        (2.0, {}, True),
        (2.0, {"outcome": "FAILED"}, True),
        (2.0, {"outcome": "CANCELLED"}, False),
        # It had ended before.
        (0.0, {}, False),
        (1.0, {}, False),
        # The run that came after it.
        (2.0, {"restarts": 1}, False),
        # Another job that has got its id.
        (2.0, {"mark": BEHIND.mark, "submit_s": 1001.0}, False),
    ],
)
def test_a_run_that_ends_by_itself_once_its_stop_was_forgotten_is_queued_again(
    ended_s: float, seen: dict[str, Any], again: bool
) -> None:
    site = Site(WHOLE, nodes=USED)
    assert site.cycle() == []
    at_s = site.forget_stop("1")
    fields: dict[str, Any] = {"outcome": "COMPLETED", "end_s": at_s + ended_s} | seen
    ended = replace(WHOLE, state=JobState.ENDED, **fields)
    assert site.see(ended) == ([RequeueEnded("1")] if again else [])
    assert ("1" in site.world.managed) == again
    # Slurm may refuse that for ever.
    site.clock.now += 100.0
    assert site.see(ended) == []
