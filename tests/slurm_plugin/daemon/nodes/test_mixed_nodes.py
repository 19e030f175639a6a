"""Nodes with several GPU types on a fake Slurm: for policies each type is a node of its own."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from hetsched_core.types import (
    ALL_SHAPES,
    Cluster,
    Configuration,
    Node,
    NodeCondition,
    Reason,
    ReasonCode,
    Shape,
)
from slurm_plugin.backend import (
    Change,
    Enter,
    Hold,
    JobState,
    Leave,
    Resources,
    SlurmJob,
    SlurmNode,
    Terms,
)
from slurm_plugin.backend.state import SlurmReservation
from slurm_plugin.daemon.jobs.attempts import IN_VAIN
from slurm_plugin.daemon.jobs.kept_back import QUOTA_S, Ban
from slurm_plugin.daemon.jobs.managed import ManagedJob, described
from slurm_plugin.daemon.jobs.quotas import Quotas
from tests.slurm_plugin.daemon.fake_slurm import (
    HOLD,
    MOVABLE,
    RIGID,
    SETTINGS,
    WAITING,
    Site,
    element,
    held,
    named,
    node,
    placed,
    places,
    requested,
    running,
)
from tests.slurm_plugin.daemon.test_faulty_policies import ByUser


def mixed(name: str = "n0", t4: int = 0, v100: int = 0, **more: object) -> SlurmNode:
    """A node of two T4 and four V100 GPUs, with 32 CPUs, of which so many GPUs are in use."""
    used = (("t4", t4), ("v100", v100))
    both = replace(node(name), gpus=(("t4", 2), ("v100", 4)), gpus_used=used)
    return replace(both, **more)  # type: ignore[arg-type]


def typed(job: SlurmJob, gpu_type: str, gpus: int = 1) -> SlurmJob:
    """A job that asks for GPUs of a type."""
    asks = replace(job.resources, per_job=f"gres/gpu:{gpu_type}:{gpus}")
    return replace(job, gpus=gpus, gpu_types=(gpu_type,), resources=asks)


def on(job: SlurmJob, part: str, gpus: int = 1, gpu_type: str = "v100") -> SlurmJob:
    """A job that runs on GPUs of a type of n0, as the backends tell it."""
    runs = replace(running(job, "n0", gpus=gpus), gpu_types=(gpu_type,))
    return replace(runs, gpus_on=((part, gpus),))


def of_two(job: SlurmJob = RIGID, **more: object) -> SlurmJob:
    """A job of two GPUs of any type."""
    asks = replace(job.resources, per_job="gres/gpu:2")
    return replace(job, gpus=2, resources=asks, **more)  # type: ignore[arg-type]


def test_each_gpu_type_is_a_node_and_they_share_cpus_and_memory() -> None:
    site = Site(nodes=(mixed(t4=1, cpus_used=5, memory_used_mb=100), node("n1")))
    site.cycle()
    nodes = [(n.name, n.gpu_type, n.gpus, n.cpus, n.host) for n in site.world.cluster or ()]
    assert nodes == [
        ("n0-t4", "t4", 2, 32, "n0"),
        ("n0-v100", "v100", 4, 32, "n0"),
        ("n1", "v100", 4, 32, "n1"),
    ]
    assert [site.uses(name) for name in ("n0-t4", "n0-v100")] == [(0, 1), (0, 0)]
    # What others use of the host is counted once.
    views = [site.world.nodes[name] for name in ("n0-t4", "n0-v100")]
    assert [(v.foreign_cpus, v.foreign_memory_mb) for v in views] == [(5, 100), (0, 0)]


@pytest.mark.parametrize("policy", ["fifo", "hops", "steady"])
def test_a_job_of_any_type_is_placed_on_one_which_is_written_until_it_leaves(policy: str) -> None:
    job = of_two()
    site = Site(job, nodes=(mixed(v100=4),), policy=policy)
    (call,) = site.cycle()
    assert isinstance(call, Enter)
    assert (call.nodes, call.terms) == (("n0",), Terms())
    assert call.resources == Resources((1, 1), None, "gres/gpu:t4:2", "", None, None)
    back = Leave("5", (), replace(job.resources, tasks=None))
    assert call.otherwise == back
    asks = Resources((1, 1), 1, "gres/gpu:t4:2", "", "", "")
    there = placed(replace(job, resources=asks), "n0")
    assert site.see(there, seconds=20) == []
    (run,) = site.world.jobs["5"].runs
    assert run.configuration == Configuration.of({"n0-t4": 2})
    # It does not start.
    site.show(replace(there, reason="Resources"))
    _, calls = site.until_called(100)
    assert calls == [back]


LIMITED = "QOSMaxGRESPerUser"


def refused(site: Site, calls: list[Change], *jobs: SlurmJob, after_s: float = 1) -> list[str]:
    """Have Slurm start none of what is placed for a limit; return the types that they had."""
    asks = [call.resources for call in calls if isinstance(call, Enter)]
    there = [
        replace(placed(job, "n0"), resources=ask)
        for job, ask in zip(jobs, asks, strict=True)
        if ask is not None
    ]
    assert site.see(*there, seconds=after_s) == []
    left = site.see(*(replace(job, reason=LIMITED) for job in there), seconds=1)
    assert named(left) == [("Leave", job.id) for job in jobs]
    site.show(*(replace(job, reason="ReqNodeNotAvail") for job in jobs))
    asked = (re.search(r"t4|v100", f"{ask}") for ask in asks)
    return [found[0] for found in asked if found]


@pytest.mark.parametrize("after_s", [1, 10])
def test_a_limit_met_on_gpus_of_one_type_leaves_the_others_to_all_that_come_under_it(
    after_s: float,
) -> None:
    jobs = [replace(RIGID, id=name) for name in "12"]
    site = Site(*jobs, nodes=(mixed(),))
    assert refused(site, site.cycle(), *jobs, after_s=after_s) == ["v100"] * 2
    assert refused(site, site.until_called(5)[1], *jobs, after_s=after_s) == ["t4"] * 2
    assert site.cycle(QUOTA_S - after_s - 10) == []
    assert {site.blocked(job).detail for job in "12"} == {LIMITED}
    assert len(site.until_called(30)[1]) == 2


def test_a_job_of_several_counts_is_not_tried_on_that_type_at_once_with_fewer() -> None:
    site = Site(WAITING, nodes=(mixed(),))
    (first,) = refused(site, site.cycle(), WAITING)
    (second,) = refused(site, site.until_called(5)[1], WAITING)
    assert {first, second} == {"t4", "v100"}
    assert site.cycle(QUOTA_S - 15) == []


def test_what_runs_is_kept_off_nothing_for_what_it_met_while_it_waited() -> None:
    site = Site(RIGID, nodes=(mixed(),))
    assert refused(site, site.cycle(), RIGID) == ["v100"]
    site.until_called(5)
    assert site.world.jobs["5"].job.closed == {"n0-v100"}
    site.see(on(RIGID, "n0-t4", gpu_type="t4"), seconds=1)
    assert site.world.jobs["5"].job.closed == frozenset()


def test_where_a_job_runs_already_nothing_that_another_copy_of_it_met_stops_it() -> None:
    site = Site(on(RIGID, "n0-v100"), nodes=(mixed(),))
    site.cycle()
    known = site.world.managed["5"]
    met = Ban(Reason(ReasonCode.QUOTA, detail=LIMITED), site.clock.now + QUOTA_S)
    known.kept_back.on_nodes = {"n0-v100": met, "n0-t4": met}
    assert site.world._closures.of(known, site.clock.now, 0.0).nodes == {"n0-t4"}


@pytest.mark.parametrize("policy", ["fifo", "hops", "steady"])
def test_types_that_are_asked_for_are_kept_to(policy: str) -> None:
    jobs = [typed(RIGID, "t4", 2), typed(RIGID, "v100", 4), typed(RIGID, "t4", 2)]
    jobs = [replace(job, id=f"{at}") for at, job in enumerate(jobs)]
    calls = Site(*jobs, nodes=(mixed(),), policy=policy).cycle()
    assert places(calls).keys() in ({"0", "1"}, {"1", "2"})
    assert set(places(calls).values()) == {("n0",)}
    # Nothing is written that they ask for themselves.
    assert [c.resources for c in calls if isinstance(c, Enter)] == [None, None]


@pytest.mark.parametrize("policy", ["fifo", "hops", "steady"])
def test_one_with_a_set_is_placed_with_a_type_in_the_counts_that_fit(policy: str) -> None:
    site = Site(WAITING, nodes=(mixed(v100=3),), policy=policy)
    (call,) = site.cycle()
    assert isinstance(call, Enter)
    assert call.nodes == ("n0",)
    assert call.resources is not None
    assert call.resources.per_node in ("gres/gpu:v100:1", "gres/gpu:t4:2", "gres/gpu:t4:1")


def test_what_runs_on_gpus_of_a_type_that_its_host_has_no_more_goes_on_there() -> None:
    plain = replace(node("n1"), gpus=(("v100", 4),))
    runs = on(RIGID, "n1", gpus=4)
    runs = replace(runs, nodes=("n0", "n1"), gpus=6, gpus_on=(("n0-v100", 2), ("n1", 4)))
    site = Site(runs, nodes=(mixed(v100=2), replace(plain, gpus_used=(("v100", 4),))))
    site.cycle()
    other = replace(mixed(), gpus=(("a100", 2), ("t4", 2)))
    split = replace(plain, gpus=(("t4", 2), ("v100", 2)), gpus_used=(("v100", 2),))
    assert site.see(runs, nodes=(other, split), seconds=3) == []
    (run,) = site.world.jobs["5"].runs
    assert run.configuration == Configuration.of({"n0-a100": 2, "n1-t4": 4})
    # A job that waits is placed beside it, where Slurm has room.
    waits = replace(typed(RIGID, "t4", 1), id="6")
    assert places(site.see(runs, waits, nodes=(other, split), seconds=3)) == {"6": ("n0",)}


def test_the_cpus_of_the_host_are_given_once() -> None:
    asks = replace(RIGID, cpus=20)
    two = [typed(asks, "t4"), replace(typed(asks, "v100"), id="6")]
    site = Site(*two, nodes=(mixed(),))
    assert places(site.cycle()) == {"5": ("n0",)}
    runs = on(two[0], "n0-t4", gpu_type="t4")
    assert site.see(runs, two[1], nodes=(mixed(t4=1, cpus_used=20),), seconds=3) == []
    assert site.uses("n0-t4") == (1, 0)
    assert [site.world.nodes[n].foreign_cpus for n in ("n0-t4", "n0-v100")] == [0, 0]


def test_what_runs_holds_its_part_and_gpus_whose_type_is_not_told_count_on_all() -> None:
    runs = on(RIGID, "n0-v100", gpus=2)
    site = Site(runs, nodes=(mixed(v100=3, t4=1),))
    site.cycle()
    assert [site.uses(name) for name in ("n0-t4", "n0-v100")] == [(0, 1), (2, 1)]
    # Slurm shows three GPUs in use, and not of which type: one is not ours.
    site = Site(runs, nodes=(mixed(gpus_used=(("gpu", 3),)),))
    site.cycle()
    assert [site.uses(name) for name in ("n0-t4", "n0-v100")] == [(0, 1), (2, 1)]
    # A job that ends, and of whose GPUs no type is told.
    ends = replace(running(RIGID, "n0", gpus=2), state=JobState.COMPLETING, gpu_types=(), id="8")
    site = Site(replace(ends, partitions=("old",), over=True), nodes=(mixed(),))
    site.cycle()
    assert [site.uses(name)[1] for name in ("n0-t4", "n0-v100")] == [2, 2]


def test_what_runs_on_both_types_stays() -> None:
    both = replace(running(of_two(), "n0", gpus=2), gpu_types=("t4", "v100"), cpus=4)
    both = replace(both, gpus_on=(("n0-t4", 1), ("n0-v100", 1)))
    site = Site(both, nodes=(mixed(t4=1, v100=1, cpus_used=7),))
    assert site.cycle(3) == []
    assert [site.uses(name) for name in ("n0-t4", "n0-v100")] == [(1, 0), (1, 0)]
    assert sum(site.world.nodes[n].foreign_cpus for n in ("n0-t4", "n0-v100")) == 3


def test_an_array_is_placed_element_by_element_on_both_types() -> None:
    array = replace(RIGID, id="7", array="7", unsplit=tuple(range(8)))
    site = Site(array, nodes=(mixed(),))
    calls = site.cycle()
    written = [c.resources.per_job for c in calls if isinstance(c, Enter) and c.resources]
    assert sorted(filter(None, written)) == ["gres/gpu:t4:1"] * 2 + ["gres/gpu:v100:1"] * 4


def test_a_drained_node_a_reservation_and_a_broken_node_close_all_of_its_types() -> None:
    drained = mixed(condition=NodeCondition.DRAINED)
    assert places(Site(RIGID, nodes=(drained,)).cycle()) == {}
    works = SlurmReservation("works", ("n0",), 0.0, 1e9, frozenset({"MAINT"}))
    site = Site(RIGID, nodes=(mixed(),), reservations=(held("n0"), works))
    assert places(site.cycle()) == {}
    assert "works" in site.blocked("5").detail
    bob = replace(on(RIGID, "n0-t4", gpu_type="t4"), id="8", user="bob", exclusive="user")
    assert places(Site(bob, RIGID, nodes=(mixed(t4=1),)).cycle()) == {}
    asleep = mixed(asleep=True)
    site = Site(nodes=(asleep,))
    site.cycle()
    assert site.world.asleep == {"n0-t4", "n0-v100"}
    # It is the nodes of Slurm that are held.
    site = Site(nodes=(mixed(),), reservations=())
    assert [call.nodes for call in site.cycle() if isinstance(call, Hold)] == [("n0",)]


def test_a_job_whose_node_goes_down_waits_until_it_must_have_ended_there() -> None:
    site = Site(on(RIGID, "n0-v100"), nodes=(mixed(v100=1), node("n1")))
    site.cycle()
    down = (mixed(condition=NodeCondition.DOWN), node("n1"))
    assert places(site.see(replace(RIGID, restarts=1), nodes=down, seconds=20)) == {}
    assert places(site.cycle(20)) == {"5": ("n1",)}


def test_what_a_partition_may_have_of_a_node_is_counted_over_all_of_its_types() -> None:
    jobs = [replace(typed(RIGID, name), id=name, cpus=2) for name in ("t4", "v100")]
    for most, many in ((3, 1), (4, 2)):
        site = Site(*jobs, nodes=(mixed(),))
        site.backend.where = replace(site.backend.where, cpus_per_node={"gpu": most})
        assert len(places(site.cycle())) == many


def test_a_job_that_starts_where_others_like_it_did_not_is_no_failure_of_theirs_any_more() -> None:
    # Of several partitions one is left once it runs.
    waits = replace(RIGID, partitions=("gpu", "wide"))
    quotas, request = Quotas(), requested(RIGID)
    cluster = Cluster((Node("n0-v100", "v100", 4),))
    known = ManagedJob(request, RIGID, (job := described(RIGID, request)), job, observed_s=0.0)
    for now in range(IN_VAIN):
        known.kept_back.in_vain = ("n0-v100",), float(now)
        quotas.of(known, waits, None, cluster, now)
    assert quotas
    known.share = {"n0-v100": (1.0, 1.0)}
    quotas.of(known, on(RIGID, "n0-v100"), None, cluster, 9.0)
    assert not quotas


def test_where_a_job_may_run_is_told_by_the_names_of_slurm() -> None:
    nodes = [mixed("n0"), mixed("n1")]
    assert places(Site(replace(RIGID, excluded=("n0",)), nodes=tuple(nodes)).cycle()) == {
        "5": ("n1",)
    }
    named = replace(typed(RIGID, "t4"), pinned=("n1",))
    assert places(Site(named, nodes=tuple(nodes)).cycle()) == {"5": ("n1",)}
    # What else it asks for of the node stands in the same text as the type would.
    other = replace(RIGID, gres=(("fpga", 1),))
    with_fpga = [replace(each, gres=(("fpga", 1),)) for each in (*nodes, node("n2"))]
    assert places(Site(other, nodes=tuple(with_fpga)).cycle()) == {"5": ("n2",)}
    assert places(Site(other, nodes=tuple(with_fpga[:2])).cycle()) == {}


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_job_that_shares_no_node_has_all_of_the_host(gpus: int) -> None:
    alone = replace(RIGID, gpus=gpus, exclusive="node", cpus=1)
    assert places(Site(alone, nodes=(mixed(t4=1, cpus_used=1),)).cycle()) == {}
    other = replace(typed(RIGID, "t4"), id="6")
    site = Site(alone, other, nodes=(mixed(),))
    assert site.cycle() == [Enter("5", HOLD, ("n0",), Leave("5"))]
    both = replace(on(alone, "n0-v100", gpus=6), gpu_types=("t4", "v100"), cpus=32)
    both = replace(both, gpus_on=(("n0-t4", 2), ("n0-v100", 4)))
    assert site.see(both, other, nodes=(mixed(t4=2, v100=4, cpus_used=32),), seconds=3) == []
    assert [site.uses(name) for name in ("n0-t4", "n0-v100")] == [(0, 2), (4, 0)]


def test_a_job_that_wants_all_memory_has_that_of_the_host() -> None:
    whole = replace(RIGID, memory_mb=64_000)
    assert places(Site(whole, nodes=(mixed(t4=1, memory_used_mb=100),)).cycle()) == {}
    site = Site(whole, replace(RIGID, id="6", memory_mb=100), nodes=(mixed(),))
    assert places(site.cycle()) == {"5": ("n0",)}


def cpu_job(cpus: int, memory_mb: int = 0) -> SlurmJob:
    """A job without GPUs."""
    asks = Resources((1, 1), 1, "", "", "", "")
    return replace(RIGID, id="9", gpus=0, cpus=cpus, memory_mb=memory_mb, resources=asks)


def test_jobs_without_gpus_see_the_host_once() -> None:
    # A job waits for GPUs of two nodes, so that each idle one keeps four CPUs for it.
    asks = Resources((2, 2), 2, "", "gres/gpu:v100:4", "", "")
    waits = replace(typed(RIGID, "v100", 8), cpus=32, resources=asks)
    full = replace(node("n1", used=4), cpus_used=32)
    for cpus, v100, fits in ((8, 0, True), (9, 0, False), (24, 4, True), (25, 4, False)):
        site = Site(cpu_job(cpus), waits, nodes=(mixed(v100=v100), full))
        assert places(site.cycle()) == ({"9": ("n0",)} if fits else {}), (cpus, v100)


def test_jobs_without_gpus_leave_the_host_to_one_that_needs_all_of_its_memory() -> None:
    runs = replace(on(RIGID, "n0-v100"), id="8", memory_mb=1000)
    nodes = (mixed(v100=1, cpus_used=1, memory_used_mb=1000),)
    # It would end after what runs there now.
    small = replace(cpu_job(1, 100), time_limit_s=9000.0)
    assert places(Site(runs, small, nodes=nodes).cycle()) == {"9": ("n0",)}
    assert places(Site(runs, replace(RIGID, memory_mb=64_000), small, nodes=nodes).cycle()) == {}


def test_jobs_without_gpus_leave_idle_gpus_to_a_job_that_is_to_move_there() -> None:
    mark = MOVABLE.mark.replace('"1,2"', '"3"')
    for to in ("n0-v100", "n1"):
        runs = running(replace(MOVABLE, user=to, mark=mark), "n1", since_s=900.0, gpus=3)
        nodes = (mixed(), replace(node("n1", used=3), cpus_used=32))
        calls = Site(runs, cpu_job(30), nodes=nodes, policy=ByUser()).cycle()
        assert named(calls) == [("Enter", "9") if to == "n1" else ("Requeue", "1")]


@pytest.mark.parametrize("begun", [True, False])
def test_elements_of_a_gang_hold_the_type_that_they_were_placed_for(begun: bool) -> None:
    mark = 'hetsched/2 {"nonce":"a1","gpu-set":"6","gpu-shapes":"any","elements":2}'
    jobs = [element(at, mark=mark, gpus=6) for at in (0, 1)]
    nodes = (mixed(v100=2), node("n1"))
    site = Site(*jobs, nodes=nodes)
    calls = [call for call in site.cycle() if isinstance(call, Enter)]
    assert {(call.job, call.nodes) for call in calls} == {("7_0", ("n1",)), ("7_1", ("n0",))}
    lead, member = running(jobs[0], "n1", gpus=4), placed(replace(jobs[1], gpus=2), "n0")
    if begun:
        member = replace(on(member, "n0-v100", gpus=2), start_s=lead.start_s)
    site.see(lead, member, nodes=(mixed(v100=2 + 2 * begun), node("n1", used=4)))
    (run,) = site.world.jobs["7"].runs
    held_now = Configuration.of({"n0-v100": 2, "n1": 4})
    assert (run.configuration, run.begun) == (held_now, begun)
    # So it is for the next daemon, which has not placed them.
    site = Site(lead, member, nodes=site.nodes)
    site.cycle()
    assert [run.configuration for run in site.world.jobs["7"].runs] == [held_now] * begun


def test_gangs_have_no_two_types_where_a_node_may_have_both() -> None:
    mark = '{"nonce":"a1","gpu-set":"3,6","gpu-shapes":"any","elements":4}'
    leader = replace(WAITING, id="1_0", array="1", mark=f"hetsched/2 {mark}", gpus=3)
    elements = [replace(leader, id=f"1_{at}", element=at) for at in range(4)]
    for nodes, shapes in (
        ((node("n0"),), ALL_SHAPES),
        ((mixed(),), {*Shape} - {Shape.MIXED_TYPES}),
    ):
        site = Site(*elements, nodes=nodes)
        site.cycle()
        assert site.world.jobs
        assert site.world.shapes == shapes


def test_a_node_is_left_out_of_which_a_type_cannot_be_asked_for() -> None:
    untyped = mixed(gpus=(("gpu", 2), ("v100", 4)))
    site = Site(RIGID, nodes=(untyped, mixed("n1"), node("n1-t4")), settings=SETTINGS)
    site.cycle()
    assert site.world.odd == {
        "node n0": "it has GPUs with a type and GPUs without",
        "node n1": "another node has the name of one of its GPU types",
    }


def test_a_job_without_gpus_finds_it_also_while_a_job_ends_elsewhere() -> None:
    ends = replace(running(replace(RIGID, id="3"), "n1"), state=JobState.COMPLETING)
    site = Site(cpu_job(2), ends, nodes=(mixed(), node("n1", used=4)))
    assert places(site.cycle(1)) == {"9": ("n0",)}


def test_a_job_that_comes_from_one_is_told_the_type_of_its_next_node_too() -> None:
    job = of_two()
    plain = node("n2")
    site = Site(job, nodes=(mixed(v100=4), replace(plain, gpus_used=plain.gpus)))
    (there,) = (each for each in site.cycle() if isinstance(each, Enter))
    asks = replace(job.resources, per_job="gres/gpu:t4:2")
    assert (there.nodes, there.resources and there.resources.per_job) == (("n0",), asks.per_job)
    runs = on(replace(job, resources=asks), "n0-t4", 2, gpu_type="t4")
    site.see(runs, nodes=(mixed(v100=4, t4=2), site.nodes[1]), seconds=20)
    # Its node is full when it comes back, and it goes to the other at once.
    other = on(replace(typed(RIGID, "t4", 2), id="8"), "n0-t4", 2, gpu_type="t4")
    back = replace(
        placed(replace(job, resources=asks), "n0"),
        restarts=1,
        begin_s=site.clock.now + 120,
        reason="BeginTime",
    )
    site.show(back, other, nodes=(mixed(v100=4, t4=2), plain))
    found = [each for each in site.cycle(200) if isinstance(each, Enter)]
    assert [(each.nodes, each.resources and each.resources.per_job) for each in found[:1]] == [
        (("n2",), "gres/gpu:v100:2")
    ]
    assert found[0].otherwise.resources is not None
    assert found[0].otherwise.resources.per_job == "gres/gpu:2"
