"""Jobs without GPUs pass in Slurm's own order, beside what idle GPUs need."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.types import NodeCondition
from slurm_plugin.backend import (
    Enter,
    HostRequest,
    Leave,
    RefusedError,
    Resources,
    SlurmJob,
    SlurmReservation,
)
from tests.slurm_plugin.daemon.fake_slurm import (
    HOLD,
    MOVABLE,
    RIGID,
    SETTINGS,
    Site,
    held,
    named,
    node,
    placed,
    places,
    running,
)
from tests.slurm_plugin.daemon.test_faulty_policies import ByUser

TWO = (node("n0"), node("n1"))
"""Nodes have 32 CPUs and four idle GPUs."""


FULL = replace(node("n1", used=4), cpus_used=32)
TWO_NODES = Resources((2, 2), 2, "gres/gpu:1", "", "", "")


def cpu_job(number: int, cpus: int, priority: int = 1, nodes: int = 1, **more: object) -> SlurmJob:
    """A waiting job without GPUs."""
    asks = Resources((nodes, nodes), nodes, "", "", "", "")
    job = replace(RIGID, id=f"{number}", gpus=0, cpus=cpus, priority=priority, resources=asks)
    return replace(job, **more)  # type: ignore[arg-type]


def test_they_pass_by_priority_and_not_while_they_are_held_or_wait_for_others() -> None:
    site = Site(
        cpu_job(1, 20, priority=5),
        cpu_job(2, 20, priority=9),
        cpu_job(3, 1, priority=99, held=True),
        cpu_job(4, 1, priority=98, reason="Dependency"),
        cpu_job(6, 1, priority=97, begin_s=2000.0),
        cpu_job(7, 1, priority=96, dependency="afterok:4"),
    )
    assert places(site.cycle()) == {"2": ("n0",)}


def test_idle_gpus_keep_the_cpus_and_the_memory_that_jobs_of_gpus_ask_for() -> None:
    # It waits for two nodes, of which one is full, and asks for 4 CPUs with each GPU.
    waits = replace(RIGID, gpus=2, cpus=8, asked=HostRequest(4), resources=TWO_NODES)

    def passes(job: SlurmJob, used: int = 0) -> bool:
        here = replace(node("n0", used=used), cpus_used=4 * used)
        return bool(Site(waits, job, nodes=(here, FULL)).cycle())

    assert passes(cpu_job(1, 16))
    assert not passes(cpu_job(1, 17))
    # GPUs in use have theirs.
    assert passes(cpu_job(1, 16), used=4)
    assert not passes(cpu_job(1, 17), used=4)
    assert not passes(cpu_job(1, 1, memory_mb=64_001))


@pytest.mark.parametrize("to", ["n0", "n1"])
def test_cpus_of_idle_gpus_are_left_to_a_job_that_is_to_move_there(to: str) -> None:
    mark = MOVABLE.mark.replace('"1,2"', '"3"')
    runs = running(replace(MOVABLE, user=to, mark=mark), "n0", since_s=900.0, gpus=3)
    nodes = replace(node("n0", used=3), cpus_used=3), node("n1")
    large = cpu_job(5, 30)
    calls = Site(runs, large, nodes=nodes, policy=ByUser()).cycle()
    assert named(calls) == [("Enter", "5") if to == "n0" else ("Requeue", "1")]


@pytest.mark.parametrize("first", range(3))
def test_a_node_with_idle_cpus_whose_memory_is_in_use_keeps_no_job_from_the_others(
    first: int,
) -> None:
    nodes = [replace(node(f"n{at}"), cpus_used=16) for at in range(3)]
    nodes[first] = replace(node(f"n{first}"), memory_used_mb=64_000)
    jobs = [cpu_job(number, 2, memory_mb=200) for number in range(1, 5)]
    there = places(Site(*jobs, nodes=tuple(nodes)).cycle())
    assert there.keys() == {"1", "2", "3", "4"}
    assert (f"n{first}",) not in there.values()
    # One that would fit there, were it not for the memory, does not wait for that.
    wide = cpu_job(5, 20, priority=9, nodes=2, memory_mb=400)
    assert places(Site(wide, nodes=tuple(nodes)).cycle()).keys() == {"5"}


def test_one_for_which_no_node_has_room_keeps_the_node_that_lacks_the_least() -> None:
    nodes = (
        replace(node("n0"), memory_used_mb=64_000),
        replace(node("n1"), cpus_used=20),
        replace(node("n2"), cpus_used=12),
        replace(node("n3"), cpus_used=20),
    )
    large = cpu_job(1, 20, priority=9, memory_mb=1000)
    small = [cpu_job(number, 4, memory_mb=1000) for number in range(2, 7)]
    there = places(Site(large, *small, nodes=nodes).cycle())
    # There are four CPUs for it twice on each of the others.
    assert sorted(there.values()) == [("n1",), ("n1",), ("n3",), ("n3",)]
    # Its turn has come.
    nodes = (*nodes[:2], replace(nodes[2], cpus_used=8), nodes[3])
    assert places(Site(large, *small, nodes=nodes).cycle())["1"] == ("n2",)


def test_one_that_idle_gpus_keep_from_ever_starting_takes_those_that_no_job_waits_for() -> None:
    large = cpu_job(1, 30, priority=9)
    behind = cpu_job(2, 4)
    site = Site(large, behind, nodes=TWO)
    assert places(site.cycle()) == {"1": ("n0",), "2": ("n1",)}
    # Another finds the room beside a run of GPUs that has not taken much.
    runs = running(RIGID, "n0")
    beside = (replace(node("n0", used=1), cpus_used=1), node("n1"))
    for nodes in (beside, beside[::-1]):
        site = Site(runs, large, nodes=nodes)
        assert len(places(site.cycle())) == 1
    # It waits for room there, and smaller ones behind it do not take that away.
    nodes = replace(node("n0"), cpus_used=4), replace(node("n1"), cpus_used=8)
    assert places(Site(large, behind, nodes=nodes).cycle()) == {"2": ("n1",)}


def test_cpus_of_idle_gpus_are_taken_where_the_fewest_gpus_would_lie_idle() -> None:
    # Of each node two CPUs are in use, on n1 beside two GPUs.
    nodes = tuple(replace(node(f"n{at}", used=2 * (at == 1)), cpus_used=2) for at in range(3))
    assert places(Site(cpu_job(1, 30), nodes=nodes).cycle()) == {"1": ("n1",)}
    # Of as many, slow ones.
    nodes = (node("n0"), replace(node("n1"), gpus=(("t4", 4),)), node("n2"))
    assert places(Site(cpu_job(1, 30), nodes=nodes).cycle()) == {"1": ("n1",)}


def test_one_job_of_a_kind_keeps_a_node_and_smaller_ones_pass_on_the_others() -> None:
    nodes = tuple(replace(node(f"n{at}"), cpus_used=20) for at in range(3))
    kind = [cpu_job(number, 20, priority=9) for number in range(1, 9)]
    small = [cpu_job(number, 4) for number in range(11, 17)]
    there = places(Site(*kind, *small, nodes=nodes).cycle())
    assert sorted(there.values()) == [("n1",), ("n1",), ("n2",), ("n2",)]


def test_what_ends_before_the_first_one_could_start_passes_on_the_node_that_that_keeps() -> None:
    # A job that ends in 100 s at the latest leaves 12 CPUs of the only node.
    runs = running(replace(cpu_job(9, 20), time_limit_s=100.0), "n0", gpus=0)
    busy = (replace(node("n0"), cpus_used=20),)
    first = cpu_job(1, 28, priority=9)

    def passes(limit_s: float | None) -> bool:
        small = cpu_job(2, 2, time_limit_s=limit_s)
        return "2" in places(Site(runs, first, small, nodes=busy).cycle())

    assert passes(100.0)
    assert not passes(101.0)
    assert not passes(None)


def test_of_large_jobs_unlike_each_other_the_first_keeps_a_node_and_small_ones_pass() -> None:
    # A job on each node leaves 12 CPUs, which do for none of the large ones.
    busy = tuple(replace(each, cpus_used=20) for each in TWO)
    large = [cpu_job(number, 20 + number, priority=9) for number in (1, 2, 3)]
    assert places(Site(*large, cpu_job(4, 2), nodes=busy).cycle()) == {"4": ("n1",)}


@pytest.mark.parametrize("policy", ["fifo", "las", "hops"])
def test_cpus_of_idle_gpus_are_left_to_jobs_of_gpus_that_wait_for_them(policy: str) -> None:
    large, small = cpu_job(1, 30, priority=9), cpu_job(2, 4)
    # It starts in this cycle.
    there = places(Site(large, RIGID, nodes=TWO, policy=policy).cycle())
    assert there.keys() == {RIGID.id}
    # It waits for two nodes, of which one is full. The others behind the large one pass.
    waits = replace(RIGID, gpus=2, cpus=2, resources=TWO_NODES)
    nodes = (node("n0"), FULL)
    site = Site(waits, large, small, nodes=nodes, policy=policy)
    assert places(site.cycle()) == {"2": ("n0",)}
    assert "once no job waits that could use the GPUs there" in site.world.intake.aside["1"]
    assert site.world.intake.aside["2"].endswith("that idle GPUs do not need")
    # It could start there in no case.
    elsewhere = replace(waits, excluded=("n0",))
    too_wide = replace(waits, gpus=3, resources=replace(TWO_NODES, nodes=(3, 3)))
    limited = replace(waits, reason="QOSMaxJobsPerUserLimit")
    too_long = replace(waits, reason="PartitionTimeLimit")
    for never in (elsewhere, too_wide, limited, too_long, replace(waits, held=True)):
        assert places(Site(never, large, nodes=nodes, policy=policy).cycle()) == {"1": ("n0",)}
    down = node("n0"), node("n1", condition=NodeCondition.DOWN)
    assert places(Site(waits, large, nodes=down, policy=policy).cycle()) == {"1": ("n0",)}


def test_a_job_that_the_policy_can_never_place_keeps_nothing() -> None:
    # Under hadare a job has whole nodes.
    small = replace(RIGID, cpus=8, asked=HostRequest(8), memory_mb=64_000)
    for waits in (small, replace(small, memory_mb=1000)):
        site = Site(waits, cpu_job(1, 30), policy="hadare")
        assert places(site.cycle()) == {"1": ("n0",)}
        assert site.daemon.plan.never(waits.id)


def test_what_a_running_job_needs_is_not_kept_on_other_nodes() -> None:
    runs = replace(running(RIGID, "n0"), cpus=8, asked=HostRequest(8))
    nodes = (replace(node("n0", used=1), cpus_used=8), node("n1"))
    assert places(Site(runs, cpu_job(1, 16), nodes=nodes).cycle()) == {"1": ("n1",)}


def test_a_job_of_gpus_that_needs_most_of_a_node_has_one_that_empties_for_it() -> None:
    # Three GPUs of each node are in use, and some of its 64,000 MiB.
    nodes = [replace(node(f"n{at}", used=3), memory_used_mb=1000 * (3 - at)) for at in range(3)]
    small = [cpu_job(number, 20) for number in range(10, 13)]
    for asked_mb, free in ((16_000, {"n0", "n1", "n2"}), (64_000, {"n0", "n1"})):
        waits = replace(RIGID, memory_mb=asked_mb)
        there = places(Site(waits, *small, nodes=tuple(nodes)).cycle())
        there.pop(waits.id, None)
        assert {name for names in there.values() for name in names} == free


def test_what_ends_before_a_job_of_gpus_could_start_passes_on_the_nodes_that_it_keeps() -> None:
    # All memory of both nodes; on one of them a job of another may run for 8,000 s yet.
    waits = replace(RIGID, gpus=2, cpus=2, memory_mb=128_000, resources=TWO_NODES)
    runs = running(replace(RIGID, id="6", user="bob"), "n1", since_s=1000.0)
    runs = replace(runs, time_limit_s=8000.0, memory_mb=1000)
    nodes = (node("n0"), replace(node("n1", used=1), cpus_used=1, memory_used_mb=1000))
    short, long = cpu_job(1, 20, time_limit_s=7000.0), cpu_job(2, 1, time_limit_s=9000.0)
    there = places(Site(waits, runs, short, long, nodes=nodes).cycle())
    assert there.keys() == {"1"}
    endless = replace(runs, time_limit_s=None)
    there = places(Site(waits, endless, short, long, nodes=nodes).cycle())
    assert there.keys() == {"1", "2"}
    # What passes there takes its part.
    like = [replace(short, id=f"{number}") for number in (3, 4)]
    site = Site(waits, runs, short, nodes=nodes)
    (first,) = places(site.cycle())["1"]
    there = places(site.see(waits, runs, placed(short, first), *like))
    assert len(there) == 1
    assert first not in there.popitem()[1]
    # Too few nodes are up: it keeps none.
    one = (node("n0"), node("n1", condition=NodeCondition.DOWN))
    assert places(Site(waits, long, nodes=one).cycle()) == {"2": ("n0",)}


def test_a_wide_one_keeps_what_there_is_until_its_turn_comes() -> None:
    wide, behind = cpu_job(1, 56, priority=9, nodes=2), cpu_job(2, 4)
    assert Site(wide, behind, nodes=(node("n0"), replace(node("n1"), cpus_used=8))).cycle() == []
    assert places(Site(wide, behind, nodes=TWO).cycle()) == {"1": ("n0", "n1")}
    # One for which there is never room stands in nobody's way.
    assert places(Site(cpu_job(1, 33, priority=9), behind).cycle()) == {"2": ("n0",)}


def test_they_stay_where_they_may_run_and_out_of_a_window_that_they_would_reach_into() -> None:
    soon = SlurmReservation("upgrade", ("n0",), 1300.0, 1e6, frozenset({"MAINT"}))
    jobs = cpu_job(1, 4, excluded=("n1",)), cpu_job(2, 4, excluded=("n1",), time_limit_s=240.0)
    site = Site(*jobs, nodes=TWO, reservations=(held("n0", "n1"), soon))
    assert site.cycle() == [Enter("2", HOLD, ("n0",), Leave("2"))]


@pytest.mark.parametrize("pinned", [(), ("n0",)], ids=["any node", "named"])
def test_one_that_slurm_does_not_start_gives_its_place_back_for_a_minute(
    pinned: tuple[str, ...],
) -> None:
    job, back = cpu_job(1, 4, pinned=pinned), Leave("1", pinned)
    site = Site(job)
    assert site.cycle() == [Enter("1", HOLD, ("n0",), back)]
    for shown, after_s, called in (
        (placed(job, "n0"), SETTINGS.start_timeout_s, back),
        (job, 60, Enter("1", HOLD, ("n0",), back)),
    ):
        site.show(shown)
        took_s, calls = site.until_called(100)
        assert calls == [called]
        assert took_s == pytest.approx(after_s, abs=2)


def test_one_is_placed_elsewhere_at_once_when_its_node_is_drained_or_does_not_start_it() -> None:
    job = cpu_job(1, 4)
    for drains in (True, False):
        site = Site(job, nodes=TWO)
        assert places(site.cycle()) == {"1": ("n0",)}
        condition = NodeCondition.DRAINED if drains else NodeCondition.UP
        nodes = (node("n0", condition=condition), TWO[1])
        site.show(placed(job, "n0"), nodes=nodes)
        took_s, calls = site.until_called(100)
        assert named(calls) == [("Leave", "1")]
        assert took_s == pytest.approx(0 if drains else SETTINGS.start_timeout_s, abs=2)
        assert places(site.see(job, nodes=nodes)) == {"1": ("n1",)}


def test_a_node_that_is_powered_down_is_woken_only_where_no_other_has_room() -> None:
    nodes = (replace(node("n0"), asleep=True), replace(node("n1"), cpus_used=20))
    jobs = [cpu_job(number, 4) for number in range(1, 5)]
    # Beside its idle GPUs there is room for two on the one that is awake.
    assert sorted(places(Site(*jobs, nodes=nodes).cycle()).values()) == [
        *[("n0",)] * 2,
        *[("n1",)] * 2,
    ]


def test_where_slurm_has_not_started_one_it_is_tried_again_once_it_was_tried_elsewhere() -> None:
    job = cpu_job(1, 4)
    site, tried = Site(job, nodes=TWO), list[tuple[str, ...]]()
    for _ in range(3):
        site.show(job, nodes=TWO)
        tried += places(site.until_called(100)[1]).values()
        site.show(placed(job, *tried[-1]), nodes=TWO)
        assert named(site.until_called(100)[1]) == [("Leave", "1")]
    assert tried == [("n0",), ("n1",), ("n0",)]


@pytest.mark.parametrize("met", ["QOSMaxJobsPerUserLimit", "PartitionTimeLimit"])
def test_those_that_slurm_would_start_nowhere_take_no_room_and_one_is_tried_now_and_then(
    met: str,
) -> None:
    under = [cpu_job(number, 20, priority=9, user="ann", reason=met) for number in (1, 2, 3)]
    other = cpu_job(4, 20)
    site = Site(*under, other, nodes=TWO)
    # The first one is tried, beside it there is room for the other.
    assert places(site.cycle()) == {"1": ("n0",), "4": ("n1",)}
    tried = replace(placed(under[0], "n0"), reason=met)
    # Slurm's word may be of before; a moment later it is not.
    assert named(site.see(tried, *under[1:], seconds=3)) == []
    assert named(site.see(tried, *under[1:], seconds=3)) == [("Leave", "1")]
    assert places(site.see(*under, other, seconds=4)) == {"4": ("n0",)}
    assert places(site.see(*under, seconds=7)) == {"1": ("n0",)}


def test_what_slurm_does_not_start_is_tried_as_jobs_of_gpus_are_until_one_starts() -> None:
    like = [cpu_job(number, 20, priority=9) for number in range(1, 9)]
    site = Site(*like, nodes=(*TWO, node("n2"), node("n3")))
    site.cycle()
    tried = [placed(job, f"n{at}") for at, job in enumerate(like[:4])]
    site.see(*tried, *like[4:], seconds=SETTINGS.start_timeout_s + 2)
    assert places(site.see(*like, seconds=1)).keys() == {"5"}
    # It has started.
    assert len(places(site.see(*like[:4], *like[5:], seconds=1))) == 3


def test_one_that_slurm_refuses_is_not_asked_for_in_every_cycle_and_lets_others_pass() -> None:
    site = Site(cpu_job(1, 20, priority=9), cpu_job(2, 20))
    site.backend.errors = [RefusedError("no")]
    assert named(site.cycle()) == [("Enter", "1"), ("Leave", "1")]
    assert {call.job for call in site.cycle(58)} == {"2"}


def test_of_several_partitions_that_of_the_node_is_put_first_and_back_again() -> None:
    own = ("elsewhere", "gpu")
    back = Leave("1", partitions=own)
    wanted = Enter("1", HOLD, ("n0",), back, partitions=("gpu", "elsewhere"))
    assert Site(cpu_job(1, 4, partitions=own)).cycle() == [wanted]


def test_what_runs_is_nobody_s_business_and_what_was_queued_again_is_due_at_once() -> None:
    runs = replace(running(cpu_job(1, 4), "n0"), gpus=0, gpu_types=())
    again = cpu_job(2, 4, restarts=1, begin_s=1100.0)
    due = Enter("2", HOLD, ("n0",), Leave("2"), due=True)
    assert Site(runs, again, nodes=(replace(node("n0"), cpus_used=4),)).cycle() == [due]
    # Slurm keeps it in the reservation, on the node of its last run.
    site = Site(placed(again, "n0"))
    assert site.cycle() == [Leave("2")]
    assert site.see(again) == [due]
