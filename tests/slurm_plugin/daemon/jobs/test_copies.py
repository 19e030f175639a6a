"""Jobs of copies under HadarE: what is done to the elements of their arrays, on a fake Slurm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hetsched_core.explain.why import why
from hetsched_core.policy import make_policy
from hetsched_core.simulate.forward import first_starts
from hetsched_core.store import JobProgress
from hetsched_core.types import NodeCondition, Phase, Placed, ReasonCode, Waiting
from slurm_plugin.backend import (
    Cancel,
    Enter,
    JobState,
    RefusedError,
    Requeue,
    RequeueEnded,
    SlurmJob,
    SlurmNode,
)
from slurm_plugin.daemon import DaemonMode, DaemonSettings
from tests.slurm_plugin.daemon.fake_slurm import (
    WAITING,
    Site,
    entry,
    left,
    named,
    node,
    placed,
    places,
)
from tests.slurm_plugin.daemon.fake_slurm import element as element_of
from tests.slurm_plugin.daemon.fake_slurm import running as runs_on

SETTINGS = DaemonSettings(partitions=frozenset({"gpu"}), round_s=100.0, restart_cost_s=0.0)


def mark(nonce: str, size: float = 1e6, copies: int = 3) -> str:
    """The mark of a job of copies on nodes of four GPUs."""
    return (
        f'hetsched/2 {{"nonce":"{nonce}","gpu-set":"4","can-checkpoint":true,'
        f'"total-samples":{size:g},"copies":{copies},"elements":{copies}}}'
    )


def element(number: int, array: str = "7", **more: Any) -> SlurmJob:
    """An element of an array of copies."""
    return element_of(number, array=array, **{"mark": mark(f"c{array}"), "gpus": 4, **more})


def running(number: int, on: str, array: str = "7", **more: Any) -> SlurmJob:
    """An element that runs on a node."""
    runs = runs_on(element(number, array=array), on, since_s=990.0, gpus=4)
    return replace(runs, **more)


def ended(number: int, outcome: str, on: str = "n2", end_s: float = 995.0) -> SlurmJob:
    """An element that has ended."""
    return running(number, on, state=JobState.ENDED, outcome=outcome, end_s=end_s)


def begun(seen: SlurmJob, on: str, due: bool = False) -> Enter:
    """How an element is placed, on a whole node."""
    return entry(seen, on, gpus=4, due=due, cpus=4)


def nodes(*used: int) -> tuple[SlurmNode, ...]:
    """Nodes of four GPUs of which so many are in use."""
    return tuple(node(f"n{at}", used=count) for at, count in enumerate(used))


def site_of(*jobs: SlurmJob, used: tuple[int, ...], policy: str = "hadare", **more: Any) -> Site:
    """A daemon beside nodes of which so many GPUs are in use."""
    return Site(*jobs, nodes=nodes(*used), policy=policy, settings=SETTINGS, **more)


def test_each_element_is_started_by_itself_though_slurm_keeps_several_as_one() -> None:
    whole = element(0, id="7", unsplit=(0, 1, 2))
    for records in ((whole,), (element(0), element(1), element(2))):
        site = site_of(*records, used=(0, 0))
        assert site.cycle(1) == [begun(element(0), "n0"), begun(element(1), "n1")]
        assert site.world.jobs["7"].job.copies == 3


def test_elements_that_never_ran_end_with_the_first_where_that_was_cancelled() -> None:
    whole = element(1, id="7", unsplit=(1, 2))
    gone = element(0, state=JobState.ENDED, outcome="CANCELLED", end_s=999.0)
    for records in ((whole,), (whole, gone)):
        assert site_of(*records, used=(0, 0)).cycle(1) == [Cancel("7_1"), Cancel("7_2")]


def test_elements_that_slurm_still_keeps_as_one_beside_others_are_spares() -> None:
    late = element(2, id="7", unsplit=(2, 3))
    site = site_of(running(0, "n0"), running(1, "n1"), late, used=(4, 4))
    assert site.cycle(1) == []
    assert site.world.jobs["7"].job.copies == 4
    over = ended(1, "COMPLETED", "n1", site.clock.now)
    # What runs comes to its end by itself.
    calls = site.see(running(0, "n0"), over, late, seconds=1, nodes=nodes(4, 0))
    assert calls == [Cancel("7_2"), Cancel("7_3")]


def test_a_copy_whose_stop_slurm_has_forgotten_is_queued_again_and_ends_no_job() -> None:
    site = site_of(running(0, "n0"), running(1, "n1"), used=(4, 4))
    site.cycle(1)
    at_s = site.forget_stop("7_0")
    over = ended(0, "COMPLETED", "n0", at_s + 2.0)
    calls = site.see(over, running(1, "n1"), nodes=nodes(0, 4))
    assert calls == [RequeueEnded("7_0")]
    assert "7" in site.world.managed


def test_a_policy_sees_one_job_with_a_run_for_each_node() -> None:
    site = site_of(element(0), running(1, "n1"), running(2, "n0"), used=(4, 4, 0))
    # What runs keeps its element, and the first that waits gets the node that is free.
    assert site.cycle(1) == [begun(element(0), "n2")]
    view = site.world.jobs["7"]
    assert {(run.copy, str(run.configuration)) for run in view.runs} == {(1, "n1:4"), (0, "n0:4")}
    assert (view.job.copies, str(view.holds)) == (3, "n0:4+n1:4")
    assert [site.uses(name) for name in ("n0", "n1", "n2")] == [(4, 0), (4, 0), (0, 0)]


def test_a_copy_that_slurm_has_not_started_does_nothing_for_its_job() -> None:
    site = site_of(element(0), element(1), used=(0, 0))
    site.cycle(1)
    kept = placed(element(1), "n1")
    site.see(placed(element(0), "n0"), kept, seconds=5)
    view, now = site.world.jobs["7"], site.clock.now
    waited_s = view.wait_at(now)
    assert (view.phase(now), len(view.runs)) == (Phase.PLACED, 2)
    assert (view.service_at(now), view.first_start_s) == (0.0, None)
    site.see(running(0, "n0", start_s=now), kept, seconds=1, nodes=nodes(4, 0))
    site.world.heard([JobProgress("c7", "7", 0, site.clock.now, 100.0, 2.0)], site.clock.now)
    site.cycle(10)
    view, started_s, now = site.world.jobs["7"], now, site.clock.now
    assert (view.phase(now), view.first_start_s) == (Phase.RUNNING, started_s)
    assert (view.service_at(now), view.wait_at(now)) == (40.0, waited_s + 1.0)
    assert view.samples_at(now) == 120.0


@pytest.mark.parametrize("on", [("n0", "n1"), ("n1", "n0")])
def test_a_copy_whose_node_another_job_gets_is_stopped_alone_and_waits(on: tuple[str, str]) -> None:
    elements = running(0, on[0]), running(1, on[1]), element(2)
    site = site_of(*elements, used=(4, 4), now=1098.0)
    assert site.cycle(1) == []
    other = [element(at, array="8") for at in range(3)]
    calls = site.see(*elements, *other, seconds=1)
    plan = site.daemon.plan.entries["7"]
    assert isinstance(plan, Placed)
    kept = on.index(plan.placements[0].configuration.pieces[0][0])
    lost = 1 - kept
    assert calls == [Requeue(f"7_{lost}")]
    # Slurm queues it again, where it was placed and not to start for a while.
    begin_s = site.clock.now + 121.0
    again = placed(element(lost, restarts=1, begin_s=begin_s), on[lost])
    free = tuple(node(name, used=4 if name == on[kept] else 0) for name in ("n0", "n1"))
    calls = site.see(elements[kept], again, elements[2], *other, seconds=1, nodes=free)
    assert calls == [left(element(lost)), begun(other[0], on[lost])]


def test_a_copy_that_fails_costs_itself_alone_and_is_begun_there_in_the_next_round() -> None:
    elements = running(0, "n0"), ended(1, "FAILED", "n1"), element(2)
    site = site_of(*elements, used=(4, 0), now=985.0)
    assert site.cycle(14) == []
    assert site.world.jobs["7"].job.copies == 2
    # In the next round it is tried again, by another element.
    assert set(site.cycle(2)) == {begun(element(2), "n1")}


@pytest.mark.parametrize("policy", ["hadare", "fifo"])
@pytest.mark.parametrize(("over", "runs"), [(0, True), (1, True), (1, False)])
def test_one_element_that_ends_well_ends_the_job(policy: str, over: int, runs: bool) -> None:
    other = running(1 - over, "n1") if runs else element(1 - over)
    others = other, element(2), placed(element(3), "n2")
    used = (0, 4 if runs else 0, 0)
    site = site_of(ended(over, "COMPLETED", "n0"), *others, used=used, policy=policy)
    # What still runs comes to its end by itself, and until then the job is there.
    waits = {Cancel(each.id) for each in others if each.state is JobState.PENDING}
    assert set(site.cycle(3)) == waits
    assert site.world.managed.keys() == ({"7"} if runs else set())


@pytest.mark.parametrize(
    ("policy", "seen_before"),
    [("hadare", True), ("hadare", False), ("fifo", False), ("steady", False)],
)
def test_a_job_that_has_come_to_its_end_runs_until_its_last_copy_has(
    policy: str, seen_before: bool
) -> None:
    other = replace(
        WAITING, id="9", mark=mark("c9").replace(',"copies":3,"elements":3', ""), gpus=4
    )
    site = site_of(used=(4, 4), policy=policy)
    if seen_before:
        site.see(running(0, "n1"), running(1, "n0"), other, seconds=1)
    end = ended(0, "COMPLETED", "n1", site.clock.now)
    goes_on = running(1, "n0"), element(2)
    calls = [*site.see(end, *goes_on, other, nodes=nodes(4, 0)), *site.cycle(101)]
    # What waits of it is not needed, what runs is let run, and another job has the GPUs.
    assert Cancel("7_2") in calls
    assert ("Enter", "9") in named(calls)
    assert places(calls)["9"] == ("n1",)
    assert {type(change) for change in calls} <= {Cancel, Enter}
    cluster = site.world.cluster
    assert cluster is not None
    first = site.world.managed["7"].service(cluster)
    rest = end, goes_on[0], ended(2, "CANCELLED"), runs_on(other, "n1", gpus=4)
    site.show(*rest, nodes=nodes(4, 4))
    site.cycle(1)
    assert site.cycle(100) == []
    second = site.world.managed["7"].service(cluster)
    assert first is not None
    assert second is not None
    had = [sum(gpu_s for _, gpu_s in each.gpu_s) for each in (first, second)]
    assert had[1] - had[0] == pytest.approx(400.0, abs=10.0)
    assert [str(run.configuration) for run in site.world.jobs["7"].runs] == ["n0:4"]
    last_s = site.clock.now
    site.see(end, ended(1, "COMPLETED", "n0", last_s), *rest[2:], nodes=nodes(0, 4))
    assert site.world.managed.keys() == {"9"}
    assert site.world.ended["7"].end_s == last_s


def test_a_job_goes_on_without_element_0_and_ends_with_the_last_that_can() -> None:
    failed = ended(0, "FAILED", "n0")
    site = site_of(failed, running(1, "n1"), element(2), used=(4, 4))
    site.cycle(2)
    # Its node is lost.
    again = placed(element(1, restarts=1, begin_s=site.clock.now + 121.0), "n1")
    down = (node("n0"), node("n1", condition=NodeCondition.DOWN))
    assert site.see(failed, again, element(2), seconds=1, nodes=down) == [left(element(1))]
    cancelled = replace(again, state=JobState.ENDED, outcome="CANCELLED", end_s=site.clock.now)
    assert site.see(failed, cancelled, element(2), seconds=1, nodes=nodes(0, 0)) == [Cancel("7_2")]


def test_what_has_run_is_no_spare_and_goes_on_where_element_0_fails() -> None:
    again = element(1, restarts=2)
    site = site_of(running(0, "n0"), again, element(2), used=(4, 4))
    assert site.cycle(1) == []
    site.show(ended(0, "FAILED", "n0"), again, ended(2, "CANCELLED"), nodes=nodes(0, 4))
    calls = site.cycle(101)
    assert calls[0] == begun(again, "n0", due=True)
    assert not any(isinstance(change, Cancel) for change in calls)


def test_a_node_that_is_lost_costs_its_copy_and_the_others_go_on() -> None:
    other, spare = running(1, "n1"), element(2)
    site = site_of(running(0, "n0"), other, spare, used=(4, 4))
    site.cycle(1)
    down = (node("n0", condition=NodeCondition.DOWN), node("n1", used=4), node("n2"))
    again = placed(element(0, restarts=1, begin_s=site.clock.now + 121.0), "n0")
    # Its processes may still be ending there: another element takes its part.
    calls = site.see(again, other, spare, seconds=1, nodes=down)
    assert calls == [left(element(0)), begun(spare, "n2")]
    assert site.world.jobs["7"].blocked is None


def test_what_slurm_refuses_for_one_copy_is_not_tried_with_the_next() -> None:
    site = site_of(running(0, "n0"), element(1), element(2), used=(4, 0))
    site.backend.errors = [RefusedError("place: no")]
    assert named(site.cycle(55)) == [("Enter", "7_1"), ("Leave", "7_1")]
    assert len(site.world.jobs["7"].runs) == 1
    assert named(site.cycle(10))[0] == ("Enter", "7_1")


def test_elements_over_the_throttle_of_their_array_are_tried_once_a_minute() -> None:
    site = site_of(used=(4, 0))
    tried: list[str] = []
    pinned: set[str] = set()
    for _ in range(130):
        others = [
            replace(placed(each, "n1"), reason="JobArrayTaskLimit") if each.id in pinned else each
            for each in (element(1), element(2))
        ]
        for change in site.see(running(0, "n0"), *others, seconds=1):
            if isinstance(change, Enter):
                tried.append(change.job)
                pinned.add(change.job)
            else:
                pinned.remove(change.job)
    assert set(tried) == {"7_1"}
    assert 2 <= len(tried) <= 3


def test_a_plan_is_void_where_a_new_node_moves_the_places_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, last = node("n0", used=4), node("n2", used=4)
    elements = running(0, "n0"), running(1, "n2"), element(2)
    site = Site(*elements, nodes=(first, last), policy="hadare", settings=SETTINGS)
    site.cycle(1)
    site.show(*elements, nodes=(first, node("n1"), last))
    site.clock.now += 1
    with monkeypatch.context() as patch:
        patch.setattr(type(make_policy("hadare")), "plan", lambda *_: 1 / 0)
        assert site.daemon.cycle().violations
    assert site.backend.calls == []
    assert places(site.cycle(11)).keys() == {"7_2"}


@pytest.mark.parametrize("planned", [False, True], ids=["at first", "though the plan is older"])
def test_a_job_whose_first_element_is_held_waits(planned: bool) -> None:
    held = element(0, held=True, reason="JobHeldUser")
    others = element(1), element(2)
    site = site_of(element(0) if planned else held, *others, used=(0, 0))
    assert bool(site.cycle(1)) is planned
    assert site.see(held, *others, seconds=3) == []
    assert isinstance(site.daemon.plan.entries["7"], Placed) is planned
    assert site.blocked("7").code is ReasonCode.HELD


def test_jobs_without_copies_get_one_whole_node_or_stay_as_they_are() -> None:
    plain = 'hetsched/2 {{"nonce":"p{0}","gpu-set":"{1}"}}'
    whole = replace(WAITING, id="1", mark=plain.format(1, 4), gpus=4)
    small = replace(WAITING, id="2", mark=plain.format(2, 2), gpus=2)
    began = runs_on(replace(small, id="3", mark=plain.format(3, 2)), "n0", since_s=990.0, gpus=2)
    site = site_of(whole, small, began, used=(2, 0, 0))
    assert named(site.cycle(1)) == [("Enter", "1")]
    stays, waits = (site.daemon.plan.entries[job] for job in ("3", "2"))
    assert isinstance(stays, Placed)
    assert [str(each.configuration) for each in stays.placements] == ["n0:2"]
    assert isinstance(waits, Waiting)
    assert waits.reason.code is ReasonCode.NEVER_FITS
    assert "has 2 GPUs, and it gets all GPUs of a node" in waits.reason.detail


def test_who_waits_among_jobs_of_copies_is_told_why_and_when() -> None:
    several = [element(at, array=array) for array in ("8", "9") for at in range(3)]
    first = running(0, "n0"), running(1, "n1"), element(2)
    site = site_of(*first, *several, used=(4, 4), now=1010.0)
    site.cycle(2)
    snapshot, plan, policy = site.daemon.snapshot(), site.daemon.plan, make_policy("hadare")
    assert snapshot is not None
    waiting = next(job for job, each in plan.entries.items() if isinstance(each, Waiting))
    assert [each.code for each in why(policy, snapshot, plan, waiting).reasons]
    assert str(why(policy, snapshot, plan, "7").holds) == "n0:4+n1:4"
    size = {"7": 1e6, "8": 1e5, "9": 1e5}
    starts = first_starts(snapshot, plan, policy, size, [waiting])
    assert starts is not None
    assert starts[waiting] > site.clock.now


def test_in_shadow_nothing_is_done() -> None:
    site = site_of(element(0), element(1), element(2), used=(0, 0), mode=DaemonMode.SHADOW)
    assert site.cycle() == []
    assert len(places(site.report.changes)) == 2


def test_no_node_is_planned_for_an_element_that_may_not_start() -> None:
    held = [element(at, held=True, reason="JobHeldUser") for at in (1, 2)]
    other = [element(at, array="8") for at in range(3)]
    site = site_of(running(0, "n0"), *held, *other, used=(4, 0, 0, 0))
    assert places(site.cycle(1)).keys() == {"8_0", "8_1", "8_2"}
    assert site.world.jobs["7"].job.copies == 1
    # Let go of, they have their part from the next plan on.
    site.see(running(0, "n0"), element(1), element(2), *other, seconds=1)
    assert site.world.jobs["7"].job.copies == 3


def test_while_a_limit_keeps_one_back_a_job_is_to_have_what_runs() -> None:
    limit = replace(placed(element(1), "n1"), reason="AssocGrpGRES")
    other = [element(at, array="8", user="bob", account="other", qos="other") for at in range(3)]
    site = site_of(running(0, "n0"), limit, element(2), *other, used=(4, 0, 0))
    calls = site.cycle(1)
    assert places(calls).keys() == {"8_0", "8_1"}
    assert left(element(1)) in calls
    for seconds, copies in ((0, 1), (58, 1), (3, 3)):
        site.see(running(0, "n0"), element(1), element(2), *other, seconds=seconds)
        assert site.world.jobs["7"].job.copies == copies


def test_how_far_a_job_is_adds_up_over_the_copies_that_ran() -> None:
    site, text = site_of(used=(4, 4, 4)), mark("c7", size=1e8)
    waits = [element(at, mark=text) for at in range(3)]
    first, second = running(0, "n0", mark=text), running(1, "n1", mark=text)
    site.see(first, *waits[1:], seconds=1)

    def tells(run: int, samples: float) -> None:
        """Have the job say how far it is."""
        told = JobProgress("c7", "7", run, site.clock.now, samples, 10.0)
        site.world.heard([told], site.clock.now)

    def after(seconds: float, *now: SlurmJob) -> float:
        """Return the samples done once these have been there for so long."""
        site.see(*now, seconds=1)
        site.clock.now += seconds
        site.cycle(1)
        return site.world.managed["7"].samples

    tells(0, 1000.0)
    assert after(8.0, first, *waits[1:]) == pytest.approx(1000 + 10 * 10)
    # Element 0 is stopped, and another copy runs at the speed that is known of its node.
    alone = after(99.0, waits[0], second, waits[2])
    (run,) = site.world.jobs["7"].runs
    assert run.speed > 0
    assert alone == pytest.approx(1100 + 10 + run.speed * 100)
    both = after(0.0, replace(first, restarts=1), second, waits[2])
    speeds = [each.speed for each in site.world.jobs["7"].runs]
    assert both == pytest.approx(alone + run.speed + sum(speeds))
    stopped = after(3000.0, *waits)
    assert stopped == pytest.approx(both + sum(speeds))
    assert site.world.jobs["7"].samples_at(site.clock.now) == pytest.approx(stopped)
    # What the job says holds, and it is never further than its end.
    tells(1, 5000.0)
    assert site.world.managed["7"].samples == 5000
    assert after(1e7, waits[0], second, waits[2]) == 1e8
