"""What limits and the memory of GPUs leave of a job's wishes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

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
    SlurmJob,
    SlurmSite,
)
from slurm_plugin.daemon import Daemon
from slurm_plugin.daemon.accepted import accepted
from slurm_plugin.daemon.request import Request
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    RIGID,
    WAITING,
    Clock,
    daemon_of,
    node,
    placed,
    requested,
    running,
    state,
)

FOUR = GpuLimits(qos={"small": {"MaxTRESPerJob": 4}})
CLUSTER = Cluster((Node("n0", "a100", 8), Node("n1", "t4", 4), Node("n2", "abacus", 4)), "test")


def job_of(options: str) -> Request:
    """A job of some options, as JSON."""
    return requested(replace(WAITING, mark=f'hetsched/2 {{"nonce":"a",{options}}}'))


def test_without_limits_a_job_is_accepted_as_it_is() -> None:
    job = job_of('"gpu-set":"2,8","gpu-types":"t4"')
    found = accepted(job, CLUSTER, None, None)
    assert (found.requirements, found.gpu_types) == (RequirementSet((2, 8)), frozenset({"t4"}))
    assert (found.refused, found.warning) == (None, "")


def test_counts_beyond_the_limit_are_left_out_with_a_word() -> None:
    job = job_of('"gpu-set":"2,4,6,8"')
    found = accepted(job, CLUSTER, GpuLimit(4, "QOS small: MaxTRESPerJob"), None)
    assert found.requirements == RequirementSet((2, 4))
    assert found.warning == "its counts 6,8 are left out: QOS small: MaxTRESPerJob allows 4 GPUs"
    assert found.refused is None


def test_a_job_whose_least_count_is_beyond_the_limit_is_told_so() -> None:
    job = job_of('"gpu-set":"6,8"')
    found = accepted(job, CLUSTER, GpuLimit(4, "account lab: GrpTRES"), None)
    assert found.requirements == RequirementSet((6, 8))
    detail = "account lab: GrpTRES allows 4 GPUs, its least count is 6"
    assert found.refused == Reason(ReasonCode.QUOTA, detail=detail)


def test_what_a_running_job_holds_stays_accepted() -> None:
    job = job_of('"gpu-set":"2,4,8","gpu-mem":"20G"')
    held = Configuration.of({"n0": 8})
    found = accepted(job, CLUSTER, GpuLimit(2, "QOS small: MaxTRESPerJob"), held)
    assert found.requirements == RequirementSet((2, 8))
    held = Configuration.of({"n1": 4})
    found = accepted(job, CLUSTER, None, held)
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
    job = job_of(f'"gpu-set":"1","gpu-mem":"{memory}"{only}')
    found = accepted(job, CLUSTER, None, None)
    assert found.gpu_types == frozenset(left)
    assert found.warning == (
        "it may be placed on abacus, of whose memory nothing is known" if "abacus" in left else ""
    )


# -- in the daemon ---------------------------------------------------------------------------------

JOB = replace(WAITING, mark='hetsched/2 {"nonce":"a1","gpu-set":"2,6,8"}', gpus=2)
EIGHT = replace(node("n0"), gpus=(("v100", 8),))


def daemon_on(job: SlurmJob, limits: GpuLimits, clock: Clock) -> tuple[FakeBackend, Daemon]:
    """A daemon with one job on one node of eight GPUs."""
    backend = FakeBackend(state(job, nodes=(EIGHT,)))
    backend.where = SlurmSite(30.0, {"gpu": None}, limits)
    return backend, daemon_of(backend, clock)


def gpus_of(change: Change) -> str | None:
    """The GPUs on each node of a placement."""
    assert isinstance(change, Enter)
    assert change.resources is not None
    return change.resources.per_node


def test_a_job_is_not_placed_with_a_count_that_its_qos_forbids() -> None:
    free, daemon = daemon_on(replace(JOB, qos="normal"), FOUR, Clock())
    daemon.cycle()
    (chosen,) = free.calls
    assert gpus_of(chosen) == "gres/gpu:v100:6"
    bound, daemon = daemon_on(replace(JOB, qos="small"), FOUR, Clock())
    report = daemon.cycle()
    (chosen,) = bound.calls
    assert gpus_of(chosen) == "gres/gpu:v100:2"
    assert report.warnings == (
        "job=1: its counts 6,8 are left out: QOS small: MaxTRESPerJob allows 4 GPUs",
    )
    assert daemon.cycle().warnings == ()


def test_a_job_that_may_have_none_of_its_counts_waits_until_the_limit_is_raised() -> None:
    clock = Clock()
    mark = JOB.mark.replace('"gpu-set":"2,6,8"', '"gpu-set":"8"')
    job = replace(JOB, qos="small", mark=mark, gpus=8)
    backend, daemon = daemon_on(job, FOUR, clock)
    daemon.cycle()
    assert backend.calls == []
    entry = daemon.plan.entries["1"]
    assert isinstance(entry, Waiting)
    assert entry.reason.code is ReasonCode.QUOTA
    # Where the limits cannot be read, the last ones hold.
    backend.where = replace(backend.where, limits=None)
    clock.now += 400.0
    daemon.cycle()
    assert backend.calls == []
    backend.where = replace(backend.where, limits=GpuLimits())
    clock.now += 400.0
    daemon.cycle()
    (chosen,) = backend.calls
    assert gpus_of(chosen) == "gres/gpu:v100:8"


def test_a_running_job_is_left_alone_when_its_limit_is_lowered_below_it() -> None:
    clock = Clock()
    runs = running(replace(JOB, qos="small"), "n0", since_s=950.0, gpus=8)
    backend, daemon = daemon_on(runs, GpuLimits(), clock)
    busy = replace(EIGHT, gpus_used=(("v100", 8),))
    backend.state = state(runs, nodes=(busy,))
    assert daemon.cycle().violations == ()
    backend.where = replace(backend.where, limits=FOUR)
    clock.now += 400.0
    report = daemon.cycle()
    assert (report.violations, backend.calls) == ((), [])
    assert daemon.world.jobs["1"].job.requirements == RequirementSet((2, 8))
    # Once it has ended that run, it gets no such count again.
    backend.state = state(replace(JOB, qos="small", restarts=1), nodes=(EIGHT,))
    daemon.cycle()
    assert daemon.world.jobs["1"].job.requirements == RequirementSet((2,))


def test_a_waiting_job_that_changes_its_qos_comes_under_the_other_limit() -> None:
    backend, daemon = daemon_on(replace(JOB, qos="normal", held=True), FOUR, Clock())
    daemon.cycle()
    assert daemon.world.jobs["1"].job.requirements == RequirementSet((2, 6, 8))
    backend.state = state(replace(JOB, qos="small", held=True), nodes=(EIGHT,))
    daemon.cycle()
    assert daemon.world.jobs["1"].job.requirements == RequirementSet((2,))


def test_types_are_weighed_anew_when_the_cluster_changes() -> None:
    job = replace(JOB, mark=JOB.mark.replace('"2,6,8"', '"2","gpu-mem":"40G"'))
    backend, daemon = daemon_on(job, GpuLimits(), Clock())
    daemon.cycle()
    assert backend.calls == []
    assert daemon.world.jobs["1"].job.gpu_types == frozenset()
    large = replace(EIGHT, name="n1", gpus=(("a100", 8),))
    backend.state = state(job, nodes=(EIGHT, large))
    daemon.cycle()
    (chosen,) = backend.calls
    assert isinstance(chosen, Enter)
    assert chosen.nodes == ("n1",)


def test_a_job_that_a_limit_on_several_jobs_keeps_back_is_tried_again_after_a_while() -> None:
    clock = Clock()
    backend, daemon = daemon_on(JOB, GpuLimits(), clock)
    daemon.cycle()
    denied = replace(placed(JOB, "n0"), reason="QOSMaxGRESPerUser")
    backend.state = state(denied, nodes=(EIGHT,))
    clock.now += 1.0
    daemon.cycle()
    assert [type(call) for call in backend.calls] == [Enter, Leave]
    backend.state = state(JOB, nodes=(EIGHT,))
    for _ in range(50):
        clock.now += 1.0
        daemon.cycle()
    entry = daemon.plan.entries["1"]
    assert isinstance(entry, Waiting)
    assert str(entry.reason).endswith(
        "a limit of its account, QOS or array is reached: QOSMaxGRESPerUser"
    )
    assert [type(call) for call in backend.calls] == [Enter, Leave]
    for _ in range(15):
        clock.now += 1.0
        daemon.cycle()
        if len(backend.calls) > 2:
            break
    assert [type(call) for call in backend.calls] == [Enter, Leave, Enter]


def test_jobs_under_a_limit_of_several_together_leave_the_gpus_to_others() -> None:
    """Three hundred jobs of a user that Slurm lets have one, and behind them one of another."""
    clock = Clock()
    mine = [replace(RIGID, id=str(number), user="a", account="x") for number in range(10, 310)]
    other = replace(RIGID, id="900", user="b", account="y", submit_s=990.0)
    nodes = (node("n0"),)
    backend = FakeBackend(state(*mine, other, nodes=nodes))
    daemon = daemon_of(backend, clock)
    began = math.inf
    for _ in range(180):
        there: dict[str, SlurmJob] = {job.id: job for job in (*mine, other)}
        for call in backend.calls:
            if isinstance(call, Enter):
                there[call.job] = placed(there[call.job], *call.nodes)
            elif isinstance(call, Leave):
                there[call.job] = next(job for job in (*mine, other) if job.id == call.job)
        for job in there.values():
            if job.entered and job.user == "a":
                there[job.id] = replace(job, reason="QOSMaxJobsPerUserLimit")
        if there["900"].entered:
            began = min(began, clock.now)
        backend.state = state(*there.values(), nodes=nodes)
        daemon.cycle()
        clock.now += 1.0
    assert began < 1010.0
    assert len(backend.calls) < 60
