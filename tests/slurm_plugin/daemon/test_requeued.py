"""Jobs that Slurm itself has queued again, on a fake Slurm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.types import NodeCondition
from slurm_plugin.backend import Enter, Release, SlurmJob
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    RIGID,
    WAITING,
    Clock,
    daemon_of,
    left,
    node,
    placed,
    running,
    state,
)


def test_a_job_that_slurm_holds_since_no_launch_succeeded_gives_its_place_back() -> None:
    backend = FakeBackend(state(running(WAITING, "n0")))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    failed = placed(replace(WAITING, held=True, begin_s=1060.0, restarts=1), "n0")
    failed = replace(failed, reason="launch failed requeued held")
    backend.state = state(failed)
    daemon.cycle()
    assert backend.calls == [left(WAITING), Release("1")]
    # One without GPUs has left already.
    backend.calls.clear()
    backend.state = state(replace(failed, gpus=0, mark="", reservation="", pinned=()))
    daemon.cycle()
    assert backend.calls == [Release("1")]
    # Who holds a job oneself keeps it held.
    backend.calls.clear()
    for reason in ("JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue"):
        backend.state = state(replace(WAITING, held=True, restarts=1, reason=reason))
        daemon.cycle()
    assert backend.calls == []


def test_where_launches_fail_no_more_jobs_of_that_user_go_and_after_two_users_nobody_s() -> None:
    nodes = (node("n0"), node("n1"))
    backend, clock = FakeBackend(state(WAITING, nodes=nodes)), Clock()
    daemon = daemon_of(backend, clock)

    def of_user(number: int, user: str) -> SlurmJob:
        mark = WAITING.mark.replace("a1", f"m{number}")
        return replace(WAITING, id=f"{number}", mark=mark, user=user)

    def goes_to(failed: SlurmJob, name: str, job: SlurmJob) -> set[str]:
        held = placed(replace(failed, held=True, restarts=1), name)
        held = replace(held, reason="launch failed requeued held")
        backend.state = state(held, nodes=nodes)
        daemon.cycle()
        backend.calls.clear()
        # Jobs are placed on what was idle longest, so more than one is needed to see where.
        others = [
            replace(job, id=f"{job.id}{k}", mark=job.mark.replace("m", f"m{k}")) for k in "123"
        ]
        backend.state = state(*others, nodes=nodes)
        daemon.cycle()
        return {name for call in backend.calls if isinstance(call, Enter) for name in call.nodes}

    full = (node("n0"), node("n1", used=4))
    assert goes_to(of_user(1, "alice"), "n0", of_user(2, "alice")) == {"n1"}
    nodes = full
    assert goes_to(of_user(3, "alice"), "n0", of_user(4, "bob")) == {"n0"}
    assert goes_to(of_user(5, "carol"), "n0", of_user(6, "bob")) == set()
    assert "could not launch jobs of 2 users" in daemon.world.odd["node n0"]
    assert daemon.world.nodes["n0"].condition is NodeCondition.DRAINED
    clock.now += 301
    assert goes_to(of_user(7, "carol"), "n0", of_user(8, "bob")) == {"n0"}
    # Where it is so on many nodes, it is for the jobs.
    nodes = (node("n0"), node("n1"))
    for name in ("n0", "n1"):
        goes_to(of_user(9, "dave"), name, of_user(10, "bob"))
    assert goes_to(of_user(11, "erin"), "n0", of_user(12, "bob")) == {"n1"}
    assert goes_to(of_user(13, "erin"), "n1", of_user(14, "bob")) != set()
    assert not daemon.world.odd


@pytest.mark.parametrize("how", ["nothing", "slurmd", "resume"])
def test_a_node_that_was_mended_is_tried_again_at_once(how: str) -> None:
    nodes = (node("n0"),)
    held = placed(replace(WAITING, held=True, restarts=1), "n0")
    held = replace(held, reason="launch failed requeued held")
    backend, clock = FakeBackend(state(held, nodes=nodes)), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    backend.calls.clear()
    clock.now += 10
    if how == "slurmd":
        nodes = (replace(nodes[0], up_since_s=clock.now - 1),)
    elif how == "resume":
        backend.state = state(nodes=(node("n0", condition=NodeCondition.DRAINED),))
        daemon.cycle()
        clock.now += 1
    cpu_job = replace(RIGID, id="8", gpus=0, cpus=1)
    backend.state = state(replace(WAITING, id="7"), cpu_job, nodes=nodes)
    daemon.cycle()
    starts = {call.job for call in backend.calls if isinstance(call, Enter)}
    assert starts == (set() if how == "nothing" else {"7", "8"})
    told = "closed to it for a time" if how == "nothing" else "in Slurm's own order"
    assert told in daemon.world.aside["8"]


def test_a_job_whose_node_went_down_is_placed_again_only_when_its_processes_must_have_ended() -> (
    None
):
    nodes = (node("n0", used=1), node("n1"))
    backend, clock = FakeBackend(state(running(WAITING, "n0", since_s=990.0), nodes=nodes)), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    requeued = placed(replace(WAITING, restarts=1, begin_s=1121.0), "n0")
    down = (node("n0", condition=NodeCondition.DOWN), node("n1"))
    backend.state = state(requeued, nodes=down)
    daemon.cycle()
    assert backend.calls == [left(WAITING)]
    # The node is back before that.
    backend.state = state(replace(WAITING, restarts=1), nodes=(node("n0"), node("n1")))
    for _ in range(29):
        clock.now += 1
        daemon.cycle()
        assert not any(isinstance(call, Enter) for call in backend.calls)
    assert "its node went down" in str(daemon.world.jobs["1"].blocked)
    clock.now += 2
    daemon.cycle()
    assert isinstance(backend.calls[-1], Enter)
