"""Which jobs are placed, where, and what becomes of a placement on a fake Slurm."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from hetsched_core.types import Phase, Placed, Reason, ReasonCode
from slurm_plugin.backend import (
    Enter,
    HostRequest,
    JobState,
    Leave,
    RefusedError,
    SlurmJob,
    Terms,
)
from slurm_plugin.daemon.jobs.slurm_order import Line
from slurm_plugin.daemon.nodes.allowed_nodes import Where
from slurm_plugin.daemon.settings import JobSelection
from tests.slurm_plugin.daemon.fake_slurm import (
    HOLD,
    RIGID,
    SETTINGS,
    WAITING,
    Site,
    element,
    entry,
    left,
    named,
    node,
    placed,
    places,
    running,
)

OTHER = replace(WAITING, id="2", mark=WAITING.mark.replace("a1", "b2"))
THREE = (node("n0"), node("n1"), node("n2"))
WHOLE = Enter("5", HOLD, ("n0",), Leave("5"))
"""How a job of one GPU enters."""


def test_a_job_that_accepts_several_counts_is_placed_in_a_shape_and_one_without_as_it_is() -> None:
    assert Site(WAITING).cycle() == [entry(WAITING, "n0")]
    wide = replace(RIGID, gpus=4, resources=replace(RIGID.resources, nodes=(2, 0)))
    site = Site(wide, nodes=(node("n0", used=3), *THREE[1:]))
    assert site.cycle() == [Enter("5", HOLD, ("n1", "n2"), Leave("5"))]


def test_a_job_of_several_counts_that_asks_for_one_node_is_placed_on_no_more() -> None:
    four = replace(WAITING, mark=WAITING.mark.replace("1,2", "4"))
    for asked, places_on in (((1, 1), {}), ((2, 2), {"1": ("n0", "n1")})):
        job = replace(four, resources=replace(four.resources, nodes=asked))
        site = Site(job, nodes=(node("n0", used=2), node("n1", used=2)))
        assert places(site.cycle()) == places_on


def test_nothing_is_placed_where_a_job_takes_long_to_end() -> None:
    ends = replace(running(replace(RIGID, id="8"), "n0"), state=JobState.COMPLETING)
    site = Site(ends, nodes=(node("n0", used=1), node("n1", used=4)))
    site.cycle(3)
    assert places(site.see(ends, RIGID)) == {"5": ("n0",)}
    site.see(ends, seconds=2)
    two = node("n0", used=1), node("n1")
    assert places(site.see(ends, replace(RIGID, id="6"), nodes=two)) == {"6": ("n1",)}
    # Jobs without GPUs have half a minute to start, and go elsewhere from the beginning.
    two = two[0], replace(two[1], cpus_used=16)
    site = Site(ends, replace(RIGID, id="7", gpus=0), nodes=two)
    assert places(site.cycle()) == {"7": ("n1",)}


def test_a_job_that_shares_no_node_is_placed_on_nodes_of_which_nothing_is_in_use() -> None:
    alone = replace(RIGID, exclusive="node")
    nodes = (node("n0", used=1), replace(node("n1"), cpus_used=1), node("n2"))
    site = Site(alone, replace(RIGID, id="6"), nodes=nodes)
    assert places(site.cycle()) == {"5": ("n2",), "6": ("n0",)}
    # Slurm shows all of the node's GPUs as its own.
    site.see(running(alone, "n2", gpus=4), nodes=(*nodes[:2], node("n2", used=4)))
    assert site.see(alone, nodes=nodes[:2]) == []
    # With a requirement set it is placed on all of a node, too.
    (call,) = Site(replace(WAITING, exclusive="node"), nodes=nodes).cycle()
    assert isinstance(call, Enter)
    assert call.resources is not None
    assert (call.nodes, call.resources.per_node) == (("n2",), "gres/gpu:v100:4")
    # One that has begun elsewhere keeps a node of another size.
    large = replace(node("n3", used=8), gpus=(("v100", 8),))
    site = Site(running(alone, "n3", gpus=8), nodes=(*nodes[:2], large))
    site.cycle()
    assert isinstance(site.daemon.plan.entries["5"], Placed)


def test_a_job_without_gpus_that_shares_no_node_is_placed_on_one_that_is_empty() -> None:
    alone = replace(RIGID, gpus=0, gpu_types=(), exclusive="node", cpus=1, memory_mb=60_000)
    site = Site(alone, nodes=(node("n0", used=1),))
    assert site.cycle() == []
    both = (node("n0", used=1), node("n1"))
    assert site.see(alone, nodes=both)[-1] == Enter("5", HOLD, ("n1",), Leave("5"))
    runs, other = running(alone, "n1", gpus=4), replace(RIGID, id="6")
    assert places(site.see(runs, other, nodes=(node("n0", 1), node("n1", 4)))) == {"6": ("n0",)}


def test_in_a_pilot_jobs_without_options_are_left_alone() -> None:
    site = Site(WAITING, RIGID, settings=replace(SETTINGS, jobs=JobSelection.MARKED))
    assert site.cycle() == [entry(WAITING, "n0")]


def test_options_are_read_from_the_script_where_there_is_no_mark() -> None:
    plain = replace(WAITING, mark="")
    site = Site(plain)
    site.backend.scripts = {"1": "#!/bin/bash\n#HETSCHED --gpu-set=2\n"}
    assert site.cycle() == [entry(plain, "n0", gpus=2)]


def test_the_next_elements_of_an_array_are_placed_one_by_one_within_its_throttle() -> None:
    array = replace(RIGID, id="7", array="7", unsplit=tuple(range(1000)), throttle=3)
    runs = running(element(1000, of=RIGID), "n0")
    assert list(places(Site(array, runs, nodes=(node("n0", used=1),)).cycle())) == ["7_0", "7_1"]


def test_a_job_that_was_placed_is_left_alone_until_it_starts() -> None:
    site = Site(WAITING)
    site.cycle()
    assert site.see(placed(WAITING, "n0"), seconds=20) == []
    runs = running(WAITING, "n0", since_s=site.clock.now)
    assert site.see(runs, nodes=(node("n0", used=1),)) == []


def test_a_job_that_does_not_start_in_time_gives_its_place_back_and_is_placed_again() -> None:
    site = Site(WAITING)
    site.cycle()
    site.show(replace(placed(WAITING, "n0"), reason="Resources"))
    took_s, calls = site.until_called(100)
    assert calls == [left(WAITING)]
    assert took_s == pytest.approx(SETTINGS.start_timeout_s, abs=2)
    said = "it has not started within 30 s, Slurm says Resources"
    assert site.blocked() == Reason(ReasonCode.NOT_STARTED, detail=said)
    calls = site.see(WAITING, OTHER, nodes=(node("n0", used=3),))
    assert calls == [entry(OTHER, "n0")]
    site.show(WAITING, nodes=(node("n0"),))
    took_s, calls = site.until_called(100)
    assert calls == [entry(WAITING, "n0")]
    assert took_s == pytest.approx(60, abs=3)


def test_a_job_that_slurm_holds_for_where_it_was_placed_gives_its_place_to_others() -> None:
    site = Site(WAITING)
    site.cycle()
    other = replace(OTHER, user="bob", account="other", qos="other")
    # Slurm has set its priority to 0: no switch of its topology joins the nodes, say.
    seen = replace(placed(WAITING, "n0"), reason="BadConstraints", held=True)
    site.show(seen, other, nodes=(node("n0", used=3),))
    _, calls = site.until_called(100)
    assert {left(WAITING), entry(other, "n0")} <= {*calls, *site.cycle()}
    for _ in range(54):
        assert site.see(WAITING, seconds=1) == []
        assert site.blocked() == Reason(ReasonCode.NOT_STARTED, detail="BadConstraints")


@pytest.mark.parametrize(
    ("said", "within_s"),
    [("MaxGRESPerAccount", 1), ("Licenses", 1), ("ReqNodeNotAvail", 7), ("QuuxLimit", 7)],
)
def test_a_place_that_slurm_does_not_start_a_job_on_goes_to_others_and_is_not_asked_for_at_once(
    said: str, within_s: float
) -> None:
    site = Site(WAITING)
    site.cycle()
    other = replace(OTHER, user="bob", account="other", qos="other")
    site.show(replace(placed(WAITING, "n0"), reason=said), other, nodes=(node("n0", used=3),))
    took_s, calls = site.until_called(100)
    assert took_s <= within_s
    assert {left(WAITING), entry(other, "n0")} <= {*calls, *site.cycle()}
    # Slurm's word of a job that has not been placed is another one, and not that the limit is gone.
    for _ in range(54):
        assert site.see(WAITING, seconds=1) == []
        assert site.blocked().detail == said


def test_of_a_kind_that_slurm_does_not_start_one_at_a_time_is_tried_until_one_starts() -> None:
    four = tuple(node(f"n{at}", used=3) for at in range(4))
    like = [replace(RIGID, id=f"{number}", submit_s=1.0) for number in range(1, 13)]
    other = replace(RIGID, id="20", user="bob", submit_s=9.0)
    site = Site(*like, other, nodes=four)

    def cycle() -> set[str]:
        """One in which Slurm starts none of them; return which are placed."""
        for call in site.cycle(1):
            if isinstance(call, Enter):
                there[call.job] = call.nodes[0]
            elif isinstance(call, Leave):
                there.pop(call.job, None)
        shown = [
            replace(placed(job, there[job.id]), reason="BadConstraints") if job.id in there else job
            for job in like
        ]
        site.show(*shown, *([] if "20" in there else [other]))
        return set(there) - {"20"}

    there: dict[str, str] = {}
    assert len(cycle()) == 4
    tried = [len(cycle()) for _ in range(400)]
    # The first four are given up together; another is tried after two minutes, then after four.
    assert max(tried[10:]) == 1
    assert 2 <= sum(now > before for before, now in pairwise(tried)) <= 3
    assert "20" in there
    waits = [site.world.jobs[job.id].blocked for job in like]
    assert sum("one at a time is tried" in str(each) for each in waits) >= 7


def test_of_a_kind_that_slurm_starts_on_some_nodes_alone_all_go_there_at_once() -> None:
    like = [replace(RIGID, id=f"{number}", submit_s=1.0) for number in range(1, 9)]
    nodes = tuple(node(f"n{at}") for at in range(4))
    site, there, tries = Site(*like, nodes=nodes), dict[str, str](), 0
    began_s: dict[str, float] = {}

    def shown(job: SlurmJob) -> SlurmJob:
        where = there.get(job.id, "")
        if where in ("n0", "n1"):
            return replace(placed(job, where), reason="NodeDown")
        if not where:
            return job
        return running(job, where, since_s=began_s.setdefault(job.id, site.clock.now))

    while len([name for name in there.values() if name in ("n2", "n3")]) < len(like):
        # Two of them have failed on both, and wait for a minute.
        assert site.clock.now < 1100.0
        for call in site.cycle(1):
            if isinstance(call, Enter):
                (there[call.job],) = call.nodes
                tries += there[call.job] in ("n0", "n1")
            elif isinstance(call, Leave):
                there.pop(call.job, None)
        used = Counter(there.values())
        nodes = tuple(node(f"n{at}", used[f"n{at}"] * (at > 1)) for at in range(4))
        site.show(*map(shown, like), nodes=nodes)
    assert tries <= len(like) + 2


def test_of_a_kind_of_which_some_start_and_some_do_not_all_go_where_it_starts_at_once() -> None:
    """As where one of the partitions of a job refuses it, with nodes of its own."""
    like = [replace(RIGID, id=f"{number}", submit_s=1.0) for number in range(8)]
    site = Site(*like, nodes=tuple(node(f"n{at}", used=2) for at in range(4)))
    there, since_s = places(site.cycle()), site.clock.now
    assert sorted(there.values()) == sorted(2 * [(f"n{at}",) for at in range(4)])
    good = {("n0",), ("n1",)}

    def show(jobs: list[SlurmJob]) -> None:
        used = Counter(name for job in jobs for name in there.get(job.id, ()))
        nodes = (node(f"n{at}", 2 + used[f"n{at}"] * (at < 2)) for at in range(4))
        shown = (
            running(job, *there[job.id], since_s=since_s)
            if there.get(job.id, "") in good
            else replace(placed(job, *there[job.id]), reason="Reservation")
            if job.id in there
            else job
            for job in jobs
        )
        site.show(*shown, nodes=tuple(nodes))

    show(like)
    for _, job in named(site.until_called(40)[1]):
        del there[job]
    # Two of those that run have ended.
    ended = [job for job in like if there.get(job.id, "") in good][:2]
    show([job for job in like if job not in ended])
    placed_now: dict[str, tuple[str, ...]] = {}
    for _ in range(5):
        placed_now |= places(site.cycle())
    assert len(placed_now) == 2
    assert {*placed_now.values()} <= good


@pytest.mark.parametrize(("said", "within_s"), [("PartitionNodeLimit", 5), ("Quux", 65)])
def test_a_kind_that_has_failed_on_all_nodes_in_turn_is_not_shut_out_of_them(
    said: str, within_s: int
) -> None:
    """As where an operator closes a partition for a moment, twice, and one starts in between.

    What Slurm says of the partition is no matter of the nodes.
    """
    *first, between = [replace(RIGID, id=f"{number}", submit_s=1.0) for number in range(4)]
    like = [replace(between, id=f"{number}") for number in range(4, 8)]
    names = [f"n{at}" for at in range(4)]
    site = Site(*first, nodes=tuple(node(name, used=3) for name in names[:3]))
    there: dict[str, tuple[str, ...]] = {}

    def second(shown: list[SlurmJob], *, starts: bool, free: list[str]) -> None:
        """A second in which Slurm starts what is placed, or does not."""

        def seen(job: SlurmJob) -> SlurmJob:
            if job.id not in there:
                return job if starts or said == "Quux" else replace(job, reason=said)
            if starts:
                return running(job, *there[job.id], since_s=site.clock.now)
            return replace(placed(job, *there[job.id]), reason=said)

        used = Counter(name for job in shown for name in there.get(job.id, ()))
        nodes = (node(each, used=4 - (each in free) + used[each] * starts) for each in names)
        for call in site.see(*map(seen, shown), nodes=tuple(nodes), seconds=1):
            if isinstance(call, Enter):
                there[call.job] = call.nodes
            elif isinstance(call, Leave):
                del there[call.job]

    there |= places(site.cycle())
    for _ in range(35):
        second(first, starts=False, free=names[:3])
    second([between], starts=True, free=names[3:])
    second([between], starts=True, free=names[3:])
    assert site.world.jobs[between.id].runs
    for _ in range(35):
        second(like, starts=False, free=names)
    assert not there.keys() & {job.id for job in like}
    for _ in range(within_s):
        second(like, starts=True, free=names)
    assert len(there.keys() & {job.id for job in like}) == len(like)


def test_one_that_runs_since_before_others_failed_does_not_say_where_its_kind_starts() -> None:
    first, *like = [replace(RIGID, id=f"{number}", submit_s=1.0) for number in range(1, 7)]
    site = Site(first, nodes=(node("n9", used=3),))
    site.cycle()
    runs, nodes = running(first, "n9"), tuple(node(f"n{at}", used=3) for at in range(3))
    there = places(site.see(runs, *like, nodes=(*nodes, node("n9", used=4)), seconds=20))
    failed = [replace(placed(job, *there[job.id]), reason="Quux") for job in like[:3]]
    site.show(runs, *failed, *like[3:])
    assert places(site.until_called(10)[1]).keys() == {"5"}
    site.see(runs, *like, seconds=2)
    assert "one at a time is tried" in str(site.blocked("6"))


def test_of_those_on_one_node_the_first_is_given_up_and_not_those_that_wait_behind_it() -> None:
    odd = replace(RIGID, id="1", user="eve", priority=9)
    good = [replace(RIGID, id=f"{number}", submit_s=0.5, priority=1) for number in (2, 3)]
    site = Site(odd, *good)
    assert places(site.cycle()).keys() == {"1", "2", "3"}
    waits = [replace(placed(job, "n0"), reason="ReqNodeNotAvail") for job in good]
    stuck = replace(placed(odd, "n0"), reason="Resources")
    assert named(site.see(stuck, *waits, seconds=8)) == [("Leave", "1")]
    # They have time from when it has gone.
    assert site.see(odd, *waits, seconds=3) == []
    assert [site.world.managed[job.id].kept_back.failures for job in good] == [0, 0]
    # One that is first itself has failed.
    assert {name for name, _ in named(site.see(odd, waits[0], seconds=4))} == {"Leave"}


def test_what_stands_first_is_of_the_highest_tier_and_then_of_the_highest_priority() -> None:
    jobs = [
        replace(placed(RIGID, "n0"), id=name, priority=priority, partitions=partitions)
        for name, priority, partitions in (
            ("low", 1, ("gpu",)),
            ("up", 9, ("gpu",)),
            ("vip", 2, ("gpu", "vip")),
        )
    ]
    ahead = [Line(jobs, {"gpu": 1, "vip": 5}).ahead_of(job) for job in jobs]
    assert ahead == ["vip", "vip", ""]
    assert [Line(jobs[:2]).ahead_of(job) for job in jobs[:2]] == ["up", ""]
    assert Line(jobs).ahead_of(replace(jobs[0], pinned=("n1",))) == ""


def test_nodes_that_are_up_come_before_those_that_sleep_and_who_wakes_one_is_placed() -> None:
    asleep = replace(node("n0"), asleep=True)
    site = Site(RIGID, nodes=(asleep, *THREE[1:]))
    assert places(site.cycle()) == {RIGID.id: ("n1",)}
    site = Site(RIGID, nodes=(asleep, node("n1", used=4)))
    assert places(site.cycle()) == {RIGID.id: ("n0",)}
    waking = replace(running(RIGID, "n0", since_s=site.clock.now), configuring=True)
    assert site.see(waking, nodes=(node("n0", used=1), node("n1", used=4)), seconds=60) == []
    view = site.world.jobs[RIGID.id]
    assert (view.phase(site.clock.now), view.first_start_s) == (Phase.PLACED, None)
    assert site.world.nodes["n0"].foreign_gpus == 0
    site.see(replace(waking, configuring=False, start_s=site.clock.now))
    assert site.world.jobs[RIGID.id].first_start_s == site.clock.now


def test_a_job_that_slurm_does_not_start_on_a_node_is_tried_on_others_at_once_but_once() -> None:
    site = Site(WAITING, nodes=THREE)

    def tried(until_s: float) -> list[str]:
        found: list[str] = []
        while site.clock.now < until_s:
            for call in site.cycle(1):
                found += call.nodes if isinstance(call, Enter) else ()
                shown = placed(WAITING, *found[-1:]) if isinstance(call, Enter) else WAITING
                site.show(replace(shown, reason="Reservation" if shown.entered else "None"))
        return found

    assert len(set(tried(1030.0))) == 2
    assert site.blocked().detail == "Reservation"
    assert tried(1065.0) == []
    assert len(tried(1110.0)) == 2


@pytest.mark.parametrize("said", ["QOSGrpGRES", "PartitionDown", "PartitionTimeLimit"])
def test_a_job_that_slurm_keeps_back_is_not_placed_before_slurm_says_otherwise(said: str) -> None:
    site = Site(replace(RIGID, reason=said))
    assert site.cycle() == []
    assert site.blocked("5").detail == said
    site.clock.now += 590
    assert site.cycle() == []
    assert site.see(RIGID) == [WHOLE]


def test_a_job_placed_as_its_partition_went_down_is_placed_as_soon_as_slurm_has_it_open() -> None:
    site = Site(RIGID)
    site.cycle()
    site.show(replace(placed(RIGID, "n0"), reason="PartitionDown"))
    assert site.until_called(10)[1] == [Leave("5")]
    assert site.see(replace(RIGID, reason="PartitionDown"), seconds=1) == []
    assert site.see(RIGID, seconds=1) == [WHOLE]


@pytest.mark.parametrize("said", ["PartitionNodeLimit", "PartitionTimeLimit"])
def test_a_job_placed_as_its_partition_allowed_less_is_placed_once_slurm_looks_at_its_nodes(
    said: str,
) -> None:
    site = Site(RIGID)
    site.cycle()
    site.show(replace(placed(RIGID, "n0"), reason=said))
    assert site.until_called(10)[1] == [Leave("5")]
    assert site.see(replace(RIGID, reason=said), seconds=1) == []
    open_again = replace(RIGID, reason="ReqNodeNotAvail, Reserved for maintenance")
    assert site.see(open_again, seconds=1) == [WHOLE]


@pytest.mark.parametrize(("said", "tried_s"), [("QOSGrpJobsLimit", 1.0), ("QOSGrpGRES", 601.0)])
def test_a_limit_is_tried_in_time_and_one_on_jobs_as_soon_as_one_of_its_kind_has_ended(
    said: str, tried_s: float
) -> None:
    limited = replace(RIGID, reason=said, qos="night")
    peer = replace(running(RIGID, "n0"), id="6", qos="night", user="bob")
    other = replace(peer, id="7", qos="day")
    for ends, s in (((), 601.0), ((peer,), tried_s)):
        site = Site(limited, peer, other, nodes=(node("n0", 2),))
        site.cycle()
        assert site.see(limited, peer, seconds=1, nodes=(node("n0", 1),)) == []
        calls = site.see(limited, *({peer} - {*ends}), seconds=1)
        assert s <= 1.0 or calls == []
        site.clock.now += s
        assert {call.job for call in (*calls, *site.cycle(), *site.cycle())} == {"5"}


@pytest.mark.parametrize(
    ("said", "peer", "lifts"),
    [
        ("QOSGrpCpuLimit", {"qos": "night", "cpus": 2}, True),
        ("QOSGrpCpuLimit", {"qos": "night", "cpus": 1}, False),
        ("QOSGrpCpuLimit", {"cpus": 2}, False),
        ("QOSMaxMemoryPerUser", {"user": "alice", "qos": "night", "memory_mb": 100}, False),
        ("AssocGrpNodeLimit", {"account": "a"}, True),
        ("QOSGrpGRES", {"qos": "night"}, True),
        ("QOSGrpCPURunMinutesLimit", {"qos": "night", "cpus": 9}, False),
        # A limit on each job by itself.
        ("QOSMaxCpuPerJobLimit", {"qos": "night", "cpus": 9}, False),
        ("QOSMaxGRESPerNode", {"qos": "night", "cpus": 9}, False),
    ],
)
def test_a_limit_that_a_placed_job_met_may_be_gone_with_a_job_that_took_as_much_of_it(
    said: str, peer: dict[str, Any], lifts: bool
) -> None:
    waits = replace(RIGID, qos="night", account="a", cpus=2, memory_mb=200)
    other = replace(running(RIGID, "n0"), id="6", user="bob", account="b", qos="day")
    other = replace(other, **peer)
    site = Site(waits, other, nodes=(node("n0", 1),))
    assert places(site.cycle()).keys() == {"5"}
    limited = replace(placed(waits, "n0"), reason=said)
    assert {type(call) for call in site.see(limited, other, seconds=3)} == {Leave}
    assert site.see(waits, other, seconds=3) == []
    assert places(site.see(waits, seconds=2, nodes=(node("n0"),))).keys() == (
        {"5"} if lifts else set()
    )


@pytest.mark.parametrize(
    ("jobs", "more"),
    [
        (JobSelection.ALL, {}),
        (JobSelection.MARKED, {}),
        (JobSelection.ALL, {"begin_s": 5000.0}),
        (JobSelection.ALL, {"reservation": ",hetsched"}),
        (JobSelection.MARKED, {"reservation": "other,hetsched-2"}),
    ],
    ids=["no room", "pilot", "later", "empty name", "two"],
)
def test_what_is_in_the_reservation_and_was_not_placed_there_leaves_it(
    jobs: JobSelection, more: dict[str, object]
) -> None:
    intruder = replace(placed(RIGID, "n0"), batch=False, **more)  # type: ignore[arg-type]
    site = Site(intruder, nodes=(node("n0", used=4),), settings=replace(SETTINGS, jobs=jobs))
    assert site.cycle() == [Leave("5")]


@pytest.mark.parametrize("policy", ["fifo", "gavel"])
def test_a_placement_that_slurm_refuses_is_tried_again_after_a_while(policy: str) -> None:
    site = Site(WAITING, policy=policy)
    no = "Requested node configuration is not available (2014)"
    site.backend.errors = [RefusedError(f"Enter(...): {no}")]
    assert named([*site.cycle(), *site.cycle(58)]) == [("Enter", "1"), ("Leave", "1")]
    assert str(site.blocked()).endswith(f"take none: {no}")
    assert "Enter" in dict(named(site.cycle(6)))


@pytest.mark.parametrize("policy", ["fifo", "gavel"])
def test_a_job_that_is_held_after_it_was_planned_is_not_placed(policy: str) -> None:
    site = Site(WAITING, policy=policy)
    assert list(places(site.cycle())) == ["1"]
    assert site.see(replace(WAITING, held=True, reason="JobHeldUser"), seconds=5) == []


def test_jobs_of_other_partitions_are_not_touched_and_bad_marks_say_nothing() -> None:
    other = replace(WAITING, id="2", partition="cpu", partitions=("cpu",))
    bad = replace(WAITING, id="3", mark="hetsched/2 nonsense")
    deep = replace(WAITING, id="4", mark="hetsched/2 " + "[" * 1010)
    site = Site(other, bad, deep)
    assert list(places(site.cycle())) == ["3", "4"]
    assert set(site.world.warnings) == {"3", "4"}


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
    site = Site(job, nodes=(node("n0", used=4),))
    site.cycle()
    site.see(replace(job, **now), nodes=(node("n0"),))  # type: ignore[arg-type]
    assert (site.report.lost, site.world.managed) == ((), {})
    assert list(places(site.see(job))) == ["5"]


def test_what_has_entered_and_wants_other_nodes_now_is_let_out() -> None:
    elsewhere = replace(placed(WAITING, "n0"), partition="cpu", partitions=("cpu",))
    site = Site(elsewhere)
    assert site.cycle() == [left(WAITING)]
    site.see(replace(elsewhere, reservation="", pinned=()))
    assert site.world.managed == {}


def test_nodes_of_partitions_that_are_not_managed_are_left_alone() -> None:
    other = replace(node("n0"), partitions=frozenset({"debug"}))
    own = replace(node("n1"), partitions=frozenset({"debug", "gpu"}))
    site = Site(WAITING, nodes=(other, own))
    assert ("n1",) in places(site.cycle()).values()
    assert set(site.world.nodes) == {"n1"}


@pytest.mark.parametrize("policy", ["sjf", "allox-jobs"])
def test_jobs_of_the_same_second_are_served_in_the_order_of_their_numbers(policy: str) -> None:
    jobs = [replace(OTHER, id=f"{k}", mark=OTHER.mark.replace("b2", f"x{k}")) for k in (11, 9, 100)]
    later = replace(WAITING, id="8", submit_s=WAITING.submit_s + 1)
    site = Site(*jobs, later, nodes=(node("n0", used=2),), policy=policy)
    assert list(places(site.cycle())) == ["9", "11"]


def test_a_job_whose_cpus_or_memory_are_not_free_is_not_placed() -> None:
    asks = replace(WAITING, asked=HostRequest(8, memory_mb_per_node=16000), cpus=8)
    first = replace(node("n0"), cpus_used=25)
    site = Site(asks, nodes=(first, replace(node("n1"), memory_used_mb=48001)))
    assert site.cycle() == []
    roomy = replace(node("n1"), cpus_used=24, memory_used_mb=48000)
    (change,) = site.see(asks, nodes=(first, roomy))
    assert isinstance(change, Enter)
    assert (change.nodes, change.terms.cpus, change.terms.memory_mb) == (("n1",), 8, 16000)
    assert change.otherwise.terms == Terms(10, 8, 16000, 8)


# -- where -----------------------------------------------------------------------------------------

NODES = tuple(
    replace(
        node(f"n{at}"),
        partitions=frozenset(partitions),
        features=frozenset(features),
        disk_mb=1000 * at,
        gres=(("fpga", at),) if at else (),
    )
    for at, (partitions, features) in enumerate(
        [({"gpu", "short"}, {"fast"}), ({"gpu", "short"}, {"old"}), ({"gpu"}, {"fast", "ib"})]
    )
)


@pytest.mark.parametrize(
    ("asks", "pinned", "found"),
    [
        ({}, (), None),
        ({"partitions": ("short",)}, (), {"n0", "n1"}),
        ({"partitions": ("short", "gpu")}, (), None),
        ({"partitions": ("short", "elsewhere")}, (), {"n0", "n1"}),
        ({"partitions": ("elsewhere",)}, (), set()),
        ({"constraint": "fast"}, (), {"n0", "n2"}),
        ({"constraint": "fast&ib"}, (), {"n2"}),
        ({"constraint": "[fast|old]"}, (), {"n0", "n2"}),
        ({"constraint": "nosuch"}, (), set()),
        ({"excluded": ("n1",)}, (), {"n0", "n2"}),
        ({"disk_mb": 1000}, (), {"n1", "n2"}),
        ({"disk_mb": 2001}, (), set()),
        ({"gres": (("fpga", 2),)}, (), {"n2"}),
        ({"gres": (("fpga", 1), ("nic", 1))}, (), set()),
        ({}, ("n1",), {"n1"}),
        ({"partitions": ("short",), "constraint": "fast", "excluded": ("n2",)}, (), {"n0"}),
    ],
)
def test_partitions_features_disks_and_names_say_where(
    asks: dict[str, object], pinned: tuple[str, ...], found: set[str] | None
) -> None:
    where, job = Where(NODES), replace(RIGID, **asks)  # type: ignore[arg-type]
    assert where.of(job, pinned) == found
    # Policies tell sets apart by identity.
    assert where.of(replace(job, id="6"), pinned) is where.of(job, pinned)
    site = Site(replace(job, pinned=pinned), nodes=NODES)
    chosen = places(site.cycle()).get("5", ())
    assert len(chosen) == (found != set())
    assert found is None or found.issuperset(chosen)


def test_other_partitions_and_features_of_nodes_are_another_matter() -> None:
    where = Where(NODES)
    assert not where.differs(replace(each, cpus_used=3) for each in NODES)
    assert where.differs(NODES[:2])
    assert where.differs((replace(NODES[0], features=frozenset()), *NODES[1:]))
    assert where.differs((replace(NODES[0], disk_mb=7), *NODES[1:]))
    assert where.differs((replace(NODES[0], gres=(("nic", 1),)), *NODES[1:]))
    assert where.differs((replace(NODES[0], partitions=frozenset({"gpu"})), *NODES[1:]))


def test_a_placed_job_that_is_put_off_gives_its_place_back_and_is_placed_when_it_is_due() -> None:
    site = Site(WAITING)
    (entered,) = site.cycle()
    put_off = replace(placed(WAITING, "n0"), begin_s=site.clock.now + 60.0)
    other = replace(WAITING, id="2", mark=WAITING.mark.replace('"1,2"', '"4"').replace("a1", "b2"))
    calls = site.see(put_off, other)
    assert [type(call) for call in calls] == [Leave, Enter]
    assert (list(site.world.intake.later), list(site.world.managed)) == (["1"], ["2"])
    assert site.see(replace(WAITING, begin_s=put_off.begin_s), seconds=55) == []
    assert site.until_called(10)[1] == [entered]


def test_a_clock_that_is_set_back_puts_no_job_off() -> None:
    site = Site(WAITING, nodes=(node("n0", used=4),))
    site.cycle()
    site.clock.now -= 500.0
    site.cycle()
    assert list(site.world.managed) == ["1"]
