"""Which jobs are placed, where, and what becomes of a placement on a fake Slurm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.policy import make_policy
from hetsched_core.types import NodeCondition
from slurm_plugin.backend import Asked, JobState, Park, Place, RefusedError, Terms
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    PINNED,
    SETTINGS,
    WAITING,
    Clock,
    daemon_of,
    node,
    state,
)


def test_a_waiting_job_is_placed_on_nodes_that_have_room() -> None:
    backend = FakeBackend(state(WAITING))
    daemon_of(backend, Clock()).cycle()
    assert backend.calls == [Place("1", ("n0",), 1, Park("1", 1, 60), "v100")]


def test_a_job_that_was_placed_is_left_alone_until_it_starts() -> None:
    backend, clock = FakeBackend(state(WAITING)), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    backend.calls.clear()
    backend.state = state(PINNED)
    for _ in range(20):
        clock.now += 1
        daemon.cycle()
    running = replace(
        PINNED, state=JobState.RUNNING, reason="None", nodes=("n0",), start_s=clock.now
    )
    backend.state = state(running, nodes=(node("n0", used=1),))
    daemon.cycle()
    assert backend.calls == []


def test_a_job_that_does_not_start_in_time_is_parked_and_then_placed_again() -> None:
    backend, clock = FakeBackend(state(PINNED)), Clock()
    daemon = daemon_of(backend, clock)
    while not backend.calls:
        daemon.cycle()
        clock.now += 1
        assert clock.now < 1100
    assert clock.now - 1000 == pytest.approx(SETTINGS.start_timeout_s, abs=2)
    assert backend.calls == [Park("1", 1, 60)]
    parked = clock.now
    other = replace(WAITING, id="2", mark=WAITING.mark.replace("a1", "b2"))
    only_one = (node("n0", used=3),)
    backend.state = state(replace(WAITING, begin_s=clock.now + 60), other, nodes=only_one)
    daemon.cycle()
    assert backend.calls[1:] == [Place("2", ("n0",), 1, Park("2", 1, 60), "v100")]
    backend.calls.clear()
    while not backend.calls:
        backend.state = state(replace(WAITING, begin_s=clock.now + 60))
        daemon.cycle()
        clock.now += 1
        assert clock.now < parked + 100
    assert backend.calls == [Place("1", ("n0",), 1, Park("1", 1, 60), "v100")]
    assert clock.now - parked == pytest.approx(60, abs=3)


@pytest.mark.parametrize(
    ("said", "within_s"),
    [("MaxGRESPerAccount", 1), ("Licenses", 1), ("ReqNodeNotAvail", 7), ("QuuxLimit", 7)],
)
def test_a_place_that_slurm_does_not_start_a_job_on_goes_to_others_and_is_not_asked_for_at_once(
    said: str, within_s: float
) -> None:
    backend, clock = FakeBackend(state(replace(PINNED, reason="None"))), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    other = replace(WAITING, id="2", mark=WAITING.mark.replace("a1", "b2"))
    only_one = (node("n0", used=3),)
    backend.state = state(replace(PINNED, reason=said), other, nodes=only_one)
    while Park("1", 1, 60) not in backend.calls:
        clock.now += 1
        daemon.cycle()
        assert clock.now <= 1000.0 + within_s
    daemon.cycle()
    assert Place("2", ("n0",), 1, Park("2", 1, 60), "v100") in backend.calls
    backend.calls.clear()
    given_back = clock.now
    # Slurm's word of a job that is kept back is another one, and not that the limit is gone.
    while clock.now < given_back + 55.0:
        backend.state = state(replace(WAITING, reason="BeginTime", begin_s=clock.now + 60))
        daemon.cycle()
        blocked = daemon.world.jobs["1"].blocked
        assert blocked is not None
        assert blocked.detail == said
        clock.now += 1
    assert backend.calls == []


def test_a_job_that_slurm_leaves_waiting_in_its_place_says_with_which_word() -> None:
    backend, clock = FakeBackend(state(PINNED)), Clock()
    daemon = daemon_of(backend, clock)
    while not backend.calls:
        daemon.cycle()
        clock.now += 1
        assert clock.now < 1100
    detail = "it has not started within 30 s, Slurm says Resources"
    assert str(daemon.world.jobs["1"].blocked).endswith(detail)


def test_a_stale_pin_is_removed_from_a_job_that_has_to_wait() -> None:
    pinned = replace(PINNED, begin_s=1060.0)
    full = (node("n0", used=4),)
    backend = FakeBackend(state(pinned, nodes=full))
    daemon_of(backend, Clock()).cycle()
    assert backend.calls == [Park("1", 1, 60)]


def test_no_new_work_is_placed_on_drained_or_lost_nodes() -> None:
    nodes = (
        node("n0", condition=NodeCondition.DRAINED),
        node("n1", condition=NodeCondition.DOWN),
        node("n2"),
    )
    backend = FakeBackend(state(WAITING, nodes=nodes))
    daemon_of(backend, Clock()).cycle()
    assert backend.calls == [Place("1", ("n2",), 1, Park("1", 1, 60), "v100")]


@pytest.mark.parametrize("policy", ["fifo", "gavel"])
def test_a_placement_that_slurm_refuses_is_tried_again_after_a_while(policy: str) -> None:
    no = RefusedError("Place(...): Requested node configuration is not available (2014)")
    backend, clock = FakeBackend(state(WAITING), errors=[no]), Clock()
    daemon = daemon_of(backend, clock, make_policy(policy))
    for _ in range(59):
        daemon.cycle()
        clock.now += 1.0
        backend.state = state(replace(WAITING, begin_s=clock.now + 60))
    assert [type(call) for call in backend.calls] == [Place, Park]
    reason = daemon.world.jobs["1"].blocked
    assert str(reason).endswith("placement: Requested node configuration is not available (2014)")
    while clock.now < 1065.0:
        daemon.cycle()
        clock.now += 1.0
    assert type(backend.calls[2]) is Place


@pytest.mark.parametrize("policy", ["fifo", "gavel"])
def test_a_job_that_is_held_after_it_was_planned_is_not_placed(policy: str) -> None:
    backend, clock = FakeBackend(state(WAITING)), Clock()
    daemon = daemon_of(backend, clock, make_policy(policy))
    daemon.cycle()
    assert [type(call) for call in backend.calls] == [Place]
    for _ in range(5):
        clock.now += 1.0
        backend.state = state(replace(WAITING, held=True, reason="JobHeldUser"))
        daemon.cycle()
    assert len(backend.calls) == 1


def test_jobs_of_other_partitions_and_with_bad_marks_are_not_touched() -> None:
    other = replace(WAITING, id="2", partition="cpu")
    bad = replace(WAITING, id="3", mark="hetsched/1 nonsense")
    deep = replace(WAITING, id="4", mark="hetsched/1 " + "[" * 1010)
    backend = FakeBackend(state(other, bad, deep))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert backend.calls == []
    assert set(daemon.world.warnings) == {"3", "4"}


def test_nodes_of_partitions_that_are_not_managed_are_left_alone() -> None:
    other = replace(node("n0"), partitions=frozenset({"debug"}))
    own = replace(node("n1"), partitions=frozenset({"debug", "gpu"}))
    backend = FakeBackend(state(WAITING, nodes=(other, own)))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert [call.nodes for call in backend.calls if isinstance(call, Place)] == [("n1",)]
    assert set(daemon.world.nodes) == {"n1"}


def test_jobs_of_the_same_second_are_served_in_the_order_of_their_numbers() -> None:
    jobs = [
        replace(WAITING, id=str(k), mark=WAITING.mark.replace("a1", f"x{k}"), gpus_per_node=1)
        for k in (11, 9, 10, 100)
    ]
    later = replace(jobs[0], id="8", submit_s=WAITING.submit_s + 1, mark=WAITING.mark)
    backend = FakeBackend(state(*jobs, later, nodes=(node("n0", used=1),)))
    daemon_of(backend, Clock(), make_policy("sjf")).cycle()
    placed = [change.job for change in backend.calls if isinstance(change, Place)]
    assert placed == ["9", "10", "11"]


def test_a_job_whose_cpus_or_memory_are_not_free_is_not_placed() -> None:
    asks = replace(WAITING, asked=Asked(8, memory_mb_per_node=16000))
    tight = (
        replace(node("n0"), cpus_used=25, memory_used_mb=0),
        replace(node("n1"), cpus_used=0, memory_used_mb=48001),
    )
    backend = FakeBackend(state(asks, nodes=tight))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert backend.calls == []
    roomy = replace(node("n1"), cpus_used=24, memory_used_mb=48000)
    backend.state = state(asks, nodes=(tight[0], roomy))
    daemon.cycle()
    terms = Terms(time_limit_min=None, cpus=8, memory_mb=16000)
    park = Park("1", 1, 60, terms=terms)
    assert backend.calls == [Place("1", ("n1",), 1, park, "v100", terms)]
