"""What of a node is our jobs' and what is somebody else's, on a fake Slurm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.policy import make_policy, policy_names
from hetsched_core.types import NodeCondition, Placed, Trigger, Waiting
from slurm_plugin.backend import Asked, Enter, JobState, Requeue, SlurmJob
from slurm_plugin.daemon import Daemon
from slurm_plugin.daemon.copies import ELEMENTS
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    SETTINGS,
    WAITING,
    Clock,
    daemon_of,
    node,
    running,
    state,
)


def test_cpus_that_running_jobs_of_ours_hold_are_not_taken_for_somebody_else_s() -> None:
    job = replace(WAITING, asked=Asked(8, memory_mb_per_node=16000), cpus=8, memory_mb=16000)
    runs = running(job, "n0", since_s=950.0)
    used = replace(node("n0", used=1), cpus_used=10, memory_used_mb=16500)
    daemon = daemon_of(FakeBackend(state(runs, nodes=(used,))), Clock())
    daemon.cycle()
    view = daemon.world.nodes["n0"]
    assert (view.foreign_gpus, view.foreign_cpus, view.foreign_memory_mb) == (0, 2.0, 500.0)
    assert (view.held_gpus, view.held_cpus, view.held_memory_mb) == (1, 8.0, 16000.0)


def test_what_ended_after_the_nodes_were_read_is_not_taken_for_somebody_else_s() -> None:
    runs = running(replace(WAITING, cpus=8), "n0", since_s=950.0, gpus=4)
    used = replace(node("n0", used=4), cpus_used=8)
    backend, clock = FakeBackend(state(runs, nodes=(used,))), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    following = replace(WAITING, id="2", mark=WAITING.mark.replace("a1", "b2"))
    backend.state = state(replace(runs, state=JobState.ENDED), following, nodes=(used,))
    clock.now += 1
    report = daemon.cycle()
    view = daemon.world.nodes["n0"]
    assert (view.foreign_gpus, view.foreign_cpus) == (0, 0.0)
    assert report.violations == ()
    # What is still there at the next look is.
    clock.now += 1
    daemon.cycle()
    view = daemon.world.nodes["n0"]
    assert (view.foreign_gpus, view.foreign_cpus) == (4, 8.0)


def test_what_others_use_is_still_theirs_when_a_job_of_ours_ends_beside_it() -> None:
    runs = running(replace(WAITING, cpus=4), "n0", since_s=950.0, gpus=2)
    backend = FakeBackend(state(runs, nodes=(replace(node("n0", used=3), cpus_used=32),)))
    daemon = daemon_of(backend, clock := Clock())
    daemon.cycle()
    view = daemon.world.nodes["n0"]
    assert (view.foreign_gpus, view.foreign_cpus) == (1, 28.0)
    freed = replace(node("n0", used=1), cpus_used=28)
    backend.state = state(replace(runs, state=JobState.ENDED), nodes=(freed,))
    clock.now += 1
    daemon.cycle()
    view = daemon.world.nodes["n0"]
    assert (view.foreign_gpus, view.foreign_cpus) == (1, 28.0)


RUNNING = running(WAITING, "n0", since_s=950.0)
WAITS = replace(WAITING, id="2", mark=WAITING.mark.replace("a1", "b2"))


def placed_where(daemon: Daemon) -> dict[str, tuple[str, ...]]:
    """Do a cycle; return where jobs are placed in it."""
    changes = daemon.cycle().changes
    assert not any(isinstance(change, Requeue) for change in changes)
    return {change.job: change.nodes for change in changes if isinstance(change, Enter)}


@pytest.mark.parametrize("policy", ["fifo", "las", "steady", "hops"])
def test_a_node_that_stops_answering_under_a_job_costs_no_other_job_its_place(policy: str) -> None:
    backend, clock = FakeBackend(state(RUNNING, nodes=(node("n0", used=1), node("n1")))), Clock()
    daemon = daemon_of(backend, clock, make_policy(policy))
    assert placed_where(daemon) == {}
    silent = node("n0", used=1, condition=NodeCondition.DOWN)
    backend.state = state(RUNNING, WAITS, nodes=(silent, node("n1")))
    for _ in range(3):
        clock.now += 1
        assert placed_where(daemon) == {"2": ("n1",)}
    # What it holds there is its own, for as long as Slurm says that it runs.
    view = daemon.world.nodes["n0"]
    assert (view.held_gpus, view.foreign_gpus) == (1, 0)
    assert daemon.world.jobs["1"].configuration is not None


ENDING = replace(RUNNING, state=JobState.COMPLETING, gpus=4)


def test_nobody_waits_for_gpus_of_a_job_that_ends_for_ever() -> None:
    used = node("n0", used=4)
    backend, clock = FakeBackend(state(ENDING, WAITS, nodes=(used,))), Clock()
    daemon = daemon_of(backend, clock)
    assert placed_where(daemon) == {}
    backend.state = state(ENDING, WAITS, nodes=(used, node("n1")))
    clock.now += 100
    for _ in range(2):
        assert placed_where(daemon) == {"2": ("n1",)}
        clock.now += 1
    assert daemon.world.nodes["n0"].foreign_gpus == 4
    # It may end after all, and then its GPUs are free.
    again = replace(ENDING, state=JobState.PENDING, nodes=(), begin_s=clock.now + 60, restarts=1)
    backend.state = state(again, nodes=(node("n0"),))
    clock.now += 1
    placed_where(daemon)
    assert daemon.world.nodes["n0"].foreign_gpus == 0


OVER = replace(ENDING, over=True)
LIVE = sorted(
    name
    for name in policy_names()
    if make_policy(name).info.live and make_policy(name).info.model in ELEMENTS
)


@pytest.mark.parametrize("policy", LIVE)
def test_a_job_that_is_over_and_still_ends_gets_no_place_and_others_do(policy: str) -> None:
    used, waits = node("n0", used=4), replace(WAITS, mark=WAITS.mark.replace('"1,2"', '"4"'))
    runs = replace(ENDING, state=JobState.RUNNING)
    backend, clock = FakeBackend(state(runs, nodes=(used, node("n1")))), Clock()
    daemon = daemon_of(backend, clock, make_policy(policy))
    daemon.cycle()
    backend.state = state(OVER, waits, nodes=(used, node("n1")))
    clock.now += SETTINGS.round_s
    daemon.cycle()
    assert isinstance(daemon.plan.entries["1"], Waiting)
    assert isinstance(daemon.plan.entries["2"], Placed)
    # Later than it may end, its GPUs are others', and it is in no plan.
    clock.now += SETTINGS.grace_s + 1
    for _ in range(2):
        assert placed_where(daemon) == {"2": ("n1",)}
        clock.now += 1
    assert (set(daemon.world.jobs), daemon.world.lost) == ({"2"}, [])
    assert daemon.world.nodes["n0"].foreign_gpus == 4
    # Slurm may show them as free, and starts nothing there.
    backend.state = state(OVER, waits, nodes=(node("n0"), node("n1")))
    assert placed_where(daemon) == {"2": ("n1",)}
    assert daemon.world.nodes["n0"].foreign_gpus == 4
    backend.state = state(replace(OVER, state=JobState.ENDED), waits)
    daemon.cycle()
    assert daemon.world.nodes["n0"].foreign_gpus == 0


@pytest.mark.parametrize("policy", LIVE)
def test_a_job_that_ends_well_makes_no_more_plans_than_one_at_its_end(policy: str) -> None:
    running = replace(ENDING, state=JobState.RUNNING)
    used = node("n0", used=4)
    backend, clock = FakeBackend(state(running, WAITS, nodes=(used, node("n1")))), Clock()
    daemon = daemon_of(backend, clock, make_policy(policy))
    daemon.cycle()
    for _ in range(3):
        backend.state = state(OVER, WAITS, nodes=(used, node("n1")))
        clock.now += 1
        assert daemon.cycle().decision is None
        assert daemon.world.nodes["n0"].foreign_gpus == 0
    backend.state = state(
        replace(OVER, state=JobState.ENDED), WAITS, nodes=(node("n0"), node("n1"))
    )
    clock.now += 1
    report = daemon.cycle()
    assert report.decision is None or report.decision.plan.triggers == {Trigger.END}


@pytest.mark.parametrize(
    "job",
    [replace(RUNNING, nodes=()), replace(RUNNING, nodes=("elsewhere",)), replace(ENDING, nodes=())],
    ids=["nowhere", "elsewhere", "ending"],
)
def test_a_job_that_runs_on_no_node_of_ours_gets_no_place_beside_it(job: SlurmJob) -> None:
    backend, clock = FakeBackend(state(job, WAITS, nodes=(node("n0"),))), Clock()
    daemon = daemon_of(backend, clock)
    assert placed_where(daemon) == {"2": ("n0",)}
    known = daemon.world.jobs.get("1")
    assert (known is None) is bool(job.nodes)
    assert known is None or known.blocked is not None


def test_others_use_no_more_of_a_node_than_what_runs_of_ours_leaves() -> None:
    odd = replace(node("n0", used=9), cpus_used=99, memory_used_mb=10**6)
    backend, clock = FakeBackend(state(RUNNING, nodes=(odd,))), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    view = daemon.world.nodes["n0"]
    assert (view.foreign_gpus, view.foreign_cpus, view.foreign_memory_mb) == (3, 31.0, 64000.0)
