"""What limits and the memory of GPUs leave of a job's wishes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from slurm_plugin.daemon.mark import Mark, read_mark

from hetsched_core.policy import make_policy
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
    GpuLimit,
    GpuLimits,
    JobState,
    Park,
    Place,
    SlurmJob,
    SlurmNode,
    SlurmSite,
    SlurmState,
)
from slurm_plugin.daemon import Daemon, DaemonSettings, Mode
from slurm_plugin.daemon.accepted import accepted
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import WAITING, Clock, node

FOUR = GpuLimits(qos={"small": {"MaxTRESPerJob": 4}})
CLUSTER = Cluster((Node("n0", "a100", 8), Node("n1", "t4", 4), Node("n2", "abacus", 4)), "test")


def mark_of(text: str) -> Mark:
    """A mark of some options, as JSON."""
    mark = read_mark(f'hetsched/1 {{"nonce":"a",{text}}}')
    assert mark is not None
    return mark


def test_without_limits_a_job_is_accepted_as_it_is() -> None:
    mark = mark_of('"default":2,"gpu-set":"2,8","gpu-types":"t4"')
    found = accepted(mark, CLUSTER, None, None)
    assert (found.requirements, found.gpu_types) == (RequirementSet((2, 8)), frozenset({"t4"}))
    assert (found.refused, found.warning) == (None, "")


def test_counts_beyond_the_limit_are_left_out_with_a_word() -> None:
    mark = mark_of('"default":2,"gpu-set":"2,4,6,8"')
    found = accepted(mark, CLUSTER, GpuLimit(4, "QOS small: MaxTRESPerJob"), None)
    assert found.requirements == RequirementSet((2, 4))
    assert found.warning == "its counts 6,8 are left out: QOS small: MaxTRESPerJob allows 4 GPUs"
    assert found.refused is None


def test_a_job_whose_least_count_is_beyond_the_limit_is_told_so() -> None:
    mark = mark_of('"default":6,"gpu-set":"6,8"')
    found = accepted(mark, CLUSTER, GpuLimit(4, "account lab: GrpTRES"), None)
    assert found.requirements == RequirementSet((6, 8))
    detail = "account lab: GrpTRES allows 4 GPUs, its least count is 6"
    assert found.refused == Reason(ReasonCode.QUOTA, detail=detail)


def test_what_a_running_job_holds_stays_accepted() -> None:
    mark = mark_of('"default":2,"gpu-set":"2,4,8","gpu-mem":"20G"')
    held = Configuration.of({"n0": 8})
    found = accepted(mark, CLUSTER, GpuLimit(2, "QOS small: MaxTRESPerJob"), held)
    assert found.requirements == RequirementSet((2, 8))
    held = Configuration.of({"n1": 4})
    found = accepted(mark, CLUSTER, None, held)
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
    mark = mark_of(f'"default":1,"gpu-set":"1","gpu-mem":"{memory}","gpu-types":"{types}"')
    found = accepted(mark, CLUSTER, None, None)
    assert found.gpu_types == frozenset(left)
    assert found.warning == (
        "it may be placed on abacus, of whose memory nothing is known" if "abacus" in left else ""
    )


# -- in the daemon ---------------------------------------------------------------------------------

JOB = replace(
    WAITING, mark='hetsched/1 {"nonce":"a1","default":2,"gpu-set":"2,6,8"}', gpus_per_node=2
)
EIGHT = SlurmNode("n0", node("n0").condition, (("v100", 8),), (), 32, 0, 64000, 0)


def daemon_on(job: SlurmJob, limits: GpuLimits, clock: Clock) -> tuple[FakeBackend, Daemon]:
    """A daemon with one job on one node of eight GPUs."""
    backend = FakeBackend(SlurmState((EIGHT,), {job.id: job}))
    backend.where = SlurmSite(30.0, {"gpu": None}, limits)
    settings = DaemonSettings(partitions=frozenset({"gpu"}))
    daemon = Daemon(
        backend,
        make_policy("fifo"),
        settings,
        mode=Mode.ENFORCE,
        clock=clock,
        sleep=lambda _: None,
    )
    return backend, daemon


def test_a_job_is_not_placed_with_a_count_that_its_qos_forbids() -> None:
    free, daemon = daemon_on(replace(JOB, qos="normal"), FOUR, Clock())
    daemon.cycle()
    (chosen,) = free.calls
    assert isinstance(chosen, Place)
    assert chosen.gpus_per_node == 6
    bound, daemon = daemon_on(replace(JOB, qos="small"), FOUR, Clock())
    report = daemon.cycle()
    (chosen,) = bound.calls
    assert isinstance(chosen, Place)
    assert chosen.gpus_per_node == 2
    assert report.warnings == (
        "job=1: its counts 6,8 are left out: QOS small: MaxTRESPerJob allows 4 GPUs",
    )
    assert daemon.cycle().warnings == ()


def test_a_job_that_may_have_none_of_its_counts_waits_until_the_limit_is_raised() -> None:
    clock = Clock()
    mark = JOB.mark.replace('"default":2,"gpu-set":"2,6,8"', '"default":8,"gpu-set":"8"')
    job = replace(JOB, qos="small", mark=mark, gpus_per_node=8)
    backend, daemon = daemon_on(job, FOUR, clock)
    daemon.cycle()
    assert backend.calls == []
    entry = daemon.plan.entries["1"]
    assert isinstance(entry, Waiting)
    assert entry.reason.code is ReasonCode.QUOTA
    # Where the limits cannot be read, the last ones hold.
    backend.where = replace(backend.where, limits=None)
    clock.now += 400.0
    backend.state = SlurmState((EIGHT,), {"1": replace(job, begin_s=clock.now + 60)})
    daemon.cycle()
    assert backend.calls == []
    backend.where = replace(backend.where, limits=GpuLimits())
    clock.now += 400.0
    backend.state = SlurmState((EIGHT,), {"1": replace(job, begin_s=clock.now + 60)})
    daemon.cycle()
    (chosen,) = backend.calls
    assert isinstance(chosen, Place)
    assert chosen.gpus_per_node == 8


def test_a_running_job_is_left_alone_when_its_limit_is_lowered_below_it() -> None:
    clock = Clock()
    runs = replace(
        JOB, qos="small", state=JobState.RUNNING, reason="None", nodes=("n0",), pinned=("n0",)
    )
    runs = replace(runs, gpus_per_node=8, start_s=950.0)
    backend, daemon = daemon_on(runs, GpuLimits(), clock)
    busy = replace(EIGHT, gpus_used=(("v100", 8),))
    backend.state = SlurmState((busy,), {"1": runs})
    assert daemon.cycle().violations == ()
    backend.where = replace(backend.where, limits=FOUR)
    clock.now += 400.0
    report = daemon.cycle()
    assert (report.violations, backend.calls) == ((), [])
    assert daemon.world.jobs["1"].job.requirements == RequirementSet((2, 8))
    # Once it has ended that run, it gets no such count again.
    backend.state = SlurmState((EIGHT,), {"1": replace(JOB, qos="small", restarts=1)})
    daemon.cycle()
    assert daemon.world.jobs["1"].job.requirements == RequirementSet((2,))


def test_a_waiting_job_that_changes_its_qos_comes_under_the_other_limit() -> None:
    backend, daemon = daemon_on(replace(JOB, qos="normal", held=True), FOUR, Clock())
    daemon.cycle()
    assert daemon.world.jobs["1"].job.requirements == RequirementSet((2, 6, 8))
    backend.state = SlurmState((EIGHT,), {"1": replace(JOB, qos="small", held=True)})
    daemon.cycle()
    assert daemon.world.jobs["1"].job.requirements == RequirementSet((2,))


def test_types_are_weighed_anew_when_the_cluster_changes() -> None:
    job = replace(JOB, mark=JOB.mark.replace('"2,6,8"', '"2","gpu-mem":"40G"'))
    backend, daemon = daemon_on(job, GpuLimits(), Clock())
    daemon.cycle()
    assert backend.calls == []
    assert daemon.world.jobs["1"].job.gpu_types == frozenset()
    large = SlurmNode("n1", EIGHT.condition, (("a100", 8),), (), 32, 0, 64000, 0)
    backend.state = SlurmState((EIGHT, large), {"1": job})
    daemon.cycle()
    (chosen,) = backend.calls
    assert isinstance(chosen, Place)
    assert chosen.nodes == ("n1",)


def test_a_job_that_a_limit_on_several_jobs_keeps_back_is_tried_again_after_a_while() -> None:
    clock = Clock()
    backend, daemon = daemon_on(JOB, GpuLimits(), clock)
    daemon.cycle()
    denied = replace(JOB, pinned=("n0",), gpus_per_node=6, begin_s=1000.0)
    denied = replace(denied, reason="QOSMaxGRESPerUser")
    backend.state = SlurmState((EIGHT,), {"1": denied})
    clock.now += 1.0
    daemon.cycle()
    assert [type(call) for call in backend.calls] == [Place, Park]
    for _ in range(50):
        backend.state = SlurmState((EIGHT,), {"1": replace(JOB, begin_s=clock.now + 60)})
        clock.now += 1.0
        daemon.cycle()
    entry = daemon.plan.entries["1"]
    assert isinstance(entry, Waiting)
    assert str(entry.reason).endswith("a limit of its account or QOS is reached: QOSMaxGRESPerUser")
    assert [type(call) for call in backend.calls] == [Place, Park]
    for _ in range(15):
        backend.state = SlurmState((EIGHT,), {"1": replace(JOB, begin_s=clock.now + 60)})
        clock.now += 1.0
        daemon.cycle()
        if len(backend.calls) > 2:
            break
    assert [type(call) for call in backend.calls] == [Place, Park, Place]
