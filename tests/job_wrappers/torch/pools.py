"""Pools with real members and a real scheduler, as processes on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any

from hetsched_core.cli import main
from job_wrappers.executor import TaskJob
from job_wrappers.executor.rounds import Rounds
from job_wrappers.pool import PoolFolder, result
from slurm_plugin.pool import create
from tests.job_wrappers.torch.test_executor import JOBS
from tests.job_wrappers.worlds import ROOT

DEADLINE_S = 300.0

STANDBY = "--standby=1"
"""Importing torch is most of what these tests do, and what stands by at the end was for nothing."""


def training(make: str, name: str, rounds: int, scale: int = 1, **arguments: Any) -> TaskJob:
    return TaskJob(name, f"{JOBS}:{make}", rounds, scale, seed=3, arguments=arguments)


def wait_until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}"
        time.sleep(0.05)


class LivePool(AbstractContextManager["LivePool"]):
    """A pool's folder and the processes of it that this test has started."""

    def __init__(self, path: Path, policy: str = "hlas", **parameters: str) -> None:
        self.path = path
        create(path, policy, parameters)
        self.folder = PoolFolder(path)
        self.processes: list[subprocess.Popen[bytes]] = []

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def start(self, *words: str, rank: int = 1) -> subprocess.Popen[bytes]:
        """Start Python with these words."""
        command = [sys.executable, *words]
        environment = {**os.environ, "RANK": str(rank), "LOCAL_RANK": "0", "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, cwd=ROOT, env=environment)
        self.processes.append(process)
        return process

    def member(self, gpu_type: str = "v100") -> subprocess.Popen[bytes]:
        words = (
            "-m",
            "job_wrappers.pool",
            str(self.path),
            "--device=cpu",
            f"--gpu-type={gpu_type}",
            STANDBY,
        )
        return self.start(*words, "--member")

    def scheduler(self) -> subprocess.Popen[bytes]:
        return self.start("-m", "tests.job_wrappers.torch.pools", str(self.path))

    def lines(self) -> list[dict[str, Any]]:
        """Return what all members have told, each in its order, with whose line it is."""
        found = []
        for path in sorted((self.path / "outcomes").glob("*.jsonl")):
            found += [{"member": path.stem, **json.loads(line)} for line in _whole(path)]
        return found

    def trained(self) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["what"] == "trained"]

    def begun(self) -> set[tuple[str, int]]:
        """Return the rounds of which a task has begun, by training."""
        return {(t["job"], t["round"]) for t in self.lines() if t["what"] == "began"}

    def members(self) -> list[Path]:
        return sorted((self.path / "members").glob("*.json"))

    def await_members(self, count: int) -> None:
        wait_until(lambda: len(self.members()) == count, f"{count} members")

    def await_results(self, jobs: list[TaskJob]) -> None:
        names = [job.name for job in jobs]
        wait_until(
            lambda: all(result(self.path, name) for name in names),
            f"the ends of {', '.join(names)}",
        )

    def final(self, job: TaskJob) -> Any:
        return Rounds(self.folder.rounds / job.name, job.scale).state(job.rounds)

    def turns(self) -> int:
        """Return how often a member has gone from one training to another."""
        jobs = defaultdict(list)
        for line in self.trained():
            jobs[line["member"]].append(line["job"])
        return sum(a != b for own in jobs.values() for a, b in pairwise(own))


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def _whole(path: Path) -> list[str]:
    text = path.read_text()
    return text[: text.rfind("\n") + 1].splitlines()


if __name__ == "__main__":
    sys.exit(main(["pool", "schedule", *sys.argv[1:]]))
