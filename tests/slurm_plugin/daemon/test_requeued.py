"""Jobs that Slurm has queued again, lost, or whose ids it hands out again, on a fake Slurm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.store import IN_MEMORY, Mode, Store
from hetsched_core.types import NodeCondition
from slurm_plugin.backend import Hold, JobState, Release, SlurmJob, SlurmNode
from slurm_plugin.daemon.jobs.requeue_delays import HURRIED_S
from tests.slurm_plugin.daemon.fake_slurm import (
    RIGID,
    WAITING,
    Site,
    entry,
    left,
    node,
    placed,
    places,
    running,
)

TWO = (node("n0"), node("n1"))
AGAIN = replace(WAITING, mark=WAITING.mark.replace("a1", "b2"))
"""Another job that has the same id."""


def launch_failed(job: SlurmJob, on: str) -> SlurmJob:
    """A job that Slurm holds since it could not be launched on a node."""
    failed = placed(replace(job, held=True, begin_s=1060.0, restarts=1), on)
    return replace(failed, reason="launch failed requeued held")


def test_a_job_that_slurm_holds_since_no_launch_succeeded_gives_its_place_back() -> None:
    site = Site(running(WAITING, "n0"))
    site.cycle()
    failed = launch_failed(WAITING, "n0")
    assert site.see(failed) == [left(WAITING)]
    site.clock.now += 5
    assert site.see(failed) == [left(WAITING), Release("1")]
    # One without GPUs has left already.
    gone = replace(failed, gpus=0, mark="", reservation="", pinned=())
    assert site.see(gone) == [Release("1")]
    # Who holds a job oneself keeps it held.
    for reason in ("JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue"):
        assert site.see(replace(WAITING, held=True, restarts=1, reason=reason)) == []


def test_a_job_that_slurm_holds_since_its_reservation_is_gone_is_let_go() -> None:
    site = Site(placed(WAITING, "n0"))
    site.cycle()
    gone = replace(WAITING, held=True, reason="Reservation (null) is invalid")
    assert site.see(gone) == [Release("1")]
    # What was never placed was in a reservation of its user's own, whose it is to mend.
    other = replace(gone, id="2", mark=AGAIN.mark)
    assert site.see(other) == []


def test_a_job_whose_reservation_goes_as_it_is_placed_is_let_go_in_its_own_shape() -> None:
    site = Site(WAITING)
    assert places(site.cycle()) == {"1": ("n0",)}
    gone = replace(WAITING, held=True, reason="Reservation (null) is invalid", pinned=("n0",))
    assert site.see(gone) == [left(WAITING), Release("1")]


def test_a_daemon_lets_go_what_an_earlier_one_had_placed() -> None:
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        Site(WAITING, store=store).cycle()
        gone = replace(WAITING, held=True, reason="Reservation (null) is invalid", pinned=("n0",))
        assert Site(gone, store=store).cycle() == [left(WAITING), Release("1")]


def test_a_job_that_its_user_holds_stays_held_when_its_reservation_is_gone() -> None:
    held = replace(placed(WAITING, "n0"), held=True, reason="JobHeldUser")
    site = Site(held)
    site.cycle()
    gone = replace(held, reason="Reservation (null) is invalid", reservation="", pinned=())
    assert Release("1") not in site.see(gone)


def drained_for(reason: str) -> SlurmNode:
    return replace(TWO[0], condition=NodeCondition.DRAINED, reason=reason)


def test_a_job_that_a_node_does_not_take_is_let_go_for_the_others() -> None:
    site = Site(running(WAITING, "n0"), nodes=TWO)
    site.cycle()
    nodes = drained_for("Duplicate jobid"), TWO[1]
    failed = launch_failed(WAITING, "n0")
    assert site.see(failed, nodes=nodes) == [left(WAITING)]
    gone = replace(failed, reservation="", pinned=())
    assert site.see(gone, seconds=5) == [Release("1")]


@pytest.mark.parametrize("ends", [False, True])
def test_a_job_whose_prolog_fails_costs_no_other_node(ends: bool) -> None:
    site = Site(running(WAITING, "n0"), nodes=TWO)
    site.cycle()
    failed = launch_failed(WAITING, "n0")
    if ends:
        # Its epilog may take a while.
        over = replace(failed, state=JobState.COMPLETING, nodes=("n0",))
        assert Release("1") not in site.see(over, seconds=6)
        assert Release("1") not in site.see(failed)
    else:
        assert site.see(failed) == [left(WAITING)]
    # Slurm drains the node a moment later, when the job has left it.
    gone = replace(failed, reservation="", pinned=())
    assert site.see(gone, nodes=(drained_for("Prolog error"), TWO[1])) == []
    # Its node may be there again; only a release lets it go.
    assert site.see(gone, nodes=TWO, seconds=90) == []
    freed = replace(gone, held=False, begin_s=None, reason="")
    assert places(site.see(freed, seconds=90)).keys() == {"1"}


def test_where_launches_fail_no_more_jobs_of_that_user_go_and_after_two_users_nobody_s() -> None:
    site, numbers = Site(WAITING, nodes=TWO), iter(range(1, 99))
    site.cycle()

    def of(user: str) -> SlurmJob:
        number = str(next(numbers))
        mark = WAITING.mark.replace("a1", f"m{number}")
        return replace(WAITING, id=number, mark=mark, user=user)

    def goes_to(failed: str, name: str, user: str) -> set[str]:
        site.see(launch_failed(of(failed), name))
        # Jobs are placed on what was idle longest, so more than one is needed to see where.
        there = places(site.see(*(of(user) for _ in range(3))))
        return {name for names in there.values() for name in names}

    assert goes_to("alice", "n0", "alice") == {"n1"}
    site.nodes = (node("n0"), node("n1", used=4))
    assert goes_to("alice", "n0", "bob") == {"n0"}
    assert goes_to("carol", "n0", "bob") == set()
    assert "could not launch jobs of 2 users" in site.world.odd["node n0"]
    assert site.world.nodes["n0"].word == "left out"
    site.clock.now += 301
    assert goes_to("carol", "n0", "bob") == {"n0"}
    # Where it is so on many nodes, it is for the jobs.
    site.nodes = TWO
    for name in ("n0", "n1"):
        goes_to("dave", name, "bob")
    assert goes_to("erin", "n0", "bob") == {"n1"}
    assert goes_to("erin", "n1", "bob") != set()
    assert not site.world.odd


@pytest.mark.parametrize("how", ["nothing", "slurmd", "resume"])
def test_a_node_that_was_mended_is_tried_again_at_once(how: str) -> None:
    site = Site(launch_failed(WAITING, "n0"))
    site.cycle()
    site.clock.now += 10
    nodes = (node("n0"),)
    if how == "slurmd":
        nodes = (replace(nodes[0], up_since_s=site.clock.now - 1),)
    elif how == "resume":
        site.see(nodes=(node("n0", condition=NodeCondition.DRAINED),))
        site.clock.now += 1
    cpu_job = replace(RIGID, id="8", gpus=0, cpus=1)
    starts = places(site.see(replace(WAITING, id="7"), cpu_job, nodes=nodes))
    assert starts.keys() == (set() if how == "nothing" else {"7", "8"})
    told = "closed to it: they are" if how == "nothing" else "in Slurm's own order"
    assert told in site.world.intake.aside["8"]


def test_one_that_fails_at_each_start_waits_as_slurm_lets_it_from_the_second_time_on() -> None:
    site = Site(running(WAITING, "n0", since_s=999.0), nodes=TWO)
    site.cycle()
    for restarts in (1, 2, 3):
        begin_s = site.clock.now + 16.0
        failed = replace(WAITING, restarts=restarts, begin_s=begin_s)
        starts = places(site.see(failed, nodes=TWO))
        assert starts.keys() == ({"1"} if restarts == 1 else set())
        if not starts:
            assert site.world.intake.later.keys() == {"1"}
            assert "1" in places(site.see(failed, nodes=TWO, seconds=16))
        site.see(running(failed, "n0", since_s=site.clock.now), nodes=TWO, seconds=2)


@pytest.mark.parametrize(("delay_s", "goes"), [(HURRIED_S, True), (HURRIED_S + 1.0, False)])
def test_a_begin_that_is_later_than_slurm_s_own_delay_is_its_user_s_and_is_kept(
    delay_s: float, goes: bool
) -> None:
    site = Site(running(WAITING, "n0", since_s=999.0), nodes=TWO)
    site.cycle()
    failed = replace(WAITING, restarts=1, begin_s=site.clock.now + delay_s)
    assert ("1" in places(site.see(failed))) == goes
    assert ("1" in site.world.intake.later) != goes


def test_one_that_was_placed_while_the_clock_was_ahead_is_due_when_it_is_set_back() -> None:
    site = Site(replace(WAITING, restarts=1), nodes=TWO)
    assert places(site.cycle()) == {"1": ("n0",)}
    # Slurm's command takes the time from the same machine.
    late = placed(replace(WAITING, restarts=1, begin_s=site.clock.now + 1.0), "n0")
    site.clock.now -= 600.0
    assert places(site.see(late, nodes=TWO)) == {"1": ("n0",)}
    assert site.world.intake.later.keys() == set()
    # Any other time is its user's word.
    site.see(replace(late, begin_s=site.clock.now + 500.0), nodes=TWO)
    assert site.world.intake.later.keys() == {"1"}


def test_a_job_whose_node_went_down_is_placed_again_only_when_its_processes_must_have_ended() -> (
    None
):
    site = Site(running(WAITING, "n0", since_s=990.0), nodes=(node("n0", used=1), node("n1")))
    site.cycle()
    requeued = placed(replace(WAITING, restarts=1, begin_s=1121.0), "n0")
    down = (node("n0", condition=NodeCondition.DOWN), node("n1"))
    assert site.see(requeued, nodes=down) == [left(WAITING)]
    # The node is back before that.
    assert site.see(replace(WAITING, restarts=1), seconds=29, nodes=TWO) == []
    assert "its node went down" in str(site.blocked())
    assert places(site.cycle(2)) == {"1": ("n1",)}


def test_on_the_node_that_went_down_itself_it_is_placed_only_a_minute_later() -> None:
    site = Site(running(WAITING, "n0", since_s=990.0))
    site.cycle()
    requeued = replace(WAITING, restarts=1)
    site.see(requeued, nodes=(node("n0", condition=NodeCondition.DOWN),))
    assert places(site.see(requeued, nodes=(node("n0"),), seconds=89)) == {}
    assert "its node went down" in str(site.blocked())
    assert places(site.cycle(2)) == {"1": ("n0",)}


def test_a_run_on_a_node_that_slurm_does_not_know_any_more_stops_nobody() -> None:
    runs = running(WAITING, "n0", since_s=950.0)
    for policy in ("fifo", "hops"):
        site = Site(runs, nodes=(node("n0", used=1), node("n1")), policy=policy)
        site.cycle()
        calls = site.see(runs, replace(AGAIN, id="2"), seconds=1, nodes=(node("n1"),))
        # A policy whose kernels are compiled first thinks for so long that the hold is renewed.
        assert [call.job for call in calls if not isinstance(call, Hold)] == ["2"]
        assert "1" not in site.world.jobs


# -- ids -------------------------------------------------------------------------------------------


def test_an_id_that_slurm_hands_out_again_is_another_job_and_the_lost_one_is_told_once() -> None:
    site = Site(WAITING, nodes=(node("n0", used=4),))
    site.cycle()
    again = replace(AGAIN, submit_s=1001.0)
    site.see(again, seconds=1)
    assert [job.mark for job in site.report.lost] == [WAITING.mark]
    assert site.world.managed["1"].request.mark.nonce == "b2"
    assert site.world.jobs["1"].job.submit_s == pytest.approx(1001.0, abs=1.0)
    # One that has ended is not lost, nor one whose comment an admin has changed in other ways.
    changed = replace(again, mark=again.mark.replace('"1,2"', '"1"'))
    for jobs in ((again,), (changed,), (replace(again, state=JobState.ENDED),), ()):
        site.see(*jobs)
        assert site.report.lost == ()


@pytest.mark.parametrize("policy", ["fifo", "gavel", "hops"])
def test_a_job_that_takes_the_id_of_another_is_not_placed_as_that_was_to_be(policy: str) -> None:
    other = replace(AGAIN, id="2")
    site = Site(WAITING, other, policy=policy)
    site.cycle()
    again = replace(AGAIN, mark='hetsched/2 {"nonce":"c3","gpu-set":"4"}', gpus=4, submit_s=999.0)
    calls = site.see(again, replace(other, submit_s=1000.0), seconds=1)
    assert {call for call in calls if call.job == "1"} <= {entry(again, "n0", gpus=4)}
    assert places(calls) != {}


def test_an_element_that_is_cancelled_or_waits_behind_others_again_is_not_lost() -> None:
    array = replace(RIGID, id="7", array="7", unsplit=(0, 1, 2), gpus=4)
    site = Site(array)
    site.cycle()
    # Slurm shows nothing of one that was cancelled.
    site.see(replace(array, unsplit=(0, 2)))
    assert (site.report.lost, set(site.world.jobs)) == ((), {"7_0", "7_2"})
    # One that ran is lost, and so is the whole array.
    rest = replace(array, unsplit=(1, 2))
    site.see(running(replace(array, id="7_0", unsplit=()), "n0", gpus=4), rest)
    for jobs, lost in (((rest,), {"7_0"}), ((), {"7_1", "7_2"})):
        site.see(*jobs)
        assert {job.id for job in site.report.lost} == lost
