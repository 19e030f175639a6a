"""`why` where Slurm has the word, on a real one: the right words, and what change would help.

What a policy alone decides is in tests/hetsched_core/explain/test_why.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from immutables import Map

from hetsched_core.policy import PolicyInfo
from hetsched_core.store import IN_MEMORY, Mode, Store
from hetsched_core.types import (
    Configuration,
    JobView,
    Placed,
    Placement,
    Plan,
    Reason,
    ReasonCode,
    Replan,
    Snapshot,
    Trigger,
    Waiting,
)
from slurm_plugin.api.answers import Peer
from slurm_plugin.api.telemetry import Telemetry
from slurm_plugin.backend import JobState, open_backend
from slurm_plugin.daemon import Daemon, DaemonMode
from slurm_plugin.daemon.configuration import DaemonConfiguration
from slurm_plugin.testbed import Installation, Testbed, fake_nodes
from tests.slurm_plugin.clusters import under_limits
from tests.slurm_plugin.daemon.test_daemon_live import daemon_of
from tests.slurm_plugin.jobs import deadline, end_all
from tests.slurm_plugin.submit.asking import sbatch

pytestmark = pytest.mark.slurm

ROOT = Peer("root", admin=True)


@pytest.fixture(scope="module")
def cluster(installation: Installation, testbed: Testbed) -> Iterator[Testbed]:
    """Two nodes of four a100 and one of four t4 between them, under limits."""
    del testbed
    tell = ("add qos each MaxTRESPerUser=gres/gpu=3", "modify user root set qos=normal,each")
    with under_limits(installation, fake_nodes(3, "a100:4,t4:4"), *tell) as found:
        yield found


SETTINGS = DaemonConfiguration(
    partitions=frozenset({"gpu"}),
    round_s=3600.0,
    grace_s=20.0,
    start_timeout_s=3600.0,
    mode=DaemonMode.ENFORCE,
)


@dataclass(frozen=True)
class Scene:
    """A daemon under fifo on the cluster, and those who ask it."""

    cluster: Testbed
    daemon: Daemon
    telemetry: Telemetry

    def submit(self, *words: str | Path) -> str:
        return sbatch(self.cluster, *words)

    def until(self, holds: Callable[[], bool], timeout_s: float = 40.0) -> None:
        latest = deadline(timeout_s)
        while True:
            report = self.daemon.cycle()
            assert report.violations == ()
            self.telemetry.note(self.daemon, report)
            if holds():
                return
            assert time.monotonic() < latest, "it has not come about in time"
            time.sleep(0.2)

    def runs(self, *jobs: str) -> bool:
        managed = self.daemon.world.managed
        return all(job in managed and managed[job].slurm.state is JobState.RUNNING for job in jobs)

    def ask(self, question: str, job: str = "") -> dict[str, Any]:
        return self.telemetry.publisher.answer({"ask": question, "job": job}, ROOT)

    def why(self, job: str) -> dict[str, Any]:
        return self.ask("why", job)

    def view(self, job: str) -> JobView:
        return self.daemon.world.jobs[job]

    def events(self, job: str) -> list[tuple[str, str]]:
        return [
            (each["event"], each["detail"])
            for each in self.ask("history", job)["jobs"][-1]["events"]
        ]

    def squeue(self, job: str) -> str:
        words = ("--noheader", f"--jobs={job}", "--format=%T %r")
        return self.cluster.command("squeue", *words).strip()

    def known(self, *jobs: str) -> Callable[[], bool]:
        """Whether the daemon knows jobs, and has planned for them."""
        return lambda: all(job in self.daemon.plan.entries for job in jobs)


@pytest.fixture
def scene(cluster: Testbed) -> Iterator[Scene]:
    """No jobs; what a test leaves behind is gone after it."""
    # pyslurm stays with the cluster for which it was loaded first in this process.
    backend = open_backend("commands")
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        daemon = daemon_of(backend, store=store, settings=SETTINGS)
        telemetry = Telemetry(SETTINGS, time.time(), lambda: store, time.perf_counter)
        yield Scene(cluster, daemon, telemetry)
    telemetry.close()
    end_all(cluster)
    cluster.await_idle()


SLEEP = "--wrap=sleep 600"


def codes(said: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the reasons of an answer: code and horizon."""
    return [(reason["code"], reason["horizon"]) for reason in said["reasons"]]


def test_what_waits_as_slurm_shows_it(scene: Scene) -> None:
    array = scene.submit("--gpus=a100:4", "--array=0-299%3", SLEEP)
    scene.until(scene.known(f"{array}_2"))
    scene.until(lambda: scene.runs(f"{array}_0", f"{array}_1"))
    waits = scene.why(f"{array}_2")
    assert waits["reasons"][0]["code"] == "no_room"
    assert waits["slurm"] == scene.squeue(f"{array}_2").partition(" ")[2]
    (behind,) = scene.why(f"{array}_299")["reasons"]
    assert behind["code"] == "ahead"
    assert "of which at most 3 run at a time" in behind["sentence"]
    # There is no room for it beside what the idle GPUs need.
    many = scene.submit("--ntasks=96", "--nodes=3", SLEEP)
    scene.until(lambda: scene.why(many)["slurm"].startswith("ReqNodeNotAvail"))
    assert codes(scene.why(many)) == [("not_planned", "not yet")]


def test_a_drained_node(scene: Scene) -> None:
    update = ("scontrol", "update", "nodename=n1")
    # What is down returns by itself, where its slurmd has yet to come back to a new slurmctld.
    scene.cluster.command(*update, "state=drain", "reason=test")
    try:
        job = scene.submit("--gpu-set=2", "--gpu-types=t4", SLEEP)
        scene.until(scene.known(job))
        said = scene.why(job)
        assert ("nodes_down", "not yet") in codes(said)
        assert any(r["sentence"].endswith(": n1") for r in said["reasons"])
        assert said["would_help"] == ["1 or 2 or 4 or 8 GPUs on a100 would start now"]
    finally:
        # Without cycles the hold ends, and Slurm starts what waits as it was submitted.
        end_all(scene.cluster)
        # Slurm refuses to resume a node that has come back by itself.
        scene.cluster.command(*update, "state=idle")
        scene.cluster.await_idle()


def test_what_slurm_keeps_back(scene: Scene) -> None:
    first = scene.submit("--qos=each", "--gpu-set=2", SLEEP)
    quick = scene.submit("--gpu-set=1", "--wrap=true")
    scene.until(lambda: scene.runs(first))
    kept = ("--gpu-set=2", "--kill-on-invalid-dep=no", SLEEP)
    wanted = {
        scene.submit("--hold", *kept): ("held", "not yet"),
        scene.submit(f"--dependency=afterany:{first}", *kept): ("dependency", "not yet"),
        # Its end was no failure, which this one would have needed.
        scene.submit(f"--dependency=afternotok:{quick}", *kept): ("dependency_never", "never"),
        scene.submit("--qos=each", *kept): ("quota", "not yet"),
    }
    scene.until(scene.known(*wanted))
    scene.until(lambda: all(codes(scene.why(job)) == [code] for job, code in wanted.items()))
    for job in wanted:
        assert scene.why(job)["would_help"] == []
    (reason,) = scene.why(job)["reasons"]
    limit = "a limit of its account, QOS or array is reached: QOSMaxGRESPerUser"
    assert reason["sentence"].endswith(limit)


def test_placed_and_not_started_yet(scene: Scene) -> None:
    partition = ("scontrol", "update", "partition=gpu")
    jobs = [scene.submit("--gpu-set=2", "--gpu-types=a100", SLEEP) for _ in range(2)]
    scene.cluster.command(*partition, "state=down")
    try:
        scene.until(lambda: all(view.runs for view in map(scene.view, jobs)))
        placed_s = scene.ask("status")["at_s"]
        scene.until(lambda: scene.ask("status")["at_s"] > placed_s + 3.0)
        assert {scene.squeue(job) for job in jobs} == {"PENDING PartitionDown"}
        assert scene.ask("status")["jobs"] == {"placed": 2}
        for row in scene.ask("queue")["jobs"]:
            told = row["state"], row["phase"], row["ran_s"], row["reason"], len(row["nodes"])
            assert told == ("PL", "placed", 0.0, "placed", 1)
            assert row["waited_s"] > 3.0
        for job in jobs:
            view, now = scene.view(job), scene.ask("status")["at_s"]
            assert (view.service_at(now), view.first_start_s) == (0.0, None)
            assert codes(scene.why(job)) == [("placed", "not yet")]
            assert scene.events(job)[-1][0] == "placed"
        scene.cluster.command("scancel", jobs[0])
        scene.until(lambda: scene.events(jobs[0])[-1][0] == "left")
        assert scene.events(jobs[0])[-1] == ("left", "without having run")
    finally:
        scene.cluster.command(*partition, "state=up")
    scene.until(lambda: scene.runs(jobs[1]))
    assert scene.ask("status")["jobs"] == {"running": 1}
    assert scene.events(jobs[1])[-1][0] == "runs"
    first_start_s = scene.view(jobs[1]).first_start_s
    assert first_start_s is not None
    assert first_start_s > placed_s + 2.0


@dataclass
class Mover:
    """A policy that places one job on n0, and moves it to n2 for a second one once there is one."""

    info: ClassVar[PolicyInfo] = PolicyInfo("mover", "moves", "")
    first: str
    second: str = ""

    def plan(self, snapshot: Snapshot) -> Plan:
        there = self.second in snapshot.jobs
        where = {self.first: "n2" if there else "n0", self.second: "n0"}
        entries = {
            job: Placed((Placement(Configuration.of({where[job]: 4})),))
            if job in where
            else Waiting(Reason(ReasonCode.AHEAD))
            for job in snapshot.jobs
        }
        return Plan(Map(entries), replan=Replan(on=frozenset(Trigger)))


SLOW = """\
#!/bin/bash
trap 'sleep 5; exit 0' TERM
while true; do sleep 0.2; done
"""
"""A job that takes a while to save its state."""


def test_a_restart_pending_and_the_grace_time_of_the_one_whose_gpus_it_gets(
    scene: Scene, tmp_path: Path
) -> None:
    words = ("--gpu-set=4", "--gpu-types=a100", "--can-checkpoint")
    script = tmp_path / "slow.sh"
    script.write_text(SLOW)
    first = scene.submit(*words, script)
    mover = Mover(first)
    scene.daemon.adopt(mover, SETTINGS, DaemonMode.ENFORCE)
    scene.until(lambda: scene.runs(first))
    second = mover.second = scene.submit(*words, SLEEP)

    def leaves() -> bool:
        known = scene.daemon.world.managed.get(first)
        return known is not None and known.slurm.state is JobState.COMPLETING

    scene.until(leaves)
    moved, waits = scene.why(first), scene.why(second)
    assert ("restarting", "not yet") in codes(moved)
    assert moved["holds"] == {"n2": 4}
    assert codes(waits) == [("grace", "not yet")]
    assert waits["reasons"][0]["behind"] == [first]
    assert waits["holds"] == {"n0": 4}
