"""Jobs that Slurm itself has queued again, on a fake Slurm."""

from __future__ import annotations

from dataclasses import replace

from hetsched_core.types import NodeCondition
from slurm_plugin.backend import JobState, Park, Place, Release
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import PINNED, WAITING, Clock, daemon_of, node, state


def test_a_job_that_slurm_holds_since_it_could_not_launch_it_is_parked_and_let_go() -> None:
    failed = replace(
        PINNED, held=True, reason="launch failed requeued held", begin_s=1060.0, restarts=1
    )
    backend = FakeBackend(state(failed))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert backend.calls == [Park("1", 1, 60), Release("1")]
    # Who holds a job oneself keeps it held.
    backend.calls.clear()
    for reason in ("JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue"):
        backend.state = state(replace(failed, reason=reason))
        daemon.cycle()
    assert backend.calls == []


def test_a_job_whose_node_went_down_is_placed_again_only_when_its_processes_must_have_ended() -> (
    None
):
    running = replace(PINNED, state=JobState.RUNNING, nodes=("n0",), start_s=990.0)
    nodes = (node("n0", used=1), node("n1"))
    backend, clock = FakeBackend(state(running, nodes=nodes)), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    requeued = replace(PINNED, restarts=1, begin_s=1121.0)
    down = (node("n0", condition=NodeCondition.DOWN), node("n1"))
    backend.state = state(requeued, nodes=down)
    daemon.cycle()
    assert backend.calls == [Park("1", 1, 60)]
    # The node is back before that.
    backend.state = state(replace(WAITING, restarts=1), nodes=(node("n0"), node("n1")))
    for _ in range(29):
        clock.now += 1
        daemon.cycle()
        assert not any(isinstance(call, Place) for call in backend.calls)
    assert "its node went down" in str(daemon.world.jobs["1"].blocked)
    clock.now += 2
    daemon.cycle()
    assert isinstance(backend.calls[-1], Place)
