"""`why` in twelve situations, on a real Slurm: the right words, and what change would help."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from hetsched_core.policy import Policy, PolicyInfo, make_policy
from hetsched_core.store import IN_MEMORY, Store
from hetsched_core.store import Mode as StoreMode
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
from slurm_plugin.api.audience import Audience
from slurm_plugin.backend import JobState, SlurmBackend, open_backend
from slurm_plugin.daemon import Daemon, Mode
from slurm_plugin.daemon.configuration import Configuration as DaemonConfiguration
from slurm_plugin.testbed import Installation, Testbed, fake_nodes
from tests.slurm_plugin.jobs import deadline, end_all

pytestmark = pytest.mark.slurm

ROOT = Peer("root", admin=True)


@pytest.fixture(scope="module")
def cluster(installation: Installation, testbed: Testbed) -> Iterator[Testbed]:
    """Two nodes of four a100 and one of four t4 between them, under limits.

    The testbed of all tests is brought up before it, so that its variables are what comes back.
    """
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        nodes = fake_nodes(3, "a100:4,t4:4")
        found = Testbed.create(installation, Path(name) / "slurm", nodes)
        with pytest.MonkeyPatch.context() as patch:
            try:
                found.up()
                for variable, value in found.environment().items():
                    patch.setenv(variable, value)
                tell = ("sacctmgr", "--immediate")
                found.command(*tell, "add", "qos", "each", "MaxTRESPerUser=gres/gpu=3")
                found.command(*tell, "modify", "user", "root", "set", "qos=normal,each")
                # Under limits Slurm takes no name into a reservation that has no association.
                found.command(*tell, "add", "user", "daemon", "account=root")
                with found.layout.slurm_conf.open("a") as conf:
                    conf.write("AccountingStorageEnforce=limits,qos\n")
                found.stop_controller()
                found.start_controller()
                found.await_idle()
                yield found
            finally:
                found.down()


@dataclass
class Scene:
    """A daemon on the cluster, and those who ask it."""

    cluster: Testbed
    backend: SlurmBackend
    folder: Path
    store: Store
    audiences: list[Audience]
    daemon: Daemon | None = None

    def submit(self, *words: str, wrap: str = "sleep 600") -> str:
        """Submit a job, and return its id."""
        out = f"--output={self.folder}/%j.out"
        return self.cluster.command("sbatch", "--parsable", out, *words, f"--wrap={wrap}").strip()

    def begin(self, policy: Policy | str = "fifo", **more: Any) -> None:
        """Let a daemon begin."""
        settings = DaemonConfiguration(
            partitions=frozenset({"gpu"}),
            round_s=3600.0,
            grace_s=20.0,
            policy=policy if isinstance(policy, str) else "fifo",
            mode=Mode.ENFORCE,
            **more,
        )
        if isinstance(policy, str):
            policy = make_policy(policy, settings.parameters)
        self.daemon = Daemon(
            self.backend,
            policy,
            settings,
            mode=Mode.ENFORCE,
            clock=time.time,
            sleep=time.sleep,
            store=self.store,
            stopwatch=time.perf_counter,
        )
        self.audiences.append(
            Audience(settings, time.time(), lambda: self.store, time.perf_counter)
        )
        # From now on the nodes are held, so that Slurm starts nothing by itself.
        self.until(lambda: True)

    def until(self, holds: Callable[[], bool], timeout_s: float = 40.0) -> None:
        """Run cycles until something holds."""
        assert self.daemon is not None
        latest = deadline(timeout_s)
        while True:
            report = self.daemon.cycle()
            assert report.violations == ()
            self.audiences[-1].note(self.daemon, report)
            if holds():
                return
            assert time.monotonic() < latest, "it has not come about in time"
            time.sleep(0.2)

    def runs(self, *jobs: str) -> bool:
        """Whether jobs run, as the daemon sees it."""
        assert self.daemon is not None
        seen = {job: self.daemon.world.jobs.get(job) for job in jobs}
        return all(
            view is not None and view.configuration is not None for view in seen.values()
        ) and (all(self.daemon.world.managed[job].slurm.state is JobState.RUNNING for job in jobs))

    def ask(self, question: str, job: str = "") -> dict[str, Any]:
        """Ask the daemon."""
        return self.audiences[-1].publisher.answer({"ask": question, "job": job}, ROOT)

    def why(self, job: str) -> dict[str, Any]:
        """Ask why a job waits."""
        return self.ask("why", job)

    def view(self, job: str) -> JobView:
        """Return a job as policies see it."""
        assert self.daemon is not None
        return self.daemon.world.jobs[job]

    def events(self, job: str) -> list[tuple[str, str]]:
        """Return what the daemon's history tells of a job."""
        return [
            (each["event"], each["detail"])
            for each in self.ask("history", job)["jobs"][-1]["events"]
        ]

    def squeue(self, job: str) -> str:
        """Return the state and the reason that Slurm shows."""
        return self.cluster.command(
            "squeue", "--noheader", f"--jobs={job}", "--format=%T %r"
        ).strip()

    def known(self, *jobs: str) -> Callable[[], bool]:
        """Whether the daemon knows jobs, and has planned for them."""
        daemon = self.daemon
        assert daemon is not None
        return lambda: all(job in daemon.plan.entries for job in jobs)


@pytest.fixture
def scene(cluster: Testbed, tmp_path: Path) -> Iterator[Scene]:
    """No jobs; what a test leaves behind is gone after it."""
    # pyslurm stays with the cluster for which it was loaded first in this process.
    with Store.open(IN_MEMORY, StoreMode.WRITE) as store:
        found = Scene(cluster, open_backend("commands"), tmp_path, store, [])
        yield found
    for audience in found.audiences:
        audience.close()
    end_all(cluster)
    cluster.await_idle()


KEPT = ("--kill-on-invalid-dep=no",)


def codes(said: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the reasons of an answer: code and horizon."""
    return [(reason["code"], reason["horizon"]) for reason in said["reasons"]]


def test_what_waits_as_slurm_shows_it(scene: Scene) -> None:
    scene.begin()
    array = scene.submit("--gpus=a100:4", "--array=0-299%3")
    scene.until(scene.known(f"{array}_2"))
    scene.until(lambda: scene.runs(f"{array}_0", f"{array}_1"))
    waits = scene.why(f"{array}_2")
    assert waits["reasons"][0]["code"] == "no_room"
    assert waits["slurm"] == scene.squeue(f"{array}_2").partition(" ")[2]
    (behind,) = scene.why(f"{array}_299")["reasons"]
    assert behind["code"] == "ahead"
    assert "of which at most 3 run at a time" in behind["sentence"]
    # There is no room for it beside what the idle GPUs need.
    many = scene.submit("--ntasks=96", "--nodes=3")
    scene.until(lambda: scene.why(many)["slurm"].startswith("ReqNodeNotAvail"))
    assert codes(scene.why(many)) == [("not_planned", "not yet")]


def test_too_big(scene: Scene) -> None:
    scene.begin()
    big = scene.submit("--gpu-set=12")
    scene.until(scene.known(big))
    said = scene.why(big)
    assert codes(said) == [("never_fits", "never")]
    why = "it accepts 12 GPUs, all of one type; there are 8 a100 and 4 t4"
    assert why in said["reasons"][0]["sentence"]
    assert any("GPU" in text and "would start now" in text for text in said["would_help"])


def test_a_drained_node(scene: Scene) -> None:
    update = ("scontrol", "update", "nodename=n1")
    # What is down returns by itself, where its slurmd has yet to come back to a new slurmctld.
    scene.cluster.command(*update, "state=drain", "reason=test")
    try:
        scene.begin()
        job = scene.submit("--gpu-set=2", "--gpu-types=t4")
        scene.until(scene.known(job))
        said = scene.why(job)
        assert ("nodes_down", "not yet") in codes(said)
        assert any(r["sentence"].endswith(": n1") for r in said["reasons"])
        assert said["would_help"] == ["1 or 2 or 4 or 8 GPUs on a100 would start now"]
    finally:
        # Slurm refuses to resume a node that has come back by itself.
        scene.cluster.command(*update, "state=idle")
        scene.cluster.await_idle()


def test_behind_others(scene: Scene) -> None:
    scene.begin()
    large = [scene.submit("--gpu-set=3", "--gpu-types=a100") for _ in range(2)]
    scene.until(lambda: scene.runs(*large))
    first = scene.submit("--gpu-set=4", "--gpu-types=a100")
    second = scene.submit("--gpu-set=1", "--gpu-types=a100")
    scene.until(scene.known(first, second))
    said = scene.why(second)
    assert ("ahead", "behind") in codes(said)
    # Under fifo it waits behind the first wherever that could run; t4 is free.
    assert said["would_help"] == ["1 or 2 or 4 GPUs on t4 would start now"]


def test_a_fragment(scene: Scene) -> None:
    scene.begin()
    three = scene.submit("--gpu-set=3", "--gpu-types=a100")
    scene.until(lambda: scene.runs(three))
    one = scene.submit("--gpu-set=3", "--gpu-types=a100")
    scene.until(lambda: scene.runs(one))
    job = scene.submit("--gpu-set=4", "--gpu-types=a100")
    scene.until(scene.known(job))
    said = scene.why(job)
    assert codes(said) == [("no_room", "not yet")]
    assert said["reasons"][0]["sentence"].endswith("free: 2 a100, 1 on one node")
    assert "1 or 2 GPUs on a100 would start now" in said["would_help"]


def test_held_by_its_user(scene: Scene) -> None:
    scene.begin()
    job = scene.submit("--gpu-set=1", "--hold")
    scene.until(scene.known(job))
    said = scene.why(job)
    assert codes(said) == [("held", "not yet")]
    assert said["would_help"] == []


def test_a_dependency(scene: Scene) -> None:
    scene.begin()
    first = scene.submit("--gpu-set=1")
    job = scene.submit("--gpu-set=1", f"--dependency=afterany:{first}")
    never = scene.submit(
        "--gpu-set=1", f"--dependency=afternotok:{first}", "--kill-on-invalid-dep=no"
    )
    scene.until(lambda: scene.runs(first) and scene.known(job, never)())
    assert codes(scene.why(job)) == [("dependency", "not yet")]
    # Its end was no failure, which the other one would have needed.
    quick = scene.submit("--gpu-set=1", wrap="true")
    lost = scene.submit(
        "--gpu-set=1", f"--dependency=afternotok:{quick}", "--kill-on-invalid-dep=no"
    )
    scene.until(
        lambda: scene.known(lost)() and codes(scene.why(lost)) == [("dependency_never", "never")]
    )


def test_a_quota(scene: Scene) -> None:
    scene.begin()
    first = scene.submit("--qos=each", "--gpu-set=2")
    scene.until(lambda: scene.runs(first))
    job = scene.submit("--qos=each", "--gpu-set=2")
    scene.until(lambda: scene.known(job)() and codes(scene.why(job)) == [("quota", "not yet")])
    (reason,) = scene.why(job)["reasons"]
    assert reason["sentence"].endswith(
        "a limit of its account, QOS or array is reached: QOSMaxGRESPerUser"
    )


def test_placed_and_not_started_yet(scene: Scene) -> None:
    partition = ("scontrol", "update", "partition=gpu")
    scene.begin(start_timeout_s=3600.0)
    jobs = [scene.submit("--gpu-set=2", "--gpu-types=a100") for _ in range(2)]
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


def test_a_type_refused(scene: Scene) -> None:
    scene.begin()
    job = scene.submit("--gpu-set=1", "--gpu-types=t4,a100", "--gpu-mem=48G")
    scene.until(scene.known(job))
    said = scene.why(job)
    assert codes(said) == [("never_fits", "never")]
    assert "no GPU type of this cluster is what it asks for" in said["reasons"][0]["sentence"]


def test_below_the_window(scene: Scene) -> None:
    from immutables import Map

    scene.begin("hops", parameters=Map({"window": "0.5", "profile_iterations": "0"}))
    jobs = [scene.submit("--gpu-set=4") for _ in range(7)]
    scene.until(scene.known(*jobs))
    found = [codes(scene.why(job)) for job in jobs]
    assert any(("below_window", "behind") in each for each in found)


@dataclass(frozen=True)
class Mover:
    """A policy that moves one job from a node to another, and gives its place to a second one."""

    info: ClassVar[PolicyInfo] = PolicyInfo("mover", "moves", "")
    first: str = ""
    second: str = ""

    def plan(self, snapshot: Snapshot) -> Plan:
        """Place the first job on n0; once there is a second one, that, and the first on n2."""
        there = self.second in snapshot.jobs
        where = {self.first: "n2" if there else "n0", self.second: "n0"}
        entries = {
            job: Placed((Placement(Configuration.of({where[job]: 4})),))
            if job in where
            else Waiting(Reason(ReasonCode.AHEAD))
            for job in snapshot.jobs
        }
        from immutables import Map

        return Plan(Map(entries), replan=Replan(on=frozenset(Trigger)))


SLOW = "trap 'sleep 5; exit 0' TERM; while true; do sleep 0.2; done"
"""A job that takes a while to save its state."""


@pytest.fixture
def moving(scene: Scene) -> tuple[Scene, str, str]:
    """A job that is being moved away from n0, and the one that is to have its place."""
    words = ("--gpu-set=4", "--gpu-types=a100", "--can-checkpoint")
    script = scene.folder / "slow.sh"
    script.write_text(f"#!/bin/bash\n{SLOW}\n")
    out = f"--output={scene.folder}/%j.out"
    scene.begin()
    first = scene.cluster.command("sbatch", "--parsable", out, *words, script).strip()
    scene.begin(Mover(first=first))
    scene.until(lambda: scene.runs(first))
    second = scene.submit(*words)
    scene.begin(Mover(first=first, second=second))
    daemon = scene.daemon
    assert daemon is not None

    def leaves() -> bool:
        known = daemon.world.managed.get(first)
        return known is not None and known.slurm.state is JobState.COMPLETING

    scene.until(leaves)
    return scene, first, second


def test_a_restart_pending(moving: tuple[Scene, str, str]) -> None:
    scene, first, _ = moving
    said = scene.why(first)
    assert ("restarting", "not yet") in codes(said)
    assert said["holds"] == {"n2": 4}


def test_grace_time(moving: tuple[Scene, str, str]) -> None:
    scene, first, second = moving
    said = scene.why(second)
    assert codes(said) == [("grace", "not yet")]
    assert said["reasons"][0]["behind"] == [first]
    assert said["holds"] == {"n0": 4}


def test_profiling(scene: Scene, tmp_path: Path) -> None:
    from immutables import Map

    spool = tmp_path / "spool"
    spool.mkdir()
    scene.begin("hops", spool=spool, parameters=Map({"profile_limit_s": "600"}))
    holds = scene.submit("--gpu-set=4", "--gpu-types=t4")
    scene.until(lambda: scene.runs(holds))
    job = scene.submit("--gpu-set=1,2", "--profile-key=new", "--can-checkpoint")
    daemon = scene.daemon
    assert daemon is not None
    scene.until(lambda: bool(daemon.plan.profiles) and scene.known(job)())
    assert codes(scene.why(job))[0] == ("profiling", "not yet")
