"""Whatever Slurm shows of some nodes and jobs, the loop goes on and all others are placed.

The ordinary part is a cluster with room on which two jobs wait, one node of each of two types. The
odd part is what a real Slurm was seen to show, and what none should.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hetsched_core.policy import make_policy, policy_names
from hetsched_core.types import ExecutionModel, NodeCondition
from slurm_plugin.backend import (
    Enter,
    HostRequest,
    JobState,
    Resources,
    SlurmJob,
    SlurmNode,
    SlurmState,
)
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import HOLD, SETTINGS, WAITING, Clock, daemon_of, node

GANGS = [
    name
    for name in policy_names()
    if (info := make_policy(name).info).live and info.model is ExecutionModel.GANG
]

MARK = WAITING.mark
ORDINARY = (
    replace(WAITING, id="1"),
    replace(WAITING, id="2", mark=MARK.replace("a1", "a2"), submit_s=901.0),
)
ROOM = tuple(
    replace(node(name), gpus=((kind, 64),), cpus=640)
    for name, kind in (("n0", "v100"), ("n9", "t4"))
)

TIMES = st.sampled_from([0.0, -5.0, 10.0, 990.0, 1e6, 1e18, math.nan, math.inf])
COUNTS = st.sampled_from([0, 1, 2, 4, 7, -1, 5000])
NODES = st.sampled_from(["n0", "n1", "n2", "n3", "gone", ""])
TYPES = st.sampled_from(["v100", "t4", "gpu", ""])
RESOURCES = [
    Resources((1, 0), 1, "gres/gpu:1", "", "", ""),
    Resources((3, 2), 0, "", "gres/gpu:a100:2", "x", ""),
    Resources((0, 0), -1, "", "", "", "gres/gpu:1"),
    Resources(),
]
MARKS = [
    "",
    "somebody else's",
    "hetsched/2 ",
    "hetsched/2 []",
    "hetsched/2 {}",
    MARK.replace("a1", "c3"),
    # Twice the same nonce.
    MARK,
    MARK.replace("1,2", "1-8"),
    MARK.replace("1,2", "4096"),
    MARK.replace('"1,2"', '"1,2","submitted":NaN'),
    MARK.replace('"1,2"', '"1,2","submitted":1e300'),
    MARK.replace('"1,2"', '"1,2","total-samples":NaN'),
    MARK.replace('"1,2"', '"1,2","total-samples":-1'),
    MARK.replace('"1,2"', '"1,2","learning-rate":-1'),
    MARK.replace('"1,2"', '"1,2","learning-rate":NaN'),
    MARK.replace('"1,2"', '"1,2","gpu-types":"tpu"'),
    MARK.replace('"1,2"', '"1,2","gpu-mem":"40G"'),
    MARK.replace('"1,2"', '"1,2","gpu-shapes":"any","elements":3'),
    MARK.replace('"1,2"', '"1,2","copies":2,"elements":2,"can-checkpoint":true'),
    MARK.replace('"1,2"', '"1,2","can-checkpoint":true'),
]


@st.composite
def odd_nodes(draw: st.DrawFn) -> SlurmNode:
    """A node of which something is odd; it never stands in the way of the ordinary jobs' nodes."""
    several = st.lists(st.tuples(TYPES, COUNTS), max_size=2)
    return SlurmNode(
        name=draw(st.sampled_from(["n1", "n1", "n2", "n3", ""])),
        condition=draw(st.sampled_from(NodeCondition)),
        gpus=draw(st.one_of(st.just((("v100", 4),)), several.map(tuple))),
        gpus_used=tuple(draw(several)),
        cpus=draw(st.sampled_from([32, 0, -1, 10**9])),
        cpus_used=draw(st.sampled_from([0, 8, 64, -8])),
        memory_mb=draw(st.sampled_from([64000, 0, -1])),
        memory_used_mb=draw(st.sampled_from([0, 10**9, -1])),
        partitions=draw(st.sampled_from([None, frozenset({"gpu"}), frozenset({"cpu"})])),
    )


@st.composite
def odd_jobs(draw: st.DrawFn) -> SlurmJob:
    """A job of which something is odd; where it runs on an ordinary node, it is small."""
    array = draw(st.sampled_from(["", "", "", "20"]))
    number = draw(st.sampled_from(["3", "4", "5", "6", "0", "12+0", "x", ""]))
    element = draw(st.integers(0, 2)) if array else 0
    held = draw(st.lists(NODES, max_size=3, unique=True))
    return SlurmJob(
        id=f"{array}_{element}" if array else number,
        name=draw(st.sampled_from(["job", "\x00\ud800", ""])),
        user=draw(st.sampled_from(["ann", "", "0"])),
        account="lab",
        partition=draw(st.sampled_from(["gpu", "cpu", ""])),
        partitions=draw(st.sampled_from([("gpu",), ("gpu",), ("cpu",), ("gpu", "cpu"), ()])),
        state=draw(st.sampled_from(JobState)),
        reason=draw(st.sampled_from(["None", "", "launch failed", "Dependency", "QOSGrpGRES"])),
        mark=draw(st.sampled_from(MARKS)),
        nodes=tuple(held),
        pinned=tuple(draw(st.lists(NODES, max_size=2))),
        gpus=len(held) if "n0" in held else draw(COUNTS),
        gpu_types=tuple(draw(st.lists(TYPES, max_size=2))),
        resources=draw(st.sampled_from(RESOURCES)),
        memory_mb=draw(st.sampled_from([0, 10**9, -1])),
        reservation=draw(st.sampled_from(["", "", HOLD, "other"])),
        batch=draw(st.booleans()),
        constraint=draw(st.sampled_from(["", "", "fast", "[a*2&b*1]", "((", "a|"])),
        excluded=tuple(draw(st.lists(NODES, max_size=2))),
        exclusive=draw(st.sampled_from(["", "node"])),
        priority=draw(st.sampled_from([0, 1, 2**32])),
        throttle=draw(st.sampled_from([0, 1, -1])),
        het_job=draw(st.sampled_from(["", "", "12"])),
        submit_s=draw(TIMES),
        begin_s=draw(st.none() | TIMES),
        start_s=draw(st.none() | TIMES),
        end_s=draw(st.none() | TIMES),
        time_limit_s=draw(st.none() | TIMES),
        restarts=draw(st.sampled_from([0, 0, 3, -1])),
        held=draw(st.booleans()),
        asked=draw(
            st.sampled_from(
                [HostRequest(), HostRequest(8), HostRequest(0, 10**9), HostRequest(-1, -1, -1)]
            )
        ),
        cpus=draw(st.sampled_from([0, 8, -1])),
        qos=draw(st.sampled_from(["", "normal"])),
        array=array,
        element=element,
        unsplit=draw(st.sampled_from([(), (), (0, 1, 2)])) if array else (),
        dependency=draw(st.sampled_from(["", "afternotok:20_0(unfulfilled)"])),
        outcome=draw(st.sampled_from(["", "COMPLETED", "CANCELLED", "NODE_FAIL"])),
    )


STATES = st.lists(
    st.tuples(st.lists(odd_nodes(), max_size=3), st.lists(odd_jobs(), max_size=5)),
    min_size=1,
    max_size=4,
)


def shown(nodes: list[SlurmNode], jobs: list[SlurmJob]) -> SlurmState:
    odd = {job.id: job for job in jobs}
    return SlurmState((*ROOM, *nodes), odd | {job.id: job for job in ORDINARY})


@pytest.mark.parametrize("policy", ["fifo", "las", "steady"])
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
@given(states=STATES)
def test_odd_nodes_and_jobs_keep_no_ordinary_job_from_being_placed(
    policy: str, states: list[tuple[list[SlurmNode], list[SlurmJob]]]
) -> None:
    backend, clock = FakeBackend(), Clock()
    daemon = daemon_of(backend, clock, make_policy(policy))
    for nodes, jobs in states:
        if policy == "fifo":
            # One that waits for a whole node rightly keeps those behind it waiting.
            jobs = [replace(job, exclusive="") for job in jobs]
        backend.state = shown(nodes, jobs)
        report = daemon.cycle()
        assert report.away == ""
        clock.now += SETTINGS.round_s
    assert {"1", "2"} <= {change.job for change in report.changes if isinstance(change, Enter)}
