"""What of a node is our jobs' and what is somebody else's, on a fake Slurm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.policy import make_policy, policy_names
from hetsched_core.types import NodeCondition, Placed, Trigger, Waiting
from slurm_plugin.backend import HostRequest, JobState, Requeue, SlurmJob
from slurm_plugin.daemon.jobs.copies import ELEMENTS
from tests.slurm_plugin.daemon.fake_slurm import (
    SETTINGS,
    WAITING,
    Site,
    node,
    places,
    running,
)

USED = node("n0", used=4)
ONE_FREE = (USED, node("n1"))


def foreign(site: Site) -> tuple[int, float, float]:
    """The GPUs, CPUs and MiB of n0 that are somebody else's."""
    view = site.world.nodes["n0"]
    return view.foreign_gpus, view.foreign_cpus, view.foreign_memory_mb


def test_what_running_jobs_of_ours_hold_is_not_taken_for_somebody_else_s() -> None:
    job = replace(WAITING, asked=HostRequest(8, memory_mb_per_node=16000), cpus=8, memory_mb=16000)
    runs = running(job, "n0", since_s=950.0)
    site = Site(runs, nodes=(replace(node("n0", used=1), cpus_used=10, memory_used_mb=16500),))
    site.cycle()
    assert foreign(site) == (0, 2.0, 500.0)
    view = site.world.nodes["n0"]
    assert (view.held_gpus, view.held_cpus, view.held_memory_mb) == (1, 8.0, 16000.0)
    # Others use no more of a node than what runs of ours leaves.
    odd = replace(node("n0", used=9), cpus_used=99, memory_used_mb=10**6)
    site.see(runs, nodes=(odd,))
    assert foreign(site) == (3, 24.0, 48000.0)


def test_a_job_with_a_set_is_placed_where_the_memory_is_that_slurm_takes_for_it() -> None:
    # `--mem=0`: all of a node, which its set does not say.
    whole = replace(WAITING, memory_mb=64000)
    full = replace(node("n0"), memory_used_mb=64000)
    site = Site(whole, nodes=(full, node("n1")))
    assert places(site.cycle()) == {"1": ("n1",)}
    assert places(Site(whole, nodes=(full,)).cycle()) == {}


def test_what_ended_after_the_nodes_were_read_is_not_taken_for_somebody_else_s() -> None:
    runs = running(replace(WAITING, cpus=8), "n0", since_s=950.0, gpus=4)
    site = Site(runs, nodes=(replace(USED, cpus_used=8),))
    site.cycle()
    site.see(replace(runs, state=JobState.ENDED), WAITS, seconds=1)
    assert foreign(site)[:2] == (0, 0.0)
    # What is still there at the next look is.
    site.cycle(1)
    assert foreign(site)[:2] == (4, 8.0)


def test_what_others_use_is_still_theirs_when_a_job_of_ours_ends_beside_it() -> None:
    runs = running(replace(WAITING, cpus=4), "n0", since_s=950.0, gpus=2)
    site = Site(runs, nodes=(replace(node("n0", used=3), cpus_used=32),))
    site.cycle()
    assert foreign(site)[:2] == (1, 28.0)
    freed = (replace(node("n0", used=1), cpus_used=28),)
    site.see(replace(runs, state=JobState.ENDED), seconds=1, nodes=freed)
    assert foreign(site)[:2] == (1, 28.0)


RUNNING = running(WAITING, "n0", since_s=950.0)
WAITS = replace(WAITING, id="2", mark=WAITING.mark.replace("a1", "b2"))


@pytest.mark.parametrize("policy", ["fifo", "las", "steady", "hops"])
def test_a_node_that_stops_answering_under_a_job_costs_no_other_job_its_place(policy: str) -> None:
    site = Site(RUNNING, nodes=(node("n0", used=1), node("n1")), policy=policy)
    assert site.cycle() == []
    silent = node("n0", used=1, condition=NodeCondition.DOWN)
    site.show(RUNNING, WAITS, nodes=(silent, node("n1")))
    for _ in range(2):
        calls = site.cycle(1)
        assert [call.job for call in calls] == ["2"]
        assert places(calls) == {"2": ("n1",)}
    # What it holds there is its own, for as long as Slurm says that it runs.
    assert site.uses() == (1, 0)
    assert site.world.jobs["1"].configuration is not None


ENDING = replace(RUNNING, state=JobState.COMPLETING, gpus=4)


def test_nobody_waits_for_gpus_of_a_job_that_ends_for_ever() -> None:
    site = Site(ENDING, WAITS, nodes=(USED,))
    assert site.cycle() == []
    site.clock.now += 100
    assert places(site.see(ENDING, WAITS, nodes=ONE_FREE)) == {"2": ("n1",)}
    assert places(site.cycle(1)) == {"2": ("n1",)}
    assert site.uses()[1] == 4
    # It may end after all, and then its GPUs are free.
    begin_s = site.clock.now + 60
    again = replace(ENDING, state=JobState.PENDING, nodes=(), begin_s=begin_s, restarts=1)
    site.see(again, seconds=1, nodes=(node("n0"),))
    assert site.uses()[1] == 0


OVER = replace(ENDING, over=True)
LIVE = sorted(
    name
    for name in policy_names()
    if make_policy(name).info.live and make_policy(name).info.model in ELEMENTS
)


@pytest.mark.parametrize("policy", LIVE)
def test_a_job_that_is_over_and_still_ends_gets_no_place_and_others_do(policy: str) -> None:
    waits = replace(WAITS, mark=WAITS.mark.replace('"1,2"', '"4"'))
    site = Site(replace(ENDING, state=JobState.RUNNING), nodes=ONE_FREE, policy=policy)
    site.cycle()
    site.clock.now += SETTINGS.round_s
    site.see(OVER, waits)
    assert isinstance(site.daemon.plan.entries["1"], Waiting)
    assert isinstance(site.daemon.plan.entries["2"], Placed)
    # Later than it may end, its GPUs are others', and it is in no plan.
    site.clock.now += SETTINGS.grace_s + 1
    for seconds in (0, 1):
        calls = site.cycle(seconds)
        assert not any(isinstance(call, Requeue) for call in calls)
        assert places(calls) == {"2": ("n1",)}
    assert (set(site.world.jobs), site.world.lost, site.uses()[1]) == ({"2"}, [], 4)
    # Slurm may show them as free, and starts nothing there.
    assert places(site.see(OVER, waits, nodes=(node("n0"), node("n1")))) == {"2": ("n1",)}
    assert site.uses()[1] == 4
    site.see(replace(OVER, state=JobState.ENDED), waits, nodes=(node("n0"),))
    assert site.uses()[1] == 0


@pytest.mark.parametrize("policy", LIVE)
def test_a_job_that_ends_well_makes_no_more_plans_than_one_at_its_end(policy: str) -> None:
    runs = replace(ENDING, state=JobState.RUNNING)
    site = Site(runs, WAITS, nodes=ONE_FREE, policy=policy)
    site.cycle()
    site.show(OVER, WAITS)
    for _ in range(3):
        site.cycle(1)
        assert site.report.decision is None
        assert site.uses()[1] == 0
    ended = replace(OVER, state=JobState.ENDED)
    site.see(ended, WAITS, seconds=1, nodes=(node("n0"), node("n1")))
    decision = site.report.decision
    assert decision is None or decision.plan.triggers == {Trigger.END}


@pytest.mark.parametrize(
    "job",
    [replace(RUNNING, nodes=()), replace(RUNNING, nodes=("elsewhere",)), replace(ENDING, nodes=())],
    ids=["nowhere", "elsewhere", "ending"],
)
def test_a_job_that_runs_on_no_node_of_ours_gets_no_place_beside_it(job: SlurmJob) -> None:
    site = Site(job, WAITS)
    assert places(site.cycle()) == {"2": ("n0",)}
    known = site.world.jobs.get("1")
    assert (known is None) is bool(job.nodes)
    assert known is None or known.blocked is not None
