"""What the elements of an array say of the job that they are."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from hetsched_core.store import JobProgress
from hetsched_core.types import NodeCondition, Phase, Reason, ReasonCode
from slurm_plugin.backend import (
    Cancel,
    Change,
    Depend,
    Enter,
    JobState,
    Leave,
    Release,
    Requeue,
    RequeueEnded,
    SlurmJob,
    SlurmNode,
    Together,
)
from slurm_plugin.daemon.jobs.gangs import (
    complete,
    gang_end,
    job_of,
    jobs_of_gangs,
    leftover,
    member_changes,
    of_leader,
    pieces_held,
    stopped_as,
    together,
)
from slurm_plugin.daemon.jobs.managed import blocked_by
from tests.slurm_plugin.daemon.fake_slurm import (
    HOLD,
    SETTINGS,
    WAITING,
    Site,
    node,
    placed,
    places,
)
from tests.slurm_plugin.daemon.fake_slurm import element as element_of
from tests.slurm_plugin.daemon.fake_slurm import running as runs_on

GANG = 'hetsched/2 {"nonce":"a7","gpu-set":"4,5","gpu-shapes":"any","elements":4}'
"""Five GPUs are 4 and 1."""

TWO = [Enter("7", HOLD, (name,), Leave("7")) for name in ("n0", "n3")]
"""How a job of two elements is placed."""


element = partial(element_of, of=replace(WAITING, mark=GANG))
"""An element of array 7."""


def due(number: int, on: str, gpus: int, **more: Any) -> SlurmJob:
    """An element that was placed and has not started."""
    return placed(element(number, gpus=gpus, **more), on)


def over(number: int, outcome: str, **more: Any) -> SlurmJob:
    """An element that has ended."""
    return element(number, state=JobState.ENDED, outcome=outcome, **{"end_s": 1.0, **more})


def running(number: int, nodes: tuple[str, ...], gpus: int, **more: Any) -> SlurmJob:
    """An element that runs."""
    runs = runs_on(element(number), *nodes, since_s=100.0, gpus=gpus)
    return replace(runs, **more)


def gang(*elements: SlurmJob) -> SlurmJob:
    """The job that they are."""
    found, left = jobs_of_gangs({each.id: each for each in elements})
    assert (list(found), left) == (["7"], ())
    return found["7"]


def tidy(*elements: SlurmJob, starting: bool = False) -> list[Change]:
    """What is done for elements of a gang that is not placed now."""
    return list(member_changes(gang(*elements), None, starting=starting))


LEAD = running(0, ("n0",), 4)


def test_elements_are_one_job_that_holds_what_they_hold() -> None:
    elements = running(1, ("n3",), 1), running(0, ("n0", "n1"), 8), element(2)
    seen = gang(*elements)
    assert dict(pieces_held(seen)) == {"n0": 4, "n1": 4, "n3": 1}
    assert (seen.id, seen.state, stopped_as(seen)) == ("7", JobState.RUNNING, "7_[0,1]")
    assert tidy(*elements) == []


def cancelled(now: float, *elements: SlurmJob) -> list[str]:
    """What is cancelled of elements without a leader."""
    found, left = jobs_of_gangs({each.id: each for each in elements})
    return [change.job for change in leftover(left, found, now, patience_s=10.0)]


def test_a_job_without_a_leader_that_has_ended_leaves_members_to_be_cancelled() -> None:
    ended = over(0, "COMPLETED", end_s=50.0)
    others = element(1), running(2, ("n1",), 2), due(3, "n2", 1)
    # Slurm cancels spares by itself, and what still runs is given its time.
    assert cancelled(55.0, ended, *others) == ["7_3"]
    assert cancelled(61.0, ended, *others) == ["7_1", "7_2", "7_3"]
    assert cancelled(55.0, replace(ended, outcome="FAILED"), *others) == ["7_2", "7_3"]
    assert cancelled(55.0, *others) == ["7_1", "7_2", "7_3"]
    # It was cancelled before the split.
    assert cancelled(1.0, element(1), element(2)) == ["7_1", "7_2"]


def test_members_are_placed_before_their_leader_and_wait_for_it() -> None:
    seen = gang(element(0), element(1), element(2))
    member = Enter("7_1", HOLD, ("n3",), Leave("7_1"), dependency="after:7_0")
    lead = Enter("7_0", HOLD, ("n0",), Leave("7"))
    assert together(seen, TWO) == Together("7_0", (member, lead))
    assert together(seen, TWO[:1]) == lead
    assert together(gang(element(0)), TWO) is None
    held = gang(element(0), element(1, held=True, reason="JobHeldUser"))
    assert together(held, TWO) is None


@pytest.mark.parametrize(
    ("member", "wanted"),
    [
        (due(1, "n3", 1, dependency="after:7_0"), [Leave("7_1")]),
        (over(1, "COMPLETED"), [RequeueEnded("7_1")]),
        (over(1, "FAILED"), [RequeueEnded("7_1")]),
        (over(1, "CANCELLED", start_s=100.0, end_s=150.0), []),
        (running(1, ("n3",), 1), [Requeue("7_1")]),
        (element(1), []),
    ],
    ids=["placed", "ended", "failed", "cancelled", "running", "waiting"],
)
def test_a_member_whose_leader_waits_is_brought_back_to_it(
    member: SlurmJob, wanted: list[Change]
) -> None:
    assert tidy(element(0), member) == wanted


def test_a_member_that_ends_with_its_leader_is_not_stopped_once_more() -> None:
    ending = replace(LEAD, state=JobState.COMPLETING)
    assert tidy(ending, running(1, ("n3",), 1)) == []


def test_an_element_that_fails_after_its_leader_was_lost_is_no_loss() -> None:
    failed = over(1, "FAILED", start_s=100.0, end_s=150.0)

    def lost(lead: SlurmJob, member: SlurmJob, now: float) -> list[Change]:
        return list(gang_end(gang(lead, member), now=now, patience_s=10.0))

    assert lost(LEAD, failed, 159.0) == []
    assert lost(LEAD, failed, 161.0) == [Cancel("7")]
    # Slurm has queued the leader again, or has started it since.
    for other in (element(0), replace(LEAD, start_s=155.0)):
        assert lost(other, failed, 999.0) == []
    assert lost(element(0), replace(failed, outcome="CANCELLED"), 151.0) == [Cancel("7")]


def test_a_member_that_was_placed_holds_its_node_once_its_leader_runs_and_is_let_start() -> None:
    member = due(1, "n3", 2, dependency="after:7_0")
    seen, spare = gang(LEAD, member), gang(LEAD, element(1, gpus=2))
    assert (dict(pieces_held(seen)), complete(seen)) == ({"n0": 4, "n3": 2}, False)
    assert tidy(LEAD, member, starting=True) == [Depend("7_1", "")]
    # Slurm has seen that its leader runs, in a round in which it came to no more jobs.
    passed_over = replace(member, dependency="")
    assert tidy(LEAD, passed_over, starting=True) == [Depend("7_1", "")]
    assert tidy(LEAD, replace(passed_over, held=True), starting=True) == []
    assert tidy(LEAD, replace(passed_over, reason="BeginTime"), starting=True) == []
    assert (dict(pieces_held(spare)), complete(spare)) == ({"n0": 4}, True)


def test_a_member_that_is_held_keeps_the_others_and_is_let_go_of_if_slurm_holds_it() -> None:
    held = element(1, held=True, reason="JobHeldUser")
    assert blocked_by(gang(element(0), held)) == Reason(ReasonCode.HELD)
    by_slurm = replace(held, reason="launch failed requeued held")

    def told(*elements: SlurmJob) -> list[Change]:
        calls = see(Site(), *elements, seconds=6)
        return [call for call in calls if isinstance(call, Release)]

    assert told(element(0), held) == []
    assert Release("7_1") in told(element(0), by_slurm)
    assert told(LEAD, by_slurm) == []


def test_ids_of_elements_tell_their_job() -> None:
    ids = ("7", "7_0", "7_[0,2]", "7_1", "7_[1-3]")
    assert {job_of(each) for each in ids} == {"7"}
    assert [of_leader(each) for each in ids] == [True, True, True, False, False]


# -- in the daemon ---------------------------------------------------------------------------------

PART, USED = ((node("n0", used=4), node("n1", used=count)) for count in (0, 1))


def see(
    site: Site,
    *elements: SlurmJob,
    seconds: float = 1,
    nodes: tuple[SlurmNode, ...] = (node("n0"), node("n1")),
    counts: str = "4,5",
) -> list[Change]:
    """Show a gang of two for some seconds; return what was called."""
    two = GANG.replace('"elements":4', '"elements":2').replace("4,5", counts)
    return site.see(*(replace(each, mark=two) for each in elements), seconds=seconds, nodes=nodes)


def is_placed(calls: list[Change]) -> bool:
    """Whether a gang, or a part of it, is placed."""
    return any(isinstance(call, Enter | Together) for call in calls)


def test_a_gang_that_loses_its_leader_waits_for_its_elements_and_for_its_node() -> None:
    site = Site()
    lead, member = running(0, ("n0",), 4, start_s=990.0), running(1, ("n1",), 1, start_s=990.0)
    see(site, lead, member, seconds=2, nodes=USED)
    # Its node goes down, and Slurm queues it again while the other still runs, which then fails.
    down = (node("n0", condition=NodeCondition.DOWN), USED[1])
    again = element(0, restarts=1, begin_s=site.clock.now + 121.0, gpus=4)
    see(site, replace(again, pinned=("n0",)), member, nodes=down)
    failed = over(1, "FAILED", start_s=990.0, end_s=site.clock.now, nodes=("n1",))
    for words in ("its node went down", "queued again"):
        calls = see(site, again, failed, seconds=20)
        assert RequeueEnded("7_1") in calls
        assert not any(isinstance(call, Enter | Together | Cancel) for call in calls)
        assert words in str(site.blocked("7"))
    assert is_placed(see(site, again, element(1, restarts=1)))


@pytest.mark.parametrize("outcome", ["COMPLETED", "FAILED"])
def test_a_gang_whose_stop_slurm_has_forgotten_is_queued_again(outcome: str) -> None:
    site = Site()
    lead, member = running(0, ("n0",), 4, start_s=990.0), running(1, ("n1",), 1, start_s=990.0)
    see(site, lead, member, seconds=2, nodes=USED)
    at_s = site.forget_stop("7_[0,1]")
    ended = (over(n, outcome, start_s=990.0, end_s=at_s + 2.0) for n in (0, 1))
    first, second = ended
    assert see(site, first, second) == [RequeueEnded("7_0")]
    assert RequeueEnded("7_1") in see(site, element(0, restarts=1), second)


def test_a_gang_of_which_a_part_does_not_start_is_not_placed_again_at_once() -> None:
    site = Site()
    lead, member = running(0, ("n0",), 4, start_s=1000.0), due(1, "n1", 1)
    calls: list[Change] = []
    while Requeue("7_0") not in calls:
        calls = see(site, lead, replace(member, reason="JobArrayTaskLimit"), nodes=PART)
        assert site.clock.now < 1100
    # It is not let start in what ends.
    assert Depend("7_1", "") not in calls
    assert site.clock.now - 1000 == pytest.approx(SETTINGS.start_timeout_s, abs=3)
    waits = element(0, restarts=1), element(1)
    assert not is_placed(see(site, *waits, seconds=50))
    said = "a part of it has not started within 30 s"
    assert site.blocked("7") == Reason(ReasonCode.NOT_STARTED, detail=said)
    assert is_placed(see(site, *waits, seconds=12))


def test_a_leader_that_runs_alone_is_left_alone_by_a_daemon_that_comes_back() -> None:
    site = Site()
    lead = running(0, ("n0",), 4, start_s=990.0)
    assert see(site, lead, element(1), seconds=60, nodes=PART) == []
    assert str(site.world.jobs["7"].holds) == "n0:4"


def test_a_gang_of_which_a_part_has_ended_well_is_let_come_to_its_end() -> None:
    site = Site()
    lead, member = running(0, ("n0",), 4, start_s=990.0), running(1, ("n1",), 1, start_s=990.0)
    see(site, lead, member, seconds=2, nodes=USED)
    well = over(1, "COMPLETED", start_s=990.0, end_s=site.clock.now, nodes=("n1",))
    assert see(site, lead, well, seconds=5, nodes=USED) == []


def test_a_gang_attains_nothing_before_all_of_it_runs() -> None:
    site, member = Site(), due(1, "n1", 1)
    see(site, element(0), element(1), seconds=0, counts="5")

    def stands(
        seconds: int, *elements: SlurmJob, nodes: tuple[SlurmNode, ...]
    ) -> tuple[Phase, float, float, float | None]:
        see(site, *elements, seconds=seconds, nodes=nodes, counts="5")
        view, now = site.world.jobs["7"], site.clock.now
        return view.phase(now), view.service_at(now), view.wait_at(now), view.first_start_s

    free = (node("n0"), node("n1"))
    phase, service_s, before_s, started_s = stands(5, due(0, "n0", 4), member, nodes=free)
    assert (phase, service_s, started_s) == (Phase.PLACED, 0.0, None)
    assert str(site.world.jobs["7"].holds) == "n0:4+n1:1"
    # The leader alone runs, and waits for the other element.
    lead = running(0, ("n0",), 4, start_s=site.clock.now)
    assert stands(5, lead, member, nodes=PART) == (Phase.PLACED, 0.0, before_s + 5.0, None)
    whole = lead, running(1, ("n1",), 1, start_s=site.clock.now)
    began = (before_s + 6.0, lead.start_s)
    assert stands(1, *whole, nodes=USED) == (Phase.RUNNING, 0.0, *began)
    assert stands(10, *whole, nodes=USED) == (Phase.RUNNING, 50.0, *began)
    site.world.heard([JobProgress("a7", "7", 0, site.clock.now, 100.0, 2.0)], site.clock.now)

    def samples() -> float:
        return site.world.jobs["7"].samples_at(site.clock.now)

    # An element may be queued again a moment before the others; it does not run for longer.
    assert stands(2, lead, member, nodes=PART)[0] is Phase.RUNNING
    phase, service_s, *_ = stands(6, lead, member, nodes=PART)
    lapsed = phase, service_s, samples()
    assert (phase, service_s, lapsed[2]) == (Phase.PLACED, 85.0, 114.0)
    assert stands(5, lead, member, nodes=PART)[:2] == (Phase.PLACED, service_s)
    assert samples() == lapsed[2]
    assert stands(1, *whole, nodes=USED)[:2] == (Phase.RUNNING, service_s)
    assert samples() == lapsed[2]
    assert stands(3, *whole, nodes=USED)[:2] == (Phase.RUNNING, service_s + 15.0)
    assert samples() == lapsed[2] + 6.0


def test_a_job_of_two_gpus_of_any_shape_is_placed_on_two_types_without_an_array() -> None:
    mark = 'hetsched/2 {"nonce":"a1","gpu-set":"2","gpu-shapes":"%s"}'
    types = {"n0": "v100", "n1": "t4"}
    nodes = tuple(replace(node(name), gpus=((type_, 1),)) for name, type_ in types.items())
    for shapes, on in (("even", {}), ("any", {"1": ("n0", "n1")})):
        site = Site(replace(WAITING, mark=mark % shapes, gpus=2), nodes=nodes)
        assert places(site.cycle()) == on


def test_a_job_of_any_shape_and_more_gpus_is_placed_in_even_ones_without_its_array() -> None:
    # As where a site's Lua file made none: its nodes may need unlike counts.
    mark = 'hetsched/2 {"nonce":"a1","gpu-set":"3","gpu-shapes":"any"}'
    nodes = tuple(replace(node(f"n{at}"), gpus=(("v100", at + 1),)) for at in range(2))
    site = Site(replace(WAITING, mark=mark, gpus=3), nodes=nodes)
    assert places(site.cycle()) == {}
