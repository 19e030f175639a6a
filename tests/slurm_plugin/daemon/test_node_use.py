"""What of a node is our jobs' and what is somebody else's, on a fake Slurm."""

from __future__ import annotations

from dataclasses import replace

from slurm_plugin.backend import Asked, JobState
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import WAITING, Clock, daemon_of, node, running, state


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
