"""Which jobs are placed, where, and what becomes of a placement on a fake Slurm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.policy import make_policy
from hetsched_core.types import NodeCondition, Placed
from slurm_plugin.backend import (
    Asked,
    Enter,
    Hold,
    JobState,
    Leave,
    RefusedError,
    SlurmReservation,
    Terms,
)
from slurm_plugin.daemon.settings import Jobs
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    HOLD,
    RIGID,
    SETTINGS,
    WAITING,
    Clock,
    daemon_of,
    entry,
    left,
    node,
    placed,
    running,
    state,
)


def test_a_waiting_job_is_placed_on_nodes_that_have_room() -> None:
    backend = FakeBackend(state(WAITING))
    daemon_of(backend, Clock()).cycle()
    assert backend.calls == [entry(WAITING, "n0")]


def test_a_job_without_options_is_placed_as_it_was_submitted() -> None:
    wide = replace(RIGID, gpus=4, resources=replace(RIGID.resources, nodes=(2, 0)))
    backend = FakeBackend(state(wide, nodes=(node("n0", used=3), node("n1"), node("n2"))))
    daemon_of(backend, Clock()).cycle()
    assert backend.calls == [Enter("5", HOLD, ("n1", "n2"), Leave("5"))]


def test_a_job_that_shares_no_node_is_placed_on_nodes_of_which_nothing_is_in_use() -> None:
    alone = replace(RIGID, exclusive="node")
    nodes = (node("n0", used=1), replace(node("n1"), cpus_used=1), node("n2"))
    backend = FakeBackend(state(alone, replace(RIGID, id="6"), nodes=nodes))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert [(call.job, call.nodes) for call in backend.calls if isinstance(call, Enter)] == [
        ("5", ("n2",)),
        ("6", ("n0",)),
    ]
    # Slurm shows all of the node's GPUs as its own.
    backend.calls.clear()
    runs = running(alone, "n2", gpus=4)
    backend.state = state(runs, nodes=(*nodes[:2], node("n2", used=4)))
    assert daemon.cycle().violations == ()
    backend.state = state(alone, nodes=nodes[:2])
    daemon.cycle()
    assert backend.calls == []
    # With a requirement set it is placed on all of a node, too.
    backend = FakeBackend(state(replace(WAITING, exclusive="node"), nodes=nodes))
    daemon_of(backend, Clock()).cycle()
    (call,) = backend.calls
    assert isinstance(call, Enter)
    assert call.resources is not None
    assert (call.nodes, call.resources.per_node) == (("n2",), "gres/gpu:v100:4")
    # One that has begun elsewhere keeps a node of another size.
    large = replace(node("n3", used=8), gpus=(("v100", 8),))
    backend = FakeBackend(state(running(alone, "n3", gpus=8), nodes=(*nodes[:2], large)))
    daemon = daemon_of(backend, Clock())
    assert daemon.cycle().violations == ()
    assert isinstance(daemon.plan.entries["5"], Placed)


def test_in_a_pilot_jobs_without_options_are_left_alone() -> None:
    backend = FakeBackend(state(WAITING, RIGID))
    daemon_of(backend, Clock(), settings=replace(SETTINGS, jobs=Jobs.MARKED)).cycle()
    assert backend.calls == [entry(WAITING, "n0")]


def test_options_are_read_from_the_script_where_there_is_no_mark() -> None:
    plain = replace(WAITING, mark="")
    backend = FakeBackend(state(plain), scripts={"1": "#!/bin/bash\n#HETSCHED --gpu-set=2\n"})
    daemon_of(backend, Clock()).cycle()
    assert backend.calls == [entry(plain, "n0", gpus=2)]


def test_a_job_whose_script_has_wrong_options_counts_as_one_without() -> None:
    backend = FakeBackend(state(RIGID), scripts={"5": "#HETSCHED --gpu-set=two\n"})
    report = daemon_of(backend, Clock()).cycle()
    assert backend.calls == [Enter("5", HOLD, ("n0",), Leave("5"))]
    assert any("--gpu-set=two: expected GPU counts" in words for words in report.warnings)


def test_the_next_elements_of_an_array_are_placed_one_by_one_within_its_throttle() -> None:
    array = replace(RIGID, id="7", array="7", unsplit=tuple(range(1000)), throttle=3)
    runs = replace(running(RIGID, "n0"), id="7_1000", array="7", element=1000)
    backend = FakeBackend(state(array, runs, nodes=(node("n0", used=1),)))
    daemon_of(backend, Clock()).cycle()
    assert [change.job for change in backend.calls] == ["7_0", "7_1"]


def test_a_job_that_was_placed_is_left_alone_until_it_starts() -> None:
    backend, clock = FakeBackend(state(WAITING)), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    backend.calls.clear()
    backend.state = state(placed(WAITING, "n0"))
    for _ in range(20):
        clock.now += 1
        daemon.cycle()
    backend.state = state(running(WAITING, "n0", since_s=clock.now), nodes=(node("n0", used=1),))
    daemon.cycle()
    assert backend.calls == []


def test_a_job_that_does_not_start_in_time_gives_its_place_back_and_is_placed_again() -> None:
    backend, clock = FakeBackend(state(WAITING)), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    backend.calls.clear()
    backend.state = state(placed(WAITING, "n0"))
    while not backend.calls:
        clock.now += 1
        daemon.cycle()
        assert clock.now < 1100
    assert clock.now - 1001 == pytest.approx(SETTINGS.start_timeout_s, abs=2)
    assert backend.calls == [left(WAITING)]
    backend.calls.clear()
    gave_back = clock.now
    other = replace(WAITING, id="2", mark=WAITING.mark.replace("a1", "b2"))
    backend.state = state(WAITING, other, nodes=(node("n0", used=3),))
    daemon.cycle()
    assert backend.calls == [entry(other, "n0")]
    backend.calls.clear()
    while not backend.calls:
        backend.state = state(WAITING)
        daemon.cycle()
        clock.now += 1
        assert clock.now < gave_back + 100
    assert backend.calls == [entry(WAITING, "n0")]
    assert clock.now - gave_back == pytest.approx(60, abs=3)


@pytest.mark.parametrize(
    ("said", "within_s"),
    [("MaxGRESPerAccount", 1), ("Licenses", 1), ("ReqNodeNotAvail", 7), ("QuuxLimit", 7)],
)
def test_a_place_that_slurm_does_not_start_a_job_on_goes_to_others_and_is_not_asked_for_at_once(
    said: str, within_s: float
) -> None:
    backend, clock = FakeBackend(state(WAITING)), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    other = replace(
        WAITING,
        id="2",
        mark=WAITING.mark.replace("a1", "b2"),
        user="bob",
        account="other",
        qos="other",
    )
    only_one = (node("n0", used=3),)
    backend.state = state(replace(placed(WAITING, "n0"), reason=said), other, nodes=only_one)
    while left(WAITING) not in backend.calls:
        clock.now += 1
        daemon.cycle()
        assert clock.now <= 1000.0 + within_s
    daemon.cycle()
    assert entry(other, "n0") in backend.calls
    backend.calls.clear()
    given_back = clock.now
    # Slurm's word of a job that has not been placed is another one, and not that the limit is gone.
    while clock.now < given_back + 55.0:
        backend.state = state(WAITING)
        daemon.cycle()
        blocked = daemon.world.jobs["1"].blocked
        assert blocked is not None
        assert blocked.detail == said
        clock.now += 1
    assert backend.calls == []


def test_a_job_that_slurm_does_not_start_on_a_node_is_tried_on_others_at_once_but_once() -> None:
    nodes = (node("n0"), node("n1"), node("n2"))
    backend, clock = FakeBackend(state(WAITING, nodes=nodes)), Clock()
    daemon = daemon_of(backend, clock)

    def tried(until_s: float) -> list[str]:
        found: list[str] = []
        while clock.now < until_s:
            daemon.cycle()
            for call in backend.calls:
                found += call.nodes if isinstance(call, Enter) else ()
                shown = placed(WAITING, *found[-1:]) if isinstance(call, Enter) else WAITING
                shown = replace(shown, reason="Reservation" if shown.entered else "None")
                backend.state = state(shown, nodes=nodes)
            backend.calls.clear()
            clock.now += 1
        return found

    assert len(set(tried(1030.0))) == 2
    blocked = daemon.world.jobs["1"].blocked
    assert blocked is not None
    assert blocked.detail == "Reservation"
    assert tried(1065.0) == []
    assert len(tried(1110.0)) == 2


@pytest.mark.parametrize("said", ["Licenses", "QOSGrpGRES", "PartitionDown"])
def test_a_job_that_slurm_keeps_back_is_not_placed_before_slurm_says_otherwise(said: str) -> None:
    limited = replace(RIGID, reason=said)
    backend, clock = FakeBackend(state(limited)), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    blocked = daemon.world.jobs["5"].blocked
    assert blocked is not None
    assert blocked.detail == said
    clock.now += 590
    daemon.cycle()
    assert backend.calls == []
    backend.state = state(RIGID)
    daemon.cycle()
    assert backend.calls == [Enter("5", HOLD, ("n0",), Leave("5"))]


def test_a_job_placed_as_its_partition_went_down_is_placed_as_soon_as_slurm_has_it_open() -> None:
    backend, clock = FakeBackend(state(RIGID)), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    backend.state = state(replace(placed(RIGID, "n0"), reason="PartitionDown"))
    while Leave("5") not in backend.calls:
        clock.now += 1
        daemon.cycle()
        assert clock.now < 1010
    backend.calls.clear()
    backend.state = state(replace(RIGID, reason="PartitionDown"))
    clock.now += 1
    daemon.cycle()
    assert backend.calls == []
    backend.state = state(RIGID)
    clock.now += 1
    daemon.cycle()
    assert backend.calls == [Enter("5", HOLD, ("n0",), Leave("5"))]


@pytest.mark.parametrize(("said", "tried_s"), [("QOSGrpJobsLimit", 1.0), ("QOSGrpGRES", 601.0)])
def test_a_limit_is_tried_in_time_and_one_on_jobs_as_soon_as_one_of_its_kind_has_ended(
    said: str, tried_s: float
) -> None:
    limited = replace(RIGID, reason=said, qos="night")
    peer = replace(running(RIGID, "n0"), id="6", qos="night", user="bob")
    other = replace(peer, id="7", qos="day")
    for ends, s in (((), 601.0), ((peer,), tried_s)):
        backend, clock = FakeBackend(state(limited, peer, other, nodes=(node("n0", 2),))), Clock()
        daemon = daemon_of(backend, clock)
        daemon.cycle()
        backend.state = state(limited, peer, nodes=(node("n0", 1),))
        clock.now += 1
        daemon.cycle()
        assert backend.calls == []
        backend.state = state(limited, *({peer} - {*ends}), nodes=(node("n0", 1),))
        clock.now += min(s, 1.0)
        daemon.cycle()
        assert s <= 1.0 or backend.calls == []
        clock.now += s
        daemon.cycle()
        daemon.cycle()
        assert {call.job for call in backend.calls} == {"5"}


def test_a_job_without_gpus_that_shares_no_node_is_placed_on_one_that_is_empty() -> None:
    alone = replace(RIGID, gpus=0, gpu_types=(), exclusive="node", cpus=1, memory_mb=60_000)
    backend = FakeBackend(state(alone, nodes=(node("n0", used=1),)))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert backend.calls == []
    backend.state = state(alone, nodes=(node("n0", used=1), node("n1")))
    daemon.cycle()
    assert backend.calls[-1] == Enter("5", HOLD, ("n1",), Leave("5"))
    backend.calls.clear()
    runs = running(alone, "n1", gpus=4)
    backend.state = state(runs, replace(RIGID, id="6"), nodes=(node("n0", 1), node("n1", 4)))
    assert daemon.cycle().violations == ()
    assert [call.nodes for call in backend.calls if isinstance(call, Enter)] == [("n0",)]


def test_a_job_that_slurm_leaves_waiting_in_its_place_says_with_which_word() -> None:
    backend, clock = FakeBackend(state(WAITING)), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    backend.calls.clear()
    backend.state = state(replace(placed(WAITING, "n0"), reason="Resources"))
    while not backend.calls:
        daemon.cycle()
        clock.now += 1
        assert clock.now < 1100
    detail = "it has not started within 30 s, Slurm says Resources"
    assert str(daemon.world.jobs["1"].blocked).endswith(detail)


@pytest.mark.parametrize(
    ("jobs", "more"),
    [(Jobs.ALL, {}), (Jobs.MARKED, {}), (Jobs.ALL, {"begin_s": 5000.0})],
    ids=["no room", "pilot", "later"],
)
def test_what_is_in_the_reservation_and_was_not_placed_there_leaves_it(
    jobs: Jobs, more: dict[str, float]
) -> None:
    intruder = replace(placed(RIGID, "n0"), batch=False, **more)  # type: ignore[arg-type]
    backend = FakeBackend(state(intruder, nodes=(node("n0", used=4),)))
    daemon_of(backend, Clock(), settings=replace(SETTINGS, jobs=jobs)).cycle()
    assert backend.calls == [Leave("5")]


def test_the_nodes_are_held_first_and_the_hold_is_renewed_in_half_the_slack() -> None:
    backend, clock = FakeBackend(state(WAITING, reservations=())), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    assert backend.calls == [Hold(HOLD, ("n0",), 60), entry(WAITING, "n0")]
    backend.calls.clear()
    kept = SlurmReservation(HOLD, ("n0",), 1000.0, 1060.0)
    backend.state = state(reservations=(kept,))
    while not backend.calls:
        daemon.cycle()
        clock.now += 1
        assert clock.now < 1060
    assert backend.calls == [Hold(HOLD, ("n0",), 60)]
    assert clock.now == pytest.approx(1031, abs=1)


def test_a_hold_that_has_ended_and_is_not_forgotten_leaves_its_name_to_itself() -> None:
    ended = SlurmReservation(HOLD, ("n0",), 0.0, 900.0)
    backend = FakeBackend(state(reservations=(ended,)))
    daemon_of(backend, Clock()).cycle()
    assert backend.calls == [Hold("hetsched-2", ("n0",), 60)]


def test_nothing_is_placed_that_would_reach_into_a_maintenance() -> None:
    soon = SlurmReservation("maintenance", ("n0",), 1000.0 + 300, 1e6)
    kept = state().reservations
    long, short = replace(RIGID, id="6", time_limit_s=600.0), replace(RIGID, time_limit_s=240.0)
    backend = FakeBackend(state(long, short, reservations=(*kept, soon)))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert backend.calls == [Enter("5", HOLD, ("n0",), Leave("5"))]


def test_no_new_work_is_placed_on_drained_or_lost_nodes() -> None:
    nodes = (
        node("n0", condition=NodeCondition.DRAINED),
        node("n1", condition=NodeCondition.DOWN),
        node("n2"),
    )
    backend = FakeBackend(state(WAITING, nodes=nodes))
    daemon_of(backend, Clock()).cycle()
    assert backend.calls == [entry(WAITING, "n2")]


@pytest.mark.parametrize("policy", ["fifo", "gavel"])
def test_a_placement_that_slurm_refuses_is_tried_again_after_a_while(policy: str) -> None:
    no = RefusedError("Enter(...): Requested node configuration is not available (2014)")
    backend, clock = FakeBackend(state(WAITING), errors=[no]), Clock()
    daemon = daemon_of(backend, clock, make_policy(policy))
    for _ in range(59):
        daemon.cycle()
        clock.now += 1.0
    assert [type(call) for call in backend.calls] == [Enter, Leave]
    reason = daemon.world.jobs["1"].blocked
    assert str(reason).endswith("placement: Requested node configuration is not available (2014)")
    while clock.now < 1065.0:
        daemon.cycle()
        clock.now += 1.0
    assert type(backend.calls[2]) is Enter


@pytest.mark.parametrize("policy", ["fifo", "gavel"])
def test_a_job_that_is_held_after_it_was_planned_is_not_placed(policy: str) -> None:
    backend, clock = FakeBackend(state(WAITING)), Clock()
    daemon = daemon_of(backend, clock, make_policy(policy))
    daemon.cycle()
    assert [type(call) for call in backend.calls] == [Enter]
    for _ in range(5):
        clock.now += 1.0
        backend.state = state(replace(WAITING, held=True, reason="JobHeldUser"))
        daemon.cycle()
    assert len(backend.calls) == 1


def test_jobs_of_other_partitions_are_not_touched_and_bad_marks_say_nothing() -> None:
    other = replace(WAITING, id="2", partition="cpu", partitions=("cpu",))
    bad = replace(WAITING, id="3", mark="hetsched/2 nonsense")
    deep = replace(WAITING, id="4", mark="hetsched/2 " + "[" * 1010)
    backend = FakeBackend(state(other, bad, deep))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert [change.job for change in backend.calls] == ["3", "4"]
    assert set(daemon.world.warnings) == {"3", "4"}


@pytest.mark.parametrize(
    "now",
    [
        {"state": JobState.RUNNING, "nodes": ("x0",), "start_s": 1001.0},
        {"reservation": "theirs"},
        {"partition": "cpu", "partitions": ("cpu",)},
    ],
    ids=["runs elsewhere", "another reservation", "another partition"],
)
def test_a_job_that_does_not_want_these_nodes_any_more_is_let_be(now: dict[str, object]) -> None:
    job = replace(RIGID, partitions=("gpu", "cpu"))
    backend = FakeBackend(state(job, nodes=(node("n0", used=4),)))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    backend.state = state(replace(job, **now))  # type: ignore[arg-type]
    assert daemon.cycle().lost == ()
    assert daemon.world.managed == {}
    backend.state = state(job)
    daemon.cycle()
    assert [change.job for change in backend.calls] == ["5"]


def test_what_has_entered_and_wants_other_nodes_now_is_let_out() -> None:
    elsewhere = replace(placed(WAITING, "n0"), partition="cpu", partitions=("cpu",))
    backend = FakeBackend(state(elsewhere))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert backend.calls == [left(WAITING)]
    backend.state = state(replace(elsewhere, reservation="", pinned=()))
    daemon.cycle()
    assert daemon.world.managed == {}


def test_nodes_of_partitions_that_are_not_managed_are_left_alone() -> None:
    other = replace(node("n0"), partitions=frozenset({"debug"}))
    own = replace(node("n1"), partitions=frozenset({"debug", "gpu"}))
    backend = FakeBackend(state(WAITING, nodes=(other, own)))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert [call.nodes for call in backend.calls if isinstance(call, Enter)] == [("n1",)]
    assert set(daemon.world.nodes) == {"n1"}


def test_jobs_of_the_same_second_are_served_in_the_order_of_their_numbers() -> None:
    jobs = [
        replace(WAITING, id=str(k), mark=WAITING.mark.replace("a1", f"x{k}"))
        for k in (11, 9, 10, 100)
    ]
    later = replace(jobs[0], id="8", submit_s=WAITING.submit_s + 1, mark=WAITING.mark)
    backend = FakeBackend(state(*jobs, later, nodes=(node("n0", used=1),)))
    daemon_of(backend, Clock(), make_policy("sjf")).cycle()
    placed = [change.job for change in backend.calls if isinstance(change, Enter)]
    assert placed == ["9", "10", "11"]


def test_a_job_whose_cpus_or_memory_are_not_free_is_not_placed() -> None:
    asks = replace(WAITING, asked=Asked(8, memory_mb_per_node=16000), cpus=8)
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
    (change,) = backend.calls
    assert isinstance(change, Enter)
    assert (change.nodes, change.terms.cpus, change.terms.memory_mb) == (("n1",), 8, 16000)
    assert change.otherwise.terms == Terms(10, 8, 16000, 8)
