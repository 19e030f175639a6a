"""Jobs of copies under HadarE: what is done to the elements of their arrays, on a fake Slurm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.explain import why
from hetsched_core.policy import make_policy
from hetsched_core.simulate.forward import first_starts
from hetsched_core.store import JobProgress
from hetsched_core.types import NodeCondition, Phase, Placed, ReasonCode, Waiting
from slurm_plugin.backend import (
    Cancel,
    Enter,
    JobState,
    Leave,
    RefusedError,
    Requeue,
    SlurmBackend,
    SlurmJob,
    SlurmNode,
)
from slurm_plugin.daemon import Daemon, DaemonSettings, Mode
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    WAITING,
    Clock,
    daemon_of,
    entry,
    left,
    node,
    placed,
    state,
)
from tests.slurm_plugin.daemon.fake_slurm import running as runs_on

SETTINGS = DaemonSettings(partitions=frozenset({"gpu"}), round_s=100.0, restart_cost_s=0.0)


def mark(nonce: str, size: float = 1e6, copies: int = 3, more: str = "") -> str:
    """The mark of a job of copies on nodes of four GPUs."""
    return (
        f'hetsched/2 {{"nonce":"{nonce}","gpu-set":"4","can-checkpoint":true,{more}'
        f'"total-samples":{size:g},"copies":{copies},"elements":{copies}}}'
    )


def element(
    number: int, state: JobState = JobState.PENDING, array: str = "7", **more: object
) -> SlurmJob:
    """An element of an array of copies."""
    fields = {
        "id": f"{array}_{number}",
        "array": array,
        "element": number,
        "state": state,
        "mark": mark(f"c{array}"),
        "gpus": 4,
    }
    return replace(WAITING, **{**fields, **more})  # type: ignore[arg-type]


def running(number: int, on: str, array: str = "7", **more: object) -> SlurmJob:
    """An element that runs on a node."""
    runs = runs_on(element(number, array=array), on, since_s=990.0, gpus=4)
    return replace(runs, **more)  # type: ignore[arg-type]


def begun(seen: SlurmJob, on: str, due: bool = False) -> Enter:
    """How an element is placed, on a whole node."""
    return entry(seen, on, gpus=4, due=due, cpus=4)


def nodes(*used: int) -> tuple[SlurmNode, ...]:
    """Nodes of four GPUs of which so many are in use."""
    return tuple(node(f"n{at}", used=count) for at, count in enumerate(used))


def hadare(backend: SlurmBackend, clock: Clock) -> Daemon:
    """A daemon under HadarE."""
    return daemon_of(backend, clock, make_policy("hadare"), settings=SETTINGS)


def cycles(daemon: Daemon, clock: Clock, seconds: int = 1) -> None:
    """Run a cycle a second; no plan may be wrong."""
    for _ in range(seconds):
        clock.now += 1
        assert daemon.cycle().violations == ()


def test_each_element_is_started_by_itself_though_slurm_keeps_several_as_one() -> None:
    whole = element(0, id="7", unsplit=(0, 1, 2))
    for records in ((whole,), (element(0), element(1), element(2))):
        backend, clock = FakeBackend(state(*records, nodes=nodes(0, 0))), Clock()
        daemon = hadare(backend, clock)
        cycles(daemon, clock)
        assert backend.calls == [begun(element(0), "n0"), begun(element(1), "n1")]
        assert daemon.world.jobs["7"].job.copies == 3


def test_elements_that_never_ran_end_with_the_first_where_that_was_cancelled() -> None:
    whole = element(1, id="7", unsplit=(1, 2))
    gone = element(0, state=JobState.ENDED, outcome="CANCELLED", end_s=999.0)
    for records in ((whole,), (whole, gone)):
        backend, clock = FakeBackend(state(*records, nodes=nodes(0, 0))), Clock()
        cycles(hadare(backend, clock), clock)
        assert backend.calls == [Cancel("7_1"), Cancel("7_2")]


def test_elements_that_slurm_still_keeps_as_one_beside_others_are_spares() -> None:
    late = element(2, id="7", unsplit=(2, 3))
    elements = running(0, "n0"), running(1, "n1"), late
    backend, clock = FakeBackend(state(*elements, nodes=nodes(4, 4))), Clock()
    daemon = hadare(backend, clock)
    cycles(daemon, clock)
    assert backend.calls == []
    assert daemon.world.jobs["7"].job.copies == 4
    over = replace(elements[1], state=JobState.ENDED, outcome="COMPLETED", end_s=clock.now)
    backend.state = state(elements[0], over, late, nodes=nodes(4, 0))
    cycles(daemon, clock)
    # What runs comes to its end by itself.
    assert backend.calls == [Cancel("7_2"), Cancel("7_3")]


def test_a_policy_sees_one_job_with_a_run_for_each_node() -> None:
    elements = element(0), running(1, "n1"), running(2, "n0")
    backend, clock = FakeBackend(state(*elements, nodes=nodes(4, 4, 0))), Clock()
    daemon = hadare(backend, clock)
    cycles(daemon, clock)
    view = daemon.world.jobs["7"]
    assert {(run.copy, str(run.configuration)) for run in view.runs} == {(1, "n1:4"), (0, "n0:4")}
    assert (view.job.copies, str(view.holds)) == (3, "n0:4+n1:4")
    assert [daemon.world.nodes[name].held_gpus for name in ("n0", "n1", "n2")] == [4, 4, 0]
    # What runs keeps its element, and the first that waits gets the node that is free.
    assert backend.calls == [begun(element(0), "n2")]


def test_a_copy_that_slurm_has_not_started_does_nothing_for_its_job() -> None:
    backend, clock = FakeBackend(state(element(0), element(1), nodes=nodes(0, 0))), Clock()
    daemon = hadare(backend, clock)
    cycles(daemon, clock)
    first, kept = placed(element(0), "n0"), placed(element(1), "n1")
    backend.state = state(first, kept, nodes=nodes(0, 0))
    cycles(daemon, clock, 5)
    view = daemon.world.jobs["7"]
    waited_s = view.wait_at(clock.now)
    assert (view.phase(clock.now), len(view.runs)) == (Phase.PLACED, 2)
    assert (view.service_at(clock.now), view.first_start_s) == (0.0, None)
    runs = running(0, "n0", start_s=clock.now)
    backend.state = state(runs, kept, nodes=nodes(4, 0))
    cycles(daemon, clock)
    daemon.world.heard([JobProgress("c7", "7", 0, clock.now, 100.0, 2.0)], clock.now)
    cycles(daemon, clock, 10)
    view = daemon.world.jobs["7"]
    assert (view.phase(clock.now), view.first_start_s) == (Phase.RUNNING, runs.start_s)
    assert view.service_at(clock.now) == 40.0
    assert view.wait_at(clock.now) == waited_s + 1.0
    assert view.samples_at(clock.now) == 120.0


@pytest.mark.parametrize("on", [("n0", "n1"), ("n1", "n0")])
def test_a_copy_whose_node_another_job_gets_is_stopped_alone_and_waits(
    on: tuple[str, str],
) -> None:
    elements = running(0, on[0]), running(1, on[1]), element(2)
    backend, clock = FakeBackend(state(*elements, nodes=nodes(4, 4))), Clock(1098.0)
    daemon = hadare(backend, clock)
    cycles(daemon, clock)
    assert backend.calls == []
    first = element(0, array="8")
    other = first, element(1, array="8"), element(2, array="8")
    backend.state = state(*elements, *other, nodes=nodes(4, 4))
    cycles(daemon, clock)
    entry = daemon.plan.entries["7"]
    assert isinstance(entry, Placed)
    kept = on.index(entry.placements[0].configuration.pieces[0][0])
    lost = 1 - kept
    assert backend.calls == [Requeue(f"7_{lost}")]
    # Slurm queues it again, where it was placed and not to start for a while.
    again = replace(elements[lost], state=JobState.PENDING, nodes=(), start_s=None, restarts=1)
    again = replace(again, begin_s=clock.now + 121.0, reason="BeginTime")
    free = tuple(node(name, used=4 if name == on[kept] else 0) for name in ("n0", "n1"))
    backend.calls.clear()
    backend.state = state(elements[kept], again, elements[2], *other, nodes=free)
    cycles(daemon, clock)
    assert backend.calls == [left(element(lost)), begun(first, on[lost])]


@pytest.mark.parametrize("ended", [0, 1], ids=["element 0", "another"])
def test_one_element_that_ends_well_ends_the_job(ended: int) -> None:
    over = replace(running(ended, "n0"), state=JobState.ENDED, outcome="COMPLETED", end_s=995.0)
    others = running(1 - ended, "n1"), element(2), placed(element(3), "n2")
    backend, clock = FakeBackend(state(over, *others, nodes=nodes(0, 4, 0))), Clock()
    daemon = hadare(backend, clock)
    cycles(daemon, clock, 3)
    # What still runs comes to its end by itself.
    assert set(backend.calls) == {Cancel("7_2"), Cancel("7_3")}
    assert daemon.world.managed == {}


def test_a_copy_that_fails_costs_itself_alone_and_is_begun_there_in_the_next_round() -> None:
    failed = replace(running(1, "n1"), state=JobState.ENDED, outcome="FAILED", end_s=995.0)
    elements = running(0, "n0"), failed, element(2)
    backend, clock = FakeBackend(state(*elements, nodes=nodes(4, 0))), Clock(985.0)
    daemon = hadare(backend, clock)
    cycles(daemon, clock, 14)
    assert backend.calls == []
    assert daemon.world.jobs["7"].job.copies == 2
    # In the next round it is tried again, by another element.
    cycles(daemon, clock, 2)
    assert set(backend.calls) == {begun(element(2), "n1")}


def test_a_job_goes_on_without_element_0_and_ends_with_the_last_that_can() -> None:
    failed = replace(running(0, "n0"), state=JobState.ENDED, outcome="FAILED", end_s=995.0)
    backend, clock = FakeBackend(), Clock()
    backend.state = state(failed, running(1, "n1"), element(2), nodes=nodes(4, 4))
    daemon = hadare(backend, clock)
    cycles(daemon, clock, 2)
    # Its node is lost.
    again = placed(element(1, restarts=1, begin_s=clock.now + 121.0), "n1")
    down = (node("n0"), node("n1", condition=NodeCondition.DOWN))
    backend.state = state(failed, again, element(2), nodes=down)
    cycles(daemon, clock)
    assert backend.calls == [left(element(1))]
    backend.calls.clear()
    cancelled = replace(again, state=JobState.ENDED, outcome="CANCELLED", end_s=clock.now)
    backend.state = state(failed, cancelled, element(2), nodes=nodes(0, 0))
    cycles(daemon, clock)
    assert backend.calls == [Cancel("7_2")]


def test_a_node_that_is_lost_costs_its_copy_and_the_others_go_on() -> None:
    elements = running(0, "n0"), running(1, "n1"), element(2)
    backend, clock = FakeBackend(state(*elements, nodes=nodes(4, 4, 0)[:2])), Clock()
    daemon = hadare(backend, clock)
    cycles(daemon, clock)
    down = (node("n0", condition=NodeCondition.DOWN), node("n1", used=4), node("n2"))
    again = placed(element(0, restarts=1, begin_s=clock.now + 121.0), "n0")
    backend.state = state(again, elements[1], elements[2], nodes=down)
    cycles(daemon, clock)
    # Its processes may still be ending there: another element takes its part.
    assert backend.calls == [left(element(0)), begun(element(2), "n2")]
    assert daemon.world.jobs["7"].blocked is None


def test_what_slurm_refuses_for_one_copy_is_not_tried_with_the_next() -> None:
    elements = running(0, "n0"), element(1), element(2)
    refusal = RefusedError("place: no")
    backend = FakeBackend(state(*elements, nodes=nodes(4, 0)), errors=[refusal])
    clock = Clock()
    daemon = hadare(backend, clock)
    cycles(daemon, clock, 55)
    assert [change.job for change in backend.calls] == ["7_1", "7_1"]
    assert isinstance(backend.calls[1], Leave)
    assert len(daemon.world.jobs["7"].runs) == 1
    cycles(daemon, clock, 10)
    assert [change.job for change in backend.calls][2:3] == ["7_1"]


def test_elements_over_the_throttle_of_their_array_are_tried_once_a_minute() -> None:
    backend, clock = FakeBackend(), Clock()
    daemon = hadare(backend, clock)
    tried: list[str] = []
    pinned: set[int] = set()
    for _ in range(130):
        others = [element(number) for number in (1, 2)]
        others = [
            replace(placed(each, "n1"), reason="JobArrayTaskLimit")
            if each.element in pinned
            else each
            for each in others
        ]
        backend.state = state(running(0, "n0"), *others, nodes=nodes(4, 0))
        backend.calls.clear()
        cycles(daemon, clock)
        for change in backend.calls:
            number = int(change.job[-1])
            if isinstance(change, Enter):
                tried.append(change.job)
                pinned.add(number)
            else:
                pinned.remove(number)
    assert set(tried) == {"7_1"}
    assert 2 <= len(tried) <= 3


def test_a_plan_is_void_where_a_new_node_moves_the_places_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, last = node("n0", used=4), node("n2", used=4)
    elements = running(0, "n0"), running(1, "n2"), element(2)
    backend, clock = FakeBackend(state(*elements, nodes=(first, last))), Clock()
    policy = make_policy("hadare")
    daemon = daemon_of(backend, clock, policy, settings=SETTINGS)
    cycles(daemon, clock)
    monkeypatch.setattr(type(policy), "plan", lambda *_: 1 / 0)
    backend.state = state(*elements, nodes=(first, node("n1"), last))
    clock.now += 1
    assert daemon.cycle().violations
    assert backend.calls == []
    monkeypatch.undo()
    cycles(daemon, clock, 11)
    assert {change.job for change in backend.calls if isinstance(change, Enter)} == {"7_2"}


def test_a_job_whose_first_element_is_held_waits() -> None:
    held = element(0, held=True, reason="JobHeldUser")
    backend, clock = FakeBackend(state(held, element(1), nodes=nodes(0, 0))), Clock()
    daemon = hadare(backend, clock)
    cycles(daemon, clock)
    assert backend.calls == []
    blocked = daemon.world.jobs["7"].blocked
    assert blocked is not None
    assert blocked.code is ReasonCode.HELD


def test_under_other_policies_one_element_is_all_of_the_job() -> None:
    elements = element(0), element(1), element(2)
    backend, clock = FakeBackend(state(*elements, nodes=nodes(0, 0))), Clock()
    cycles(daemon_of(backend, clock, settings=SETTINGS), clock, 2)
    assert [(type(change), change.job) for change in backend.calls] == [(Enter, "7_0")] * 2


def test_jobs_without_copies_get_one_whole_node_or_stay_as_they_are() -> None:
    plain = 'hetsched/2 {{"nonce":"p{0}","gpu-set":"{1}"{2}}}'
    whole = replace(WAITING, id="1", mark=plain.format(1, 4, ""))
    whole = replace(whole, gpus=4)
    small = replace(WAITING, id="2", mark=plain.format(2, 2, ""), gpus=2)
    began = replace(small, id="3", mark=plain.format(3, 2, ""))
    began = runs_on(began, "n0", since_s=990.0, gpus=2)
    backend, clock = FakeBackend(state(whole, small, began, nodes=nodes(2, 0, 0))), Clock()
    daemon = hadare(backend, clock)
    cycles(daemon, clock, 2)
    assert [(type(change), change.job) for change in backend.calls] == [(Enter, "1")] * 2
    entries = daemon.plan.entries
    placed, waits = entries["3"], entries["2"]
    assert isinstance(placed, Placed)
    assert [str(each.configuration) for each in placed.placements] == ["n0:2"]
    assert isinstance(waits, Waiting)
    assert waits.reason.code is ReasonCode.NEVER_FITS
    assert "has 2 GPUs, and it gets all GPUs of a node" in waits.reason.detail


def test_who_waits_among_jobs_of_copies_is_told_why_and_when() -> None:
    several = [element(at, array=array) for array in ("8", "9") for at in range(3)]
    first = running(0, "n0"), running(1, "n1"), element(2)
    backend, clock = FakeBackend(state(*first, *several, nodes=nodes(4, 4))), Clock(1010.0)
    daemon = hadare(backend, clock)
    cycles(daemon, clock, 2)
    snapshot = daemon.snapshot()
    assert snapshot is not None
    waiting = next(j for j, entry in daemon.plan.entries.items() if isinstance(entry, Waiting))
    policy = make_policy("hadare")
    assert [each.code for each in why(policy, snapshot, daemon.plan, waiting).reasons]
    assert str(why(policy, snapshot, daemon.plan, "7").holds) == "n0:4+n1:4"
    left = {"7": 1e6, "8": 1e5, "9": 1e5}
    starts = first_starts(snapshot, daemon.plan, policy, left, [waiting])
    assert starts is not None
    assert starts[waiting] > clock.now


def test_in_shadow_nothing_is_done() -> None:
    backend = FakeBackend(state(element(0), element(1), element(2), nodes=nodes(0, 0)))
    policy = make_policy("hadare")
    daemon = daemon_of(backend, Clock(), policy, Mode.SHADOW, SETTINGS)
    report = daemon.cycle()
    assert [type(change) for change in report.changes] == [Enter, Enter]
    assert backend.calls == []


def test_no_node_is_planned_for_an_element_that_may_not_start() -> None:
    held = [replace(element(at), held=True, reason="JobHeldUser") for at in (1, 2)]
    other = [element(at, array="8") for at in range(3)]
    backend, clock = FakeBackend(), Clock()
    backend.state = state(running(0, "n0"), *held, *other, nodes=nodes(4, 0, 0, 0))
    daemon = hadare(backend, clock)
    cycles(daemon, clock)
    assert daemon.world.jobs["7"].job.copies == 1
    entered = {change.job for change in backend.calls if isinstance(change, Enter)}
    assert entered == {"8_0", "8_1", "8_2"}
    # Let go of, they have their part from the next plan on.
    free = element(1), element(2)
    backend.state = state(running(0, "n0"), *free, *other, nodes=nodes(4, 0, 0, 0))
    cycles(daemon, clock)
    assert daemon.world.jobs["7"].job.copies == 3


def test_while_a_limit_keeps_one_back_a_job_is_to_have_what_runs() -> None:
    limit = replace(placed(element(1), "n1"), reason="AssocGrpGRES")
    other = [
        replace(element(at, array="8"), user="bob", account="other", qos="other") for at in range(3)
    ]
    backend, clock = FakeBackend(), Clock()
    backend.state = state(running(0, "n0"), limit, element(2), *other, nodes=nodes(4, 0, 0))
    daemon = hadare(backend, clock)
    cycles(daemon, clock)
    assert daemon.world.jobs["7"].job.copies == 1
    entered = {change.job for change in backend.calls if isinstance(change, Enter)}
    assert entered == {"8_0", "8_1"}
    assert left(element(1)) in backend.calls
    waits = state(running(0, "n0"), element(1), element(2), *other, nodes=nodes(4, 0, 0))
    backend.state = waits
    cycles(daemon, clock, 58)
    assert daemon.world.jobs["7"].job.copies == 1
    cycles(daemon, clock, 3)
    assert daemon.world.jobs["7"].job.copies == 3


def test_how_far_a_job_is_adds_up_over_the_copies_that_ran() -> None:
    backend, clock = FakeBackend(), Clock()
    text = mark("c7", size=1e8)
    waits = [element(at, mark=text) for at in range(3)]
    first, second = running(0, "n0", mark=text), running(1, "n1", mark=text)
    backend.state = state(first, *waits[1:], nodes=nodes(4, 4, 4))
    daemon = hadare(backend, clock)
    cycles(daemon, clock)
    daemon.world.heard([JobProgress("c7", "7", 0, clock.now, 1000.0, 10.0)], clock.now)

    def after(seconds: float, *now: SlurmJob) -> float:
        """Return the samples done once these have been there for so long."""
        backend.state = state(*now, nodes=nodes(4, 4, 4))
        cycles(daemon, clock)
        clock.now += seconds
        cycles(daemon, clock)
        return daemon.world.managed["7"].samples

    assert after(8.0, first, *waits[1:]) == pytest.approx(1000 + 10 * 10)
    # Element 0 is stopped, and another copy runs at the speed that is known of its node.
    alone = after(99.0, waits[0], second, waits[2])
    (run,) = daemon.world.jobs["7"].runs
    assert run.speed > 0
    assert alone == pytest.approx(1100 + 10 + run.speed * 100)
    both = after(0.0, replace(first, restarts=1), second, waits[2])
    speeds = [each.speed for each in daemon.world.jobs["7"].runs]
    assert both == pytest.approx(alone + run.speed + sum(speeds))
    stopped = after(3000.0, *waits)
    assert stopped == pytest.approx(both + sum(speeds))
    assert daemon.world.jobs["7"].samples_at(clock.now) == pytest.approx(stopped)
    # What the job says holds, and it is never further than its end.
    daemon.world.heard([JobProgress("c7", "7", 1, clock.now, 5000.0, 10.0)], clock.now)
    assert daemon.world.managed["7"].samples == 5000
    assert after(1e7, waits[0], second, waits[2]) == 1e8


def test_what_has_run_is_no_spare_and_goes_on_where_element_0_fails() -> None:
    failed = replace(running(0, "n0"), state=JobState.ENDED, outcome="FAILED", end_s=995.0)
    again = element(1, restarts=2)
    backend, clock = FakeBackend(), Clock()
    backend.state = state(running(0, "n0"), again, element(2), nodes=nodes(4, 4))
    daemon = hadare(backend, clock)
    cycles(daemon, clock)
    assert backend.calls == []
    spare = replace(element(2), state=JobState.ENDED, outcome="CANCELLED", end_s=clock.now)
    backend.state = state(failed, again, spare, nodes=nodes(0, 4))
    cycles(daemon, clock, 101)
    assert backend.calls[0] == begun(again, "n0", due=True)
    assert not any(isinstance(change, Cancel) for change in backend.calls)
