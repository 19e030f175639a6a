"""Ids that Slurm hands out again, and jobs that it has lost, on a fake Slurm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.policy import make_policy
from slurm_plugin.backend import Enter, JobState
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    RIGID,
    WAITING,
    Clock,
    daemon_of,
    entry,
    node,
    state,
)


def test_an_id_that_slurm_hands_out_again_is_another_job() -> None:
    backend, clock = FakeBackend(state(WAITING, nodes=(node("n0", used=4),))), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    again = replace(WAITING, mark=WAITING.mark.replace("a1", "b2"), submit_s=1001.0)
    backend.state = state(again, nodes=(node("n0", used=4),))
    clock.now += 5
    daemon.cycle()
    assert daemon.world.managed["1"].request.mark.nonce == "b2"
    assert daemon.world.jobs["1"].job.submit_s == pytest.approx(1001.0, abs=1.0)


@pytest.mark.parametrize("policy", ["fifo", "gavel", "hops"])
def test_a_job_that_takes_the_id_of_another_is_not_placed_as_that_was_to_be(policy: str) -> None:
    other = replace(WAITING, id="2", mark=WAITING.mark.replace("a1", "c3"))
    backend, clock = FakeBackend(state(WAITING, other)), Clock()
    daemon = daemon_of(backend, clock, make_policy(policy))
    daemon.cycle()
    backend.calls.clear()
    mark = 'hetsched/2 {"nonce":"b2","gpu-set":"4"}'
    again = replace(WAITING, mark=mark, gpus=4, submit_s=999.0)
    backend.state = state(again, replace(other, submit_s=1000.0))
    clock.now += 1
    assert daemon.cycle().violations == ()
    entered = [call for call in backend.calls if isinstance(call, Enter)]
    assert {call for call in entered if call.job == "1"} <= {entry(again, "n0", gpus=4)}
    assert entered != []


def test_a_job_that_slurm_does_not_know_any_more_is_told_once() -> None:
    backend = FakeBackend(state(WAITING))
    daemon = daemon_of(backend, Clock())
    assert daemon.cycle().lost == ()
    # Its id is handed out again.
    other = replace(WAITING, mark=WAITING.mark.replace("a1", "b2"))
    backend.state = state(other)
    assert [job.mark for job in daemon.cycle().lost] == [WAITING.mark]
    assert daemon.cycle().lost == ()
    # One that has ended is not lost, nor one whose comment an admin has changed in other ways.
    backend.state = state(replace(other, mark=other.mark.replace('"1,2"', '"1"')))
    assert daemon.cycle().lost == ()
    backend.state = state(replace(other, state=JobState.ENDED))
    assert daemon.cycle().lost == ()
    backend.state = state()
    assert daemon.cycle().lost == ()


def test_an_element_that_is_cancelled_before_slurm_has_split_it_off_is_not_lost() -> None:
    array = replace(RIGID, id="7", array="7", unsplit=(0, 1, 2))
    backend = FakeBackend(state(array, nodes=(node("n0", used=4),)))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    left = replace(array, id="7_2", element=2, unsplit=())
    for seen in (replace(array, unsplit=(1, 2)), left):
        backend.state = state(seen, nodes=(node("n0", used=4),))
        assert daemon.cycle().lost == ()
    backend.state = state(nodes=(node("n0", used=4),))
    assert [job.id for job in daemon.cycle().lost] == ["7_2"]
