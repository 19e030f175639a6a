"""What the elements of an array say of the job that they are."""

from dataclasses import replace

import pytest

from hetsched_core.types import NodeCondition, Phase, Reason, ReasonCode
from slurm_plugin.backend import (
    Cancel,
    Depend,
    Enter,
    JobState,
    Leave,
    Release,
    Requeue,
    RequeueEnded,
    SlurmJob,
    SlurmNode,
    SlurmState,
    Together,
)
from slurm_plugin.daemon import Daemon
from slurm_plugin.daemon.gangs import (
    broken,
    complete,
    folded,
    job_of,
    leftover,
    of_leader,
    pieces_held,
    stopped_as,
    tidied,
    together,
)
from slurm_plugin.daemon.managed import blocked_by
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    HOLD,
    SETTINGS,
    WAITING,
    Clock,
    daemon_of,
    node,
    placed,
    state,
)

GANG = 'hetsched/2 {"nonce":"a7","gpu-set":"4,5","gpu-shapes":"any","elements":4}'
"""Five GPUs are 4 and 1."""

TWO = [Enter("7", HOLD, (name,), Leave("7")) for name in ("n0", "n3")]
"""How a job of two elements is placed."""


def element(number: int, state: JobState = JobState.PENDING, **more: object) -> SlurmJob:
    """An element of array 7."""
    fields = {"id": f"7_{number}", "array": "7", "element": number, "state": state, "mark": GANG}
    return replace(WAITING, **{**fields, **more})  # type: ignore[arg-type]


def due(number: int, on: str, gpus: int, **more: object) -> SlurmJob:
    """An element that was placed and has not started."""
    return placed(element(number, JobState.PENDING, gpus=gpus, **more), on)


def gang(*elements: SlurmJob) -> SlurmJob:
    """The job that they are."""
    found, left = folded({each.id: each for each in elements})
    assert (list(found), left) == (["7"], ())
    return found["7"]


def running(number: int, nodes: tuple[str, ...], gpus: int, **more: object) -> SlurmJob:
    """An element that runs."""
    fields = {"nodes": nodes, "pinned": nodes, "gpus": gpus, "start_s": 100.0, **more}
    return element(number, JobState.RUNNING, **fields)


def test_elements_are_one_job_that_holds_what_they_hold() -> None:
    seen = gang(running(1, ("n3",), 1), running(0, ("n0", "n1"), 8), element(2))
    assert dict(pieces_held(seen)) == {"n0": 4, "n1": 4, "n3": 1}
    assert (seen.id, seen.state, stopped_as(seen)) == ("7", JobState.RUNNING, "7_[0,1]")
    assert list(tidied(seen, None, starting=False)) == []


def test_a_job_without_a_leader_that_has_ended_leaves_members_to_be_cancelled() -> None:
    ended = element(0, JobState.ENDED, outcome="COMPLETED", end_s=50.0)
    others = element(1), running(2, ("n1",), 2), due(3, "n2", 1)
    jobs = {each.id: each for each in (ended, *others)}

    def cancelled(now: float) -> list[str]:
        found, left = folded(jobs)
        return [change.job for change in leftover(left, found, now, patience_s=10.0)]

    # Slurm cancels spares by itself, and what still runs is given its time.
    assert cancelled(55.0) == ["7_3"]
    assert cancelled(61.0) == ["7_1", "7_2", "7_3"]
    jobs["7_0"] = replace(ended, outcome="FAILED")
    assert cancelled(55.0) == ["7_2", "7_3"]
    del jobs["7_0"]
    assert cancelled(55.0) == ["7_1", "7_2", "7_3"]


def test_members_are_placed_before_their_leader_and_wait_for_it() -> None:
    seen = gang(element(0), element(1), element(2))
    member = Enter("7_1", HOLD, ("n3",), Leave("7_1"), dependency="after:7_0")
    lead = Enter("7_0", HOLD, ("n0",), Leave("7"))
    assert together(seen, TWO) == Together("7_0", (member, lead))
    assert together(seen, TWO[:1]) == lead
    assert together(gang(element(0)), TWO) is None
    held = gang(element(0), element(1, held=True, reason="JobHeldUser"))
    assert together(held, TWO) is None


def test_a_gang_whose_leader_was_cancelled_before_the_split_is_cancelled() -> None:
    found, left = folded({each.id: each for each in (element(1), element(2))})
    assert found == {}
    cancelled = [change.job for change in leftover(left, found, 1.0, patience_s=10.0)]
    assert cancelled == ["7_1", "7_2"]


@pytest.mark.parametrize(
    ("member", "wanted"),
    [
        (due(1, "n3", 1, dependency="after:7_0"), Leave("7_1")),
        (element(1, JobState.ENDED, outcome="COMPLETED", end_s=1.0), RequeueEnded("7_1")),
        (element(1, JobState.ENDED, outcome="FAILED", end_s=1.0), RequeueEnded("7_1")),
        (running(1, ("n3",), 1), Requeue("7_1")),
    ],
    ids=["placed", "ended", "failed", "running"],
)
def test_a_member_whose_leader_waits_is_brought_back_to_it(
    member: SlurmJob, wanted: Leave | Requeue | RequeueEnded
) -> None:
    assert list(tidied(gang(element(0), member), None, starting=False)) == [wanted]
    assert list(tidied(gang(element(0), element(1)), None, starting=False)) == []


def test_an_element_that_fails_after_its_leader_was_lost_is_no_loss() -> None:
    failed = element(1, JobState.ENDED, outcome="FAILED", start_s=100.0, end_s=150.0)
    lead = running(0, ("n0",), 4)
    assert list(broken(gang(lead, failed), now=159.0, patience_s=10.0)) == []
    assert list(broken(gang(lead, failed), now=161.0, patience_s=10.0)) == [Cancel("7")]
    # Slurm has queued the leader again, or has started it since.
    for other in (element(0), replace(lead, start_s=155.0)):
        assert list(broken(gang(other, failed), now=999.0, patience_s=10.0)) == []
    cancelled = replace(failed, outcome="CANCELLED")
    waits = gang(element(0), cancelled)
    assert list(tidied(waits, None, starting=False)) == []
    assert list(broken(waits, now=151.0, patience_s=10.0)) == [Cancel("7")]


def test_a_member_that_was_placed_holds_its_node_once_its_leader_runs_and_is_let_start() -> None:
    lead = running(0, ("n0",), 4)
    seen = gang(lead, due(1, "n3", 2, dependency="after:7_0"))
    assert dict(pieces_held(seen)) == {"n0": 4, "n3": 2}
    assert not complete(seen)
    assert list(tidied(seen, None, starting=True)) == [Depend("7_1", "")]
    spare = gang(lead, element(1, gpus=2))
    assert dict(pieces_held(spare)) == {"n0": 4}
    assert complete(spare)


def test_a_member_that_is_held_keeps_the_others_and_is_let_go_of_if_slurm_holds_it() -> None:
    held = gang(element(0), element(1, held=True, reason="JobHeldUser"))
    assert blocked_by(held) == Reason(ReasonCode.HELD)
    assert list(tidied(held, None, starting=False)) == []
    by_slurm = element(1, held=True, reason="launch failed requeued held")
    assert list(tidied(gang(element(0), by_slurm), None, starting=False)) == [Release("7_1")]
    assert list(tidied(gang(running(0, ("n0",), 4), by_slurm), None, starting=False)) == []


TWO_NODES = (node("n0"), node("n1"))


def cycles(daemon: Daemon, clock: Clock, seconds: int) -> list[object]:
    """Run a cycle a second; return what was wrong with the plans."""
    found: list[object] = []
    for _ in range(seconds):
        clock.now += 1
        found += daemon.cycle().violations
    return found


def shown(
    *elements: SlurmJob, nodes: tuple[SlurmNode, ...] = TWO_NODES, counts: str = "4,5"
) -> SlurmState:
    """What Slurm shows of a gang of two."""
    two = GANG.replace('"elements":4', '"elements":2').replace("4,5", counts)
    return state(*(replace(each, mark=two) for each in elements), nodes=nodes)


def whole(started_s: float) -> tuple[SlurmJob, SlurmJob]:
    """A gang of 4 and 1 that runs."""
    lead = running(0, ("n0",), 4, start_s=started_s)
    return lead, running(1, ("n1",), 1, start_s=started_s)


def test_a_gang_that_loses_its_leader_waits_for_its_elements_and_for_its_node() -> None:
    used = (node("n0", used=4), node("n1", used=1))
    lead, member = whole(990.0)
    backend, clock = FakeBackend(shown(lead, member, nodes=used)), Clock()
    daemon = daemon_of(backend, clock)
    assert cycles(daemon, clock, 2) == []
    # Its node goes down, and Slurm queues it again while the other still runs, which then fails.
    down = (node("n0", condition=NodeCondition.DOWN), node("n1", used=1))
    again = element(0, restarts=1, begin_s=clock.now + 121.0, pinned=("n0",), gpus=4)
    backend.state = shown(again, member, nodes=down)
    assert cycles(daemon, clock, 1) == []
    failed = replace(member, state=JobState.ENDED, outcome="FAILED", end_s=clock.now)
    backend.state = shown(replace(again, pinned=()), failed)
    backend.calls.clear()
    assert cycles(daemon, clock, 20) == []
    assert RequeueEnded("7_1") in backend.calls
    assert not any(isinstance(call, Enter | Together | Cancel) for call in backend.calls)
    assert "its node went down" in str(daemon.world.jobs["7"].blocked)
    assert cycles(daemon, clock, 20) == []
    assert "queued again" in str(daemon.world.jobs["7"].blocked)
    backend.state = shown(replace(again, pinned=()), element(1, restarts=1))
    assert cycles(daemon, clock, 1) == []
    assert isinstance(backend.calls[-1], Enter | Together)


def test_a_gang_of_which_a_part_does_not_start_is_not_placed_again_at_once() -> None:
    lead, _ = whole(1000.0)
    member = replace(due(1, "n1", 1), reason="JobArrayTaskLimit")
    used = (node("n0", used=4), node("n1"))
    backend, clock = FakeBackend(shown(lead, member, nodes=used)), Clock()
    daemon = daemon_of(backend, clock)
    while Requeue("7_0") not in backend.calls:
        assert cycles(daemon, clock, 1) == []
        assert clock.now < 1100
    assert clock.now - 1000 == pytest.approx(SETTINGS.start_timeout_s, abs=3)
    backend.state = shown(element(0, restarts=1), element(1))
    backend.calls.clear()
    cycles(daemon, clock, 50)
    assert not any(isinstance(call, Enter | Together) for call in backend.calls)
    assert "a part of it has not started" in str(daemon.world.jobs["7"].blocked)
    cycles(daemon, clock, 12)
    assert any(isinstance(call, Enter | Together) for call in backend.calls)


def test_a_leader_that_runs_alone_is_left_alone_by_a_daemon_that_comes_back() -> None:
    lead, spare = running(0, ("n0",), 4, start_s=990.0), element(1)
    backend = FakeBackend(shown(lead, spare, nodes=(node("n0", used=4), node("n1"))))
    daemon = daemon_of(backend, clock := Clock())
    cycles(daemon, clock, 60)
    assert backend.calls == []
    run = daemon.world.managed["7"].run
    assert run is not None
    assert dict(run.configuration) == {"n0": 4}


def test_a_gang_attains_nothing_before_all_of_it_runs() -> None:
    backend, clock = FakeBackend(shown(element(0), element(1), counts="5")), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    member = due(1, "n1", 1)
    backend.state = shown(due(0, "n0", 4), member, counts="5")

    def stands(seconds: int) -> tuple[Phase, float, float, float | None]:
        cycles(daemon, clock, seconds)
        view, now = daemon.world.jobs["7"], clock.now
        return view.phase(now), view.service_at(now), view.wait_at(now), view.first_start_s

    phase, service_s, before_s, started_s = stands(5)
    assert (phase, service_s, started_s) == (Phase.PLACED, 0.0, None)
    assert str(daemon.world.jobs["7"].holds) == "n0:4+n1:1"
    part, full = (node("n0", used=4), node("n1")), (node("n0", used=4), node("n1", used=1))
    # The leader alone runs, and waits for the other element.
    started = running(0, ("n0",), 4, start_s=clock.now)
    backend.state = shown(started, member, nodes=part, counts="5")
    assert stands(5) == (Phase.PLACED, 0.0, before_s + 5.0, None)
    whole_now = running(1, ("n1",), 1, start_s=clock.now)
    backend.state = shown(started, whole_now, nodes=full, counts="5")
    assert stands(1) == (Phase.RUNNING, 0.0, before_s + 6.0, started.start_s)
    assert stands(10) == (Phase.RUNNING, 50.0, before_s + 6.0, started.start_s)
    # What has begun goes on, though Slurm should queue an element again.
    backend.state = shown(started, member, nodes=part, counts="5")
    assert stands(2)[0] is Phase.RUNNING


def test_ids_of_elements_tell_their_job() -> None:
    assert [job_of(each) for each in ("7", "7_1", "7_[0,1]")] == ["7", "7", "7"]
    assert [of_leader(each) for each in ("7", "7_0", "7_[0,2]", "7_1", "7_[1-3]")] == [
        *(True, True, True),
        *(False, False),
    ]
