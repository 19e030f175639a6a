"""Jobs for the testbed, and waiting for what becomes of them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_plugin.backend import JobState, SlurmBackend, SlurmJob
from slurm_plugin.testbed import Testbed, TestbedError
from slurm_plugin.testbed.processes import wait_until

SCRIPT = """\
#!/bin/bash
#HETSCHED {options}
#SBATCH --open-mode=append
saved={folder}/$SLURM_JOB_ID.saved
done=$(cat $saved 2>/dev/null || echo 0)
trap '{saving}; echo $done >$saved; exit 0' TERM
echo "$SLURM_JOB_NODELIST $SLURM_GPUS_ON_NODE ${{SLURM_RESTART_COUNT:-0}} $HETSCHED_NONCE $done"
while [ $done -lt {steps} ]; do sleep 0.1; done=$((done + 1)); done
echo $done >$saved
"""
"""A job of steps of 0.1 s, which saves how many it has done when it is told to stop, or ends."""

SLACK = 4.0
"""Deadlines are meant for a quick machine that is idle; another may take so many times as long."""


def deadline(timeout_s: float) -> float:
    """Return when, on the monotonic clock, nobody need wait any longer."""
    return time.monotonic() + SLACK * timeout_s


@dataclass(frozen=True, slots=True)
class Told:
    """What a run of a job saw from inside."""

    nodes: str
    gpus_per_node: int
    restarts: int
    nonce: str
    steps_done: int


@dataclass(frozen=True, slots=True)
class Submitter:
    """Submits jobs to a testbed; each leaves its output in `folder`."""

    cluster: Testbed
    folder: Path

    def submit(self, options: str, *sbatch: str, seconds: float = 60, saving: str = ":") -> str:
        """Submit a job that notes down where it runs, and return its id.

        `saving` is what it does, in shell, before it saves and ends.
        """
        script = self.folder / "job.sh"
        text = SCRIPT.format(
            options=options,
            folder=self.folder,
            steps=int(seconds * 10),
            saving=saving,
        )
        script.write_text(text)
        out = f"--output={self.folder}/%j.out"
        words: list[str | Path] = ["--parsable", out, f"--error={self.folder}/%j.err", *sbatch]
        return self.cluster.command("sbatch", *words, script).strip()

    def told(self, job: str) -> list[Told]:
        path = self.folder / f"{job}.out"
        lines = path.read_text().splitlines() if path.exists() else []
        return [
            Told(nodes, int(gpus), int(restarts), nonce, int(done))
            for nodes, gpus, restarts, nonce, done in map(str.split, lines)
        ]


def await_job(
    backend: SlurmBackend,
    job: str,
    wanted: Callable[[SlurmJob], bool],
    timeout_s: float = 30.0,
) -> SlurmJob:
    latest = deadline(timeout_s)
    while True:
        seen = backend.read().jobs.get(job)
        if seen is not None and wanted(seen):
            return seen
        if time.monotonic() > latest:
            pytest.fail(f"job {job} is still {seen}")
        time.sleep(0.1)


def end_all(cluster: Testbed) -> None:
    """Leave no job behind, nor what keeps nodes, and wait until their GPUs are free."""
    # Arrays by the number that all of their elements have.
    if left := set(cluster.command("squeue", "--noheader", "--format=%F").split()):
        for how in (("--state=RUNNING", "--full", "--signal=KILL"), ()):
            # Some may end by themselves meanwhile.
            with suppress(TestbedError):
                cluster.command("scancel", *how, *left)
        wait_until(lambda: not cluster.command("squeue", "--noheader"), "an empty queue", 120)
    kept = cluster.command("scontrol", "show", "reservation", "--oneliner")
    for name in re.findall(r"ReservationName=(\S+)", kept):
        with suppress(TestbedError):
            cluster.command("scontrol", "delete", f"ReservationName={name}")


def await_hold(cluster: Testbed) -> None:
    """Wait until a daemon holds the nodes, so that nothing starts that it does not place."""
    wait_until(
        lambda: "State=ACTIVE" in cluster.command("scontrol", "show", "reservation", "--oneliner"),
        "the nodes to be held",
        120,
    )


def is_back(testbed: Testbed, node: str) -> bool:
    """Whether a node is up, once it has been told to be."""
    with suppress(TestbedError):
        # It is already, or not yet done with being down.
        testbed.command("scontrol", "update", f"node={node}", "state=resume")
    # A line for each partition, where these differ in anything that Slurm tells.
    said = testbed.command("sinfo", "-h", f"--nodes={node}", "--format=%T").split()
    return set(said) == {"idle"}


def is_in(backend: SlurmBackend, state: JobState, *jobs: str) -> Callable[[], bool]:
    def asked() -> bool:
        shown = backend.read().jobs
        # Elements that Slurm keeps as one are not shown one by one.
        return all(job in shown and shown[job].state is state for job in jobs)

    return asked


def running(job: SlurmJob) -> bool:
    return job.state is JobState.RUNNING


def pending(job: SlurmJob) -> bool:
    return job.state is JobState.PENDING
