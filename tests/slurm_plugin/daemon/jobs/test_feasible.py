"""What limits and the memory of GPUs leave of a job's wishes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from hetsched_core.policy import make_policy, policy_names
from hetsched_core.types import (
    Cluster,
    Configuration,
    Node,
    Reason,
    ReasonCode,
    RequirementSet,
    Waiting,
)
from slurm_plugin.backend import (
    Change,
    Enter,
    GpuLimit,
    GpuLimits,
    Leave,
    Resources,
    SlurmJob,
    SlurmSite,
)
from slurm_plugin.daemon.jobs.feasible import FeasibleRequest, feasible_request, with_enough_nodes
from tests.slurm_plugin.daemon.fake_slurm import (
    RIGID,
    WAITING,
    Site,
    node,
    placed,
    places,
    requested,
    running,
)

FOUR = GpuLimits(qos={"small": {"MaxTRESPerJob": 4}})
CLUSTER = Cluster((Node("n0", "a100", 8), Node("n1", "t4", 4), Node("n2", "abacus", 4)), "test")


def left_of(
    options: str, limit: GpuLimit | None = None, held: Configuration | None = None
) -> FeasibleRequest:
    """What is left of a job of some options, as JSON."""
    request = requested(replace(WAITING, mark=f'hetsched/2 {{"nonce":"a",{options}}}'))
    return feasible_request(request, CLUSTER, limit, held)


def test_counts_beyond_the_limit_are_left_out_and_a_job_without_another_is_told_so() -> None:
    found = left_of('"gpu-set":"2,8","gpu-types":"t4"')
    assert found == FeasibleRequest(RequirementSet((2, 8)), frozenset({"t4"}))
    found = left_of('"gpu-set":"2,4,6,8"', GpuLimit(4, "QOS small: MaxTRESPerJob"))
    words = "its counts 6,8 are left out: QOS small: MaxTRESPerJob allows 4 GPUs"
    assert found == FeasibleRequest(RequirementSet((2, 4)), None, warning=words)
    found = left_of('"gpu-set":"6,8"', GpuLimit(4, "account lab: GrpTRES"))
    detail = "account lab: GrpTRES allows 4 GPUs, its least count is 6"
    assert found == FeasibleRequest(
        RequirementSet((6, 8)), None, Reason(ReasonCode.QUOTA, detail=detail)
    )


def test_what_a_running_job_holds_stays_accepted() -> None:
    options = '"gpu-set":"2,4,8","gpu-mem":"20G"'
    found = left_of(options, GpuLimit(2, "QOS small"), Configuration.of({"n0": 8}))
    assert found.requirements == RequirementSet((2, 8))
    found = left_of(options, None, Configuration.of({"n1": 4}))
    assert found.gpu_types == frozenset({"a100", "abacus", "t4"})


@pytest.mark.parametrize(
    ("memory", "types", "left"),
    [
        # Published are 40 GB for a100 and 16 GB for t4; of abacus nothing is.
        ("40G", "", {"a100", "abacus"}),
        ("41G", "", {"abacus"}),
        ("16G", "", {"a100", "t4", "abacus"}),
        ("16385M", "", {"a100", "abacus"}),
        ("40G", "a100,t4", {"a100"}),
        ("80G", "t4", set()),
    ],
)
def test_types_with_too_little_memory_are_left_out(memory: str, types: str, left: set[str]) -> None:
    only = f',"gpu-types":"{types}"' if types else ""
    found = left_of(f'"gpu-set":"1","gpu-mem":"{memory}"{only}')
    assert found.gpu_types == frozenset(left)
    assert found.warning == (
        "it may be placed on abacus, of whose memory nothing is known" if "abacus" in left else ""
    )


@pytest.mark.parametrize(
    ("nodes", "gpus", "by_node", "cpus", "memory_mb", "need"),
    [
        # For the CPUs Slurm's own guess says two nodes, for the memory it says one.
        ((2, 40), 1, "gres/gpu:1", 40, 4000, (2, 2)),
        ((2, 40), 2, "gres/gpu:2", 40, 4000, (2, 4)),
        ((2, 40), 1, "", 40, 4000, (2, 2)),
        ((2, 40), 3, "", 40, 4000, (2, 3)),
        ((1, 10), 1, "gres/gpu:1", 10, 80_000, (2, 2)),
        ((1, 10), 1, "", 10, 160_000, (3, 3)),
        ((1, 10), 4, "", 10, 160_000, (1, 4)),
        ((1, 10), 1, "gres/gpu:1", 10, 40_000, (1, 1)),
        ((1, 1), 1, "gres/gpu:1", 10, 80_000, (1, 1)),
        ((3, 3), 3, "gres/gpu:1", 3, 300, (3, 3)),
    ],
)
def test_a_job_has_the_gpus_of_as_many_nodes_as_its_cpus_and_memory_need(
    nodes: tuple[int, int],
    gpus: int,
    by_node: str,
    cpus: int,
    memory_mb: int,
    need: tuple[int, int],
) -> None:
    texts = {"per_node": by_node, "per_job": "" if by_node else f"gres/gpu:{gpus}"}
    resources = replace(RIGID.resources, nodes=nodes, tasks=cpus, **texts)
    job = replace(RIGID, gpus=gpus, cpus=cpus, memory_mb=memory_mb, resources=resources)
    each = Cluster(tuple(Node(f"n{at}", "a100", 4, 32, 64_000) for at in range(4)), "test")
    found = with_enough_nodes(requested(job), each, None)
    assert (found.least_nodes, found.default_count) == need
    assert found.counts == RequirementSet.rigid(need[1])
    assert found.cpus_per_gpu * need[1] >= cpus
    assert found.memory_mb_per_gpu * need[1] >= memory_mb


def test_nodes_on_which_a_job_may_not_run_say_nothing_of_how_many_it_needs() -> None:
    resources = replace(RIGID.resources, nodes=(1, 10), tasks=10, per_node="gres/gpu:1")
    job = replace(RIGID, gpus=1, cpus=10, memory_mb=80_000, resources=resources)
    small = [Node(f"n{at}", "a100", 4, 32, 64_000) for at in range(3)]
    cluster = Cluster((*small, Node("big", "a100", 4, 32, 512_000)), "test")
    assert with_enough_nodes(requested(job), cluster, None).least_nodes == 1
    where = frozenset(node.name for node in small)
    assert with_enough_nodes(requested(job), cluster, where).least_nodes == 2


def test_a_job_with_a_set_that_runs_already_has_the_count_that_it_runs_on() -> None:
    # Of what runs Slurm shows no number of nodes.
    resources = replace(RIGID.resources, nodes=(1, 0), per_node="gres/gpu:2")
    seen = replace(running(WAITING, "n0", "n1", gpus=4), cpus=8, resources=resources)
    found = requested(replace(seen, mark=WAITING.mark.replace("1,2", "2,4")))
    assert (found.default_count, found.cpus_per_gpu) == (4, 2)


# -- shapes ----------------------------------------------------------------------------------------

FOURS = (*(node(name) for name in ("n0", "n1")), replace(node("n2"), gpus=(("t4", 4),)))


ONE_ON_EACH = {"gpus": 3, "on_each": 1, "nodes": (3, 3)}


def rigid(**asks: Any) -> SlurmJob:
    """A job without a set that asks for GPUs and nodes like this."""
    nodes, gpus, on_each = asks.get("nodes", (1, 0)), asks["gpus"], asks.get("on_each", 0)
    per_node = f"gres/gpu:{on_each}" if on_each else ""
    per_job = "" if on_each else f"gres/gpu:{gpus}"
    resources = Resources(nodes, nodes[0], per_job, per_node, "", "")
    return replace(RIGID, gpus=gpus, resources=resources)


LIVE = [name for name in policy_names() if make_policy(name).info.live]
MIXING = ("fifo", "hadar", "hlas-slots", "las", "sjf", "srtf", "steady")
"""Those that give GPUs of several types to one job."""


@pytest.mark.parametrize(
    ("policy", "asks", "nodes"),
    [
        *((name, {"gpus": 5}, ("n0", "n1")) for name in LIVE if name != "hadare"),
        # It needs two nodes anyhow.
        *((name, {"gpus": 7, "nodes": (2, 3)}, ("n0", "n1")) for name in LIVE if name != "hadare"),
        *((name, {"gpus": 9}, ("n0", "n1", "n2")) for name in MIXING),
        *((name, ONE_ON_EACH, ("n0", "n1", "n2")) for name in MIXING),
    ],
)
def test_a_job_without_a_set_that_fits_in_no_even_shape_is_placed_as_slurm_spreads_it(
    policy: str, asks: dict[str, Any], nodes: tuple[str, ...]
) -> None:
    site = Site(rigid(**asks), nodes=FOURS, policy=policy)
    calls = site.cycle(2)
    assert {job: set(where) for job, where in places(calls).items()} == {"5": set(nodes)}


def test_a_large_node_on_which_a_job_may_not_run_says_nothing_of_how_it_is_spread() -> None:
    job = replace(rigid(gpus=7, nodes=(2, 3)), excluded=("n3",))
    site = Site(job, nodes=(*FOURS, replace(node("n3"), gpus=(("v100", 8),))))
    assert places(site.cycle()) == {"5": ("n0", "n1")}


def test_of_a_range_of_nodes_slurm_is_told_how_many_those_of_the_plan_are() -> None:
    job = rigid(gpus=2, on_each=1, nodes=(2, 3))
    site = Site(job, nodes=FOURS)
    (entry,) = site.cycle()
    assert isinstance(entry, Enter)
    assert (entry.nodes, entry.resources) == (("n0", "n1"), Resources(nodes=(2, 2)))
    assert entry.otherwise.resources == Resources(nodes=(2, 3))
    # Without `--nodes` Slurm shows as many as there are tasks for the most.
    tasks = replace(job, resources=replace(job.resources, nodes=(1, 4), tasks=4))
    (entry,) = Site(tasks, nodes=FOURS).cycle()
    assert isinstance(entry, Enter)
    assert entry.resources is None


def test_a_job_that_has_to_be_in_like_parts_and_cannot_waits() -> None:
    site = Site(rigid(gpus=5, nodes=(3, 3)), nodes=FOURS)
    assert site.cycle() == []
    assert not site.world.jobs["5"].job.shapes


# -- in the daemon ---------------------------------------------------------------------------------

JOB = replace(WAITING, mark='hetsched/2 {"nonce":"a1","gpu-set":"2,6,8"}', gpus=2)
EIGHT = replace(node("n0"), gpus=(("v100", 8),))


def site_of(job: SlurmJob, limits: GpuLimits) -> Site:
    """A daemon with one job on one node of eight GPUs."""
    site = Site(job, nodes=(EIGHT,))
    site.backend.where = SlurmSite(30.0, {"gpu": None}, limits)
    return site


def gpus_of(calls: list[Change]) -> str | None:
    """The GPUs on each node of the only placement."""
    (change,) = calls
    assert isinstance(change, Enter)
    assert change.resources is not None
    return change.resources.per_node


def test_a_job_is_not_placed_with_a_count_that_its_qos_forbids() -> None:
    assert gpus_of(site_of(replace(JOB, qos="normal"), FOUR).cycle()) == "gres/gpu:v100:6"
    site = site_of(replace(JOB, qos="small"), FOUR)
    assert gpus_of(site.cycle()) == "gres/gpu:v100:2"
    words = "its counts 6,8 are left out: QOS small: MaxTRESPerJob allows 4 GPUs"
    assert site.report.warnings == (f"job=1: {words}",)


def test_a_job_that_may_have_none_of_its_counts_waits_until_the_limit_is_raised() -> None:
    mark = JOB.mark.replace('"gpu-set":"2,6,8"', '"gpu-set":"8"')
    site = site_of(replace(JOB, qos="small", mark=mark, gpus=8), FOUR)
    assert site.cycle() == []
    assert site.blocked().code is ReasonCode.QUOTA
    # Where the limits cannot be read, the last ones hold.
    for limits in (None, GpuLimits()):
        site.backend.where = replace(site.backend.where, limits=limits)
        site.clock.now += 400.0
        calls = site.cycle()
        assert bool(calls) is (limits is not None)
    assert gpus_of(calls) == "gres/gpu:v100:8"


def test_a_running_job_is_left_alone_when_its_limit_is_lowered_below_it() -> None:
    runs = running(replace(JOB, qos="small"), "n0", since_s=950.0, gpus=8)
    site = site_of(runs, GpuLimits())
    site.see(runs, nodes=(replace(EIGHT, gpus_used=(("v100", 8),)),))
    site.backend.where = replace(site.backend.where, limits=FOUR)
    site.clock.now += 400.0
    assert site.cycle() == []
    assert site.world.jobs["1"].job.requirements == RequirementSet((2, 8))
    # Once it has ended that run, it gets no such count again.
    site.show(replace(JOB, qos="small", restarts=1), nodes=(EIGHT,))
    site.daemon.cycle()
    assert site.world.jobs["1"].job.requirements == RequirementSet((2,))


def test_a_waiting_job_that_changes_its_qos_comes_under_the_other_limit() -> None:
    job = replace(JOB, held=True)
    site = site_of(job, FOUR)
    for qos, counts in (("normal", (2, 6, 8)), ("small", (2,))):
        site.see(replace(job, qos=qos))
        assert site.world.jobs["1"].job.requirements == RequirementSet(counts)


def test_types_are_weighed_anew_when_the_cluster_changes() -> None:
    job = replace(JOB, mark=JOB.mark.replace('"2,6,8"', '"2","gpu-mem":"40G"'))
    site = site_of(job, GpuLimits())
    assert site.cycle() == []
    assert site.world.jobs["1"].job.gpu_types == frozenset()
    large = replace(EIGHT, name="n1", gpus=(("a100", 8),))
    assert ("n1",) in places(site.see(job, nodes=(EIGHT, large))).values()


def test_a_job_that_a_limit_on_several_jobs_keeps_back_is_tried_again_after_a_while() -> None:
    site = site_of(JOB, GpuLimits())
    site.cycle()
    (back,) = site.see(replace(placed(JOB, "n0"), reason="QOSMaxGRESPerUser"), seconds=1)
    assert isinstance(back, Leave)
    assert site.see(JOB, seconds=50) == []
    entry = site.daemon.plan.entries["1"]
    assert isinstance(entry, Waiting)
    assert str(entry.reason).endswith(
        "a limit of its account, QOS or array is reached: QOSMaxGRESPerUser"
    )
    assert isinstance(site.until_called(15)[1][0], Enter)


@pytest.mark.parametrize(
    ("said", "tried"), [("QOSMaxJobsPerUserLimit", False), ("QOSMaxGRESPerUser", True)]
)
def test_beside_one_that_a_limit_keeps_back_a_smaller_one_is_tried_if_that_is_on_gpus(
    said: str, tried: bool
) -> None:
    large, small = replace(RIGID, id="1", gpus=2), replace(RIGID, id="2", submit_s=950.0)
    site = Site(large)
    site.cycle()
    site.see(replace(placed(large, "n0"), reason=said), seconds=1)
    assert ("2" in places(site.see(large, small, seconds=5))) is tried


def test_jobs_under_a_limit_of_several_together_leave_the_gpus_to_others() -> None:
    """Three hundred jobs of a user that Slurm lets have one, and behind them one of another."""
    mine = [replace(RIGID, id=str(number), user="a", account="x") for number in range(10, 310)]
    other = replace(RIGID, id="900", user="b", account="y", submit_s=990.0)
    every = {job.id: job for job in (*mine, other)}
    site, there, began, made = Site(*every.values()), dict(every), math.inf, 0
    for _ in range(60):
        for call in site.cycle(1):
            made += 1
            if isinstance(call, Enter):
                entered = placed(every[call.job], *call.nodes)
                there[call.job] = replace(entered, reason="QOSMaxJobsPerUserLimit")
            else:
                there[call.job] = every[call.job]
        there["900"] = replace(there["900"], reason="None")
        if there["900"].entered:
            began = min(began, site.clock.now)
        site.show(*there.values())
    assert began < 1010.0
    assert made < 25
