"""`why` where Slurm has the word, on a real one: the right words.

What a policy alone decides is in tests/hetsched_core/explain/test_why.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from hetsched_core.store import IN_MEMORY, Mode, Store
from slurm_plugin.api.answers import Peer
from slurm_plugin.api.telemetry import Telemetry
from slurm_plugin.backend import JobState, SlurmBackend
from slurm_plugin.daemon import Daemon, DaemonMode
from slurm_plugin.daemon.process.configuration import DaemonConfiguration
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.jobs import deadline, end_all
from tests.slurm_plugin.live import daemon_of
from tests.slurm_plugin.submit.asking import sbatch

pytestmark = pytest.mark.slurm

ROOT = Peer("root", admin=True)
SLEEP = "--wrap=sleep 600"

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

    def submit(self, *words: str) -> str:
        return sbatch(self.cluster, *words)

    def until(self, holds: Callable[[], bool]) -> None:
        latest = deadline(40.0)
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

    def known(self, *jobs: str) -> bool:
        """Whether the daemon has planned for jobs."""
        return all(job in self.daemon.plan.entries for job in jobs)

    def ask(self, question: str, job: str = "") -> dict[str, Any]:
        return self.telemetry.publisher.answer({"ask": question, "job": job}, ROOT)

    def why(self, job: str) -> dict[str, Any]:
        return self.ask("why", job)

    def codes(self, job: str) -> list[tuple[str, str]]:
        """Return the reasons of an answer: code and horizon."""
        return [(reason["code"], reason["horizon"]) for reason in self.why(job)["reasons"]]

    def last(self, job: str) -> tuple[str, str]:
        """Return the last event of a job's history."""
        event = self.ask("history", job)["jobs"][-1]["events"][-1]
        return event["event"], event["detail"]

    def squeue(self, job: str) -> str:
        words = ("--noheader", f"--jobs={job}", "--format=%T %r")
        return self.cluster.command("squeue", *words).strip()


@pytest.fixture
def scene(testbed: Testbed, backend: SlurmBackend) -> Iterator[Scene]:
    """No jobs; what a test leaves behind is gone after it."""
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        daemon = daemon_of(backend, store=store, settings=SETTINGS)
        telemetry = Telemetry(SETTINGS, time.time(), lambda: store, time.perf_counter)
        yield Scene(testbed, daemon, telemetry)
    telemetry.close()
    end_all(testbed)


def test_what_slurm_keeps_back_has_its_word(scene: Scene) -> None:
    first = scene.submit("--gpu-set=2", "--gpu-types=v100", SLEEP)
    quick = scene.submit("--gpu-set=1", "--wrap=true")
    array = scene.submit("--gpus=a100:4", "--array=0-299%3", SLEEP)
    scene.until(lambda: scene.runs(first, f"{array}_0", f"{array}_1"))
    kept = ("--gpu-set=2", "--kill-on-invalid-dep=no", SLEEP)
    wanted = {
        scene.submit("--hold", *kept): ("held", "not yet"),
        scene.submit(f"--dependency=afterany:{first}", *kept): ("dependency", "not yet"),
        # Its end was no failure, which this one would have needed.
        scene.submit(f"--dependency=afternotok:{quick}", *kept): ("dependency_never", "never"),
        # There is no room for it beside what the idle GPUs need.
        scene.submit("--ntasks=192", "--nodes=6", SLEEP): ("not_planned", "not yet"),
    }
    *held, many = wanted
    scene.until(lambda: scene.known(f"{array}_2", *held))
    scene.until(lambda: all(scene.codes(job) == [code] for job, code in wanted.items()))
    for job in held:
        assert scene.why(job)["would_help"] == []
    scene.until(lambda: scene.why(many)["slurm"].startswith("ReqNodeNotAvail"))
    waits = scene.why(f"{array}_2")
    assert waits["reasons"][0]["code"] == "no_room"
    assert waits["slurm"] == scene.squeue(f"{array}_2").partition(" ")[2]
    (behind,) = scene.why(f"{array}_299")["reasons"]
    assert behind["code"] == "ahead"
    assert "of which at most 3 run at a time" in behind["sentence"]


def test_what_is_placed_and_not_started_yet_is_said_to_be(scene: Scene) -> None:
    partition = ("scontrol", "update", "partition=gpu")
    jobs = [scene.submit("--gpu-set=2", "--gpu-types=a100", SLEEP) for _ in range(2)]
    scene.cluster.command(*partition, "state=down")
    try:
        scene.until(lambda: {scene.squeue(job) for job in jobs} == {"PENDING PartitionDown"})
        scene.until(lambda: scene.ask("status")["jobs"] == {"placed": 2})
        for job in jobs:
            assert scene.codes(job) == [("placed", "not yet")]
            assert scene.last(job)[0] == "placed"
        scene.cluster.command("scancel", jobs[0])
        scene.until(lambda: scene.last(jobs[0]) == ("left", "without having run"))
    finally:
        scene.cluster.command(*partition, "state=up")
    scene.until(lambda: scene.runs(jobs[1]))
    assert scene.ask("status")["jobs"] == {"running": 1}
    assert scene.last(jobs[1])[0] == "runs"
